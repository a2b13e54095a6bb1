"""Kill a sweep again and again, resume it, and compare with one that was left in peace.

``python benchmarks/kill_sweep.py [--kills 50] [--cases 150] [--within 4] [-p 4] [--seed 0]``. By
turns the supervisor, its mpiexec or one of its ranks gets SIGKILL at a random moment, from the
first import to the last row; a killed supervisor is started again with the same command. At the end
every case must have one row, with the keys and the status of the undisturbed run, in whole lines;
no process and no file under /dev/shm may be left. Exit code 0 if so, 1 if not.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import psutil

from drbench.measure.record import read_csv
from launch.host.processes import TOKEN, held_files

ROOT = Path(__file__).resolve().parents[1]
SHARED_MEMORY = Path("/dev/shm")
SWEEP = """name = "kill"
[defaults]
iters = 1
warmup = 0
threads = 1
m = 64
n = 64
k = 64
[[cases]]
preset = ["row", "column", "inner"]
stationary = ["C", "B"]
seed = {{ start = 0, stop = {seeds}, step = 1 }}
[[cases]]
b = "block:3x3"
[[cases]]
algorithm = "no_such"
"""
#: Columns that a kill must not change.
KEYS = (
    "case",
    "status",
    "environment",
    "ranks",
    "threads",
    "m",
    "n",
    "k",
    "a",
    "b",
    "c",
    "preset",
    "algorithm",
    "stationary",
    "seed",
    "iters",
    "machine",
    "transport",
    "error",
)


def keys(path: Path) -> dict:
    """Case -> its keys and status; raises if a line is torn or a case has two rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a torn last line
        records = read_csv(path)
    found = {record.case: tuple(getattr(record, name) for name in KEYS) for record in records}
    if len(found) != len(records):
        raise AssertionError(f"{len(records) - len(found)} cases have two rows")
    return found


def children(process: subprocess.Popen) -> tuple[list, list]:
    """The launcher and the ranks of a running sweep."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
        named = [(member, member.cmdline()) for member in family]
    except psutil.Error:
        return [], []
    launchers = [
        member
        for member, words in named
        if words and os.path.basename(words[0]).startswith("mpiexec")
    ]
    return launchers, [
        member
        for member, words in named
        if words and "python" in os.path.basename(words[0]) and words[-1:] == ["serve"]
    ]


class Killer:
    """Runs the sweep of a folder to its end, whatever it takes."""

    def __init__(self, command: list[str], chance: random.Random, kills: int, within_s: float):
        self._command, self._chance, self._within_s = command, chance, within_s
        self.left, self.counts = kills, dict.fromkeys(("supervisor", "mpiexec", "rank"), 0)
        self._turn, self.held = 0, set()

    def run(self, folder: Path) -> int:
        """The exit code of the run that came to its end."""
        while True:
            with open(folder.with_suffix(".log"), "ab") as log:
                process = subprocess.Popen(
                    [*self._command, "--out", str(folder)],
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                )
                while process.poll() is None and self.left:
                    self._wait(process)
                    if process.poll() is None and self._kill(process) == "supervisor":
                        break
            if process.wait() >= 0:
                return process.returncode

    def _wait(self, process) -> None:
        until = time.monotonic() + self._chance.uniform(0, self._within_s)
        while time.monotonic() < until and process.poll() is None:
            time.sleep(0.005)

    def _kill(self, process) -> str | None:
        """Kill who is next; None if there is no such process just now."""
        who = ("supervisor", "mpiexec", "rank")[self._turn % 3]
        launchers, ranks = children(process)
        victims = {"supervisor": [process], "mpiexec": launchers, "rank": ranks}[who]
        if not victims:
            return None
        self.held |= held_files([member.pid for member in ranks])
        try:
            self._chance.choice(victims).kill()
        except psutil.NoSuchProcess:
            return None
        self._turn += 1
        self.counts[who] += 1
        self.left -= 1
        return who


def our_processes() -> list[int]:
    """Ranks and launchers of sweeps of this session that still live."""
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
            if (
                TOKEN in environ
                and environ.get("DRBENCH_KILL_TEST") == str(os.getpid())
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument("-p", "--ranks", type=int, default=4)
    parser.add_argument("--within", type=float, default=4.0, help="most seconds between two kills")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ |= {
        "DRBENCH_KILL_TEST": str(os.getpid()),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    before = {str(path) for path in SHARED_MEMORY.glob("*")}
    start, faults, rounds = time.monotonic(), [], 0
    with tempfile.TemporaryDirectory(prefix="drbench-kill-") as place:
        folder, file = Path(place), Path(place) / "kill.toml"
        file.write_text(SWEEP.format(seeds=max(1, options.cases // 6)))
        more = f"-p {options.ranks} --timeout 60".split()
        command = [sys.executable, "-m", "drbench", "sweep", str(file), *more]
        peace = Killer(command, random.Random(0), 0, 0).run(folder / "peace")
        wanted = keys(folder / "peace" / "records.csv")
        print(
            f"undisturbed: {len(wanted)} cases, exit {peace}, {time.monotonic() - start:.0f} s; "
            f"kills come within {options.within:g} s of one another",
            flush=True,
        )
        killer = Killer(command, random.Random(options.seed), options.kills, options.within)
        while killer.left:
            rounds += 1
            out = folder / f"round-{rounds}"
            code, found = killer.run(out), keys(out / "records.csv")
            if found != wanted or code != peace:
                differ = sorted({name for name, _ in wanted.items() ^ found.items()})
                faults.append(
                    f"round {rounds}: exit {code}, {len(differ)} cases differ, such as "
                    f"{[(wanted.get(name), found.get(name)) for name in differ[:2]]}"
                )
            print(
                f"round {rounds}: exit {code}, {len(found)} cases, {options.kills - killer.left} "
                f"kills so far {killer.counts}",
                flush=True,
            )
        time.sleep(1)
        faults += [f"processes are left: {left}" for left in [our_processes()] if left]
        new = {str(path) for path in SHARED_MEMORY.glob("*")} - before - held_files()
        if held := new & killer.held:
            faults.append(f"files that ranks of the sweep held are left: {sorted(held)}")
        if new - killer.held:
            print(
                f"{len(new - killer.held)} further files have appeared under {SHARED_MEMORY}: of "
                "this or of other programs"
            )
        if faults:
            print("\n".join(faults))
            print((folder / f"round-{rounds}.log").read_text()[-3000:])
    print(
        f"{'FAILED' if faults else 'passed'}: {options.kills} kills ({killer.counts}) in "
        f"{rounds} rounds, {time.monotonic() - start:.0f} s"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
