"""``drbench bounds``: what each way to multiply needs, against elements looked up one by one."""

import json
from dataclasses import replace

import pytest

from algorithms import get_algorithm
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine
from drbench.program.problem import Problem
from launch.cases.case import Case
from launch.models.needs import ALL_RANKS, bound_bytes, fastest_grid, needs, preset_need
from partitions import PRESETS, Grid, frontier, moved, needed, optimal_grid, preset
from plots.figures.bounds import ROWS

CASE = Case(768, 8, 16)  # B is small: all by rows, little moves


def by_name(rows):
    return {row.name: row for row in rows}


@pytest.fixture(scope="module")
def eight():
    return by_name(needs(CASE, 8))


def test_every_preset_and_algorithm_has_a_row(eight):
    assert {*PRESETS, "summa", "cannon", "fsdp", "ag_gemm"} <= eight.keys()
    assert "square process mesh" in eight["cannon"].reason  # 8 is no square
    for row in eight.values():
        assert bool(row.reason) == (row.needed is None)


def test_nobody_needs_less_than_the_bound_and_optimal_needs_least(eight):
    ran = [row for row in eight.values() if not row.reason]
    assert min(row.needed for row in ran) == eight["optimal"].needed
    assert eight["optimal"].needed >= bound_bytes(CASE, 8)
    assert all(row.needed >= row.moved and row.memory > 0 for row in ran)


def test_optimal_is_counted_as_its_closed_form_says(eight):
    grid = optimal_grid(768, 8, 16, 8)
    row = eight["optimal"]
    assert (row.how, row.needed) == (f"grid {grid}", 4 * needed(grid, 768, 8, 16))
    assert row.moved == 4 * moved(grid, 768, 8, 16)


def test_rows_need_what_their_ranks_store_and_lack(eight):
    """All by rows, C staying: a rank has 96 rows of A and C, and needs all of B."""
    assert eight["row"].how == "S-C"
    assert eight["row"].needed == 4 * (96 * 16 + 16 * 8 + 96 * 8)
    assert eight["row"].moved == 4 * 16 * 8 * 7 // 8
    assert eight["sequence"].moved == 0 and eight["sequence"].needed == eight["row"].needed


def test_a_memory_limit_names_what_does_not_fit():
    case, limit = Case(512, 512, 512), 9 << 17
    rows = by_name(needs(case, 8, limit))
    assert "bytes of memory a rank" in rows["sequence"].reason
    assert not rows["optimal"].reason and rows["optimal"].memory <= limit
    assert bound_bytes(case, 8, 3 << 17) >= bound_bytes(case, 8)


def test_many_ranks_are_counted_by_three_of_them():
    assert ALL_RANKS < 125
    row = preset_need(Case(100, 100, 100), "optimal", 125)
    assert row.needed == 4 * needed(Grid(5, 5, 5), 100, 100, 100)


def test_the_command_prints_rows_and_ratios(say):
    words = ("bounds", "-m", 512, "-n", 512, "-k", 512, "-p", 8)
    shown = say(*words)
    assert "grid 2x2x2" in shown.stdout and "1.000" in shown.stdout
    assert "not cannon: " in shown.stdout
    found = say(*words, "--memory", "2MiB", "--json").json()
    first = found["rows"][0]
    ratio = first["needed_bytes"] / found["bound_bytes"]
    assert (first["name"], first["ratio"]) == ("optimal", ratio)
    assert say(*words, "--memory", "1KiB").refusal(2)


