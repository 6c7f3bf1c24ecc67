# Two commands: `make demo` and `make test`. Needs Python 3.11 or newer, make, and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported: compiling all of them takes half a minute.
PIP := $(BIN)/python -m pip install --quiet --no-compile

.PHONY: demo test test-engines lint check fix bench peers env dev clean
.DEFAULT_GOAL := demo

$(BIN)/bakeoff: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml $(BIN)/bakeoff
	$(PIP) --upgrade "pip>=25.1"
	$(PIP) --group dev
	@touch $@

env: $(BIN)/bakeoff ## the environment to use bakeoff
dev: $(VENV)/.dev ## the environment to work on bakeoff

demo: env ## a small real sweep, a verdict, reports/demo.html
	$(BIN)/bakeoff demo

test: dev ## every test, the end-to-end test on the real engine included
	$(BIN)/python -m pytest

test-engines: dev ## real engines on the CPU: installed, started, compared; beside their emulators
	$(BIN)/python -m pytest -m engine tests/engines

lint: dev ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test ## format, lint, types, tests

fix: dev ## format, and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: dev ## how truthful and how fast we are; ratios and errors, no tests
	$(BIN)/python benchmarks/bench_server.py
	$(BIN)/python benchmarks/bench_truth.py
	$(BIN)/python benchmarks/bench_rate.py
	$(BIN)/python benchmarks/bench_memory.py
	$(BIN)/python benchmarks/bench_telemetry.py
	$(BIN)/python benchmarks/bench_cli.py

peers: dev ## the same load by other tools, each in an environment of its own
	$(BIN)/python benchmarks/bench_peers.py --install
	$(BIN)/python benchmarks/bench_peers.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
