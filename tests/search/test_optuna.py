from __future__ import annotations

import optuna

from ditk_ray.search.optuna import RANDOM_EVERY, OpenTPESampler


def test_tpe_goes_on_to_look_elsewhere_however_sure_it_is():
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = OpenTPESampler(seed=1, n_startup_trials=4, multivariate=True, constant_liar=True)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    study.optimize(lambda trial: -abs(trial.suggest_float("x", 0, 100) - 20), n_trials=90)
    late = study.trials[30:]
    drawn = [trial.params["x"] for trial in late if trial.number % RANDOM_EVERY == 2]
    modelled = [trial.params["x"] for trial in late if trial.number % RANDOM_EVERY != 2]
    assert sum(abs(x - 20) < 20 for x in modelled) > 0.8 * len(modelled)
    assert sum(abs(x - 20) > 20 for x in drawn) > 0.3 * len(drawn)
