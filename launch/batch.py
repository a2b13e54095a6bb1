"""Many cases in one mpiexec, watched from outside: a case that takes the ranks down costs one row, not the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from typing import Callable, Iterable

from drbench.record import Record, append_csv

from .case_fields import Case, case_keys
from .mpi import mpiexec_command, stop

__all__ = ["run_batch"]


def run_batch(cases: Iterable[Case], ranks: int, csv_path: str, on_case: Callable[[int, dict], None], environ=None) -> None:
    """Run cases in order on ``ranks`` ranks, appending each record to a CSV file.

    Parameters
    ----------
    cases : iterable of Case
    ranks : int
    csv_path : str
        Each record is on disk before the next case begins.
    on_case : callable
        ``on_case(index, summary)`` after each case; the summary has status, reason, gflops and percent_of_roof.
    environ : mapping, optional
        Environment of the ranks.

    Notes
    -----
    If the ranks end before all cases are done, the case they were at becomes a ``failed`` record and the rest go on in
    a fresh mpiexec.
    """
    cases, at = list(cases), 0
    while at < len(cases):
        first, at = at, _run_from(cases, at, ranks, csv_path, on_case, environ)
        if at < len(cases):
            case = cases[at]
            reason = f"the ranks ended during this case (case {at - first + 1} of their mpiexec); see standard error"
            append_csv(csv_path, Record(mode="measured", status="failed", reason=reason, ranks=ranks, **case_keys(case)))
            on_case(at, {"status": "failed", "reason": reason, "gflops": None, "percent_of_roof": None})
            at += 1


def _run_from(cases, at, ranks, csv_path, on_case, environ) -> int:
    """One mpiexec over the cases from ``at`` on; the index of the first case it did not finish."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="drbench-cases-") as file:
        json.dump([asdict(case) for case in cases[at:]], file)
        file.flush()
        command = [*mpiexec_command(ranks), sys.executable, "-m", "drbench", "cases", file.name, "--csv", os.fspath(csv_path)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environ, start_new_session=True)
        done = at
        try:
            for line in process.stdout:
                try:
                    summary = json.loads(line)
                except ValueError:                         # a library or the launcher has something to say
                    sys.stderr.write(line)
                    continue
                done = at + summary["case"] + 1
                on_case(done - 1, summary)
            process.wait()
        except BaseException:
            stop(process)
            raise
        return done
