"""What pods died of, and what is said about them."""

from __future__ import annotations

from typing import Any

from ditk_ray.config.terms import FailureKind
from ditk_ray.kube.pods import warnings_about, why_dead


def test_a_pod_that_used_up_its_deadline_says_so_whatever_its_container_ended_with() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "Error"}}
    status = {
        "phase": "Failed",
        "reason": "DeadlineExceeded",
        "containerStatuses": [{"name": "di-container", "state": ended}],
    }
    death = why_dead({"metadata": {"name": "pod"}, "status": status})
    assert death is not None and death.kind is FailureKind.STALL
    assert "activeDeadlineSeconds" in death.text


def test_the_newest_warning_is_first_however_exactly_its_time_is_written() -> None:
    def warning(reason: str, **times: str) -> dict[str, Any]:
        about = {"kind": "Pod", "name": "pod"}
        return {"involvedObject": about, "reason": reason, "message": "m", **times}

    early = warning("Early", lastTimestamp="2026-01-01T00:00:00Z")
    late = warning("Late", eventTime="2026-01-01T00:00:00.500000Z")
    assert warnings_about([early, late], ["pod"]) == ["pod pod: Late: m", "pod pod: Early: m"]
