"""Sweeps on CartPole, each done in minutes on a laptop."""

from ray import tune

from ditk_ray import JobCfg


class CartpoleDQNJobCfg(JobCfg):
    """CartPole with DQN: learning rate, discount, n-step, network and exploration."""

    config = "dizoo.classic_control.cartpole.config.cartpole_dqn_config"
    entry = "serial"
    space = {
        "policy": {
            "discount_factor": tune.uniform(0.9, 0.999),
            "nstep": tune.choice([1, 3]),
            "learn": {
                "learning_rate": tune.loguniform(3e-4, 1e-2),
                "batch_size": tune.choice([64, 128]),
                "update_per_collect": tune.randint(3, 9),
            },
            "other": {"eps": {"decay": tune.lograndint(1000, 20000)}},
        }
    }
    num_samples = 8
    max_env_step = 10_000


class CartpolePPOJobCfg(JobCfg):
    """CartPole with on-policy PPO, through another of DI-engine's entries."""

    config = "dizoo.classic_control.cartpole.config.cartpole_ppo_config"
    entry = "serial_onpolicy"
    space = {
        "policy.learn.learning_rate": tune.loguniform(1e-4, 3e-3),
        "policy.learn.entropy_weight": tune.uniform(0.0, 0.02),
        "policy.collect.discount_factor": tune.uniform(0.9, 0.99),
    }
    num_samples = 4
    max_env_step = 20_000
