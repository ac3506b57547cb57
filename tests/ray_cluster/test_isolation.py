from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ditk_ray.config.resources import TrialResources
from ditk_ray.ray_cluster.isolation import PROBE, View, find_faults, probes
from ditk_ray.ray_cluster.nodes import Node

NODE = Node("n", {"CPU": 4.0, "GPU": 2.0}, "id1")


def view(
    number: int,
    cores: list[int],
    cuda: str = "",
    host: str = "h",
    machine: str = "m",
    **given: float,
) -> View:
    resources = TrialResources(**given)
    seen = {"host": host, "machine": machine, "cores": cores, "cuda": cuda, "memory": -1}
    return View(number, NODE, resources, seen)


def test_workers_with_their_own_cores_and_gpus_are_isolated():
    views = [view(0, [0, 1], "0", cpu=2, gpu=1), view(1, [2], "1", gpu=1), view(2, [3], "")]
    assert find_faults(views) == []


def test_fractions_may_share_up_to_one():
    halves = [view(n, [0], "0", cpu=0.5, gpu=0.5) for n in range(2)]
    assert find_faults(halves) == []
    mixed = [view(0, [0, 1, 2], cpu=2.5), view(1, [2], cpu=0.5)]
    assert find_faults(mixed) == []
    faults = find_faults([*halves, view(2, [0], "0", cpu=0.5, gpu=0.5)])
    assert faults == ["h: workers share core 0", "h: workers share GPU 0"]


def test_pods_of_one_machine_may_not_share_its_cores():
    pods = [view(n, [0], "0", host=f"pod-{n}", gpu=1) for n in range(2)]
    assert find_faults(pods) == ["pod-0, pod-1: workers share core 0"]
    elsewhere = [view(n, [0], "0", host=f"pod-{n}", machine=f"m{n}", gpu=1) for n in range(2)]
    assert find_faults(elsewhere) == []


def test_a_probe_reports_what_it_may_use_of_which_machine():
    command = [sys.executable, "-c", PROBE]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as probe:
        seen = json.loads(probe.stdout.readline())
        assert probe.poll() is None, "it stays"
        probe.kill()
    assert seen["machine"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert seen["cores"] == sorted(os.sched_getaffinity(0))


def test_fractions_that_are_not_kept_to_their_cores_are_found():
    loose = [view(n, [0, 1, 2, 3], cpu=0.5) for n in range(2)]
    faults = find_faults(loose)
    assert "[0] has 0.5 CPU and may use 4 cores" in faults
    assert [f"h: workers share core {core}" for core in range(4)] == faults[2:]
    assert find_faults([view(n, [0, 1], cpu=1.5) for n in range(2)]) == (
        ["h: workers share core 0", "h: workers share core 1"]
    )
    assert find_faults([view(n, [0, 1, 2, 3], "01"[n], cpu=0, gpu=1) for n in range(2)]) == []


def test_whole_cores_are_shared_with_nobody():
    assert find_faults([view(0, [0, 1], cpu=2), view(1, [1])]) == ["h: workers share core 1"]


def test_a_worker_that_sees_more_than_it_has_is_found():
    faults = find_faults([view(0, [0], "0,1"), view(1, [1], "", cpu=2)])
    assert any("[0] has 0 GPU and sees 2" in fault for fault in faults)
    assert any("[1] has 2 CPU and may use 1 cores" in fault for fault in faults)
    leak = view(0, [0], memory=100)
    assert find_faults([leak]) == ["[0] may use more memory than it was given"]


def test_every_node_that_has_cpus_is_filled():
    head = Node("head", {"CPU": 0.0}, "id0")
    made = probes([head, NODE], None, None)
    assert [one.share for one in made] == [TrialResources(cpu=2, gpu=1)] * 2
    assert {one.node["node_id"] for one in made} == {"id1"}
    assert len(probes([NODE], TrialResources(cpu=1, gpu=0.5), None)) == 4
    assert len(probes([NODE], None, 8)) == 8
