"""Sweeps without ranks (:func:`rows`)."""

import pytest

from drbench.measure.record import Record
from launch.cases.case import case_keys


@pytest.fixture
def sweep_file(tmp_path):
    """``sweep_file(text, name=)``: a sweep file of tiny cases, without repeats and with one thread
    a rank, unless the text says so."""

    def write(text, name="tiny"):
        path = tmp_path / f"{name}.toml"
        path.write_text(f'name = "{name}"\n[defaults]\niters = 1\nwarmup = 0\nthreads = 1\n{text}')
        return str(path)

    return write


def made_up(what, ranks=2, status="ok", **fields):
    """A row of a case that never ran."""
    result = {"best_s": 0.5, "gflops": 1.0} if status == "ok" else {"reason": "made up"}
    return Record(
        mode="measured", status=status, ranks=ranks, **{**case_keys(what), **result, **fields}
    )


@pytest.fixture
def rows():
    """``rows(case, ...)``: see :func:`made_up`."""
    return made_up
