"""Damaged files end right, or with one line and a documented exit code."""

import os
from pathlib import Path

from damaged_files import attack


def test_damaged_files_end_right_or_in_one_line():
    """``DRBENCH_DAMAGED=20000`` tries more; ``DRBENCH_KEEP`` is a folder for files that fail."""
    count, seed = (int(os.environ.get(f"DRBENCH_{name}", n)) for name, n in KNOBS.items())
    keep = os.environ.get("DRBENCH_KEEP")
    assert attack(count, seed, Path(keep) if keep else None) == []


#: Tries of a usual run, and the first seed.
KNOBS = {"DAMAGED": 80, "DAMAGED_SEED": 0}
