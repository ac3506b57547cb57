"""Where KubeRay's definitions are missing, tests are skipped only where they may be."""

from __future__ import annotations

import pytest

from tests.kube import kuberay_crds


@pytest.mark.parametrize("folder", [None, "nowhere"])
def test_missing_definitions_fail_the_tests_where_all_have_to_run(
    folder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if folder is None:
        monkeypatch.delenv("DITK_RAY_CRDS", raising=False)
    else:
        monkeypatch.setenv("DITK_RAY_CRDS", folder)
    monkeypatch.delenv("DITK_RAY_REQUIRE_KUBE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="DITK_RAY_CRDS"):
        kuberay_crds._crd_files()
    monkeypatch.setenv("DITK_RAY_REQUIRE_KUBE", "1")
    with pytest.raises(pytest.fail.Exception, match="DITK_RAY_CRDS"):
        kuberay_crds._crd_files()
