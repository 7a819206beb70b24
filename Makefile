# Two commands: `make train` and `make test`. Each makes .venv and installs what it needs, once; so do the others.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# without compiling: Python compiles a module when it is first imported, and most modules never are
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
CUDA_SOURCES = $(shell find cuda -name '*.cu' -o -name '*.cuh' -o -name '*.h' -o -name '*.cpp')
# processes that share the tests: one per core; with a GPU, at most ten, with 8 GB of its memory for each
WORKERS ?= $(or $(shell nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | awk -v cores=$$(nproc) \
	'NR == 1 { n = int($$1 / 8000); n = n < 10 ? n : 10; n = n < cores ? n : cores; print n < 1 ? 1 : n }'),auto)
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
# modules are compiled once, for all processes of all tests, and not beside their sources
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/modules
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: train test types suite docs gate sanitize parity mutate format clean help

train: $(VENV)/train.stamp  ## train ResNet18 on CIFAR-10; options: make train ARGS="--epochs 1"
	@$(BIN)/python examples/train_cifar10.py $(ARGS)

test: $(VENV)/test.stamp  ## ruff, mypy and the short tests: six minutes; ARGS go to pytest, here and below
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	@$(BIN)/clang-format --dry-run --Werror $(CUDA_SOURCES)
	@$(MAKE) --no-print-directory --jobs 2 types suite

types: $(VENV)/test.stamp
	$(BIN)/mypy

suite: $(VENV)/test.stamp
	$(PYTEST) $(ARGS)

docs: $(VENV)/docs.stamp  ## these pages and the API as a site that can be searched, in build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --config-file docs/site/mkdocs.yml $(ARGS)

gate: $(VENV)/test.stamp  ## the other tests, an hour: all cases, every tile of every kernel with nvcc and emulated, mutants
	$(PYTEST) -m "(slow or gate) and not (sanitize or parity)" $(ARGS)

sanitize: $(VENV)/test.stamp  ## every kernel on the CPU under AddressSanitizer and UBSan
	$(BIN)/python -m pytest -m sanitize tests/emulation $(ARGS)

parity: $(VENV)/test.stamp  ## comparisons with PyTorch, which must be installed into .venv
	$(PYTEST) -m parity tests/parity $(ARGS) || [ $$? -eq 5 ]  # 5: no tests, without PyTorch

mutate: $(VENV)/test.stamp  ## whether tests notice changes of alpha/, about an hour; ARGS="--count 40 --file alpha/nn"
	@$(BIN)/python -c "import mutmut, coverage" 2>/dev/null || $(PIP) --editable '.[mutate]'
	@$(BIN)/python tests/mutate/mutate.py $(ARGS)

format: $(VENV)/test.stamp  ## write the sources as ruff and clang-format want them
	$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CUDA_SOURCES)

clean:  ## remove the environment and what tools have left; runs/ and datasets/ stay
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/train.stamp: pyproject.toml | $(BIN)/python
	$(call install,plot)
	@touch $@

$(VENV)/docs.stamp: pyproject.toml | $(BIN)/python
	$(call install,docs)
	@touch $@

$(VENV)/test.stamp: pyproject.toml | $(BIN)/python
	$(call install,test)
	@touch $@

# Alpha itself, editable, with an extra; and pycuda where there is a GPU (building it needs the CUDA toolkit).
define install
	@echo "installing Alpha and its [$(1)] packages into $(VENV)"
	@$(PIP) --editable '.[$(1)]'
	@if command -v nvidia-smi >/dev/null; then \
		$(PIP) --editable '.[cuda]' || echo "pycuda was not installed, so Alpha runs on the CPU:" \
			"install the CUDA toolkit (nvcc), then: $(PIP) --editable '.[cuda]'"; \
	fi
endef
