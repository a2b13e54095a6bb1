"""How the claims about overlapped products move with each assumed constant of the machines."""

from collections.abc import Iterator

from drbench.errors import UsageError
from launch.cases.machine_models import find_machine
from launch.studies.verdicts import HOLDS, Verdict

from .claims import check, committed
from .study import STUDIES, Benches, run_study

#: The machines whose constants are varied.
MACHINES = ("a100pcie", "a100nvlink", "h800", "mi308x")


def variants(machine: str, share: float) -> Iterator[tuple[str, dict]]:
    """(what is changed, path -> value) of each assumed constant up and down."""
    found = find_machine(machine)
    for path in found.assumed:
        for factor in (1 - share, 1 + share):
            place = found.sources
            for name in path.split("."):
                place = place[name]
            if not (path.endswith("sustained") and place * factor > 1):
                yield f"{path} x {factor:g}", {path: place * factor}


def show_sensitivity(share: float, only: str | None, studies: tuple[str, ...]) -> None:
    """Print for each change of a constant which claims are decided otherwise, a line each.

    Raises
    ------
    UsageError
        If there is no such machine.
    """
    if only and only not in MACHINES:
        raise UsageError(f"--machine must be one of {', '.join(MACHINES)}, got {only}.")
    _, ranges = committed(None)
    usual = Benches()
    rows = {name: run_study(name, usual) for name in studies}
    before = _holds(rows, ranges)
    told = ", ".join(f"{claim} {HOLDS[holds]}" for claim, holds in before.items())
    print(f"unchanged constants: {told}")
    for machine in [only] if only else MACHINES:
        concerned = [name for name in studies if any(r.machine == machine for r in rows[name])]
        for change, values in variants(machine, share):
            benches = Benches({machine: values})
            for key, bench in usual.items():
                if key[0] != machine:
                    benches[key] = bench
            again = rows | {name: run_study(name, benches) for name in concerned}
            after = _holds(again, ranges)
            flips = [f"{claim} {HOLDS[after[claim]]}" for claim in after
                     if after[claim] != before[claim]]  # fmt: skip
            print(f"{machine:11} {change:50} {', '.join(flips) or 'no claim changes'}")


def _holds(rows: dict, ranges: list) -> dict[str, bool | None]:
    from .study import published

    every = [row for each in rows.values() for row in each]
    theirs = [row for name in STUDIES for row in published(name)]
    found: list[Verdict] = check([*every, *theirs], ranges)
    return {verdict.claim: verdict.holds for verdict in found}
