"""How fast records become a table: ``python benchmarks/records.py FILE_OR_FOLDER...``."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from plots.select.records import read_records

start = time.perf_counter()
rows, count = 0, 0
while time.perf_counter() - start < 5:
    rows, count = rows + len(read_records(sys.argv[1:])), count + 1
seconds = time.perf_counter() - start
print(f"{rows // count} rows in {1e3 * seconds / count:.0f} ms, {rows / seconds:.0f} rows a second")
