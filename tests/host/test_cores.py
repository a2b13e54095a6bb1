"""Cores are those of the process's affinity, limited by the CPU quota of its control groups."""

import os

import pytest

import drbench.host.cores
from drbench.host.cores import core_quota, usable_cores


@pytest.fixture
def groups(tmp_path):
    """``groups(member, files)``: the quota where the process is in these groups."""

    def quota(member, files):
        for name, text in files.items():
            path = tmp_path / "groups" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "member").write_text(member)
        return core_quota(tmp_path / "groups", tmp_path / "member")

    return quota


@pytest.mark.parametrize(
    "member, files, cores",
    [
        ("0::/job/step\n", {"job/step/cpu.max": "max 100000\n"}, None),
        ("0::/job/step\n", {"job/step/cpu.max": "250000 100000\n"}, 2.5),
        ("0::/job/step\n", {"job/step/cpu.max": "max 100000", "job/cpu.max": "50000 50000"}, 1.0),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),  # a container sees its group as the root
        ("0::/elsewhere\n", {"cpu.max": "300000 100000\n"}, 3.0),
        (
            "4:memory:/x\n2:cpu,cpuacct:/slurm\n",
            {
                "cpu,cpuacct/slurm/cpu.cfs_quota_us": "400000\n",
                "cpu,cpuacct/slurm/cpu.cfs_period_us": "100000\n",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            4.0,
        ),
        ("3:cpuset:/\n", {"cpuset/cpu.max": "100000 100000"}, None),
        ("0::/\n", {"cpu.max": "what is this"}, None),
        ("", {}, None),
    ],
)
def test_the_quota_is_the_least_of_the_groups_above(groups, member, files, cores):
    assert groups(member, files) == cores


def test_a_machine_without_control_groups_has_no_quota(tmp_path):
    assert core_quota(tmp_path, tmp_path / "none") is None


@pytest.mark.parametrize("quota, cores", [(None, 8), (2.5, 2), (0.25, 1), (64.0, 8)])
def test_cores_are_whole_and_at_least_one(monkeypatch, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(drbench.host.cores, "core_quota", lambda: quota)
    assert usable_cores() == cores
