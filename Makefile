# Everything starts here: `make tune`, `make test`. See README.md.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# Which torch to install; scripts/setup_env.sh has the default and remembers a choice.
TORCH ?=
PYTHON ?= python3
VENV ?= .venv
JOB ?= CartpoleDQNJobCfg

.PHONY: help setup tune test test-fast check format bench

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## make or update the environment in .venv
	@TORCH="$(TORCH)" PYTHON="$(PYTHON)" scripts/setup_env.sh "$(VENV)"

tune: setup ## run a real sweep on this machine (JOB=NAME, ARGS="..." for its flags)
	@"$(VENV)/bin/python" scripts/tune.py --cfg_class $(JOB) $(ARGS)

test: setup ## run all tests, on a real local Ray
	@"$(VENV)/bin/python" -m pytest

test-fast: setup ## run only the tests that need neither Ray nor DI-engine
	@"$(VENV)/bin/python" -m pytest -m "not ray and not engine"

check: setup ## lint, formatting and types
	@"$(VENV)/bin/ruff" check .
	@"$(VENV)/bin/ruff" format --check .
	@"$(VENV)/bin/mypy"

format: setup ## format the code and sort the imports
	@"$(VENV)/bin/ruff" check --fix .
	@"$(VENV)/bin/ruff" format .

bench: setup ## measure the sweep's efficiency and the cost of recording (an hour)
	@"$(VENV)/bin/python" benchmarks/sweep_efficiency.py --trials 16
	@"$(VENV)/bin/python" -W ignore benchmarks/tracking_cost.py
	@"$(VENV)/bin/python" -W ignore benchmarks/tracking_cost.py --trials 1000 --rounds 1 --only bare
