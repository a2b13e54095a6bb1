"""Records of a sweep as CSV on standard output, one line as soon as it is known (``--stream``)."""

import csv
import os
import sys

from drbench.measure.record import HEADER, Record


def arguments_of(name: str, arguments: list[str]) -> list[str]:
    """The command line of the artifact's script for a sweep.

    Examples
    --------
    >>> arguments_of("mlp1", ["--scale", "1/16", "--out", "runs"])
    ['sweep', 'mlp1', '--stream', '--scale', '1/16', '--out', 'runs']
    >>> arguments_of("mlp1", [])[-2:]
    ['--out', 'results/measured/here/mlp1']
    """
    given = any(word == "--out" or word.startswith("--out=") for word in arguments)
    return [
        "sweep",
        name,
        "--stream",
        *arguments,
        *([] if given else ["--out", os.path.join("results", "measured", "here", name)]),
    ]


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
