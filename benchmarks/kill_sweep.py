"""Kill a sweep repeatedly, resume it, and compare with an undisturbed one.

``python -m benchmarks kill_sweep [--kills 50] [--cases 150] [--within 4] [-p 4] [--seed 0]``. One
after another (:data:`KINDS`) the supervisor, its mpiexec, one of its ranks or all get a signal at a
random moment, from the first import to the last row; a supervisor that has ended is started again
with the same command. At the end of each round every case must have one row, with the keys and the
status of the undisturbed run, in whole lines; what was written before a fault must be there after
it, byte for byte; no process, and after the next run no file in ``/dev/shm``, may be left. A line a
round has the findings. Exit code 0 if nothing is wrong. Next to other MPI programs, which have
files there too, and as root: ``unshare --mount sh -c 'mount -t tmpfs x /dev/shm && python -m
benchmarks kill_sweep'``.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import psutil

from drbench.measure.record_file import read_csv
from launch.host.files import ROOT
from launch.host.leftovers import TOKEN, held_files

SHARED_MEMORY = Path("/dev/shm")
SWEEP = """name = "kill"
[defaults]
iters = 1
warmup = 0
budget = 0
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
algorithm = "cannon"
mesh = "1x{ranks}"
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


#: Processes and their signals, one after the other, 10 ms apart.
KINDS = {
    "supervisor killed": [("supervisor", signal.SIGKILL)],
    "mpiexec killed": [("mpiexec", signal.SIGKILL)],
    "rank killed": [("rank", signal.SIGKILL)],
    "Ctrl-C three times": [("supervisor", signal.SIGINT)] * 3,
    "rank stopped, supervisor killed": [
        ("rank", signal.SIGSTOP),
        ("supervisor", signal.SIGKILL),
    ],
    "all killed": [("all", signal.SIGKILL)],
}


def lines_of(path: Path) -> list[bytes]:
    """The whole lines of a file."""
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def family_of(process: subprocess.Popen) -> dict[str, list]:
    """The processes of a running sweep by kind."""
    found: dict[str, list] = {
        "supervisor": [psutil.Process(process.pid)],
        "mpiexec": [],
        "rank": [],
    }
    for member in found["supervisor"][0].children(recursive=True):
        try:
            words = member.cmdline()
        except psutil.Error:
            continue  # it has just ended
        if words and os.path.basename(words[0]).startswith("mpiexec"):
            found["mpiexec"].append(member)
        elif words and "python" in os.path.basename(words[0]) and words[-1:] == ["serve"]:
            found["rank"].append(member)
    return found


class Killer:
    """Runs the sweep of a folder to its end, with restarts."""

    def __init__(self, command: list[str], chance: random.Random, kills: int, within_s: float):
        self._command, self._chance, self._within_s = command, chance, within_s
        self.left, self.counts, self.lost = kills, dict.fromkeys(KINDS, 0), []

    def run(self, folder: Path) -> int:
        """The exit code of the run that completed."""
        kept: list[bytes] = []
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
                    self._strike(process)
            code = process.wait()
            now = lines_of(folder / "records.csv")
            if now[: len(kept)] != kept:
                self.lost.append(f"{folder.name}: existing rows have changed or are missing")
            kept = now
            # 130, or of SIGINT itself, as before Python has started
            if code not in (-signal.SIGKILL, -signal.SIGINT, 130):
                return code

    def _wait(self, process) -> None:
        until = time.monotonic() + self._chance.uniform(0, self._within_s)
        while time.monotonic() < until and process.poll() is None:
            time.sleep(0.005)

    def _strike(self, process) -> None:
        """Send the next signal, if such a process exists now."""
        kind = min(KINDS, key=lambda each: self.counts[each])
        try:
            family = family_of(process)
            family["all"] = [member for members in family.values() for member in members]
            for who, number in KINDS[kind]:
                members = family[who] if who == "all" else [self._chance.choice(family[who])]
                for member in members:
                    member.send_signal(number)
                time.sleep(0.01)
        except (psutil.NoSuchProcess, IndexError):
            return  # it has just ended, or has not started
        self.counts[kind] += 1
        self.left -= 1


def our_processes() -> list[int]:
    """Ranks and launchers of sweeps of this session that still live."""
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
            if (
                TOKEN in environ
                and environ.get("DRBENCH_KILL_TEST") == os.environ["DRBENCH_KILL_TEST"]
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def wait_for_the_end() -> list[int]:
    """Processes that remain after a grace time for ending ones."""
    deadline = time.monotonic() + 10
    while (left := our_processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


class Judge:
    """Compares completed sweeps with an undisturbed one."""

    def __init__(self, wanted: dict, before: set[str]):
        self._wanted, self._before, self.faults = wanted, before, []

    def inspect(self, name: str, path: Path, lost: list[str]) -> None:
        """Print the findings after a run, and keep them if something is wrong."""
        found, left = keys(path), wait_for_the_end()
        differ = sorted({case for case, _ in self._wanted.items() ^ found.items()})
        new = {str(each) for each in SHARED_MEMORY.glob("*")} - self._before - held_files()
        numbers = f"rows lost {len(differ) + len(lost)}, orphans {len(left)}, files left {len(new)}"
        print(f"{name}: {numbers}", flush=True)
        if differ or lost or left or new:
            some = [(self._wanted.get(case), found.get(case)) for case in differ[:2]]
            self.faults.append(f"{name}: {lost}, rows differ {some}, left {left}, files {new}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument("-p", "--ranks", type=int, default=4)
    parser.add_argument("--within", type=float, default=4.0, help="most seconds between two kills")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["DRBENCH_KILL_TEST"] = str(os.getpid())
    os.environ["PYTHONPATH"] = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    before = {str(path) for path in SHARED_MEMORY.glob("*")}
    start, rounds = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="drbench-kill-") as place:
        folder, file = Path(place), Path(place) / "kill.toml"
        file.write_text(SWEEP.format(seeds=max(1, options.cases // 6), ranks=options.ranks))
        more = f"-p {options.ranks} --timeout 60 --yes".split()
        command = [sys.executable, "-m", "drbench", "sweep", str(file), *more]
        Killer(command, random.Random(0), 0, 0).run(folder / "peace")
        wanted = keys(folder / "peace" / "records.csv")
        judge = Judge(wanted, before)
        judge.inspect(f"undisturbed, {len(wanted)} cases", folder / "peace" / "records.csv", [])
        killer = Killer(command, random.Random(options.seed), options.kills, options.within)
        while killer.left:
            rounds += 1
            out = folder / f"round-{rounds}"
            code = killer.run(out)
            name = f"round {rounds}, exit {code}, {options.kills - killer.left} kills so far"
            judge.inspect(name, out / "records.csv", killer.lost)
        if judge.faults:
            print("\n".join(judge.faults))
            print((folder / f"round-{max(rounds, 1)}.log").read_text()[-3000:])
    print(
        f"{'FAILED' if judge.faults else 'passed'}: {options.kills} kills ({killer.counts}) in "
        f"{rounds} rounds, {time.monotonic() - start:.0f} s"
    )
    return 1 if judge.faults else 0


if __name__ == "__main__":
    sys.exit(main())
