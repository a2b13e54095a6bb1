"""Reproduction sweeps run the paper's own program; users keep the faster one."""

from dataclasses import replace
from itertools import islice

import pytest

from drbench.algorithms import get_algorithm
from drbench.algorithms.registry import Algorithm
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.cases.sweep_file import load_sweep
from drbench.launch.models.predict import predict, programs_of, with_interval
from drbench.launch.models.simulate_sweeps import legend_cases, simulated
from drbench.launch.sweeps.plan import SweepRequest, plan_cases
from drbench.launch.sweeps.rounds import Job
from drbench.program.problem import Problem


@pytest.mark.parametrize("ranks", [8, 12])
@pytest.mark.parametrize("sweep", ["mlp1", "mlp2", "lowering"])
def test_all_cases_fetch_tiles_push_replicas_and_have_tall_grids(sweep, ranks):
    paper = sweep == "lowering"
    cases = load_sweep(sweep, ranks, simulate=True).cases if paper else legend_cases(sweep, ranks)
    seen = set()
    for case in cases:
        if case.algorithm == "dtensor_mm":
            assert (case.options, case.a) == ({}, case.b)
            continue
        options = {name: case.options[name] for name in ("chunk", "fetch", "reduce")}
        assert options == {"chunk": "none", "fetch": "tile", "reduce": "push"}
        for text in (case.a, case.b, case.c):
            kind, _, rest = text.partition(":")
            if kind != "block":
                continue
            grid, _, factor = rest.partition("/c")
            rows, columns = map(int, grid.split("x"))
            assert rows >= columns and rows * columns * int(factor or 1) == ranks
            # near-square: no divisor is in between
            assert not [d for d in range(columns + 1, rows) if rows * columns % d == 0]
            seen.add(grid)
    assert seen >= ({"4x3"} if ranks == 12 else {"4x2"})


def test_a_given_option_of_gpus_keeps_its_cases_on_cores_which_refuse_it():
    plan = lambda *pairs: plan_cases(SweepRequest("optimisations", 2, "out", override=pairs)).jobs
    assert {job.case.max_gemms for job in plan()} == {None}
    assert 2 in {job.case.max_gemms for job in plan(("max_gemms", "2"))}


def test_options_override_the_paper_and_users_get_slices():
    case = next(legend_cases("mlp2", 8, options={"fetch": "slice"}))
    assert (case.options["fetch"], case.options["reduce"]) == ("slice", "push")
    problem = Problem(64, 64, 64, 8, a="row", b="row", c="row")
    assert not {"fetch", "reduce"} & get_algorithm("universal").resolve(problem, True).keys()


def records_of(cases, machine, ranks):
    """The records of some cases."""
    with simulated(machine, None, None) as predict_job:
        return [predict_job(Job("id", ranks, case)) for case in cases]


@pytest.mark.parametrize("name, ranks", [("h100x8", 8), ("pvc12", 12)])
def test_cases_of_a_simulated_sweep_have_the_interval_of_the_single_problem_traced_once(
    name, ranks, monkeypatch
):
    """Also cases that are lowered by the costs of the machine, and cases that are refused."""
    machine, mine = find_machine(name), list(islice(legend_cases("mlp1", ranks), 0, None, 120))
    cost = replace(mine[0], options={"stationary": "C", "schedule": "cost"})
    refused = replace(mine[0], a="tiles:0x0")
    singly = [predict(case, machine, ranks) for case in [*mine, cost]]
    singly = [
        with_interval(record, case, machine, ranks) for record, case in zip(singly, [*mine, cost])
    ]
    traced, trace = [], Algorithm.trace
    monkeypatch.setattr(
        Algorithm,
        "trace",
        lambda self, problem, rank, **more: (
            traced.append(rank) or trace(self, problem, rank, **more)
        ),
    )
    together = records_of(mine, machine, ranks)
    once = len(traced)
    for case in mine:
        programs_of(case, machine, ranks)
    assert once == len(traced) - once > 0
    together += records_of([cost, refused], machine, ranks)
    assert together.pop().status == "failed"
    for record, single in zip(together, singly, strict=True):
        assert record.median_low_s < record.median_s < record.median_high_s
        for column in ("median_low_s", "median_high_s", "percent_of_gemm_only_low", "best_s"):
            assert getattr(record, column) == pytest.approx(getattr(single, column), rel=1e-12)
        assert record.plan_s > 0


def test_the_program_of_the_paper_is_predicted_unless_options_override_it():
    ours = load_sweep("mlp1", 8, overrides=[("paper", "false")], simulate=True).cases
    assert ours == load_sweep("mlp1", 8).cases != load_sweep("mlp1", 8, simulate=True).cases
