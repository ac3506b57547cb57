"""Entries that tests use in place of DI-engine's, and a plan to run them by."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.job_cfg import JobCfg
from ditk_ray.config.job_spec import check_job
from ditk_ray.execution.fork_client import ForkClient
from ditk_ray.execution.process import ProcessExecutor
from ditk_ray.trial.attempt import Attempt, start_attempt
from ditk_ray.trial.inspection import training_modules
from ditk_ray.trial.plan import TrialPlan
from tests.processes import PATIENCE

CARTPOLE = "dizoo.classic_control.cartpole.config.cartpole_dqn_config"


def make_plan(folder: Path, warm_key: str = "", **changes: Any) -> TrialPlan:
    """Return a plan for CartPole with DQN that trains for a moment.

    The changes are those of the plan or of its job; `base` is the config that is trained.
    """
    names = {field.name for field in fields(TrialPlan)}
    own = {name: value for name, value in changes.items() if name in names}
    job = check_job(JobCfg, {"config": CARTPOLE, "checkpoints": False, "max_env_step": 200})
    renamed = {"base": "config", "max_seconds": "max_trial_time"}
    if "limits" in changes:
        changes |= {"max_env_step": None, **changes.pop("limits")}
    values = {renamed.get(k, k): value for k, value in changes.items() if k not in names}
    return TrialPlan(
        **{"sweep_folder": folder, "executor": ProcessExecutor(warm_key), **own},
        job=replace(job, **values),
    )


def attempt_here(
    plan: TrialPlan, drawn: dict[str, Any], folder: Path, warm: ForkClient, gpu_ids: Any = ()
) -> Attempt:
    """Start an attempt in processes of that fork server."""
    executor = ProcessExecutor(warm.key, training_modules(plan.job.config, plan.job.entry))
    return start_attempt(replace(plan, executor=executor), drawn, folder, gpu_ids)


def with_subprocess_envs(config: EngineConfig) -> EngineConfig:
    return config.overlaid({}, {"env_manager.type": "subprocess"})


def tell_environment(config: Any) -> dict[str, float]:
    import torch

    main, _ = config
    visible = os.environ["CUDA_VISIBLE_DEVICES"]
    return {
        "eval_value": 1.0,
        "threads": torch.get_num_threads(),
        "omp": float(os.environ["OMP_NUM_THREADS"]),
        "cuda": float(main.policy.cuda),
        "gpu": float(visible) if visible else -1.0,
    }


def allocate_a_gigabyte(config: Any) -> dict[str, float]:
    import numpy as np

    return {"eval_value": float(np.ones(2**27).sum())}


def raise_value_error(config: Any) -> None:
    print("about to fail")
    raise ValueError("no such luck")


def leave_without_a_word(config: Any) -> None:
    os._exit(3)


def evaluate_nothing(config: Any) -> None:
    return None


def sleep_for_ever(config: Any) -> None:
    time.sleep(3600)


def start_stubborn_children(config: Any) -> None:
    """Start children that ignore SIGTERM, one in a session of its own, and wait."""
    import subprocess
    import sys

    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
    subprocess.Popen([sys.executable, "-c", code])
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    Path("ready").touch()
    time.sleep(3600)


def evaluate_to_nan(config: Any) -> None:
    """Evaluate with an evaluator class of one's own, whose scores become NaN."""
    from ding.worker.collector.base_serial_evaluator import ISerialEvaluator

    class Own(ISerialEvaluator):
        def reset_policy(self, *args: Any) -> None: ...
        def reset_env(self, *args: Any) -> None: ...
        def reset(self, *args: Any) -> None: ...
        def close(self) -> None: ...
        def should_eval(self, train_iter: int) -> bool:
            return True

        def eval(self, save_ckpt_fn: Any = None, train_iter: int = -1, envstep: int = -1) -> Any:
            value = 1.0 if train_iter == 0 else float("nan")
            return False, {"eval_episode_return": [value], "win_rate": [0.5, 1.0]}

    evaluator = Own()
    for number in range(100):
        evaluator.eval(None, number, number * 10)
        time.sleep(0.1)


