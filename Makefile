# `make demo` and `make test` are all it takes: with Python 3.10 or newer on this machine, each first
# makes the virtual environment it needs, once.

VENV ?= .venv
# Tests that run side by side; each may start servers and workers of its own.
JOBS ?= 2

BIN := $(VENV)/bin
BENCH := build/bench

# The newest that really runs and can make an environment: a shim of a version manager is found on
# PATH and fails, and some distributions part venv from Python.
PYTHONS := python3.13 python3.12 python3.11 python3.10 python3 python
SUITABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))

.PHONY: help demo test check lint types examples docs soak chaos matrix bench clean

help:
	@echo "make demo      a fleet of workers on this machine, one of them killed, checked (90 s)"
	@echo "make test      all tests; the last lines say what was skipped for want of what"
	@echo "make check     lint, types, docs, test and examples: what has to pass before a change"
	@echo "make lint      ruff, rules and format"
	@echo "make types     mypy, strict"
	@echo "make examples  the demo, in a short form"
	@echo "make docs      the pages of docs/ as a site, in site/; fails on a link that leads nowhere"
	@echo "make soak      the long runs"
	@echo "make chaos     a fleet under faults, judged by what it wrote down (MINUTES=2 SEED=...)"
	@echo "make matrix    a part of the tests on every Python, server and age of Celery that is here"
	@echo "make bench     all measurements beside other packages, into docs/benchmarks.md (9 min)"
	@echo "make clean     remove all that these have made"

demo: $(VENV)/.demo
	@$(BIN)/python examples/fleet.py

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

check: lint types docs test examples

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

examples: $(VENV)/.demo
	@$(BIN)/python examples/fleet.py --short

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html"

soak: $(VENV)/.dev
	$(BIN)/python tests/simulation/soak.py --histories 1000000
	$(BIN)/python -m pytest -m soak

# SEED repeats the faults of a run; SERVERS is 1, 3 or both; BROKER redis or rabbitmq; BROKEN a broken
# build, which has to be convicted (docs/chaos.md); PLOT where the timelines go.
MINUTES ?= 2
CHAOS := $(if $(SEED),--seed $(SEED)) $(if $(SERVERS),--servers $(SERVERS)) \
  $(if $(BROKER),--broker $(BROKER)) $(if $(BROKEN),--broken $(BROKEN)) $(if $(PLOT),--plot $(PLOT))

chaos: $(VENV)/.dev
	@PYTHONPATH=tests $(BIN)/python -m chaos --minutes $(MINUTES) $(CHAOS)

matrix: $(BIN)/python
	@$(BIN)/python tests/matrix.py

# In an environment of its own: what is compared with may ask for other versions than the tests do.
bench: $(BENCH)/.made
	@$(BENCH)/bin/python -m benchmarks --docs

clean:
	rm -rf $(VENV) .matrix build dist site *.egg-info .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@for python in $(PYTHONS); do \
	  if $$python -c '$(SUITABLE)' >/dev/null 2>&1; then \
	    echo "Making $(VENV) with $$($$python -V)"; \
	    exec $$python -m venv $(VENV); \
	  fi; \
	done; \
	echo "No Python 3.10 or newer with venv was found among: $(PYTHONS)." >&2; \
	echo "Install one (on Debian and Ubuntu: apt-get install python3-venv) and try again." >&2; \
	exit 1

# A stamp each, so that it is done again only when what is wanted has changed. An old pip knows
# nothing of dependency groups.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@echo "Installing celery-atomicity and a server for it"
	@$(BIN)/python -m pip install --quiet --editable . --group demo
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@echo "Installing celery-atomicity and what its tests need"
	@$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@ $(VENV)/.demo

$(BENCH)/.made: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m venv $(BENCH)
	@$(BENCH)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	@echo "Installing celery-atomicity and what it is compared with"
	@$(BENCH)/bin/python -m pip install --quiet --editable . --group bench
	@touch $@

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@echo "Installing what the site is built with"
	@$(BIN)/python -m pip install --quiet --group docs
	@touch $@
