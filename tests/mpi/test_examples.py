"""The programs of ``examples/`` under mpiexec, as a user starts them, against NumPy alone."""

import runpy
import sys

import numpy as np
import pytest
from starting import ROOT, run_process

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

EXAMPLES = ROOT / "examples"


@pytest.fixture
def example(mpiexec, tmp_path):
    """``example(ranks, name, *args)``: what it prints."""

    def run(ranks, name, *args, **environ):
        environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [mpiexec, "-n", ranks, sys.executable, EXAMPLES / name, *args]
        ended = run_process(command, tmp_path, environ, 60)
        assert (ended.returncode, ended.stderr, ended.left) == (0, "", ())
        return ended.stdout

    return run


def names(program):
    """What an example defines, without running it."""
    return runpy.run_path(str(EXAMPLES / program))


def test_there_is_a_test_of_every_example():
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == [
        "cholesky.py",
        "conjugate_gradient.py",
        "lu.py",
        "mlp.py",
        "train_dtensor.py",
    ]


@pytest.mark.parametrize("ranks, sides", [(3, 1), (4, 5)])
def test_conjugate_gradients_solve_every_column(example, ranks, sides):
    text = example(ranks, "conjugate_gradient.py", "90", str(sides)).split()
    steps, residual = (float(text[at]) for at in (0, 4))
    assert 3 < steps < 200 and residual < 1e-8


@pytest.mark.parametrize("ranks, n, block", [(1, 30, 8), (3, 61, 7)])
def test_cholesky_factors_a_matrix_in_tiles(example, ranks, n, block):
    made = names("cholesky.py")["matrix"](np.arange(n), np.arange(n))
    line = example(ranks, "cholesky.py", str(n), str(block)).split()
    assert np.isclose(float(line[2].strip(",")), np.linalg.slogdet(made)[1], rtol=1e-10)
    assert float(line[-1]) < 1e-12


@pytest.mark.parametrize("ranks, n, block", [(4, 61, 7)])
def test_lu_factors_a_matrix_in_tiles(example, ranks, n, block):
    made = names("lu.py")["matrix"](np.arange(n), np.arange(n), n)
    line = example(ranks, "lu.py", str(n), str(block)).split()
    assert np.isclose(float(line[2].strip(",")), np.linalg.slogdet(made)[1], rtol=1e-10)
    assert float(line[-1]) < 1e-12


def test_the_mlp_learns_as_numpy_does(example, mpi_library):
    """Each rank is a node of its own, where the library is MPICH, which can pretend that."""
    mpich = mpi_library[0].startswith("MPICH")
    environ = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"} if mpich else {}
    text = names("mlp.py")
    X, T, W1, W2 = text["data"]()
    losses = []
    for _ in range(12):
        H = np.maximum(X @ W1, 0)
        E = H @ W2 - T
        losses.append(0.5 * np.vdot(E, E))
        gradient = X.T @ ((E @ W2.T) * (H > 0))
        W2 = W2 - text["RATE"] * (H.T @ E)
        W1 = W1 - text["RATE"] * gradient
    assert losses[-1] < 0.5 * losses[0]
    line = example(3, "mlp.py", "12", **environ).split()
    assert np.allclose([float(line[1]), float(line[3])], [losses[0], losses[-1]], rtol=1e-9)


@pytest.mark.torch
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_a_dtensor_model_learns_as_one_process_does(example, ranks):
    pytest.importorskip("torch")
    text = names("train_dtensor.py")
    x, wanted, model = text["data"]()
    losses = text["train"](model, x, wanted, 8)
    assert losses[-1] < 0.9 * losses[0]
    line = example(ranks, "train_dtensor.py", "8").split()
    assert np.allclose([float(line[1]), float(line[3].strip(";"))], [losses[0], losses[-1]])
    assert f"drbench={8 * 5}" in "".join(line)