def evaluate_by_task(config: Any) -> None:
    """Evaluate with the middleware of DI-engine's task pipelines, as its newer examples do."""
    import gym
    from ding.config import compile_config
    from ding.envs import BaseEnvManagerV2, DingEnvWrapper
    from ding.framework import task
    from ding.framework.context import OnlineRLContext
    from ding.framework.middleware import interaction_evaluator
    from ding.model import DQN
    from ding.policy import DQNPolicy

    main, create = config
    compiled = compile_config(main, create_cfg=create, auto=True, save_cfg=False)
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        makers = [lambda: DingEnvWrapper(gym.make("CartPole-v0"))] * 2
        environment = BaseEnvManagerV2(env_fn=makers, cfg=compiled.env.manager)
        policy = DQNPolicy(compiled.policy, model=DQN(**compiled.policy.model))
        task.use(interaction_evaluator(compiled, policy.eval_mode, environment))
        task.run(max_step=1)


def stand_in_evaluator() -> Any:
    """Return an evaluator whose score is how often it was called."""
    from ding.worker.collector.base_serial_evaluator import ISerialEvaluator

    class Counting(ISerialEvaluator):
        def reset_policy(self, *args: Any) -> None: ...
        def reset_env(self, *args: Any) -> None: ...
        def reset(self, *args: Any) -> None: ...
        def close(self) -> None: ...
        def should_eval(self, train_iter: int) -> bool:
            return True

        def eval(self, save_ckpt_fn: Any = None, train_iter: int = -1, envstep: int = -1) -> Any:
            return False, {"eval_episode_return": [float(train_iter)]}

    return Counting()


def three_evaluations(config: Any) -> None:
    evaluator = stand_in_evaluator()
    for number in range(1, 4):
        evaluator.eval(None, number, 10 * number)


def fails_evaluations(config: Any) -> None:
    stand_in_evaluator().eval(None, 1, 10)
    raise ValueError("no such luck")


def endless_evaluations(config: Any) -> None:
    evaluator, number = stand_in_evaluator(), 0
    while True:
        number += 1
        evaluator.eval(None, number, 10 * number)
        time.sleep(0.05)


