"""Meshes and layouts, written and read in three notations."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mesh_tiles import held, places

from drbench.chains.model.mesh import PLACEMENTS, DeviceMesh, cut, meshes
from drbench.errors import UnsupportedError, UsageError
from drbench.partitions import partition

NAMES = st.lists(st.sampled_from(("dp", "tp", "ep", "pod", "node_2")), max_size=3, unique=True)


@st.composite
def layouts(draw):
    """A mesh, and a layout on it."""
    names = draw(NAMES.filter(bool))
    mesh = DeviceMesh(tuple(names), tuple(draw(st.integers(1, 8)) for _ in names))
    return mesh, mesh.plain(tuple(draw(st.sampled_from(PLACEMENTS)) for _ in names))


@given(layouts(), st.sampled_from([", ", " ,", ","]))
def test_a_mesh_and_a_layout_are_read_as_they_are_written(drawn, comma):
    mesh, layout = drawn
    assert DeviceMesh.read(str(mesh).replace(",", comma)) == mesh
    short = mesh.torch(layout)
    long = short.replace("Shard(", "Shard(dim=")
    tuples = f"({short[1:-1]},)"
    torch = short, long, tuples, short.replace("Shard(0)", "Shard(-2)").replace("(1)", "(-1)")
    for text in (mesh.text(layout), ",".join(layout), mesh.jax(layout), *torch):
        assert mesh.layout(text) == layout, text
    assert mesh.layout(mesh.jax(layout).replace("P(", "PartitionSpec(", 1)) == layout


@given(layouts(), st.integers(1, 30), st.integers(1, 30))
def test_ranks_hold_the_tiles_of_the_text(drawn, rows, cols):
    """As the library deals them, with PyTorch's ragged parts; the largest is that of ``cut``."""
    mesh, layout = drawn
    part = partition(mesh.text(layout), (rows, cols), mesh.ranks)
    sizes = []
    for rank, place in enumerate(places(mesh)):
        sizes.append([high - low for low, high in held(mesh, (rows, cols), layout, place)])
        assert part.local_size(rank) == prod(sizes[-1])
        assert rank == sum(x * stride for x, stride in zip(place, mesh.strides))
    for side, extent in enumerate((rows, cols)):
        assert cut(extent, layout, side, mesh) == max(each[side] for each in sizes)


def test_words_cut_all_dimensions_alike():
    mesh = DeviceMesh.read("pod=2,dp=3,tp=4")
    words = {"row": "S(0)", "Column": "S(1)", "R": "R", " r ": "R"}
    assert all(mesh.layout(word) == (one,) * 3 for word, one in words.items())
    assert DeviceMesh.read("a=2,b=2").layout("block") == ("S(0)", "S(1)")
    assert len(mesh.layouts()) == len({*mesh.layouts()}) == 27
    assert DeviceMesh.read("dp=1,tp=4").layouts() == [("R", "S(0)"), ("R", "S(1)"), ("R", "R")]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "different names with ranks"),
        ("dp=2,dp=4", "different names"),
        ("dp=0", "got 'dp=0'"),
        ("dp:2", "dp=8,tp=8; got 'dp:2'"),
        ("dp=2,tp=4x", "got 'dp=2,tp=4x'"),
        ("dp=2,,tp=4", "got 'dp=2,,tp=4'"),
    ],
)
def test_a_wrong_mesh_is_refused_in_one_line(text, message):
    with pytest.raises(UsageError, match=message) as refused:
        DeviceMesh.read(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["pp=2,dp=4", "cp=2"])
def test_dimensions_of_absent_operations_are_unsupported(text):
    with pytest.raises(UnsupportedError, match="Use data, tensor and expert parallel dim"):
        DeviceMesh.read(text)


@pytest.mark.parametrize(
    "text, message",
    [
        ("R", None),
        ("S(0)", "does not fit mesh dp=2,tp=4. Give R, S\\(0\\) or S\\(1\\) for each of dp, tp"),
        ("R,R,R", "does not fit mesh dp=2,tp=4"),
        ("R,S(1)@4x2", "does not fit mesh dp=2,tp=4"),
        ("R,S(2)", "layout 'R,S\\(2\\)' does not fit mesh dp=2,tp=4"),
        ("R,P", "matrices of a chain have S\\(0\\), S\\(1\\) or R"),
        ("[Shard(0), Partial()]", "matrices of a chain have"),
        ("rows", "layout 'rows' does not fit mesh"),
        ("P('x', None)", "Use each of its names at most once, as P\\('dp', None\\)"),
        ("P('dp', 'dp')", "Use each of its names at most once"),
        ("P('dp', None, 'tp')", "does not fit"),
        ("P(('tp', 'dp'), None)", "in the order of mesh dp=2,tp=4"),
        ("P('dp', __import__('os'))", "does not fit"),
        ("P('dp', 3)", "does not fit"),
    ],
)
def test_a_wrong_layout_is_refused_in_one_line(text, message):
    mesh = DeviceMesh.read("dp=2,tp=4")
    if message is None:
        assert mesh.layout(text) == ("R", "R")
        return
    with pytest.raises(UsageError, match=message) as refused:
        mesh.layout(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("ranks, node", [(1, 8), (7, 8), (8, 8), (24, 8), (64, 8), (12, 12)])
def test_meshes_to_try_have_all_ranks_and_no_two_are_alike(ranks, node):
    found = list(meshes(ranks, node))
    assert all(mesh.ranks == ranks and len(mesh.extents) <= 2 for mesh in found)
    assert len({mesh.extents for mesh in found}) == len(found)
    assert (ranks,) in {mesh.extents for mesh in found}
    usual = (ranks // node, node) if node < ranks and ranks % node == 0 else (ranks,)
    assert found[0].extents == usual
