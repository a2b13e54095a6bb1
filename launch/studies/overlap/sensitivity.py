"""How the claims about overlapped products move with each assumed constant of the machines.

A change of one constant is simulated and told as a row: the claims that hold with it and did not
before, and those that hold no longer. Cases whose time a constant cannot change are not simulated
again (:func:`untouched`).
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from drbench.errors import UsageError
from launch.cases.machine_models import find_machine
from launch.studies.verdicts import HOLDS, Verdict

from .claims import check, committed
from .study import NODE, STUDIES, Benches, published, run_study

#: The machines whose constants are varied.
MACHINES = ("a100pcie", "a100nvlink", "h800", "mi308x")


def factors(text: str) -> tuple[float, ...]:
    """What constants are multiplied by, of a text such as ``0.5,2``.

    Raises
    ------
    UsageError
        If it is none.

    Examples
    --------
    >>> factors("0.5, 2")
    (0.5, 2.0)
    """
    try:
        found = tuple(map(float, text.split(",")))
    except ValueError:
        found = ()
    if not found or not all(0 < each < float("inf") for each in found):
        raise UsageError(
            "--sensitivity must be factors above 0 separated by commas, as 0.5,0.8,1.25,2, got "
            f"{text!r}."
        )
    return found


def variants(machine: str, by: Iterable[float]) -> Iterator[tuple[str, float, float]]:
    """(path, factor, value) of each assumed constant; a share of a rate stays below 1."""
    found = find_machine(machine)
    for path in found.assumed:
        value = found.constant(path)
        for factor in by:
            share = path.endswith(("sustained", "efficiency"))
            if not (share and value * factor > 1):
                yield path, factor, value * factor


def untouched(path: str) -> Callable[[int, str], bool]:
    """Whether a case of so many ranks by an algorithm takes as long whatever a constant is.

    Examples
    --------
    >>> [untouched("links.nic.latency_s")(ranks, "ag_gemm") for ranks in (8, 16)]
    [True, False]
    >>> [untouched("signal_s")(8, name) for name in ("collective", "ag_gemm")]
    [True, False]
    >>> [untouched("dispatch_s")(8, name) for name in ("collective", "moe_collective")]
    [True, False]
    """
    first = path.partition(".")[0]

    def same(ranks: int, algorithm: str) -> bool:
        if first == "dtypes":  # all studies are of the type that a machine is for
            return True
        if first == "collectives":
            within = ranks <= NODE and "across" in path
            return not algorithm.endswith("collective") or within
        if first == "dispatch_s":
            return algorithm != "moe_collective"
        if path.startswith("links.nic."):
            return algorithm == "collective" or ranks <= NODE
        if path == "fence_s" or first.startswith("accumulate"):  # no program of the studies has one
            return True
        bare = ("links", "signal_s", "pull_efficiency", "side_units")
        return algorithm == "collective" and (first in bare or path.endswith("unit_bytes_per_s"))

    return same


def changes(by: Iterable[float], machines: Iterable[str], studies: Iterable[str]) -> Iterator:
    """A row for each change of a constant (:class:`plots.select.overlap_rows.OverlapChange`), those
    of a machine one after another; the first one changes nothing and says which claims hold."""
    from plots.select.overlap_rows import OverlapChange

    _, ranges = committed(None)
    usual, studies = Benches(), tuple(studies)
    rows = {name: run_study(name, usual) for name in studies}
    before = _holds(rows, ranges)
    standing = " ".join(claim for claim, holds in before.items() if holds)
    for machine in machines:
        yield OverlapChange(machine, "", 1.0, None, standing, "", "")
        concerned = [name for name in studies if any(r.machine == machine for r in rows[name])]
        for path, factor, value in variants(machine, by):
            benches = Benches({machine: {path: value}}, usual, untouched(path))
            for key, bench in usual.items():
                if key[0] != machine:
                    benches[key] = bench
            after = _holds(rows | {name: run_study(name, benches) for name in concerned}, ranges)
            turned = {
                word: " ".join(c for c in after if after[c] != before[c] and after[c] is word)
                for word in HOLDS
            }
            yield OverlapChange(machine, path, factor, value, *map(turned.get, (True, False, None)))


def write_sensitivity(
    text: str, only: str | None, studies: tuple[str, ...], folder: Path, say: Callable
) -> None:
    """Write what every change does, a file a machine of ``sensitivity`` in a folder, and say it
    line by line.

    Raises
    ------
    UsageError
        If there is no such machine, or the factors are none.
    """
    from plots.select.overlap_rows import write_changes

    if only and only not in MACHINES:
        raise UsageError(f"--machine must be one of {', '.join(MACHINES)}, got {only}.")
    by = factors(text)
    (folder / "sensitivity").mkdir(parents=True, exist_ok=True)
    for machine in [only] if only else MACHINES:
        found = []
        for row in changes(by, [machine], studies):
            found.append(row)
            say(told(row))
        write_changes(folder / "sensitivity" / f"{machine}.csv", found)


def told(row) -> str:
    """A change in words.

    Examples
    --------
    >>> from plots.select.overlap_rows import OverlapChange
    >>> told(OverlapChange("h800", "signal_s", 2.0, 4e-6, "F9", "F1 T2", ""))
    'h800        signal_s x 2: F9 holds; F1 T2 does not hold'
    """
    if not row.constant:
        return f"{row.machine:11} unchanged: {row.hold or 'nothing'} holds"
    words = [
        f"{claims} {HOLDS[holds]}"
        for holds, claims in ((True, row.hold), (False, row.fail), (None, row.undecided))
        if claims
    ]
    what = f"{row.machine:11} {row.constant} x {row.factor:g}"
    return f"{what}: {'; '.join(words) or 'no claim changes'}"


def _holds(rows: dict, ranges: list) -> dict[str, bool | None]:
    """What is arithmetic rests on no assumed constant, and is left out."""
    every = [row for each in rows.values() for row in each]
    theirs = [row for name in STUDIES for row in published(name)]
    found: list[Verdict] = check([*every, *theirs], ranges)
    return {verdict.claim: verdict.holds for verdict in found if verdict.source != "arithmetic"}
