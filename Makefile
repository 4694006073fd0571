# Sunfleet. `make demo` runs a follow-the-sun day; `make test` passes the tests. Both set up everything.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
VLLM := .venv-vllm
VLLM_STAMP := $(VLLM)/.stamp

# A control plane beside the checkout is used unless the caller names another one.
ifndef KUBEBUILDER_ASSETS
ifneq ($(wildcard ../shared/kube/kube-apiserver),)
export KUBEBUILDER_ASSETS := $(abspath ../shared/kube)
endif
endif

.PHONY: help demo demo-vllm test check histories lint types fmt clean lock vllm
help:  ## say what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | column -t -s '	'

$(STAMP): pyproject.toml requirements/dev.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(STAMP)  ## make the virtual environment (only what changed)

$(VLLM_STAMP): requirements/vllm.txt requirements/vllm-torch.txt requirements/vllm-engine.txt
	@test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	@$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/vllm-torch.txt
	@$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/vllm.txt
	@$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/vllm-engine.txt
	@touch $@

vllm: $(VLLM_STAMP)  ## install real vLLM in CPU mode, in a virtual environment of its own

demo: $(STAMP)  ## a compressed follow-the-sun day on simulated sites, with a judge
	@$(BIN)/sunfleet demo $(ARGS)

demo-vllm: $(STAMP) $(VLLM_STAMP)  ## real vLLM on a real Kubernetes control plane, from nothing to proven and back
	@$(BIN)/sunfleet demo --vllm $(VLLM)/bin/python $(ARGS)

test: $(STAMP)  ## every test that this machine can run
	@$(BIN)/python -m pytest $(ARGS)

histories: $(STAMP)  ## store the histories that later versions must replay, anew
	@rm -f tests/workflows/histories/*.gz
	@SUNFLEET_STORE_HISTORIES=1 $(BIN)/python -m pytest -q tests/workflows/test_life.py -k every_task_replayed

lint: $(STAMP)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports --no-cache

types: $(STAMP)
	@$(BIN)/mypy

check: lint types test  ## lint, types and tests

fmt: $(STAMP)  ## format the code
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

lock:  ## refresh the locked versions and hashes
	@uv pip compile --quiet --python-version 3.11 --universal --group dev --generate-hashes --no-emit-index-url \
	  --no-annotate --custom-compile-command "make lock" pyproject.toml requirements/build.in -o requirements/dev.txt

lock-vllm: $(VLLM_STAMP)  ## refresh the real engine's locked versions and hashes from its virtual environment
	@$(VLLM)/bin/python -m pip freeze --disable-pip-version-check 2>/dev/null | grep -viE '^(torch|vllm)' > $(VLLM)/frozen.in
	@uv pip compile --quiet --no-deps --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --custom-compile-command "make lock-vllm" $(VLLM)/frozen.in -o requirements/vllm.txt

bench-%: $(STAMP)  ## measure NAME side by side with its peer
	@$(BIN)/python -m bench.$*

clean:  ## remove what the Makefile made
	rm -rf $(VENV) $(VLLM) .sunfleet .mypy_cache .ruff_cache .pytest_cache .hypothesis
