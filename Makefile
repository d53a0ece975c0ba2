# `make demo` and `make test` do all set-up: a virtual environment in .venv, the versions pinned in
# constraints.txt, an editable install, what the tests need beside it. Needs Python >= 3.10 with pip
# and venv, and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
INSTALLED_DOCS := $(VENV)/.installed-docs

# Real data is found through TAUFLOW_DATA; a folder beside the checkout is taken if it is there.
ifneq ($(wildcard ../shared/data),)
export TAUFLOW_DATA ?= $(abspath ../shared/data)
endif

# The shell may forbid it, and then every child of the suite compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test full lint types kernels-1 kernels-2 unit quick robustness library docs install clean

demo: $(INSTALLED)
	$(BIN)/tauflow run pendulum --epochs 50

# While two processes compile the kernels, which tests would wait for, a third one, which would take
# longest, installs what tests need and checks style and types.
test: $(INSTALLED)
	$(MAKE) -j 3 lint types $(KERNELS)
	$(MAKE) unit ALL=$(ALL)

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	test ! -x $(BIN)/lint-imports || $(BIN)/lint-imports  # which needs Python 3.11

types: install
	$(BIN)/mypy

# Two lots that take as long as each other; what they lack is compiled by the tests that need it.
KERNELS := kernels-1 kernels-2
kernels-1: LOT := ltc ct-gru
kernels-2: LOT := gru-d phased-lstm lrc
$(KERNELS): export OMP_NUM_THREADS := 1
$(KERNELS): $(INSTALLED)
	nice $(BIN)/tauflow precompile $(LOT)

# Two processes, of one thread each: with more they wait for each other on two cores. Each takes
# neighbouring tests, which share what they make, and at the end some of what the other has left.
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist worksteal
TYPED := tests/conformance/test_contract.py tests/unit/solvers

# In those, which call every cell and solver, with the shapes and types of every call checked.
unit: export OMP_NUM_THREADS := 1
unit: install
	$(PYTEST) $(ALL) -m "not typed"
	$(PYTEST) $(ALL) -m typed $(TYPED) \
		--jaxtyping-packages=tauflow.cells,tauflow.solvers,tauflow.sequence,beartype.beartype

# With all parameters and tries, of which `make test` takes a part where a part tells nearly as much.
full: ALL := --full
full: test

# For people at work: every test that is not slow, with few of its parameters; no lint, no types.
quick: export OMP_NUM_THREADS := 1
quick: install
	$(PYTEST) --quick

# Kills, broken files, full disks, forks, long runs, every cell exported: all tries, of which `make
# test` makes a few.
robustness: export OMP_NUM_THREADS := 1
robustness: install
	$(PYTEST) --full tests/robustness tests/unit/export/test_every_cell.py \
		papers/tests/robustness papers/tests/experiments/run/test_killed.py

# What compiles and runs C for Cortex-M cores; without it those tests are skipped. On Debian.
.PHONY: cortex-m
cortex-m:
	apt-get update
	apt-get install -y --no-install-recommends gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm
	OMP_NUM_THREADS=1 $(PYTEST) tests/unit/export/test_cortex_m.py

# The library alone: its wheel, in an environment without tauflow-papers, passes its own tests.
LIBRARY := .venv-library
library: export OMP_NUM_THREADS := 1
library:
	$(PYTHON) -m venv --clear $(LIBRARY)
	$(LIBRARY)/bin/python -m pip wheel --quiet --no-deps --wheel-dir $(LIBRARY)/dist .
	$(LIBRARY)/bin/python -m pip install --quiet -c constraints.txt "$$(echo $(LIBRARY)/dist/*.whl)[dev]"
	$(LIBRARY)/bin/python -m pytest -q -n 2 --dist worksteal $(ALL) tests --ignore tests/repo

# The site, in docs/_build/html: runs the code of every page, needs no network once it is set up.
docs: export OMP_NUM_THREADS := 1
docs: $(INSTALLED_DOCS) $(KERNELS)  # else pages would show that they are compiled
	PATH="$(CURDIR)/$(BIN):$$PATH" sphinx-build -W --keep-going -n -q -j 2 docs docs/_build/html

install: $(INSTALLED_DEV)

# Without compiling all modules to bytecode, which takes half the time: most are never imported.
$(INSTALLED): pyproject.toml papers/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("tauflow needs Python 3.10 or newer, this is " + sys.version.split()[0] + ". Choose one with: make PYTHON=python3.12 ...") if sys.version_info < (3, 10) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e . -e papers
	touch $@

# By its name tauflow stays as it is, and those who run it notice nothing.
$(INSTALLED_DEV): $(INSTALLED)
	$(PIP) 'tauflow[dev]'
	touch $@

$(INSTALLED_DOCS): $(INSTALLED_DEV)
	$(PIP) 'tauflow[docs]'
	touch $@

clean:
	rm -rf $(VENV) $(LIBRARY) docs/_build docs/api/generated docs/examples .pytest_cache .mypy_cache .ruff_cache .hypothesis