def stubborn_evaluations(config: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        time.sleep(3600)
    endless_evaluations(config)


def evaluate_then_hang(config: Any) -> None:
    """Evaluate twice, then hang as an environment does that waits for an answer."""
    evaluator = stand_in_evaluator()
    for number in range(2):
        evaluator.eval(None, number, 10 * number)
    time.sleep(3600)


def hang_once(config: Any) -> dict[str, float]:
    """Hang in the first attempt, and evaluate in the next."""
    if Path.cwd().name == "attempt_0":
        time.sleep(3600)
    stand_in_evaluator().eval(None, 7, 70)
    return {"second": 1.0}


def evaluate_slowly(config: Any, seed: int) -> None:
    """Evaluate five times, with work between that is noted with its time."""
    evaluator = stand_in_evaluator()
    seconds = 0.1 + 0.05 * PATIENCE
    for number in range(5):
        begun = time.monotonic()
        while time.process_time() % 1000 and time.monotonic() < begun + seconds:
            pass
        with Path("../times.txt").open("a") as file:
            file.write(f"{seed} {begun} {time.monotonic()}\n")
        evaluator.eval(None, number, number)


def end_at_once_with_seed_0(config: Any, seed: int) -> dict[str, float]:
    """Evaluate twice with seed 0, and without an end with any other; save as one is told."""
    evaluator = stand_in_evaluator()
    for number in range(2 if seed == 0 else 1000):
        evaluator.eval(lambda name: Path(name).write_text("weights"), number, number)
        time.sleep(0.2)
    return {"own": float(seed)}


def outgrow_and_be_killed(config: Any) -> None:
    """Fill memory that no limit of the process counts, and be killed as the kernel would."""
    import mmap
    import signal

    shared = mmap.mmap(-1, 2**28)
    shared.write(b"x" * 2**28)
    os.kill(os.getpid(), signal.SIGKILL)


def diverge(config: Any) -> None:
    """Have torch refuse the outputs of a policy that are no numbers any more."""
    import torch

    stand_in_evaluator().eval(None, 1, 10)
    torch.distributions.Categorical(logits=torch.full((2, 2), float("nan")))


def count_restored_transitions(config: Any) -> dict[str, float]:
    """Train as DI-engine does until its buffer has been filled, and tell how much is in it."""
    from ding.entry import serial_pipeline
    from ding.worker import BaseSerialCommander

    found: list[int] = []
    step = BaseSerialCommander.step

    def stop_there(commander: Any) -> None:
        found.append(commander._replay_buffer.count())
        raise StopIteration

    BaseSerialCommander.step = stop_there
    try:
        serial_pipeline(config, seed=0, max_env_step=10**6)
    except StopIteration:
        BaseSerialCommander.step = step
    return {"eval_value": 1.0, "in_buffer": float(found[0])}


def hand_over_a_policy(config: Any) -> dict[str, float]:
    """Train a SAC policy for a moment, restore it with another learning rate, and compare."""
    import torch
    from ding.policy import SACPolicy
    from easydict import EasyDict

    from ditk_ray.trial.engine_state import PolicyState

    def make(rate: float) -> tuple[Any, PolicyState]:
        settings = EasyDict(SACPolicy.default_config())
        settings.model.update({"obs_shape": 3, "action_shape": 1})
        settings.learn.update({"learning_rate_q": rate, "auto_alpha": True, "log_space": True})
        policy = SACPolicy(settings, enable_field=["learn"])
        return policy, PolicyState(policy)

    (old, state), (new, other) = make(1e-3), make(5e-4)
    names = {"obs": 3, "next_obs": 3, "action": 1, "reward": 1}
    for _ in range(5):
        batch = [{name: torch.rand(size) for name, size in names.items()} for _ in range(8)]
        old._forward_learn([{**item, "done": torch.zeros(1)} for item in batch])
    before = new._alpha.item()
    new._load_state_dict_learn(old._state_dict_learn())
    by_engine, loaded_rate = new._alpha.item(), new._optimizer_q.param_groups[0]["lr"]
    other.put_back(state.changed())
    return {
        "eval_value": 1.0,
        "trained": old._alpha.item(),
        "before": before,
        "by_engine": by_engine,
        "log_alpha": new._log_alpha.exp().item(),
        "is_optimised": float(new._alpha_optim.param_groups[0]["params"][0] is new._log_alpha),
        "restored": new._alpha.item(),
        "loaded_rate": loaded_rate,
        "rate": new._optimizer_q.param_groups[0]["lr"],
    }


def hand_over_a_target_network(config: Any) -> dict[str, float]:
    """Train a DQN policy for three iterations and see how many its target network knows of."""
    import torch
    from ding.policy import DQNPolicy
    from easydict import EasyDict

    from ditk_ray.trial.engine_state import PolicyState

    settings = EasyDict(DQNPolicy.default_config())
    settings.model = {"obs_shape": 4, "action_shape": 2}
    old, new = (DQNPolicy(settings, enable_field=["learn"]) for _ in range(2))
    state, other = PolicyState(old), PolicyState(new)
    item = {"obs": torch.rand(4), "next_obs": torch.rand(4), "action": torch.tensor(1)}
    for _ in range(3):
        batch = [{**item, "reward": torch.rand(1), "done": False} for _ in range(8)]
        old._forward_learn(batch)
    new._load_state_dict_learn(old._state_dict_learn())
    by_engine = float(new._target_model._update_count)
    other.put_back(state.changed())
    return {"eval_value": 1.0, "by_engine": by_engine, "restored": new._target_model._update_count}


def refill_buffers(config: Any) -> dict[str, float]:
    """Move the data of each kind of buffer to another one, which is smaller."""
    import ding.worker
    import torch
    from easydict import EasyDict

    from ditk_ray.trial.engine_state import buffer_items, fill_buffer, read_state, write_state

    found = {}
    for kind in ("naive", "advanced", "deque"):
        cls = ding.worker.get_buffer_cls(EasyDict(type=kind))
        buffers = []
        for size in (10, 4):
            settings = cls.default_config()
            settings.replay_buffer_size = size
            buffers.append(cls(settings, exp_name=f"{kind}_{size}"))
        old, new = buffers
        for number in range(13):
            old.push([{"obs": torch.tensor([float(number)]), "n": number}], number)
        write_state(Path(kind), buffer_items(old))
        fill_buffer(new, read_state(Path(kind)))
        held = [(item["n"], item["obs"].item()) for item, _ in buffer_items(new)]
        right = [(number, float(number)) for number in (9, 10, 11, 12)]
        found[kind] = float(held == right and new.count() == 4)
    return {"eval_value": 1.0, **found}
