# `make train` and `make test` are all that a fresh machine needs: Python 3.11 or newer, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RESULTS := benchmarks/results
# A file of tests shares what it has started, so it stays with one process. Long ones come first:
# tests/conftest.py has the order. One process more than cores: tests often wait for processes.
AT_ONCE := $(shell $(PYTHON) -c 'import os; print(min(4, len(os.sched_getaffinity(0)) + 1))')
TESTS := $(BIN)/python -m pytest -q -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install -q

.PHONY: help train test slow check format docs bench faults pictures tables clean

help: ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

train: $(VENV)/.installed ## Install, and train PPO on CartPole-v1, on all cores, until it balances
	$(BIN)/muster train ppo CartPole-v1

test: $(VENV)/.installed-dev ## Install what tests need and run them
	$(TESTS)

slow: $(VENV)/.installed-dev ## Run the tests that `make test` leaves out, most of them on Ray
	$(TESTS) -m slow

check: $(VENV)/.installed-dev ## Format, lint, types, imports, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(VENV)/.installed-dev ## Rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-docs ## Build the documentation site: build/docs/site/index.html
	$(BIN)/python -m website

bench: $(VENV)/.installed-dev ## Measure what loop, replay and exchange cost (10 minutes)
	$(BIN)/python benchmarks/task_overhead.py --json $(RESULTS)/task_overhead.json
	$(BIN)/python benchmarks/replay_speed.py --json $(RESULTS)/replay_speed.json
	$(BIN)/python benchmarks/env_check_cost.py --json $(RESULTS)/env_check_cost.json
	$(BIN)/python -m benchmarks.exchange --rounds 7 --json $(RESULTS)/exchange.json
	$(BIN)/python -m benchmarks.bursts --json $(RESULTS)/bursts.json
	$(BIN)/python -m benchmarks.backpressure --json $(RESULTS)/backpressure.json

faults: $(VENV)/.installed-dev ## Try every fault, and that each trial can fail (some hours; as root)
	$(BIN)/python -m benchmarks.faults.mutations --json $(RESULTS)/mutations.json
	$(BIN)/python -m benchmarks.faults.checkpoint_faults --json $(RESULTS)/checkpoint_faults.json
	$(BIN)/python -m benchmarks.faults.signals --json $(RESULTS)/signal_faults.json
	$(BIN)/python -m benchmarks.faults.wire_fuzz --json $(RESULTS)/wire_fuzz.json
	$(BIN)/python -m benchmarks.faults.node_faults --json $(RESULTS)/node_faults.json
	$(BIN)/python -m benchmarks.faults.worker_kills --json $(RESULTS)/worker_kills.json
	$(BIN)/python -m benchmarks.faults.role_kills --json $(RESULTS)/role_kills.json
	$(BIN)/python -m benchmarks.faults.ray_faults --json $(RESULTS)/ray_faults.json
	$(BIN)/python -m benchmarks.faults.second_user --json $(RESULTS)/second_user.json
	$(BIN)/python -m benchmarks.faults.whole_runs --json $(RESULTS)/whole_runs.json
	$(BIN)/python -m benchmarks.faults.ctrl_c --json $(RESULTS)/ctrl_c.json
	$(BIN)/python -m benchmarks.faults.soak cycles --json $(RESULTS)/soak.json
	$(BIN)/python -m benchmarks.faults.soak long --json $(RESULTS)/soak.json

pictures: $(VENV)/.installed-dev ## Draw the pictures of README and docs from the results
	$(BIN)/python -m benchmarks.pictures

tables: $(VENV)/.installed-dev ## Write the tables of docs/ from the results
	$(BIN)/python -m benchmarks.tables

clean: ## Remove what the other targets made
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# A stamp file is younger than what it was made from as long as nothing has to be installed again.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "muster needs Python 3.11 or newer. Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing muster into $(VENV) ..."
	@$(PIP) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what tests need into $(VENV) ..."
	@$(PIP) -e ".[dev,docs,envs,export,fit,ray,tune,video,wandb]"
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "Installing what the documentation site needs into $(VENV) ..."
	@$(PIP) -e ".[docs]"
	@touch $@
