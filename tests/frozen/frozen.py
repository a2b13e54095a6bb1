"""What programs, predictions, records and sweeps were before the core was made smaller.

    python tests/frozen/frozen.py                # write what the rows and names are now
    python tests/frozen/frozen.py --show NUMBER  # the steps of all ranks of one row of programs.csv

``programs.csv``: a row a program, with a hash of each rank's steps and the simulated seconds on one
machine model. ``names.txt``: the columns of the record, and for each sweep that comes with drbench
how many cases it has and a hash of their ids.
"""

# ruff: noqa: E402

import csv
import hashlib
import sys
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))

from drbench.algorithms import get_algorithm
from drbench.errors import DrbenchError
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.cases.sweep_file import load_sweep
from drbench.launch.models.predict import predict_with, programs_of
from drbench.launch.sweeps.store import case_id
from drbench.measure.record import HEADER

PROGRAMS, NAMES = HERE / "programs.csv", HERE / "names.txt"
FIELDS = "machine ranks m n k algorithm a b c preset transpose alpha beta dtype options"
COLUMNS = (*FIELDS.split(), "steps", "seconds")


find = cache(find_machine)


def given_of(row: dict) -> tuple:
    """The case of a row, its machine model and ranks."""
    options, known = {}, get_algorithm(row["algorithm"]).options
    for word in row["options"].split():
        name, _, value = word.partition("=")
        option = known[name]
        options[name] = value == "True" if option.type is bool else option.read(value)
    named = {name: row[name] or None for name in ("a", "b", "c", "preset", "transpose")}
    named |= {name: float(row[name]) for name in ("alpha", "beta") if row[name]}
    sizes = (int(row[name]) for name in "mnk")
    case = Case(*sizes, algorithm=row["algorithm"], options=options, dtype=row["dtype"], **named)
    name = row["machine"]
    return case, find(str(HERE.parents[1] / name) if "/" in name else name), int(row["ranks"])


def steps_of(case: Case, machine, ranks: int, made) -> list[str]:
    """Every step of every rank, a line each; ``made`` are the programs that are simulated."""
    if len(made.traces) < ranks:
        made = programs_of(case, machine, ranks, everyone=True)
    return [f"{trace.rank}: {describe(step)}" for trace in made.traces for step in trace.steps]


def describe(step) -> str:
    """What a step does, to what and after what."""
    groups = f" {step.group!r}" if step.group else ""
    onto = f" onto {step.onto.index}" if step.onto is not None else ""
    after = [each.index for each in step.inputs]
    return (
        f"{step.index} {type(step).__name__} {step.shape} {step.block!r}{groups} after {after}"
        f"{onto} beta {step.beta} reads {list(step.reads())} writes {list(step.writes())}"
    )


def outcome(row: dict) -> dict:
    """The row with its hashes, a rank each, and simulated seconds; or with what refuses it."""
    given, hashes = given_of(row), {}
    try:
        made = programs_of(*given)
        for line in steps_of(*given, made):
            rank = int(line.partition(":")[0])
            hashes.setdefault(rank, hashlib.sha256()).update(line.encode() + b"\n")
        found, _ = predict_with(*given, programs=made)
        steps = " ".join(each.hexdigest()[:6] for each in hashes.values())
        return row | {"steps": steps, "seconds": f"{found.best_s:.9g}" if found.best_s else ""}
    except DrbenchError as error:
        return row | {"steps": f"{type(error).__name__}: {error}"[:60], "seconds": ""}


def names() -> list[str]:
    """The columns of the record, and the ids of the shipped sweeps' cases."""
    lines = [f"column {name}" for name in HEADER]
    for path in sorted((HERE.parents[1] / "launch/data/sweeps").glob("*.toml")):
        for ranks in (2, 4, 6):
            try:
                cases = load_sweep(path.stem, ranks).cases
            except DrbenchError as error:
                lines.append(f"sweep {path.stem} {ranks} {type(error).__name__}")
                continue
            ids = [case_id(case, ranks, "code") for case in cases]
            digest = hashlib.sha256(" ".join(ids).encode()).hexdigest()[:12]
            lines.append(f"sweep {path.stem} {ranks} ranks {len(ids)} cases {digest}")
    return lines


def read() -> list[dict]:
    """The rows of ``programs.csv``."""
    with PROGRAMS.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main(words: list[str]) -> None:
    """Write both files, or show one program."""
    if words[:1] == ["--show"]:
        given = given_of(read()[int(words[1])])
        print("\n".join(steps_of(*given, programs_of(*given))))
        return
    rows = [outcome(each) for each in read()]
    with PROGRAMS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    NAMES.write_text("\n".join(names()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
