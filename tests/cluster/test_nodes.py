from __future__ import annotations

import pytest

from ditk_ray.cluster.nodes import Node, count_slots, share_nodes, this_machine, usable_cpus
from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import DoesNotFitError

HEAD = Node("head", {"CPU": 0.0})
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
