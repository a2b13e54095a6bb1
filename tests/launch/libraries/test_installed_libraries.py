"""Installed libraries are run and verified; others are skipped with the reason."""

import itertools
import json

import pytest
from rich.console import Console

from drbench.launch.cases.case import Case
from drbench.launch.libraries import LIBRARIES, get_library
from drbench.launch.sweeps.progress import SweepProgress
from drbench.launch.sweeps.rounds import Job
from drbench.launch.sweeps.store import open_store
from drbench.launch.sweeps.supervisor import Settings, supervised

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]


@pytest.fixture
def ran(environ, tmp_path):
    """``ran(ranks, case fields, ...)``: the records of cases of one installed library, in
    one mpiexec."""

    def run(ranks, *cases):
        found = get_library(cases[0]["algorithm"]).available()
        if not found.ok:
            pytest.skip(f"{found.what}. {found.get}")
        small = {"m": 24, "n": 32, "k": 40, "iters": 1, "budget": 0, "threads": 1}
        todo = [Job(str(at), ranks, Case(**small | case)) for at, case in enumerate(cases)]
        console, ids = Console(), [job.name for job in todo]
        with open_store(tmp_path / "runs", ranks, ids, console) as store:
            settings = Settings(timeout_s=90, environ=environ())
            watch = SweepProgress(len(todo), [], console)
            with supervised(settings, store, watch) as measure:
                return list(map(measure, todo))

    return run


def dtensor(*texts, **more):
    return {"algorithm": "dtensor", **dict(zip("abc", texts)), **more}


def check_exact(records):
    """The records, each of an exact result."""
    for record in records:
        assert (record.status, record.error) == ("ok", 0.0), (record.options, record.reason)
    return records


#: Their settings run with those of other tests.
TOGETHER = {"cosma", "scalapack", "dtensor", "dtensor+drbench", "jax"}


@pytest.mark.parametrize("name", sorted(LIBRARIES.keys() - TOGETHER))
def test_every_setting_is_exact_or_refused_with_a_reason(ran, name):
    cases = [{"algorithm": name, **setting} for setting in get_library(name).settings(4)]
    check_exact(ran(4, *cases))


@pytest.mark.torch
@pytest.mark.timeout(240)
def test_dtensor_by_torch_and_by_drbench_is_exact_and_records_what_moves(ran):
    ragged = {"m": 23, "n": 31, "k": 41}
    narrow = {"dtype": "bfloat16:float32", "k": 640, "gemm_only": True}
    given = {
        "outer": ["column row row", {}],
        "inner": ["row row row", {}],
        "ragged": ["row row row", ragged],
        "ragged columns": ["column row column", ragged],
        "replicated": ["row column row/c4", ragged | {"dtype": "float64"}],
        "still": ["row/c4 column column", {}],
        "transposed": ["column row column", ragged | {"transpose": "ab"}],
        "one transposed": ["block block block", ragged | {"transpose": "b"}],
        "placements": ["S(0) S(0) S(1)", ragged],
        "narrow": ["column row row", narrow],
        "narrow columns": ["row column column", narrow],
        "tf32": ["row row row", {"compute": "tf32"}],
        "uniform": ["row row row", narrow | {"fill": "uniform"}],
        "tiles": ["tiles:2x2@2x2 row row", {}],
    }
    both = "dtensor", "dtensor+drbench"
    settings = [
        {"algorithm": name, **each} for name in both for each in get_library(name).settings(4)
    ]
    cases = [
        dtensor(*layouts.split(), **more) | {"algorithm": name}
        for name in both
        for layouts, more in given.values()
    ]
    records = ran(4, *settings, *cases)
    check_exact(records[: len(settings)])
    del records[: len(settings)]
    words = "arithmetic of GPUs", "cannot be verified", "tiles"
    for name in both:
        found = dict(zip(given, records))
        del records[: len(given)]
        for refused, word in zip(("tf32", "uniform", "tiles"), words):
            record = found.pop(refused)
            assert record.status == "unsupported" and word in record.reason
        check_exact(found.values())
        for record in (found["narrow"], found["narrow columns"]):
            assert (record.dtype, record.compute) == ("bfloat16", None) and record.gemm_only_gflops
        outer, inner, still = (found[each] for each in ("outer", "inner", "still"))
        if name == "dtensor":
            scattered = 4 * 3 * 24 * 32 // 4
            assert (outer.dataflow, outer.collective_bytes) == ("mm, reduce_scatter", 4 * scattered)
            # partial sums are in bfloat16 too
            assert found["narrow"].collective_bytes == 2 * scattered
            assert (still.dataflow, still.collective_bytes) == ("mm", 0)
            assert inner.dataflow.startswith("all_gather")
            assert (inner.transport, inner.mesh) == ("gloo", "4")
        else:
            for record in found.values():
                assert record.dataflow.startswith("one-sided S-")
                assert record.blas.startswith("torch") and 0 < record.cpu_s < 100 * record.time_s
            assert outer.moved_bytes > 0 and outer.moved_bytes % 4 == 0


