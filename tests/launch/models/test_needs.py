"""``drbench bounds``: what each way to multiply needs, against elements looked up one by one."""

import json

import pytest

from algorithms import get_algorithm
from launch.cases.case import Case
from launch.models.needs import ALL_RANKS, bound_bytes, needs, preset_need
from partitions import PRESETS, Grid, moved, needed, optimal_grid

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
    assert (first["name"], first["ratio"]) == ("optimal", first["needed"] / found["bound_bytes"])
    assert say(*words, "--memory", "1KiB").refusal(2)


def test_the_preset_runs_by_the_universal_algorithm_on_its_grid(say):
    words = ("plan", "-p", 5, "-m", 64, "-n", 64, "-k", 64, "--preset", "optimal", "--json")
    plan = say(*words).json()
    assert f"grid:{optimal_grid(64, 64, 64, 5)}" in json.dumps(plan)
    assert get_algorithm("universal").options["grid"].says == "auto"
