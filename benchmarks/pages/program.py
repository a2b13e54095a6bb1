"""Tables of what drbench comes with: sweeps."""

from launch.cases.sweep_file import load_sweep

from .tables import block, table


@block
def sweeps(ranks: int, *names: str) -> str:
    """These sweeps with their numbers of cases."""
    found = [(name, load_sweep(name, ranks)) for name in names]
    return table(
        ["name", f"cases on {ranks} ranks", "what"],
        [(f"`{name}`", len(each.cases), each.description) for name, each in found],
    )
