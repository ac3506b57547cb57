"""What the tests of faults share: a cluster to kill, and disks to fill."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.chaos import three_nodes
from tests.ray_cluster.ray_clusters import RayCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A Ray cluster of a head and three nodes with a CPU each."""
    with three_nodes() as started:
        yield started


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes that can be filled."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
