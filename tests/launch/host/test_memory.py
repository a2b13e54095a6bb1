"""Free memory of a control group, page cache included, in both versions of control groups."""

import psutil
import pytest

from drbench.launch.host.memory import available_memory

GIB = 1 << 30


@pytest.fixture(autouse=True)
def plenty(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("", (), {"available": 100 * GIB}))


FILES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def group(folder, version, limit, used, cache):
    """The files of one control group."""
    most, now, name = FILES[version]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / most).write_text(f"{limit}\n")
    (folder / now).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{name} {cache}\nactive_file 7\n")


@pytest.mark.parametrize(
    "text, groups, left",
    [
        ("0::/\n", {"": (2, 8 * GIB, 8 * GIB, 7 * GIB)}, 7),  # page cache can be freed
        (
            "0::/slurm/job_1/step_0\n",  # the groups above limit too
            {
                "slurm": (2, 9 * GIB, GIB, 0),
                "slurm/job_1": (2, 4 * GIB, 2 * GIB, GIB),
                "slurm/job_1/step_0": (2, "max", GIB, GIB),
            },
            3,
        ),
        (
            "5:cpu,cpuacct:/a\n4:memory:/slurm/job_1\n0::/b\n",
            {
                "memory/slurm/job_1": (1, 4 * GIB, 4 * GIB, GIB),
                "memory": (1, 1 << 62, 4 * GIB, GIB),
            },
            1,
        ),
        *((text, {}, 100) for text in ("", "0::/\n", "4:memory:/gone\n", "nonsense\n")),
    ],
)
def test_free_memory_is_the_least_of_all_groups(tmp_path, text, groups, left):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(text)
    for path, files in groups.items():
        group(tmp_path / "sys/fs/cgroup" / path, *files)
    assert available_memory(tmp_path) == left * GIB
