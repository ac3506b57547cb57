"""Every change of a collection is told once, whatever becomes of the server and the connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ditk_ray.config.options import KubeSettings
from ditk_ray.errors import KubeForbiddenError
from ditk_ray.kube import watch as watch_module
from ditk_ray.kube.connection import Kube, connect
from ditk_ray.kube.watch import Change, Watcher
from tests.kube.api_server import ApiServer
from tests.processes import PATIENCE, wait_until

pytestmark = pytest.mark.kube


class Told:
    """What a watcher has told, as (kind, name, value)."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str, Any]] = []

    def __call__(self, change: Change) -> None:
        value = (change.object.get("data") or {}).get("value")
        self.changes.append((change.kind, change.object["metadata"]["name"], value))

    def wait(self, *expected: tuple[str, str, Any]) -> None:
        wait_until(lambda: len(self.changes) >= len(expected), 20, f"{expected}")
        assert self.changes == list(expected)
        self.changes.clear()


@pytest.fixture
def cluster(kube: ApiServer, namespace: str) -> Iterator[Kube]:
    cluster = connect(KubeSettings(kube.kubeconfig(namespace=namespace)), patience=30 * PATIENCE)
    yield cluster
    cluster.close()


@pytest.fixture
def watch(cluster: Kube) -> Iterator[Callable[[], Told]]:
    started = []

    def start() -> Told:
        told = Told()
        watcher = Watcher(cluster.config_maps, "of=test", told)
        watcher.start()
        started.append(watcher)
        return told

    yield start
    for watcher in started:
        watcher.close()
    assert not [each for each in threading.enumerate() if each.name == "watch-configmaps"]


def make(cluster: Kube, name: str, value: str = "1") -> None:
    manifest = {"metadata": {"name": name, "labels": {"of": "test"}}, "data": {"value": value}}
    cluster.config_maps.create(manifest)


def change(cluster: Kube, name: str, value: str) -> None:
    cluster.config_maps.patch(name, {"data": {"value": value}})


def test_what_is_there_and_what_happens_later_is_told_once(
    cluster: Kube, watch: Callable[[], Told]
) -> None:
    make(cluster, "early")
    told = watch()
    assert told.changes == [("ADDED", "early", "1")]
    make(cluster, "late")
    change(cluster, "early", "2")
    cluster.config_maps.delete("late")
    told.wait(
        ("ADDED", "early", "1"),
        ("ADDED", "late", "1"),
        ("MODIFIED", "early", "2"),
        ("DELETED", "late", "1"),
    )


def test_a_restarted_server_with_a_compacted_history_costs_no_change(
    kube: ApiServer, cluster: Kube, watch: Callable[[], Told]
) -> None:
    for name in ("stays", "changes", "goes", "returns"):
        make(cluster, name)
    told = watch()
    told.wait(*[("ADDED", name, "1") for name in ("changes", "goes", "returns", "stays")])
    kube.kill()
    other = connect(
        KubeSettings(kube.kubeconfig(namespace=cluster.namespace)), patience=30 * PATIENCE
    )
    kube.start()
    change(other, "changes", "2")
    other.config_maps.delete("goes")
    other.config_maps.delete("returns")
    make(other, "returns", "3")
    make(other, "new")
    kube.compact()
    kube.restart()
    wait_until(lambda: ("ADDED", "new", "1") in told.changes, 20, "the new one")
    kinds = [(kind, name) for kind, name, _ in told.changes]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) == {
        ("MODIFIED", "changes"),
        ("DELETED", "goes"),
        ("DELETED", "returns"),
        ("ADDED", "returns"),
        ("ADDED", "new"),
    }


def test_a_watch_that_ends_quietly_or_stalls_is_taken_up_again(
    cluster: Kube, watch: Callable[[], Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "WATCH_SECONDS", (1, 1))
    monkeypatch.setattr(watch_module, "SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(watch_module, "LIST_AGAIN_SECONDS", 0.5)
    told = watch()
    expected = []
    for number in range(8):
        make(cluster, f"map-{number}")
        threading.Event().wait(0.35)
        expected.append(("ADDED", f"map-{number}", "1"))
    told.wait(*expected)


def test_a_callback_that_raises_does_not_end_the_watch(cluster: Kube) -> None:
    seen = []

    def fail(change: Change) -> None:
        seen.append(change)
        raise ValueError("of the test")

    watcher = Watcher(cluster.config_maps, "of=test", fail)
    watcher.start()
    make(cluster, "one")
    make(cluster, "two")
    wait_until(lambda: len(seen) == 2, 10, "both changes")
    watcher.close()


def test_a_missing_right_is_told_at_the_start(kube: ApiServer, namespace: str) -> None:
    nobody = connect(KubeSettings(kube.kubeconfig("nobody", namespace)))
    with pytest.raises(KubeForbiddenError, match="nobody may not list pods"):
        Watcher(nobody.pods, "", lambda change: None).start()
