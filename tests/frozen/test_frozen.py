"""Programs, simulated times, columns of the record and ids of cases are what they were.

A difference is a decision, which the commit that rewrites the frozen files gives a reason for."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from frozen import COLUMNS, NAMES, names, outcome, read

ROWS = list(enumerate(read()))


@pytest.mark.parametrize("part", range(8))
def test_programs_and_their_simulated_times_are_the_frozen_ones(part):
    for at, row in ROWS[part::8]:
        found = outcome(row)
        hint = (
            f"row {at} of programs.csv; its steps, here and at earlier commits: "
            f"python tests/frozen/frozen.py --show {at}"
        )
        assert [found[each] for each in COLUMNS[:-1]] == [row[each] for each in COLUMNS[:-1]], hint
        assert bool(found["seconds"]) == bool(row["seconds"]), hint
        if row["seconds"]:
            assert float(found["seconds"]) == pytest.approx(float(row["seconds"]), rel=1e-6), hint


def test_columns_and_ids_are_the_frozen_ones():
    frozen = NAMES.read_text(encoding="utf-8").splitlines()
    assert names() == frozen
