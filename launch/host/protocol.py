"""The messages between the supervisor and its ranks, and the journal of a sweep. No MPI.

==============================  ====================================================================
to rank 0's standard input      ``{"case", "mem_limit"}`` for each case; ``{"end"}``
from rank 0's standard output   ``{"ready", "slurm"}``, then ``{"record"}`` of each case
from any rank's standard error  ``{"status", "reason"}`` when it raised and ends the others
==============================  ====================================================================
"""

import json
import os
from collections import Counter
from pathlib import Path

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
    _, marked, text = line.partition(mark)
    if not marked:
        return None
    try:
        message = json.loads(text)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def append_journal(path: str | os.PathLike, case: str, **end) -> None:
    """Note that a case is about to be sent to ranks; or with ``status`` and ``reason`` that it
    ended them, or with ``again`` that it was only interrupted. On disk when this returns."""
    with open(path, "a", encoding="utf-8") as file:
        text = f"{case}\t{json.dumps(end)}" if end else case
        file.write(f"\n{text}\n")  # the last line may be torn
        file.flush()
        os.fsync(file.fileno())


def read_journal(path: Path) -> tuple[Counter, dict[str, dict]]:
    """How often each case was sent to ranks, and status and reason of those that ended them. Of
    several ends of one attempt the first counts: the others are of ranks that lost another one.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "journal.txt"
    >>> for end in {}, {"again": True}, {"status": "failed", "reason": "rank 0 left"}:
    ...     append_journal(path, "a", **end)
    >>> for end in {}, {"status": "timeout", "reason": "4 s"}, {"status": "failed"}:
    ...     append_journal(path, "b", **end)
    >>> attempts, ends = read_journal(path)
    >>> attempts["a"], attempts["b"], ends
    (0, 1, {'b': {'status': 'timeout', 'reason': '4 s'}})
    """
    attempts: Counter = Counter()
    ends: dict[str, dict] = {}
    for line in path.read_text("utf-8", "replace").split("\n"):
        case, _, text = line.partition("\t")
        end = parse(line, "\t") or {}
        if case and not text:
            attempts[case] += 1
        elif attempts[case] and case not in ends:
            if "again" in end:
                attempts[case] -= 1
            elif end:
                ends[case] = end
    return attempts, ends
