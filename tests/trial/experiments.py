"""Entries that tests use in place of DI-engine's, and a plan to run them by."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ditk_ray.config.engine_config import EngineConfig, load_engine_config
from ditk_ray.config.resources import TrialResources
from ditk_ray.config.space import build_space
from ditk_ray.trial.spec import TrialPlan

CARTPOLE = "dizoo.classic_control.cartpole.config.cartpole_dqn_config"


def make_plan(folder: Path, warm_key: str = "", **changes: Any) -> TrialPlan:
    """Return a plan for CartPole with DQN that trains for a moment."""
    values: dict[str, Any] = {
        "base": load_engine_config(CARTPOLE),
        "space": build_space({}),
        "entry": "serial",
        "entry_args": {},
        "limits": {"max_env_step": 200},
        "seeds": (0,),
        "resources": TrialResources(),
        "sweep_folder": folder,
        "warm_key": warm_key,
    }
    return TrialPlan(**values | changes)


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
