"""What a control group leaves, page cache counted as free, in both versions of them."""

import psutil
import pytest

from launch.host.memory import available_memory

GIB = 1 << 30


@pytest.fixture(autouse=True)
def plenty(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("", (), {"available": 100 * GIB}))


def group(folder, limit, used, cache, version=2):
    """The files of one control group."""
    names = ("memory.max", "memory.current", "inactive_file")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cache}\nactive_file 7\n")


def of(root, text):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(text)


def test_page_cache_that_can_be_given_back_is_free(tmp_path):
    of(tmp_path, "0::/\n")
    group(tmp_path / "sys/fs/cgroup", 8 * GIB, 8 * GIB, 7 * GIB)
    assert available_memory(tmp_path) == 7 * GIB


def test_the_groups_above_limit_too(tmp_path):
    of(tmp_path, "0::/slurm/job_1/step_0\n")
    top = tmp_path / "sys/fs/cgroup"
    group(top / "slurm", 9 * GIB, GIB, 0)
    group(top / "slurm/job_1", 4 * GIB, 2 * GIB, GIB)
    group(top / "slurm/job_1/step_0", "max", GIB, GIB)
    assert available_memory(tmp_path) == 3 * GIB


def test_version_1(tmp_path):
    of(tmp_path, "5:cpu,cpuacct:/a\n4:memory:/slurm/job_1\n0::/b\n")
    group(tmp_path / "sys/fs/cgroup/memory/slurm/job_1", 4 * GIB, 4 * GIB, GIB, version=1)
    group(tmp_path / "sys/fs/cgroup/memory", 1 << 62, 4 * GIB, GIB, version=1)
    assert available_memory(tmp_path) == GIB


@pytest.mark.parametrize("text", ["", "0::/\n", "4:memory:/gone\n", "nonsense\n"])
def test_without_a_limit_it_is_what_the_kernel_says(tmp_path, text):
    of(tmp_path, text)
    assert available_memory(tmp_path) == 100 * GIB
