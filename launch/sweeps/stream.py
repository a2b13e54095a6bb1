"""Records of a sweep as CSV on standard output, one line as soon as it is known (``--stream``)."""

import csv
import os
import sys

from drbench.measure.record import HEADER, Record


def arguments_of(name: str, arguments: list[str]) -> list[str]:
    """The command line of the artifact's script for a sweep: at 1/16 of the paper's size, unless
    ``--scale`` says otherwise.

    Examples
    --------
    >>> arguments_of("mlp1", ["--scale", "1/8", "--out", "runs"])
    ['sweep', 'mlp1', '--stream', '--scale', '1/8', '--out', 'runs']
    >>> arguments_of("mlp1", [])[3:]
    ['--scale', '1/16', '--out', 'results/measured/here/mlp1-1of16']
    >>> arguments_of("mlp1", ["--scale=1"])[-2:]
    ['--out', 'results/measured/here/mlp1-1']
    """
    scale, out = _given(arguments, "--scale"), _given(arguments, "--out")
    if scale is None:
        arguments = [*arguments, "--scale", (scale := "1/16")]
    if out is None:
        place = f"{name}-{scale.replace('/', 'of')}"
        arguments = [*arguments, "--out", os.path.join("results", "measured", "here", place)]
    return ["sweep", name, "--stream", *arguments]


def _given(arguments: list[str], option: str) -> str | None:
    """The value of an option, if it is there."""
    for word, after in zip(arguments, [*arguments[1:], ""]):
        name, sign, value = word.partition("=")
        if name == option:
            return value if sign else after
    return None


class Stream:
    """Writes each record it is called with; a reader that has gone away interrupts the sweep."""

    def __init__(self):
        self._write(HEADER)

    def __call__(self, record: Record) -> None:
        self._write(record.to_row())

    def _write(self, row) -> None:
        try:
            csv.writer(sys.stdout, lineterminator="\n").writerow(row)
            sys.stdout.flush()
        except BrokenPipeError:
            # what is left to flush goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise KeyboardInterrupt from None
