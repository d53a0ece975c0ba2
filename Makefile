# `make demo` and `make test` do all set-up: a virtual environment in .venv, the versions pinned in
# constraints.txt, an editable install. Needs Python >= 3.10 with pip and venv, and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Real data is found through TAUFLOW_DATA; a folder beside the checkout is taken if it is there.
ifneq ($(wildcard ../shared/data),)
export TAUFLOW_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test lint types unit quick robustness install clean

demo: install
	$(BIN)/tauflow run pendulum

test: install lint types unit

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

# Every test runs once; in the annotated rooms with the shapes and types of every call checked.
# One thread for each of the two processes: with more they wait for each other on two cores.
unit: export OMP_NUM_THREADS := 1
unit: install
	$(BIN)/python -m pytest -q -n 2 -m "not typed"
	$(BIN)/python -m pytest -q -n 2 -m typed \
		--jaxtyping-packages=tauflow.cells,tauflow.solvers,tauflow.sequence,beartype.beartype

# For people at work: every test that is not slow, with few of its parameters; no lint, no types.
quick: export OMP_NUM_THREADS := 1
quick: install
	$(BIN)/python -m pytest -q -n 2 --quick

# Kills, broken files, full disks, forks, long runs: all tries, of which `make test` makes a few.
robustness: export OMP_NUM_THREADS := 1
robustness: install
	$(BIN)/python -m pytest -q -n 2 --full tests/robustness

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("tauflow needs Python 3.10 or newer, this is " + sys.version.split()[0] + ". Choose one with: make PYTHON=python3.12 ...") if sys.version_info < (3, 10) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
