"""Settings of Linux are read from a tree of files, and become advice, or are unknown."""

import json

import pytest

from drbench.launch.host.environment import write_environment
from drbench.launch.views.findings import setting_findings
from drbench.measure.settings import SETTINGS, read_load, read_settings

CPU = "sys/devices/system/cpu"
QUIET = {
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance",
    f"{CPU}/cpu1/cpufreq/scaling_governor": "performance",
    f"{CPU}/cpu1/cpufreq/scaling_driver": "intel_pstate",
    f"{CPU}/intel_pstate/no_turbo": "1",
    f"{CPU}/smt/active": "0",
    "proc/sys/kernel/numa_balancing": "0",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu sse avx512f\n",
}
AMD = {f"{CPU}/cpufreq/boost": "0"} | {
    name: text for name, text in QUIET.items() if "no_turbo" not in name
}
LOUD = {
    f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave",
    f"{CPU}/intel_pstate/no_turbo": "0",
    f"{CPU}/smt/active": "1",
    "proc/sys/kernel/numa_balancing": "2",
    "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]",
}
SUBJECTS = {setting.subject for setting in SETTINGS.values()}


@pytest.fixture
def machine(tmp_path):
    """``machine(files)``: a root folder with these files."""

    def make(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(f"{text}\n")
        return tmp_path

    return make


def levels(root):
    return {found.subject: found.level for found in setting_findings(read_settings(root))}


@pytest.mark.parametrize("files", [QUIET, AMD])
def test_a_quiet_machine_needs_no_change(machine, files):
    assert levels(machine(files)) == dict.fromkeys(SUBJECTS, "ok")


@pytest.mark.parametrize("name", LOUD)
def test_each_setting_that_disturbs_is_advice_with_its_value_reason_and_command(machine, name):
    root = machine(QUIET | {name: LOUD[name]})
    (advice,) = (found for found in setting_findings(read_settings(root)) if found.level != "ok")
    assert advice.level == "advice" and "sudo" in advice.remedy and "time" not in advice.subject
    value = {"[never]": "never"}.get(LOUD[name].split()[-1], LOUD[name])
    assert value in advice.text and ": " in advice.text
    assert "tee" not in advice.remedy or f"/{CPU}" in advice.remedy or name in advice.remedy


def test_boost_of_amd_is_advice_with_its_own_file(machine):
    root = machine(AMD | {f"{CPU}/cpufreq/boost": "1"})
    (advice,) = (found for found in setting_findings(read_settings(root)) if found.level != "ok")
    assert advice.subject == "boost"
    assert advice.remedy == f"echo 0 | sudo tee /{CPU}/cpufreq/boost"


def test_what_cannot_be_read_is_unknown_and_never_ok(machine, tmp_path):
    """Nothing at all (macOS), a file that is a folder, and each setting alone."""
    assert levels(tmp_path) == {"settings": "unknown"} and read_settings(tmp_path) == {}
    assert read_load(tmp_path) == {}
    (tmp_path / CPU / "smt/active").mkdir(parents=True)
    assert levels(tmp_path) == {"settings": "unknown"}
    root = machine({"proc/sys/kernel/numa_balancing": "0"})
    assert levels(root) == {"NUMA balancing": "ok", "settings": "unknown"}
    (unknown,) = (found for found in setting_findings(read_settings(root)) if found.level != "ok")
    assert all(subject in unknown.text for subject in SUBJECTS - {"NUMA balancing"})
    assert "NUMA balancing" not in unknown.text


def test_a_virtual_machine_does_not_know_the_hardware_threads_of_its_host(machine):
    guest = machine(QUIET | {"proc/cpuinfo": "flags\t: fpu hypervisor lahf_lm\n"})
    assert "smt" not in read_settings(guest)
    found = levels(guest)
    assert "hardware threads" not in found and found["settings"] == "unknown"


def test_cores_that_differ_are_both_recorded(machine):
    root = machine(QUIET | {f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave"})
    found = read_settings(root)
    assert found["governor"] == "performance powersave" and found["driver"] == "intel_pstate"
    assert found["huge_pages"] == "madvise" and found["no_turbo"] == "1"


def test_load_is_recorded_and_does_not_change_the_identity_but_settings_do(tmp_path, monkeypatch):
    identities = []
    for governor, load in (("powersave", "9.00"), ("powersave", "0.01"), ("performance", "0.01")):
        monkeypatch.setattr(
            "drbench.launch.host.environment.read_load", lambda now=load: {"loadavg": now}
        )
        described = {"hosts": {"h": {"settings": {"governor": governor}}}}
        identities.append(write_environment(tmp_path, described))
        latest = json.loads((tmp_path / "environment.json").read_text())
        assert latest["load"] == {"loadavg": load}
        file = tmp_path / "environments" / f"{identities[-1]}.json"
        assert "load" not in json.loads(file.read_text())
    first, again, other = identities
    assert first == again != other
