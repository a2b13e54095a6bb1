"""Call the command line with one line after the other on the same ranks: ``many_lines.py FILE``,
a JSON file of lines. The first rank answers exit code, standard output and standard error of
each."""

import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from drbench.launch.commands.cli import main
from drbench.launch.host.mpi import launched


def answer_to(words: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a line."""
    sys.argv[1:] = words
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main(words)
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        answers = [answer_to(words) for words in json.load(file)]
    if launched().rank == 0:
        json.dump(answers, sys.stdout)
