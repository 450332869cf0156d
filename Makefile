# Everything starts from nothing: `make demo` and `make test` create .venv and install what they need.
PYTHON ?= $(shell for python in python3.12 python3.11 python3.13 python3.14 python3; do \
  $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUNTIME := $(wildcard runtime/*.cpp runtime/*.h)

# Tests start dozens of Pythons, each of which would compile the package's sources again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test lit pytest lint install clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(STAMP) ## Train a small network, compile it into a pipeline, render with it, compare with PyTorch
	$(BIN)/python examples/demo.py --out build/demo

test: lit pytest ## Run every test: lit + FileCheck, then pytest

lit: $(STAMP) ## Run the lit + FileCheck tests
	$(BIN)/lit -q --timeout 120 test

# A file's tests run in one process: what they import and compile once, and keep, is then not made by every process.
pytest: $(STAMP) ## Run the Python tests
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --durations=30 test/python

lint: $(STAMP) ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

install: $(STAMP) ## Create .venv and install the package into it, editable

clean: ## Remove .venv and everything built
	rm -rf $(VENV) build .pytest_cache .hypothesis .ruff_cache .mypy_cache

# torch comes first and pinned, so that the resolver does not look for another; ptxas only where there is none.
$(STAMP): pyproject.toml CMakeLists.txt $(RUNTIME)
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer is needed: install one, or set PYTHON=" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q torch==2.13.0
	$(BIN)/python -m pip install -q -e '.[test,onnx]'
	command -v ptxas >/dev/null || $(BIN)/python -m pip install -q -e '.[ptxas]'
	command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null && $(BIN)/python -m pip install -q -e '.[cuda]' || true
	touch $@
