from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import BadConfigError, DoesNotFitError
from ditk_ray.ray_cluster.nodes import (
    WORKER_GROUPS,
    Node,
    WorkerGroup,
    choose_cores,
    count_slots,
    lease_cores,
    nodes_to_come,
    share_nodes,
    this_machine,
    usable_cores,
    usable_cpus,
    worker_groups,
)

HEAD = Node("head", {"CPU": 0.0}, group="headgroup")
SMALL = Node("small", {"CPU": 4.0, "memory": 8e9})
LARGE = Node("large", {"CPU": 16.0, "GPU": 2.0, "memory": 64e9, "fast": 1.0})


def test_trials_are_counted_by_what_is_scarcest_on_each_node():
    assert count_slots(TrialResources(cpu=2), [SMALL, LARGE]) == 2 + 8
    assert count_slots(TrialResources(cpu=1, memory=int(4e9)), [SMALL, LARGE]) == 2 + 16
    assert count_slots(TrialResources(cpu=1, gpu=0.5), [SMALL, LARGE]) == 4
    assert count_slots(TrialResources(cpu=1, custom={"fast": 1.0}), [SMALL, LARGE]) == 1


def test_a_trial_that_fits_nowhere_is_refused_with_what_each_node_has():
    with pytest.raises(DoesNotFitError, match="needs 1 CPU, 4 GPU") as refused:
        count_slots(TrialResources(gpu=4), [SMALL, LARGE])
    assert "small: 4 CPU" in str(refused.value)
    assert "large: 16 CPU, 2 GPU" in str(refused.value)


def test_sharing_nodes_leaves_out_those_that_have_nothing_to_share():
    share = share_nodes(TrialResources(), [HEAD, SMALL, LARGE], 2)
    assert (share.cpu, share.gpu) == (2, 1)
    assert share_nodes(TrialResources(), [SMALL], 8).cpu == 0.5


def test_this_machine_has_the_cpus_that_the_process_may_use():
    assert this_machine().resources["CPU"] == usable_cpus() >= 1


GROUP = WorkerGroup(name="gpu", max=3, cpu=8, gpu=1, memory=32 * 1024**3)


def test_groups_are_read_from_the_environment():
    text = '[{"name": "gpu", "min": 0, "max": 3, "cpu": 8, "gpu": 1, "memory": "32G"}]'
    assert worker_groups({WORKER_GROUPS: text}) == (GROUP,)
    assert worker_groups({}) == worker_groups({WORKER_GROUPS: " "}) == ()


def test_nodes_that_may_come_are_counted_beside_those_that_are_there():
    present = [HEAD, Node("w1", {"CPU": 8.0, "GPU": 1.0, "memory": 3e10}, group="gpu")]
    (coming,) = nodes_to_come([GROUP], present)
    assert coming.to_come == 2
    assert str(coming) == "gpu (up to 2 more may come): 8 CPU, 1 GPU, 32 GiB memory"
    assert count_slots(TrialResources(cpu=4, gpu=0.5), [*present, coming]) == 2 + 2 * 2


def test_a_node_that_says_no_group_belongs_to_that_with_its_cpus_and_gpus():
    alike, other = Node("a", {"CPU": 8.0, "GPU": 1.0}), Node("b", {"CPU": 8.0})
    assert nodes_to_come([GROUP], [alike, other])[0].to_come == 2


def test_a_group_that_is_full_or_switched_off_adds_nothing():
    full = [Node(f"w{number}", {}, group="gpu") for number in range(4)]
    assert nodes_to_come([GROUP], full) == []
    assert nodes_to_come([WorkerGroup(name="off", max=0, cpu=1)], [HEAD]) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[{", "is not JSON"),
        ("{}", "WORKER_GROUPS: is {}"),
        ("[1]", "[0]: is 1"),
        ('[{"name": "a"}]', "[0].max: is missing"),
        ('[{"name": "a", "max": 1, "cpus": 2}]', "did you mean 'cpu'"),
        ('[{"name": "a", "max": 1.5}]', "[0].max: is 1.5"),
        ('[{"name": 1, "max": 1}]', "[0].name: is 1"),
        ('[{"name": "a", "max": 1, "gpu": -1}]', "[0].gpu: is -1"),
        ('[{"name": "a", "max": 1, "memory": "lots"}]', "[0].memory: 'lots'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text, said):
    with pytest.raises(BadConfigError) as refused:
        worker_groups({WORKER_GROUPS: text})
    assert said in str(refused.value)


def test_all_that_is_wrong_is_told_at_once():
    groups = [{"name": "a"}, {"name": "b", "max": -1, "cpu": "x"}]
    with pytest.raises(BadConfigError) as refused:
        worker_groups({WORKER_GROUPS: json.dumps(groups)})
    assert len(refused.value.problems) == 3


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
    os.close(first.descriptor)  # as when a worker is killed
    busy = lease_cores(1, CORES, tmp_path)
    assert first.path.exists(), "another process holds it still"
    os.close(busy.descriptor)
    holder.kill()
    holder.communicate()
    last = lease_cores(4, CORES, tmp_path)
    assert not first.path.exists() and not busy.path.exists()
    last.close()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_all_cores_of_the_process_are_handed_out():
    assert sorted(usable_cores()) == sorted(os.sched_getaffinity(0))
