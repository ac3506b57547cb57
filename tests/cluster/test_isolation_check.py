from __future__ import annotations

from pathlib import Path

from ditk_ray.cluster.commands import isolation_probe
from ditk_ray.cluster.commands.isolation_check import View, find_faults, probes
from ditk_ray.cluster.nodes import Node
from ditk_ray.config.resources import TrialResources

NODE = Node("n", {"CPU": 4.0, "GPU": 2.0}, "id1")


def view(
    number: int,
    cores: list[int],
    cuda: str = "",
    node: Node = NODE,
    host: str = "h",
    machine: str = "m",
    **given: float,
) -> View:
    resources = TrialResources(**given)
    seen = {"host": host, "machine": machine, "cores": cores, "cuda": cuda, "memory": -1}
    seen |= {"machine_cores": 4, "threads": str(resources.threads)}
    return View(number, node, resources, seen)


def test_workers_with_their_own_cores_and_gpus_are_isolated():
    views = [view(0, [0, 1], "0", cpu=2, gpu=1), view(1, [2], "1", gpu=1), view(2, [3], "")]
    assert find_faults(views) == []


def test_fractions_may_share_up_to_one():
    halves = [view(n, [0], "0", cpu=0.5, gpu=0.5) for n in range(2)]
    assert find_faults(halves) == []
    mixed = [view(0, [0, 1, 2], cpu=2.5), view(1, [2], cpu=0.5)]
    assert find_faults(mixed) == []
    (cores, gpus) = find_faults([*halves, view(2, [0], "0", cpu=0.5, gpu=0.5)])
    assert cores == "h: workers share core 0"
    assert gpus.startswith("h: workers share GPU 0 beyond their fractions")


def test_pods_of_one_machine_may_not_share_its_cores():
    pods = [view(n, [0], "0", host=f"pod-{n}", gpu=1) for n in range(2)]
    assert find_faults(pods) == ["pod-0, pod-1: workers share core 0"]
    elsewhere = [view(n, [0], "0", host=f"pod-{n}", machine=f"m{n}", gpu=1) for n in range(2)]
    assert find_faults(elsewhere) == []


def test_a_probe_tells_which_machine_it_is_on():
    told = isolation_probe.seen()
    assert told["machine"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_fractions_that_are_not_kept_to_their_cores_are_found():
    loose = [view(n, [0, 1, 2, 3], cpu=0.5) for n in range(2)]
    faults = find_faults(loose)
    assert "[0] has 0.5 CPU and may use 4 cores" in faults
    assert "h: workers share cores 0, 1, 2, 3" in faults
    assert find_faults([view(n, [0, 1], cpu=1.5) for n in range(2)]) == [
        "h: workers share cores 0, 1"
    ]
    assert find_faults([view(n, [0, 1, 2, 3], "01"[n], cpu=0, gpu=1) for n in range(2)]) == []


def test_cores_that_are_shared_because_ray_was_told_of_too_many_are_told_as_such():
    told = Node("n", {"CPU": 6.0}, "id1")
    (fault,) = find_faults([view(0, [0, 1], cpu=2, node=told), view(1, [1], node=told)])
    assert fault == "h: workers share core 1, for Ray was told of 6 CPUs there, and there are 4"


def test_a_worker_that_sees_more_than_it_has_is_found():
    faults = find_faults([view(0, [0], "0,1"), view(1, [1], "", cpu=2)])
    assert any("[0] has 0 GPU and sees 2" in fault for fault in faults)
    assert any("[1] has 2 CPU and 1 cores" in fault for fault in faults)
    leak = view(0, [0], memory=100)
    assert find_faults([leak]) == ["[0] may use more memory than it was given"]


def test_every_node_that_has_cpus_is_filled():
    head = Node("head", {"CPU": 0.0}, "id0")
    made = probes([head, NODE], None, None)
    assert [one.resources for one in made] == [TrialResources(cpu=2, gpu=1)] * 2
    assert {one.node.value for one in made} == {"id1"}
    assert len(probes([NODE], TrialResources(cpu=1, gpu=0.5), None)) == 4
    assert len(probes([NODE], None, 8)) == 8
