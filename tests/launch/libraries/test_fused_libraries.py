"""Libraries of fused GEMMs, which need GPUs: what is refused without one."""

import importlib.metadata
import importlib.util

import pytest

from drbench.errors import MissingError, UnsupportedError, UsageError
from drbench.launch.libraries import Availability, get_library, require_library
from drbench.launch.libraries.fused import devices, with_gpu


def pretend(monkeypatch, versions):
    """Only these packages are installed, some in distributions with other names."""
    called = {"nvmath": "nvmath-python", "cupy": "cupy-cuda13x", "nccl": "nccl4py"}
    in_distributions = {called.get(name, name): at for name, at in versions.items()}

    def version(name):
        if name not in in_distributions:
            raise importlib.metadata.PackageNotFoundError(name)
        return in_distributions[name]

    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: versions.get(name))
    monkeypatch.setattr(importlib.metadata, "version", version)
    distributions = {name: [called.get(name, name)] for name in versions}
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: distributions)


@pytest.mark.parametrize(
    "name, versions, count, words",
    [
        ("symm_mem", {}, 1, "torch is not installed"),
        ("symm_mem", {"torch": "2.5.1"}, 1, "torch 2.5.1 is older than 2.6"),
        ("symm_mem", {"torch": "2.13.0+cpu"}, 1, "torch 2.13.0+cpu is built without CUDA"),
        (
            "symm_mem",
            {"torch": "2.13.0"},
            0,
            "torch 2.13.0 is installed, but its driver",
        ),
        ("cublasmp", {}, 1, "nvmath is not installed"),
        ("cublasmp", {"nvmath": "1.0.0"}, 1, "cupy is not installed"),
        ("cublasmp", {"nvmath": "1.0.0", "cupy": "13.6.0"}, 1, "nccl is not installed"),
        (
            "cublasmp",
            {"nvmath": "1.0.0", "cupy": "13.6.0", "nccl": "0.3.1"},
            0,
            "nvmath-python 1.0.0 is installed, but its driver finds no GPU",
        ),
    ],
)
def test_a_missing_package_is_refused_in_one_line_with_the_install_command(
    monkeypatch, name, versions, count, words
):
    pretend(monkeypatch, versions)
    monkeypatch.setattr("drbench.launch.libraries.fused.devices", lambda: count)
    with pytest.raises(MissingError) as raised:
        require_library(get_library(name))
    text = str(raised.value)
    assert text.startswith(f"{name} is not available: {words}") and "\n" not in text
    assert raised.value.exit_code == 3
    assert "pip install" in text or "one GPU per rank" in text


@pytest.mark.parametrize("name", ["symm_mem", "cublasmp"])
def test_a_library_with_all_packages_is_available(monkeypatch, name):
    pretend(monkeypatch, dict.fromkeys(("torch", "nvmath", "cupy", "nccl"), "3.0"))
    monkeypatch.setattr("drbench.launch.libraries.fused.devices", lambda: 2)
    assert get_library(name).available().ok


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch):
    def none(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", none)
    assert devices.__wrapped__() == 0
    missing = Availability(False, "torch is not installed", "")
    assert with_gpu(missing) == missing


@pytest.mark.parametrize("name", ["symm_mem", "cublasmp"])
def test_layouts_are_those_of_the_data_flow_and_others_are_refused(name):
    library = get_library(name)
    texts = [library.problem(8, 8, 8, 2, dataflow=flow).texts for flow in ("AG", "RS")]
    assert [tuple(each.values()) for each in texts] == [
        ("row", "column", "column"),
        ("column", "row", "row"),
    ]
    assert library.problem(8, 8, 8, 2, "row").texts == texts[0]
    with pytest.raises(UsageError, match=f"{name} needs .*; got 'row'"):
        library.problem(8, 8, 8, 2, "row", dataflow="RS")
    with pytest.raises(UnsupportedError, match="stored transposed"):
        library.problem(8, 8, 8, 2, transpose="a")
