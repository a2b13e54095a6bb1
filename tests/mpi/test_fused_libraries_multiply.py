"""The adapters of libraries of fused GEMMs, on made-up libraries and on torch's fall-backs."""

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]
LIBRARIES = [
    pytest.param("symm_mem", "torch", marks=pytest.mark.torch),
    ("cublasmp", "nvmath"),
]


def cases(name, *more):
    """Both data flows on extents that divide evenly over 2, 3 and 4 ranks."""
    for flow in ("AG", "RS"):
        size = {"m": 48, "n": 36, "k": 60, "algorithm": name, "options": {"dataflow": flow}}
        yield size
        yield size | {"dtype": "float64", "gemm_only": True}
        yield size | {"dtype": "bfloat16:float32", "gemm_only": True}
        yield size | {"compute": "tf32", "gemm_only": True}
    yield from more


@pytest.mark.parametrize("name, library", LIBRARIES)
@pytest.mark.parametrize("p", [pytest.param(2, marks=pytest.mark.thorough), 3])
def test_the_adapters_multiply_exactly_and_count_what_moves(mpirun, name, library, p):
    if library == "torch":
        pytest.importorskip("torch")
    even = {"m": 48, "n": 36, "k": 60, "algorithm": name}
    uneven = {"m": even | {"m": 49}}
    if library == "nvmath":
        uneven["n"] = even | {"n": 37}
        uneven["k"] = even | {"k": 61, "options": {"dataflow": "RS"}}
    wanted = [*cases(name, *uneven.values())]
    found = mpirun(p, "fused_libraries.py", library, wanted)
    records, refused = found["records"][:8], found["records"][8:]
    assert [(each["status"], each["error"]) for each in records] == [("ok", 0.0)] * 8, records
    assert [each["dataflow"] for each in records] == ["AG"] * 4 + ["RS"] * 4
    assert [(each["dtype"], each["compute"]) for each in records] == 2 * [
        ("float32", "fp32"),
        ("float64", "fp64"),
        ("bfloat16", "bf16"),
        ("float32", "tf32"),
    ]
    assert all(each["gemm_only_gflops"] for each in records if each["compute"] != "fp32")
    gathered, reduced = 48 * 60 * (p - 1), 48 * 36 * (p - 1)
    assert [each["collective_bytes"] for each in records] == [
        elements * itemsize for elements in (gathered, reduced) for itemsize in (4, 8, 2, 4)
    ]
    for axis, record in zip(uneven, refused, strict=True):
        assert record["status"] == "unsupported" and f"divides {axis} evenly" in record["reason"]
    if library == "nvmath":
        assert [each for each in found["calls"] if isinstance(each, str)] == [
            word
            for flow in ("AG+GEMM", "GEMM+RS")
            for arithmetic in ("float32", "float64", "bfloat16", "tf32")
            for word in (flow, arithmetic, "free")
        ]
        local = [each[1] for each in found["calls"] if isinstance(each, list)]
        assert set(local) == {"float64", "bfloat16", "tf32"}
    else:
        assert found["calls"] == 2 * [*["highest"] * 3, "high"]
