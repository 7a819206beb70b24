# Two commands: `make train` and `make test`. Each makes .venv and installs what it needs, once.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# processes that share the tests: one a core, but a GPU is used by one alone
WORKERS ?= $(if $(shell command -v nvidia-smi),0,auto)

.DEFAULT_GOAL := help
.PHONY: train test sanitize mutate clean help

train: $(VENV)/train.stamp  ## train ResNet18 on CIFAR-10; options: make train ARGS="--epochs 1"
	@$(BIN)/python examples/train_cifar10.py $(ARGS)

test: $(VENV)/test.stamp  ## ruff, mypy and every test that this machine can run; ARGS go to pytest
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	git ls-files 'cuda/*' | xargs $(BIN)/clang-format --dry-run --Werror
	$(BIN)/mypy
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(ARGS)

sanitize: $(VENV)/test.stamp  ## every kernel on the CPU under AddressSanitizer and UBSan
	$(BIN)/python -m pytest -m sanitize $(ARGS)

mutate: $(VENV)/test.stamp  ## whether tests notice changes of alpha/, about an hour; ARGS="--count 40 --file alpha/nn"
	@$(BIN)/python -c "import mutmut, coverage" 2>/dev/null || $(PIP) --editable '.[mutate]'
	@$(BIN)/python tests/mutate/mutate.py $(ARGS)

clean:  ## remove the environment and what tools have left; runs/ and datasets/ stay
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/train.stamp: pyproject.toml | $(BIN)/python
	$(call install,plot)
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
