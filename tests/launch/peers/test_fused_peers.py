"""Other people's fused products, which multiply on GPUs alone: what is refused without one."""

import importlib.metadata
import importlib.util

import pytest

from drbench.errors import MissingError, UnsupportedError, UsageError
from launch.peers import Availability, get_peer, present
from launch.peers.symm_mem import check_even, devices, with_gpu


def pretend(monkeypatch, versions):
    """Only these packages are installed, in distributions that some of them share no name with."""
    in_distributions = {
        {"nvmath": "nvmath-python", "cupy": "cupy-cuda13x", "nccl": "nccl4py"}.get(name, name): at
        for name, at in versions.items()
    }

    def version(name):
        if name not in in_distributions:
            raise importlib.metadata.PackageNotFoundError(name)
        return in_distributions[name]

    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: versions.get(name))
    monkeypatch.setattr(importlib.metadata, "version", version)


@pytest.mark.parametrize(
    "name, versions, count, words",
    [
        ("symm_mem", {}, 1, "torch is not installed"),
        ("symm_mem", {"torch": "2.5.1"}, 1, "torch 2.5.1 has no torch.ops.symm_mem"),
        ("symm_mem", {"torch": "2.13.0+cpu"}, 1, "torch 2.13.0+cpu is built without CUDA"),
        ("symm_mem", {"torch": "2.13.0"}, 0, "torch 2.13.0 is here, and no GPU"),
        ("cublasmp", {}, 1, "nvmath-python is not installed"),
        ("cublasmp", {"nvmath": "1.0.0"}, 1, "cupy is not installed"),
        ("cublasmp", {"nvmath": "1.0.0", "cupy": "13.6.0"}, 1, "nccl is not installed"),
        (
            "cublasmp",
            {"nvmath": "1.0.0", "cupy": "13.6.0", "nccl": "0.3.1"},
            0,
            "nvmath-python 1.0.0 is here, and no GPU",
        ),
    ],
)
def test_what_is_missing_is_one_line_with_the_way_to_get_it(
    monkeypatch, name, versions, count, words
):
    pretend(monkeypatch, versions)
    monkeypatch.setattr("launch.peers.symm_mem.devices", lambda: count)
    with pytest.raises(MissingError) as raised:
        present(get_peer(name))
    said = str(raised.value)
    assert said.startswith(f"{name} is not available: {words}") and "\n" not in said
    assert raised.value.exit_code == 3
    assert "pip install" in said or "one GPU a rank" in said


@pytest.mark.parametrize("name", ["symm_mem", "cublasmp"])
def test_all_that_is_needed_makes_a_peer_available(monkeypatch, name):
    pretend(monkeypatch, dict.fromkeys(("torch", "nvmath", "cupy", "nccl"), "3.0"))
    monkeypatch.setattr("launch.peers.symm_mem.devices", lambda: 2)
    assert get_peer(name).available().ok


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch):
    def none(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", none)
    assert devices.__wrapped__() == 0
    missing = Availability(False, "torch is not installed", "")
    assert with_gpu(missing, 0) == missing


@pytest.mark.parametrize("name", ["symm_mem", "cublasmp"])
def test_layouts_are_those_of_the_data_flow_and_others_are_refused(name):
    peer = get_peer(name)
    texts = [peer.problem(8, 8, 8, 2, dataflow=flow).texts for flow in ("AG", "RS")]
    assert [tuple(each.values()) for each in texts] == [
        ("row", "column", "column"),
        ("column", "row", "row"),
    ]
    assert peer.problem(8, 8, 8, 2, "row").texts == texts[0]
    with pytest.raises(UsageError, match=f"{name} with -o dataflow=RS takes .*; got 'row'"):
        peer.problem(8, 8, 8, 2, "row", dataflow="RS")
    with pytest.raises(UnsupportedError, match="stored transposed"):
        peer.problem(8, 8, 8, 2, transpose="a")


@pytest.mark.parametrize(
    "m, n, k, flow, whole, axis",
    [
        (9, 8, 8, "AG", False, "m"),
        (8, 9, 8, "AG", True, "n"),
        (8, 8, 9, "RS", True, "k"),
        (8, 9, 9, "AG", False, None),
        (8, 9, 8, "RS", True, None),
    ],
)
def test_extents_that_do_not_divide_evenly_are_refused(m, n, k, flow, whole, axis):
    problem = get_peer("symm_mem").problem(m, n, k, 4, dataflow=flow)
    if axis is None:
        check_even("it", problem, flow, whole)
        return
    with pytest.raises(UnsupportedError, match=f"divides {axis} evenly .*; {axis} = 9 on 4 ranks"):
        check_even("it", problem, flow, whole)
