from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ditk_ray.cluster.commands.command_cores import choose_cores, lease_cores, usable_cores

CORES = (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("cpu", "load", "chosen"),
    [
        (2, {0: 0, 1: 0, 2: 0}, {0: 1, 1: 1}),
        (1, {0: 1, 1: 0.5, 2: 0}, {2: 1}),
        (0.5, {0: 0, 1: 0.5, 2: 0.7}, {1: 0.5}),
        (0.5, {0: 0.9, 1: 0.8}, {1: 0.5}),
        (1.5, {0: 0, 1: 0.5, 2: 0}, {0: 1, 1: 0.5}),
        (4, {0: 0, 1: 0}, {0: 1, 1: 1}),
        (0, {0: 0}, {}),
    ],
    ids=[
        *("idle first", "never beside another", "fractions gather", "the least bad"),
        *("one and a half", "all there are", "none"),
    ],
)
def test_cores_are_chosen_so_that_whole_ones_stay_whole(cpu, load, chosen):
    assert choose_cores(cpu, load) == chosen


def test_leases_are_disjoint_until_there_are_no_more_cores(tmp_path):
    leases = [lease_cores(2, CORES, tmp_path) for _ in range(2)]
    assert sorted(leases[0].cores + leases[1].cores) == [0, 1, 2, 3]
    crowded = lease_cores(1, CORES, tmp_path)
    assert crowded.cores == (0,), "more than there are have to be shared"
    for lease in (*leases, crowded):
        lease.close()


def test_cores_are_free_again_once_nobody_holds_their_lock(tmp_path):
    first = lease_cores(4, CORES, tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        pass_fds=[first.descriptor],
    )
    first.close()
    busy = lease_cores(1, CORES, tmp_path)
    assert first.path.exists(), "another process holds it still"
    busy.close()
    holder.kill()
    holder.communicate()
    last = lease_cores(4, CORES, tmp_path)
    assert not first.path.exists() and not busy.path.exists()
    last.close()
    last.forget()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_all_cores_of_the_process_are_handed_out():
    assert sorted(usable_cores()) == sorted(os.sched_getaffinity(0))
