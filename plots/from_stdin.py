"""The plotting scripts of the artifact (its step T4): records on standard input, a figure on disk.

``plot_mlp1.py`` and ``plot_mlp2.py`` are this for one layer each.
"""

import argparse
import sys
import warnings
from collections.abc import Sequence

from drbench.measure.record_file import TornRowWarning
from plots.select.records import STDIN

from .registry import draw


def main(layer: str, arguments: Sequence[str] | None = None) -> int:
    """Draw one layer from standard input; the exit code: 0, or 2 with a line on standard error."""
    parser = argparse.ArgumentParser(
        prog=f"plot_{layer}.py",
        description=f"Draw the {layer} figure from the records that "
        f"launch_experiments_{layer}.py wrote to standard output.",
        epilog=f"python launch/launch_experiments_{layer}.py > {layer}.txt; python "
        f"plots/plot_{layer}.py < {layer}.txt",
    )
    parser.add_argument(
        "files",
        nargs="*",
        help="more result files or files of published numbers, such as results/published/h100.csv",
    )
    parser.add_argument(
        "-o",
        "--save",
        default=layer,
        help="the figure: .pdf or .png, both without a suffix (default: %(default)s)",
    )
    parser.add_argument("--out", dest="save", action=_Renamed, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if sys.stdin is None or sys.stdin.isatty():
        return _say(
            parser.prog,
            "records are read from standard input, and this is a terminal. Use: python "
            f"plots/plot_{layer}.py < {layer}.txt",
        )
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TornRowWarning)
            drawn = draw(layer, [STDIN, *options.files], options.save, axis="paper")
    except (ValueError, OSError) as error:
        return _say(parser.prog, error)
    for text in [str(warning.message) for warning in caught] + drawn.notes:
        print(text, file=sys.stderr)
    for path in drawn.paths:
        print(path)
    return 0


class _Renamed(argparse.Action):
    """A name of earlier releases, which goes on working with a warning for one."""

    def __call__(self, parser, namespace, values, option_string=None):
        _say(
            parser.prog,
            f"{option_string} is now -o/--save; the old name goes with the next release",
        )
        setattr(namespace, self.dest, values)


def _say(name: str, what: object) -> int:
    print(f"{name}: {' '.join(str(what).split())}", file=sys.stderr)
    return 2