def test_rows_of_several_numbers_of_ranks_are_added_to_a_file_and_drawn(say, tmp_path):
    csv, figure = tmp_path / "needs.csv", tmp_path / "needs.png"
    sizes = ("bounds", "-m", 64, "-n", 64, "-k", 64, "--csv", csv)
    assert "4 ranks: some rank" in say(*sizes, "--ranks-list", "2,4", "--figure", figure).stdout
    assert figure.stat().st_size > 10_000
    told = say(*sizes, "--ranks-list", "2,8", "--json").json()
    assert [each["ranks"] for each in told] == [2, 8]
    rows = ROWS.read([csv])
    assert {row.ranks for row in rows} == {2, 4, 8}
    best = [row for row in rows if (row.ranks, row.name) == (8, "optimal")]
    assert [(row.how, row.ratio) for row in best] == [("grid 2x2x2", 1.0)]
    assert [row.reason for row in rows if row.name == "cannon" and row.ranks == 8] != [""]
    (tmp_path / "other.csv").write_text("a,b\n")
    for wrong, words in (
        (("-p", 2, "--ranks-list", "2,4"), "Leave one out"),
        ((), "-p is missing"),
        (("-p", 2, "--csv", tmp_path / "other.csv"), "holds no needs"),
    ):
        assert words in say("bounds", "-m", 64, "-n", 64, "-k", 64, *wrong).refusal(2)


def test_the_matrix_that_stays_is_the_one_of_which_steps_move_least():
    """Against the traces of all three, on shapes where each wins somewhere."""
    winners = set()
    for sizes, name in (((512, 16, 16), "inner"), ((16, 512, 16), "outer"), ((16, 16, 512), "row")):
        case = Case(*sizes, **dict(zip("abc", preset(name, 4))))
        problem = Problem(*sizes, 4, case.a, case.b, case.c)
        least = {}
        for stationary in "CBA":
            traces = [
                get_algorithm("universal").trace(problem, rank, stationary=stationary)
                for rank in range(4)
            ]
            least[stationary] = max(
                sum(problem.tile_bytes(trace.rank).values())
                + sum(size for step in trace.steps for _, size in step.moved(trace.rank)) * 4
                for trace in traces
            )
        row = preset_need(replace(case, a=None, b=None, c=None), name, 4)
        assert row.needed == min(least.values()) == least[row.how[-1]]
        winners.add(row.how)
    assert len(winners) > 1


def of_speeds(flops, wire):
    return Machine("toy", Compute(flops), (Link("wire", wire),))


def test_ranks_are_left_idle_where_the_machine_gains_by_it():
    """Of 11 ranks 2x2x2 needs least, 11x1x1 multiplies least; a fast network wants all ranks, a
    slow one three idle, and something between a trade."""
    case, sizes = Case(880, 880, 880), (880, 880, 880)
    grids = frontier(*sizes, 11)
    assert grids[0] == Grid(2, 2, 2) and grids[-1].size == 11
    assert fastest_grid(case, 11, of_speeds(1e9, 1e15)) == grids[-1]
    assert fastest_grid(case, 11, of_speeds(1e15, 1e6)) == grids[0]
    chosen = {fastest_grid(case, 11, of_speeds(1e9, 10**power)) for power in range(6, 12)}
    assert chosen <= {*grids} and len(chosen) > 1
    row = preset_need(case, "optimal", 11, machine=of_speeds(1e15, 1e6))
    assert row.how == "grid 2x2x2, 3 idle"


def test_the_command_asks_the_machine_that_is_named(say):
    words = ("bounds", "-m", "4Ki", "-n", "4Ki", "-k", "4Ki", "-p", 11)
    assert "grid 2x2x2, 3 idle" in say(*words).stdout
    shown = say(*words, "--machine", "pvc12").stdout
    assert "fastest on pvc12" in shown and "grid 5x2x1, 1 idle" in shown
    assert "12 devices" in say(*words[:-1], 13, "--machine", "pvc12").refusal(2)


def test_the_preset_runs_by_the_universal_algorithm_on_its_grid(say):
    words = ("plan", "-p", 5, "-m", 64, "-n", 64, "-k", 64, "--preset", "optimal", "--json")
    plan = say(*words).json()
    assert f"grid:{optimal_grid(64, 64, 64, 5)}" in json.dumps(plan)
