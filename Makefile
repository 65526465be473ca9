# `make train` and `make test` are all that a fresh machine needs: Python 3.11 or newer, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install -q

.PHONY: help train test check format bench clean

help: ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

train: $(VENV)/.installed ## Install, and train DQN on CartPole-v1 until it balances
	$(BIN)/muster train dqn CartPole-v1

test: $(VENV)/.installed-dev ## Install what tests need and run them
	$(BIN)/python -m pytest -q

check: $(VENV)/.installed-dev ## Format, lint, types, imports, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(VENV)/.installed-dev ## Rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev ## Measure what the loop costs, into benchmarks/results/
	$(BIN)/python benchmarks/task_overhead.py --json benchmarks/results/task_overhead.json

clean: ## Remove what the other targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

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
	@$(PIP) -e ".[dev,envs,video]"
	@touch $@
