# Two commands matter: `make up` (a first answer on this machine) and `make test` (everything that this machine can prove).
.DEFAULT_GOAL := help
.PHONY: help setup up down test check unit golden bench wheel clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made-by-make

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make setup    a virtual environment with sparkctl, its tests and a real vLLM + Ray for the CPU
setup: $(STAMP)
$(STAMP): pyproject.toml containers/cpu/lock.txt containers/cpu/install.sh
	PYTHON="$(PYTHON)" sh containers/cpu/install.sh $(VENV)
	@touch $@

## make up       a real OpenAI-compatible endpoint on this machine, and one answer from it
up: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/sparkctl up tiny --nodes 2
	@$(BIN)/python containers/cpu/first_answer.py

## make down     stop it again
down: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/sparkctl down tiny

## make test     every suite that this machine can run, with the time of each
test: $(STAMP)
	@sh tests/run.sh

## make check    style, types and the contracts between the rooms
check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(STAMP)
	$(BIN)/pytest -q tests/unit tests/agent

## make golden   rewrite the golden plans; read the diff
golden: $(STAMP)
	$(BIN)/python -m tests.golden.render

## make bench    speed, as ratios against rivals in the same run
bench: $(STAMP)
	$(BIN)/python -m tests.bench.run

## make wheel    dist/*.whl, with profiles, pins and containers inside
wheel: $(STAMP)
	$(BIN)/python -m build --wheel --outdir dist .

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
