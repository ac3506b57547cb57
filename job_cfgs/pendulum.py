"""Sweeps on Pendulum: continuous actions."""

from ray import tune

from ditk_ray import JobCfg


class PendulumSACJobCfg(JobCfg):
    """Pendulum with SAC: both learning rates, the target's speed and the batch size."""

    config = "dizoo.classic_control.pendulum.config.pendulum_sac_config"
    entry = "serial"
    space = {
        "policy": {
            "learn": {
                "learning_rate_q": tune.loguniform(3e-4, 3e-3),
                "learning_rate_policy": tune.loguniform(3e-4, 3e-3),
                "target_theta": tune.uniform(0.002, 0.02),
                "batch_size": tune.choice([64, 128, 256]),
            },
        }
    }
    num_samples = 4
    max_env_step = 20_000
