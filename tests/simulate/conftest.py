"""Machines and traces for the tests of this folder, and the path to the oracles of tests/core."""

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parents[1] / "core"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
