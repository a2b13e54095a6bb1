"""The ledger: nothing is predicted worse than at the last release, and what would be worse is
found."""

from pathlib import Path
from statistics import fmean, median

import pytest

from launch.papers.ledger import GROUPS, dealt, summed, worse
from launch.papers.ledger.rows import ROWS, LedgerRow

ROOT = Path(__file__).parents[3]
LEDGER = ROOT / "results/ledger.csv"


def point(what, predicted, low=None, high=None, fitted=0, group="g", value=1.0, machine="here"):
    about = ("1.0", group, "measured", machine, 2, what, 8, 8, 8, 1024.0, "s")
    return LedgerRow(*about, value, predicted, low, high, fitted, "file.csv")


@pytest.fixture(scope="module")
def committed():
    return ROWS.read([LEDGER])


def of_group(rows, group):
    return [row for row in rows if row.group == group]


def test_the_ledger_has_every_group_and_every_point_once(committed):
    """That nothing is predicted worse is what the claims A say."""
    names = [(row.group, row.what) for row in committed]
    assert len(names) == len(set(names)) and {group for group, _ in names} == {*GROUPS}
    counts = {"dtensor-h100": 16, "meshslice": 6, "meshslice-table3": 8, "td-flux": 17}
    for group, count in (counts | {"flux-ratios": 15}).items():
        assert len(of_group(committed, group)) == count


@pytest.mark.parametrize("machine", ["spr", "epyc"])
def test_held_out_points_of_a_machine_lie_in_their_intervals(committed, machine):
    groups = [of_group(committed, f"{machine}-{transport}") for transport in ("rma", "throttled")]
    for rows in groups:
        assert not any(row.fitted for row in rows) and len({row.half_width for row in rows}) > 1
        assert summed(rows).held >= 0.90
    both = [row for rows in groups for row in rows]
    assert 0.90 <= summed(both).held <= 0.98
    assert summed(both).half_width <= 10


@pytest.mark.parametrize("group", ["epyc-mixed", "epyc-network"])
def test_held_out_points_on_two_virtual_nodes_lie_in_their_intervals(committed, group):
    rows = of_group(committed, group)
    found = summed(rows)
    assert {row.unit for row in rows} == {"%"} and not any(row.fitted for row in rows)
    # 66 mixed cases were measured with whole rows beyond what a rank needs, which none fetches now
    assert len(rows) > 170 and 0.90 <= found.held <= 0.98
    assert found.half_width <= 10 and median(abs(row.error) for row in rows) <= 0.06


def test_each_way_to_become_worse_is_told_and_none_else():
    before = [point(str(at), 1.0, 0.9, 1.1) for at in range(20)]
    same = {"predicted": 1.0, "low": 0.9, "high": 1.1}
    change = lambda count, **more: [
        point(row.what, **(same | (more if at < count else {}))) for at, row in enumerate(before)
    ]
    assert worse(before, before) == []
    assert worse(before, change(20, predicted=1.005)) == []  # half a point is not too much
    (line,) = worse(before, change(20, predicted=1.0051))
    assert "mean error is 0.51 %, it was 0.00 %" in line
    assert worse(before, change(2, low=1.01)) == []  # 90 % lie in theirs
    (line,) = worse(before, change(3, low=1.01))
    assert "85.0 % lie in their intervals" in line
    assert worse(before, change(20, high=1.12)) == []
    (line,) = worse(before, change(20, high=1.1201))
    assert "half an interval is 11.0 %, it was 10.0 %" in line
    (line,) = worse(before, change(20, low=None, high=None))
    assert "no intervals any more" in line
    (line,) = worse(before, before[11:])
    assert line == "11 of 20 points are gone"


def test_fitted_points_do_not_count_as_held():
    rows = [point("a", 1.0, 0.9, 1.1, fitted=1), point("b", 2.0, 1.8, 2.2), point("c", 1.0)]
    found = summed(rows)
    assert found.held == 0.0 and found.half_width == pytest.approx(10)
    assert summed(rows[2:]).held is None


def test_half_of_all_programs_are_held_out():
    assert 0.45 < fmean(dealt(f"{at} x") for at in range(2000)) < 0.55


def test_rows_are_read_as_they_were_written(tmp_path):
    rows = [point("a, b", 1.5, 1.25, 2.0), point("c", 0.5)]
    ROWS.write(tmp_path / "ledger.csv", rows)
    assert ROWS.read([tmp_path / "ledger.csv"]) == rows
