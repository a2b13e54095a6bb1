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
        yield size | {"dtype": "float64", "roof": True}
    yield from more


@pytest.mark.parametrize("name, library", LIBRARIES)
@pytest.mark.parametrize("p", [2, 3])
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
    records, refused = found["records"][:4], found["records"][4:]
    assert [(each["status"], each["error"]) for each in records] == [("ok", 0.0)] * 4, records
    assert [each["dataflow"] for each in records] == ["AG", "AG", "RS", "RS"]
    gathered, reduced = 48 * 60 * 4 * (p - 1), 48 * 36 * 4 * (p - 1)
    assert [each["collective_bytes"] for each in records] == [
        gathered,
        2 * gathered,
        reduced,
        2 * reduced,
    ]
    for axis, record in zip(uneven, refused, strict=True):
        assert record["status"] == "unsupported" and f"divides {axis} evenly" in record["reason"]
    if library == "nvmath":
        assert [each for each in found["calls"] if isinstance(each, str)] == [
            *["AG+GEMM", "free"] * 2,
            *["GEMM+RS", "free"] * 2,
        ]
