"""The plotting scripts of the artifact (its step T4): records on standard input, a figure on disk.

``plot_mlp1.py`` and ``plot_mlp2.py`` are this for one layer each: ``drbench plot LAYER - FILES…
--axis paper`` without a command line of drbench's.
"""

import sys
import warnings
from collections.abc import Sequence

from drbench.measure.record_file import TornRowWarning
from plots.select.records import STDIN

from .registry import draw


def main(layer: str, arguments: Sequence[str] | None = None) -> int:
    """Draw one layer from standard input, and from files that are named; the exit code: 0, or 2
    with a line on standard error."""
    files, out, name = (
        list(sys.argv[1:] if arguments is None else arguments),
        layer,
        f"plot_{layer}.py",
    )
    usage = f"python plots/{name} [FILES] [-o FIGURE] < {layer}.txt"
    if {"-h", "--help"} & {*files}:
        print(f"{usage}\nDraws what launch_experiments_{layer}.py wrote, with files of records.")
        return 0
    for option in {"-o", "--save"} & {*files[:-1]}:
        at = files.index(option)
        out = files[at + 1]
        del files[at : at + 2]
    if sys.stdin is None or sys.stdin.isatty():
        return _refuse(
            name, f"records are read from standard input, and this is a terminal. Use: {usage}"
        )
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TornRowWarning)
            drawn = draw(layer, [STDIN, *files], out, axis="paper")
    except (ValueError, OSError) as error:
        return _refuse(name, error)
    print(*(warning.message for warning in caught), *drawn.notes, sep="\n", file=sys.stderr)
    print(*drawn.paths, sep="\n")
    return 0


def _refuse(name: str, what: object) -> int:
    print(f"{name}: {' '.join(str(what).split())}", file=sys.stderr)
    return 2
