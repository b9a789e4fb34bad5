# hetsched: one command each. Every target does its own set-up; the second run of anything starts at once and needs no network.
#
#   make demo      daemon, four agents and a mixed workload on this machine, with a live view
#   make test      ruff, mypy and the tests (under ten minutes on two cores)
#   make setup     .venv/ with everything in it; afterwards .venv/bin/hetsched is the program
#   make checked   the core with its invariants stated after every door, and the core's and scheduler's tests on it
#   make faults    the matrix of real faults and the long fault tests (hours; ONLY=kill_daemon RUNS=50 for a part)
#   make soak      ten minutes of work and faults, in which nothing may grow      make slow    tests that take minutes
#   make bench     the benchmarks, each named by its question
#   make lint, make format, make clean
#
# PYTHON=/path/to/python3.12 make setup   picks the interpreter; otherwise the first of those below that is new enough.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?=
CANDIDATES := $(PYTHON) python3 python3.13 python3.12 python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP_VENV := $(VENV)/.stamp-venv
STAMP_INSTALL := $(VENV)/.stamp-install
STAMP_CORE := $(VENV)/.stamp-core
CORE_SOURCES := setup.py $(wildcard hetsched/_core.pyx hetsched/_core.pxd hetsched/_core/* hetsched/agent/shim/c/*) hetsched/_scan.pyx $(wildcard hetsched/_scan/*)
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: help setup demo test checked faults soak slow bench lint format clean distclean

help:
	@sed -n '3,13s/^# \{0,3\}//p' Makefile

setup: $(STAMP_CORE)

# An environment that works is kept, whoever made it; a half-made one (an interrupted first run) is thrown away.
$(STAMP_VENV):
	@command -v cc >/dev/null || command -v gcc >/dev/null || { \
	  echo "hetsched: no C compiler found; install one (Debian, Ubuntu: apt install gcc; Fedora: dnf install gcc)" >&2; exit 1; }
	@if $(BIN)/python -c 'import pip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then touch $@; exit 0; fi; \
	found=; for p in $(CANDIDATES); do \
	  if "$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then found=$$p; break; fi; done; \
	if [ -z "$$found" ]; then \
	  echo "hetsched: needs Python 3.11 to 3.13, found none of: $(CANDIDATES); name one with PYTHON=/path/to/python3.12" >&2; exit 1; fi; \
	version=$$("$$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	"$$found" -c 'import sysconfig, os, sys; sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' || { \
	  echo "hetsched: Python $$version has no headers; install them (Debian, Ubuntu: apt install python$$version-dev; Fedora: dnf install python3-devel)" >&2; exit 1; }; \
	echo "hetsched: making $(VENV) with $$found (Python $$version)"; \
	if "$$found" -c 'import ensurepip, venv' 2>/dev/null; then "$$found" -m venv --clear $(VENV); \
	elif command -v virtualenv >/dev/null; then virtualenv -q --clear -p "$$found" $(VENV); \
	else echo "hetsched: Python $$version cannot make an environment; install venv (Debian, Ubuntu: apt install python$$version-venv) or virtualenv" >&2; exit 1; fi
	@touch $@

# Build tools first, so that the build runs here, on them, and not in a second environment downloaded for it alone.
$(STAMP_INSTALL): $(STAMP_VENV) pyproject.toml setup.py
	@echo "hetsched: installing (a minute or two the first time)"
	@$(PIP) install 'setuptools>=77' 'cython>=3.1' wheel
	@$(PIP) install --no-build-isolation -e '.[test]'
	@touch $@

# The installation above has just built it; later, only what is newer than the built file is a reason to build again.
$(STAMP_CORE): $(STAMP_INSTALL) $(CORE_SOURCES)
	@suffix=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))'); built=hetsched/_core$$suffix; \
	if [ ! -e "$$built" ] || [ ! -e "hetsched/_scan$$suffix" ] || [ ! -e hetsched/agent/shim/hs-spawner ] || [ -n "$$(find $(CORE_SOURCES) -newer "$$built")" ]; then \
	  echo "hetsched: building the core"; $(BIN)/python setup.py -q build_ext --inplace; fi
	@touch $@

demo: setup
	@$(BIN)/hetsched demo

test: lint
	@$(BIN)/python -m pytest -q

# The checked core stands in for the release one for the length of the run; the next target builds that again.
checked: setup
	@trap 'rm -f hetsched/_core*.so $(STAMP_CORE)' EXIT; \
	HETSCHED_CHECKED=1 $(BIN)/python setup.py -q build_ext --inplace --force; \
	HETSCHED_CHECKED=1 $(BIN)/python -m pytest -q tests/core tests/scheduler

# What was run is kept in faults.jsonl: whoever is interrupted goes on where he was. RUNS=… and ONLY=… for a part of the matrix.
faults: setup
	@$(BIN)/python -m tests.faults $(if $(ONLY),--only $(ONLY)) $(if $(RUNS),--runs $(RUNS))
	@$(if $(ONLY),:,$(BIN)/python -m pytest -v -m faults tests)

# Work and a fault every few seconds, for SOAK seconds; nothing that anybody holds may grow.
SOAK ?= 600
soak: setup
	@HETSCHED_SOAK_S=$(SOAK) $(BIN)/python -m pytest -q -m faults tests/faults/test_soak.py

slow: setup
	@$(BIN)/python -m pytest -v -m slow tests

bench: setup
	@$(BIN)/python -m loadtest.benches

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: setup
	@$(BIN)/ruff format hetsched loadtest tests examples

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find hetsched \( -name '*.so' -o -name '*.html' -path '*_core*' -o -name '_core.c' \) -delete
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	rm -f $(STAMP_CORE) hetsched/agent/shim/hs-spawner

distclean: clean
	rm -rf $(VENV)
