# Every target does its own set-up on a fresh checkout; the second run takes seconds.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TEST_PROCESSES ?= auto
KERNEL := $(wildcard src/penstock/*/*.pyx src/penstock/*/*.pxd src/penstock/*/*.h)

.PHONY: setup demo test bench chaos lint clean

setup: $(READY)

$(READY): pyproject.toml setup.py constraints.txt scripts/need $(KERNEL)
	@scripts/need python $(PYTHON)
	@scripts/need compiler
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt setuptools Cython
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	@$(BIN)/python -m compileall -q src
	@touch $(READY)

demo: setup
	@scripts/need jdk
	@$(BIN)/python -m demo.run $(SECONDS)

test: setup
	@scripts/need java
	@$(BIN)/python -m pytest -n $(TEST_PROCESSES) --maxprocesses 4 --dist loadfile

bench: setup
	@scripts/need java
	@$(BIN)/python -m bench

chaos: setup
	@$(BIN)/python -m pytest tests/chaos --chaos=long --timeout=1800 -v

lint: setup
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --config pyproject.toml

clean:
	rm -rf $(VENV) build .cache src/penstock/*/*.so
