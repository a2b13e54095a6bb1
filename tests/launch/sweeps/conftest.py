"""Sweeps without ranks (:func:`rows`)."""

from functools import partial

import pytest
from made_up import made_up

from drbench.launch.cases.case import case_keys


@pytest.fixture(scope="session")
def write_sweep():
    """``write_sweep(folder, text, name=, rounds=)``: a sweep file of tiny cases, once each, without
    repeats and with one thread a rank, unless the text sets them."""

    def write(folder, text, name="tiny", rounds="1"):
        path = folder / f"{name}.toml"
        path.write_text(
            f'name = "{name}"\nrounds = {rounds}\n[defaults]\niters = 1\nbudget = 0\n'
            f"warmup = 0\nthreads = 1\n{text}"
        )
        return str(path)

    return write


@pytest.fixture
def sweep_file(tmp_path, write_sweep):
    """``sweep_file(text, name=, rounds=)``: the same in the folder of the test."""
    return partial(write_sweep, tmp_path)


@pytest.fixture
def rows():
    """``rows(case, ranks=, status=, ...)``: a row of a case that never ran."""

    def row(what, ranks=2, status="ok", **fields):
        known = {"gflops": 1.0} if status == "ok" else {}
        return made_up(ranks=ranks, status=status, **{**case_keys(what), **known, **fields})

    return row
