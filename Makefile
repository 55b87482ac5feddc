# Two commands: `make serve` and `make test`. `make help` lists the rest.
#
# Everything is installed into .venv, from requirements/. A stamp keyed on those files, the native sources and
# the Python version makes a second run start at once.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup serve test check

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
HTTP_PORT ?= 8000
GRPC_PORT ?= 8001
METRICS_PORT ?= 8002
OPENAI_PORT ?= 8003
API_KEYS ?=
POLICY ?=
CUTOFF ?=
SMALL ?=
LARGE ?=
TEST_WORKERS ?= 2
COVERAGE_MIN ?= 95

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
STAMP := $(VENV)/.installed-$(VERSION)
NATIVE := $(wildcard router_backend/native/*.cpp router_backend/native/*.h router_backend/native/*.inc)

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile
	@echo
	@echo '  make setup PYTHON=python3.12 TORCH_INDEX=<index of CPU builds>'
	@echo '  make serve HTTP_PORT=9000 GRPC_PORT=9001 METRICS_PORT=9002 OPENAI_PORT=9003 POLICY=r_stitch CUTOFF=0.3'
	@echo '  make serve SMALL=<Hugging Face directory> LARGE=<Hugging Face directory>'

setup: $(STAMP)  ## .venv with pinned dependencies; nothing to do when it is current

$(STAMP): requirements/all.txt requirements/constraints.txt requirements/torch.txt requirements/triton.txt requirements/install.sh setup.py pyproject.toml $(NATIVE)
	@PYTHON='$(PYTHON)' VENV='$(VENV)' TORCH_INDEX='$(TORCH_INDEX)' bash requirements/install.sh
	@touch $@

serve: setup  ## start Triton with both models, print the URLs and examples; Ctrl-C stops it
	@exec $(PY) -m tools.serve --http-port $(HTTP_PORT) --grpc-port $(GRPC_PORT) --metrics-port $(METRICS_PORT) \
	  --openai-port $(OPENAI_PORT) $(if $(API_KEYS),--api-keys '$(API_KEYS)') \
	  $(if $(POLICY),--policy $(POLICY)) $(if $(CUTOFF),--cutoff $(CUTOFF)) \
	  $(if $(SMALL),--small '$(SMALL)') $(if $(LARGE),--large '$(LARGE)')

test: setup  ## the whole suite, a real Triton server included
	@$(PY) -m pytest -n $(TEST_WORKERS) \
	  --cov=router_backend --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE_MIN) $(TESTS)

check: setup  ## ruff, mypy --strict, and the tests that keep the architecture and the style
	@$(PY) -m ruff check .
	@$(PY) -m mypy --strict
	@$(PY) -m pytest tests/test_architecture.py tests/test_tidy.py tests/test_readme.py
