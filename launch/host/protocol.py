"""The messages between the supervisor and its ranks. No MPI.

==============================  ====================================================================
to rank 0's standard input      ``{"case", "mem_limit"}`` for each case; ``{"end"}``
from rank 0's standard output   ``{"ready", "slurm"}``, then ``{"record"}`` of each case
from any rank's standard error  ``{"status", "reason"}`` when it raised and ends the others
==============================  ====================================================================
"""

import json

#: Marks before each answer: launchers and libraries print to the same stream, not always whole
#: lines.
ANSWER = "@drbench-answer "
FAILED = "@drbench-failed "


def parse(line: str, mark: str) -> dict | None:
    """The message in a line, at any position; None if there is none, or if it is truncated.

    Examples
    --------
    >>> parse('output of a library@drbench-answer {"end": true}', ANSWER)
    {'end': True}
    >>> parse("hello", ANSWER) is None
    True
    """
    _, found, text = line.partition(mark)
    if not found:
        return None
    try:
        message = json.loads(text)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
