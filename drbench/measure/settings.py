"""Settings of Linux that change times: clock, hardware threads, pages; and the load of other
processes. They are read from files, those of another root in tests."""

import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_ROOT, _CPU = Path("/"), "sys/devices/system/cpu"


class Setting(NamedTuple):
    """One setting: its subject for a reader, its files below the root, the values at which times
    repeat (the first is the one to set), why others disturb, and another command to change it."""

    subject: str
    files: str
    good: tuple[str, ...]
    why: str
    command: str = ""

    @property
    def remedy(self) -> str:
        """The command that sets the first good value."""
        return self.command or f"echo {self.good[0]} | sudo tee /{self.files}"


_BOOSTED = "the clock changes with the temperature and the number of busy cores, and times with it"
#: By name. Of settings of one subject a machine has one.
SETTINGS = {
    "governor": Setting(
        "clock",
        f"{_CPU}/cpu[0-9]*/cpufreq/scaling_governor",
        ("performance",),
        "the clock rises only after work has begun, so short cases look slow",
        "sudo cpupower frequency-set -g performance",
    ),
    "no_turbo": Setting("boost", f"{_CPU}/intel_pstate/no_turbo", ("1",), _BOOSTED),
    "boost": Setting("boost", f"{_CPU}/cpufreq/boost", ("0",), _BOOSTED),
    "smt": Setting(
        "hardware threads",
        f"{_CPU}/smt/active",
        ("0",),
        "two ranks may share one core, and each then gets about half of its GEMM speed",
        f"echo off | sudo tee /{_CPU}/smt/control, or at most one rank a physical core (-p)",
    ),
    "numa_balancing": Setting(
        "NUMA balancing",
        "proc/sys/kernel/numa_balancing",
        ("0",),
        "Linux moves pages between NUMA nodes while a case runs",
    ),
    "huge_pages": Setting(
        "huge pages",
        "sys/kernel/mm/transparent_hugepage/enabled",
        ("madvise", "always"),
        "GEMMs read tiles several percent slower from small pages",
    ),
}


def read_settings(root: Path = _ROOT) -> dict[str, str]:
    """The settings of this machine by name, with several values where cores differ; without those
    that cannot be read. A virtual machine does not know the hardware threads of its host."""
    values = {"driver": _values(root, f"{_CPU}/cpu[0-9]*/cpufreq/scaling_driver")}
    values |= {name: _values(root, setting.files) for name, setting in SETTINGS.items()}
    if re.search(r"^flags\b.* hypervisor\b", _text(root / "proc/cpuinfo"), re.M):
        values |= {"smt": "", "virtual": "yes"}
    return {name: value for name, value in values.items() if value}


def read_load(root: Path = _ROOT) -> dict[str, str]:
    """How busy the machine is, as Linux says it: ``loadavg``, the mean numbers of tasks that ran or
    could in the last 1, 5 and 15 minutes; ``pressure``, the percentages of the last 10, 60 and 300
    seconds in which a task waited for a core. Without what cannot be read."""
    files = {"loadavg": "proc/loadavg", "pressure": "proc/pressure/cpu"}
    return {name: text for name, file in files.items() if (text := _text(root / file))}


def _values(root: Path, files: str) -> str:
    """The different values of some files; of a list of choices, the one in brackets."""
    texts = {re.sub(r".*\[(\w+)\].*", r"\1", _text(path)) for path in root.glob(files)}
    return " ".join(sorted(texts - {""}))


def _text(path: Path) -> str:
    """The text of a file of the kernel; empty if it cannot be read."""
    with suppress(OSError):
        return path.read_text("utf-8", "replace").strip()
    return ""
