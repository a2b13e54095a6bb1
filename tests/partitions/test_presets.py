"""Presets bind at every number of ranks, and have the layouts of the literature."""

import pytest

from drbench.partitions import PRESETS, LayoutError, partition, preset

RANKS = [1, 2, 3, 4, 7, 8, 12, 64]
M, N, K = 24, 36, 48


def bound(name, p):
    shapes = {"A": (M, K), "B": (K, N), "C": (M, N)}
    return [
        partition(text, shapes[role], p, role)
        for text, role in zip(preset(name, p, (M, N, K)), shapes)
    ]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_binds_on_any_number_of_ranks(name):
    for p in RANKS:
        assert all(operand.nprocs == p for operand in bound(name, p))


@pytest.mark.parametrize(
    "name, expected",
    [
        ("row", ("row", "row", "row")),
        ("column", ("column", "column", "column")),
        ("block", ("block", "block", "block")),
        ("traditional", ("traditional", "traditional", "traditional")),
        ("inner", ("row", "column", "column")),
        ("outer", ("column", "row", "row")),
        ("megatron", ("row/c12", "column", "column")),
        ("megatron-2", ("column", "row", "row/c12")),
        ("sequence", ("row", "row/c12", "row")),
        ("fsdp", ("row", "column", "row")),
        ("2.5d", ("block/c2", "block/c2", "block/c2")),
        ("inner/c3", ("row/c3", "column/c3", "column/c3")),
        (" OUTER/C2 ", ("column/c2", "row/c2", "row/c2")),
        ("row/c1", ("row", "row", "row")),
        ("optimal:2X2x2", ("grid:2x2x2",) * 3),
    ],
)
def test_presets_on_twelve_ranks(name, expected):
    assert preset(name, 12) == expected


@pytest.mark.parametrize("name, role", [("megatron", 0), ("megatron-2", 2), ("sequence", 1)])
def test_a_replicated_operand_is_whole_on_every_rank(name, role):
    operand = bound(name, 4)[role]
    assert all(operand.local_shape(rank) == operand.shape for rank in range(4))


def test_2_5d_uses_the_largest_divisor_whose_cube_fits():
    for p in range(1, 130):
        factor = max(n for n in range(1, p + 1) if p % n == 0 and n * n * n <= p)
        assert partition(preset("2.5d", p)[0], (8, 8), p).replicas == factor


def test_every_preset_has_a_description_and_a_source():
    for name, entry in PRESETS.items():
        assert (
            entry.name == name
            and entry.description
            and ("§" in entry.source or "'19" in entry.source)
        )
        assert "\n" not in entry.description


@pytest.mark.parametrize(
    "name, p, fragment",
    [
        ("iner", 4, "did you mean inner?"),
        ("zigzag", 4, "Presets: row, column, block"),
        ("inner/c3", 4, "Use one of 1, 2, 4"),
        ("inner/c0", 4, "use /c1 or more"),
        ("inner/2", 4, "write /cN"),
        ("megatron/c2", 4, "use megatron alone"),
        ("2.5d/c2", 8, "use 2.5d alone"),
        ("row", 0, "use at least 1"),
        ("row:2x2x1", 4, "use row alone"),
        ("optimal", 4, "name a grid, as optimal:2x2x1"),
        ("optimal:2x2", 4, "write three integers"),
        ("optimal:2x2x2", 4, "needs 8 ranks, got 4"),
        ("optimal/c2", 4, "use optimal alone"),
        ("megatron/c2\n#", 4, "use megatron alone"),
    ],
)
def test_impossible_presets_are_refused_in_one_line_with_the_remedy(name, p, fragment):
    with pytest.raises(LayoutError) as caught:
        for role, text in zip("ABC", preset(name, p)):
            partition(text, (8, 8), p, role)
    assert fragment in str(caught.value) and "\n" not in str(caught.value)
