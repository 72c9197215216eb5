# The only entry to set-up, checks and the first sweep. See README.md.
#
#   make sweep                 environment, then a sweep on what is here, signed and verified
#   make sweep SYSTEM_SITE=1   the same with the torch and Triton that python3 already has
#   make test                  environment, then lint, types, contracts and tests
#   make release-check         make test, and committed bundles must not be stale
#   make gpu-test              the tests that need a CUDA device

PYTHON ?= python3
PRESET ?=
WHEELHOUSE ?=
SYSTEM_SITE ?=
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

ifeq ($(SYSTEM_SITE),)
VENV := .venv
else
VENV := .venv-system
endif
TOOLCHAIN := .venv-triton-3.6
BIN := $(VENV)/bin
DEV := .rltune/dev
PIP := -m pip --disable-pip-version-check --no-input

.PHONY: help sweep test lint types contracts pytest stale release-check gpu-test clean

help:
	@sed -n 's/^#   //p' Makefile

.venv/.installed: requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/python $(PIP) install --quiet -r requirements/dev.txt
	.venv/bin/python $(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# Built on the interpreter's own site-packages, also where that interpreter is itself a
# virtual environment: nothing is fetched, unless WHEELHOUSE names a folder of wheels.
.venv-system/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-system
	@$(PYTHON) -c 'import sysconfig as s; print(s.get_path("purelib")); print(s.get_path("platlib"))' \
	  > "$$(.venv-system/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))')/system-site.pth"
	@test -z "$(WHEELHOUSE)" || .venv-system/bin/python $(PIP) install --quiet --no-index \
	  --find-links "$(WHEELHOUSE)" cryptography pydantic rich typer zstandard
	@.venv-system/bin/python tools/check_environment.py
	@pwd > "$$(.venv-system/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))')/rltune-checkout.pth"
	@echo "$$(pwd)/kernels" >> "$$(.venv-system/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))')/rltune-checkout.pth"
	@touch $@

$(TOOLCHAIN)/.installed: requirements/toolchain-triton-3.6.txt
	$(PYTHON) -m venv $(TOOLCHAIN)
	$(TOOLCHAIN)/bin/python $(PIP) install --quiet -r requirements/toolchain-triton-3.6.txt
	@touch $@

sweep: $(VENV)/.installed
	@mkdir -p -m 700 $(DEV)
	@test -f $(DEV)/key.pem || $(BIN)/python -m rltune keygen --key $(DEV)/key.pem \
	  --trust-dir $(DEV)/trust --stream rltune/dev/dev
	$(BIN)/python -m rltune sweep $(if $(PRESET),--preset $(PRESET)) \
	  --output $(DEV)/bundles --stream rltune/dev/dev --key $(DEV)/key.pem --trust-dir $(DEV)/trust

lint: .venv/.installed
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/typos

types: .venv/.installed
	.venv/bin/mypy

contracts: .venv/.installed
	.venv/bin/lint-imports

pytest: .venv/.installed $(TOOLCHAIN)/.installed
	RLTUNE_TOOLCHAIN=$(CURDIR)/$(TOOLCHAIN)/bin/python .venv/bin/python -m pytest -n auto --dist loadfile

stale: .venv/.installed
	.venv/bin/python tools/check_artifacts.py

test: lint types contracts pytest stale

release-check: test
	.venv/bin/python tools/check_artifacts.py --release

gpu-test: $(VENV)/.installed
	$(BIN)/python -m pytest tests/gpu

clean:
	rm -rf .venv .venv-system $(TOOLCHAIN) .cache build dist
