# Everything starts here: `make tune`, `make test`. See README.md.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# Which torch to install; scripts/setup_env.sh has the default and remembers a choice.
TORCH ?=
PYTHON ?= python3
VENV ?= .venv
JOB ?= CartpoleDQNJobCfg
WORKERS ?= 3
TESTS ?=
# Ray's workers and the delivery to MLflow run at a low priority, and would starve beside several
# test processes at once: at the lowest one all are equal.
PYTEST = nice -n 19 "$(VENV)/bin/python" -m pytest
# More at once than two cores have: half of the time a test waits for a process or a cluster.
AT_ONCE = --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help setup kube-assets tune test test-all test-fast check format bench chaos chaos-kube

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## make or update the environment in .venv
	@TORCH="$(TORCH)" PYTHON="$(PYTHON)" scripts/setup_env.sh "$(VENV)"

kube-assets: ## make a Kubernetes API server for the tests (once; six minutes)
	@scripts/kube_assets.sh

tune: setup ## run a real sweep on this machine (JOB=NAME, ARGS="..." for its flags)
	@"$(VENV)/bin/python" scripts/tune.py --cfg_class $(JOB) $(ARGS)

test: setup ## run the tests, on a real local Ray (TESTS=... for some, WORKERS=N at once)
	@$(PYTEST) -m "not slow" $(AT_ONCE) $(TESTS)

test-all: setup ## run all tests, those too that are long by nature (see CONTRIBUTING.md)
	@$(PYTEST) $(AT_ONCE) $(TESTS)

test-fast: setup ## run only the tests that need neither Ray nor DI-engine
	@$(PYTEST) -m "not ray and not engine and not slow"

check: setup ## lint, formatting and types
	@"$(VENV)/bin/ruff" check .
	@"$(VENV)/bin/ruff" format --check .
	@"$(VENV)/bin/mypy"

format: setup ## format the code and sort the imports
	@"$(VENV)/bin/ruff" check --fix .
	@"$(VENV)/bin/ruff" format .

bench: setup ## measure efficiency, recording, the way to a good score, 200 DIJobs (two hours)
	@"$(VENV)/bin/python" benchmarks/sweep_efficiency.py --trials 16
	@"$(VENV)/bin/python" -W ignore benchmarks/tracking_cost.py
	@"$(VENV)/bin/python" -W ignore benchmarks/tracking_cost.py --trials 1000 --rounds 1 --only bare
	@"$(VENV)/bin/python" -W ignore benchmarks/time_to_target.py
	@"$(VENV)/bin/python" -W ignore benchmarks/dijob_scale.py

chaos: setup ## run a sweep under random faults (SEED=1 FAULTS=40 TRIALS=30)
	@"$(VENV)/bin/python" -W ignore -m tests.faults.chaos --seed $(or $(SEED),1) \
	  --faults $(or $(FAULTS),40) --trials $(or $(TRIALS),30)

chaos-kube: setup ## the same with trials that are DIJobs, on a real API server (SEED, FAULTS, TRIALS)
	@"$(VENV)/bin/python" -W ignore -m tests.faults.kube_chaos --seed $(or $(SEED),1) \
	  --faults $(or $(FAULTS),40) --trials $(or $(TRIALS),30)