def test_scalapack_is_exact_with_any_block_grid_panel_and_transposed_operands(ran, dealt):
    shape = {"algorithm": "scalapack", "m": 45, "n": 50, "k": 61}
    given = (
        {"block": 7, "mesh": "2x2"},
        {"mesh": "4x1", "block": 16},
        {"panel": 8, "block": 8},
        {"mesh": "1x4", "panel": 5},
    )
    cases = [
        shape | {"transpose": transpose, "options": options}
        for transpose in ("", "a", "b", "ab")
        for options in ({}, *given)
    ]
    cases = dealt(cases, 0, 4) + [case | {"dtype": "float64"} for case in cases[1::5]]
    cases += [{"algorithm": "scalapack", **each} for each in get_library("scalapack").settings(4)]
    for case, record in zip(cases, check_exact(ran(4, *cases)), strict=True):
        given = case.get("options", {}).items()
        assert all(getattr(record, name) == value for name, value in given), case


def test_heat_reports_where_nothing_moves_and_refuses_what_it_cannot_divide(ran):
    everywhere = {"algorithm": "heat", "a": "row", "b": "row/c2"}
    still, moves, ragged = ran(2, everywhere, everywhere | {"b": "row"}, everywhere | {"m": 23})
    assert (still.status, still.error, still.moved_bytes, still.c) == ("ok", 0.0, 0, "row")
    assert (moves.status, moves.moved_bytes) == ("ok", None)
    assert ragged.status == "unsupported" and "divides m evenly" in ragged.reason


def test_pylops_refuses_ranks_that_make_no_square(ran):
    (record,) = ran(2, {"algorithm": "pylops"})
    assert record.status == "unsupported" and "must be a square number" in record.reason


#: Libraries and their markers.
RUN = {"dtensor": "torch", "jax": "jax"}


ON_A_MESH = ["row", "column", "block", "S(1),S(0)@2x2", "column/c2", "R"]


@pytest.mark.jax
@pytest.mark.parametrize("ranks, some", [(1, None), (2, None), *((4, a) for a in ON_A_MESH)])
def test_jax_is_exact_for_every_layout_of_a_b_and_c(ran, ranks, some):
    """216 triples on four ranks: each matrix in each of six layouts."""
    texts = ON_A_MESH if some else ["row", "column", "R"]
    triples = [*itertools.product([some] if some else texts, texts, texts)]
    cases = [{"algorithm": "jax", **dict(zip("abc", triple))} for triple in triples]
    for triple, record in zip(triples, check_exact(ran(ranks, *cases)), strict=True):
        assert (record.a, record.b, record.c) == triple and record.transport == "gloo"


@pytest.mark.jax
def test_jax_in_every_type_transposed_on_other_threads_and_what_it_refuses(ran):
    given = {
        "double": {"dtype": "float64", "a": "column", "b": "row"},
        "complex": {"dtype": "complex64", "b": "column", "transpose": "a"},
        "complex double": {"dtype": "complex128", "transpose": "ab"},
        "narrow": {"dtype": "bfloat16:float32", "k": 648, "a": "column", "b": "row"},
        "uniform": {"fill": "uniform", "k": 4032, "gemm_only": True},
        "two threads": {"threads": 2, "m": 516, "n": 516, "k": 516},
        "one thread again": {"m": 516, "n": 516, "k": 516, "a": "R", "iters": 20},
        "still": {"a": "R", "b": "column", "c": "column"},
        "unequal meshes": {"a": "block:2x3", "b": "block:3x2", "c": "row"},
        "uneven": {"m": 25},
        "tiles": {"a": "tiles:2x2@2x3"},
        "tf32": {"compute": "tf32"},
        "narrow uniform": {"dtype": "bfloat16:float32", "fill": "uniform"},
    }
    size = {"m": 24, "n": 36, "k": 48}
    found = dict(
        zip(given, ran(6, *({"algorithm": "jax"} | size | each for each in given.values())))
    )
    words = "25 rows on 6 ranks", "jax: tiles", "arithmetic of GPUs", "cannot be verified"
    for name, word in zip([*given][-4:], words):
        refused = found.pop(name)
        assert refused.status == "unsupported" and word in refused.reason
    uniform = found.pop("uniform")
    # 4032 products of float32, none rounded to fewer digits
    assert uniform.status == "ok" and 0 < uniform.error < 1 and uniform.gemm_only_gflops > 0
    check_exact(found.values())
    assert (found["narrow"].dtype, found["narrow"].dataflow) == ("bfloat16", "all-reduce")
    assert (found["still"].dataflow, found["still"].moved_bytes) == (None, 0)
    assert (found["double"].dataflow, found["double"].moved_bytes) == ("all-reduce", None)
    alone = found["one thread again"]
    assert alone.blas.startswith("jax ") and alone.cpu_s <= 1.1 * alone.time_s  # one core


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=getattr(pytest.mark, mark)) for name, mark in RUN.items()]
)
def test_a_run_of_a_library_ends_in_order(drbench, name):
    found = get_library(name).available()
    if not found.ok:
        pytest.skip(f"{found.what}. {found.get}")
    ended = drbench(
        *f"run -p 2 -m 24 -n 32 -k 40 --algorithm {name} --iters 1 --budget 0 --json".split(),
        timeout=90,
    )
    assert (ended.returncode, ended.left) == (0, ()) and json.loads(ended.stdout)[
        "percent_of_gemm_only"
    ] > 0
