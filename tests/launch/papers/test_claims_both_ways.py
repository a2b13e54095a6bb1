"""Every claim about Figures 2 and 3 on made-up figures: one in which all hold, and for each thing a
claim says one in which just that is not so."""

from dataclasses import replace

import pytest
from judging import of_slicing as check_claims
from made_up_figures import (
    FIGURES,
    PUBLISHED,
    PVC1,
    SCHEDULES,
    SHAPES,
    SIMULATED,
    h1001,
    h1002,
    pvc1,
    pvc2,
    records,
)

from launch.papers import slicing

CLAIMS = [claim.name for claim in slicing.CLAIMS]


NO_SCHEDULES = dict.fromkeys(SCHEDULES)


def holds(found):
    return {verdict.claim.name: verdict.holds for verdict in check_claims(found)}


#: The claims that speak of each figure.
ABOUT = {
    ("pvc12", "mlp1"): {"P1", "P2", "P2a", "P3", "P4", "P5", "P8", "P12a"},
    ("pvc12", "mlp2"): {"P7", "P8", "P9", "P10", "P12"},
    ("h100x8", "mlp1"): {"P5", "P6", "P12b"},
    ("h100x8", "mlp2"): {"P10", "P10a", "P12b"},
}


def verdict(claim, found):
    """What the records of the figures that a claim speaks of say about it."""
    spoken = {figure for figure, claims in ABOUT.items() if claim in claims}
    layers = {(shape["n"], shape["k"]): layer for layer, shape in SHAPES.items()}
    return holds([r for r in found if (r.machine, layers[r.n, r.k]) in spoken])[claim]


def test_there_are_figures_in_which_every_claim_holds():
    assert holds(records()) == dict.fromkeys(CLAIMS, True)


#: Claim, what is not so, and the change that makes it not so.
BROKEN = [
    ("P1", "a third one is above Inner Prod.", pvc1("Row", "C", "4-4-4", 70, 71)),
    ("P2", "Column is faster with B in place", pvc1("Column", "B", "1-1-1", 79, 83)),
    ("P2", "Inner Prod. is faster with B in place", pvc1("Inner", "B", "1-1-1", 20, 73)),
    ("P2", "Column gains by replication once", pvc1("Column", "C", "2-2-2", 79, 70)),
    ("P2a", "Inner Prod. is better at one batch", pvc1("Inner", "C", "1-1-1", 79, 60)),
    ("P2a", "both are equal at one batch", pvc1("Inner", "C", "1-1-1", 78, 60)),
    ("P3", "Block worsens once", pvc1("Block", "C", "1-1-1", 40, 39, 50)),
    ("P3", "Block stays the same", pvc1("Block", "C", "1-1-1", 40, 40)),
    ("P3", "Block is above Column at the largest batch", pvc1("Block", "C", "1-1-1", 40, 83)),
    ("P3", "Block is equal to Column at the smallest batch", pvc1("Block", "C", "1-1-1", 78, 79)),
    ("P4", "nothing but the best two is replicated", {
        **pvc1("Row", "C", "4-4-4"), **pvc1("Outer", "C", "2-2-2"),
        **pvc1("Column", "C", "2-2-2", 79, 83),
    }),
    ("P4", "one line alone is replicated", pvc1("Outer", "C", "2-2-2")),
    ("P4", "what is replicated leaves B in place", {
        **pvc1("Row", "C", "4-4-4"), **pvc1("Row", "B", "4-4-4", 36, 36),
    }),
    ("P4", "what is replicated is not drawn", pvc1("Row", "B", "1-1-1", 36, 36)),
    ("P5", "differences are as large", {
        ("h100x8", "mlp1", *line): percents for line, percents in PVC1.items()
    }),
    ("P5", "one line is far below", h1001("Traditional", "C", "1-1-1", 10, 10)),
    ("P5", "differences are two thirds as large", h1001("Traditional", "C", "1-1-1", 52, 53)),
    ("P5", "they are larger at one batch", h1001("Traditional", "C", "1-1-1", 20, 91, 91)),
    ("P6", "a third one is above Inner Prod.", h1001("Row", "C", "1-1-1", 70, 120)),
    ("P6", "the lead grows with the batch", h1001("Block", "C", "1-1-1", 70, 82, 20)),
    ("P6", "the lead stays the same", {
        key: percents[:1] * 2 for key, percents in FIGURES.items() if key[:2] == ("h100x8", "mlp1")
    }),
    ("P7", "a third one is above Block", pvc2("Row", "C", "4-4-2", 67, 67)),
    ("P7", "Outer Prod. is faster with C in place", pvc2("Outer", "C", "1-1-1", 73, 73)),
    ("P7", "Block is faster with C in place", pvc2("Block", "C", "1-1-1", 67, 67)),
    ("P8", "factors are as high in MLP-1", {
        **pvc1("Row", "C", "12-12-12", 36, 36), **pvc1("Block", "C", "12-12-12", 45, 55),
    }),
    ("P8", "factors are as high at the smallest batch", {
        **pvc1("Row", "C", "12-12-12", 36, 10, 10), **pvc1("Block", "C", "12-12-12", 45, 10, 10),
    }),
    ("P8", "the factor of one line is lower at one batch", {
        **pvc1("Traditional", "C", "2-2-2", 32, 20, 20),
        **pvc2("Traditional", "C", "1-1-1", 20, 20),
    }),
    ("P8", "a factor of C's own gains in half of the points", pvc2("Block", "B", "4-4-4", 67, 67)),
    ("P8", "it gains no more than 5 %", {
        **pvc2("Block", "B", "4-4-4", 63, 63), **pvc2("Outer", "B", "2-2-2", 69, 69),
    }),
    ("P9", "no replication is best once", pvc2("Outer", "B", "1-1-1", 40, 73)),
    ("P9", "A and B are best without replication", {
        **pvc2("Outer", "B", "1-1-2", 50, 73), **pvc2("Outer", "B", "12-12-12", 30, 30),
    }),
    ("P9", "A and B are best with the highest factor", {
        **pvc2("Outer", "B", "12-12-6", 50, 73), **pvc2("Outer", "B", "12-12-12", 30, 30),
    }),
    ("P9", "the highest factors are best once", pvc2("Outer", "B", "12-12-12", 50, 73)),
    ("P10", "one line is far below", {
        **h1002("Traditional", "C", "1-1-1", 10, 10), **h1002("Traditional", "B", "1-1-1"),
    }),
    ("P10a", "Outer Prod. is better with B in place at the smallest batch",
     h1002("Outer", "B", "1-1-1", 76, 61)),
    ("P10a", "both ways are equal at one batch", h1002("Outer", "B", "1-1-1", 75, 61)),
    ("P10a", "Stationary B is 4 % below", h1002("Outer", "B", "1-1-1", 72, 73)),
    ("P10a", "Outer Prod. is drawn with B in place", {
        **h1002("Outer", "C", "1-1-1", 50, 50), **h1002("Outer", "C", "2-1-1", 75, 76),
    }),
    ("P10", "another line with B in place wins", h1002("Traditional", "B", "1-1-1", 50, 77)),
]  # fmt: skip


@pytest.mark.parametrize(
    "claim, what, change",
    [pytest.param(*each, id="-".join(each[:2]).replace(" ", "_")) for each in BROKEN],
)
def test_a_claim_fails_where_one_thing_it_says_is_not_so(claim, what, change):
    assert verdict(claim, records(change, schedules=NO_SCHEDULES)) is False, what


def test_what_moves_nothing_is_compared_with_nothing():
    """Everything is everywhere there: another problem, which is as fast as one likes."""
    found = records(schedules=NO_SCHEDULES)
    equal = [
        record
        for record in found
        if record.preset
        and len({text.partition("/c")[2] for text in (record.a, record.b, record.c)}) == 1
    ]
    fast = [replace(record, best_s=record.best_s / 10) for record in equal]
    assert verdict("P8", [*found, *fast]) is False  # what has equal factors is faster
    still = [replace(record, get_bytes=0) for record in fast]
    assert verdict("P8", [*found, *still]) is True


COLUMN = ("pvc12", "mlp1", "Column", "C", "1-1-1")
NONE, MOST = (("pvc12", "mlp2", "Outer", "B", factors) for factors in ("1-1-1", "12-12-12"))


@pytest.mark.parametrize(
    "claim, products",
    [
        ("P2a", {COLUMN: (0.4, 0.8)}),  # Column's local GEMMs take longer at one batch
        ("P2a", {COLUMN: (0.7, 0.4)}),  # as long as Inner Prod.'s
        ("P2a", {COLUMN: (0.4, 0.67)}),  # 4 % less
        ("P2a", {COLUMN: (0.64, 0.4)}),  # of a difference of 0.19 s they make 0.06
        ("P9", {NONE: (2.0, 0.6)}),  # unreplicated products are faster than those of the best
        ("P9", {NONE: (0.7, 2.0)}),  # as fast
        ("P9", {MOST: (0.9, 1.5)}),  # the highest factors wait less than the best
    ],
)
def test_a_claim_about_products_fails_where_they_are_slower(claim, products):
    assert verdict(claim, records(products=products, schedules=NO_SCHEDULES)) is False


def test_claims_about_products_need_both_cases_without_replication():
    changes = pvc1("Inner", "C", "1-1-1") | pvc1("Inner", "C", "2-2-2", 68, 72)
    assert holds(records(changes))["P2a"] is False


@pytest.mark.parametrize(
    "percents, competitive",
    [((94.5, 95), True), ((93, 95.7), True), ((93, 96), False), ((95, 95), False)],
)
def test_competitive_is_95_percent_of_dtensors_best_line_at_every_batch(percents, competitive):
    changed = {("h100x8", "mlp1", "DT - Column"): percents}
    found = records(published=changed, schedules=NO_SCHEDULES)
    assert verdict("P12b", found) is competitive


@pytest.mark.parametrize(
    "claim, line, percents",
    [
        ("P12a", ("pvc12", "mlp1", "column"), (78, 81)),  # as fast as ours at one batch
        ("P12a", ("pvc12", "mlp1", "column"), (79, 81)),
        ("P12", ("pvc12", "mlp2", "row"), (76, 76)),  # more than 5 % ahead of ours
        ("P12", ("pvc12", "mlp2", "row"), (72, 72)),  # matched
        ("P12", ("pvc12", "mlp2", "row"), (60, 60)),
        ("P12b", ("h100x8", "mlp1", "column"), (92, 97)),
        ("P12b", ("h100x8", "mlp2", "row"), (80, 79)),
        ("P12b", ("h100x8", "mlp1", "row"), (50, 51)),  # not like the published one
        ("P12b", ("h100x8", "mlp2", "column"), (61, 78.5)),  # not in the published order
    ],
)
def test_dtensor_simulated_by_the_same_constants_counts_too(claim, line, percents):
    assert verdict(claim, records(dtensor={line: percents}, schedules=NO_SCHEDULES)) is False


def test_on_pvc_it_is_a_line_that_the_paper_names_that_outperforms_dtensor():
    change = pvc1("Row", "C", "4-4-4", 79, 35)
    assert verdict("P12a", records(change, schedules=NO_SCHEDULES)) is False


@pytest.mark.parametrize(
    "schedules, claim_holds",
    [
        ({("aligned", 19): (1.5, 1.0)}, False),  # 19 of 22
        ({("misaligned", 1): (1.5, 1.0)}, False),  # the same, of misaligned tiles
        ({("misaligned", 2): (1.0, 1.0)}, False),  # misaligned tiles never gain
        ({("misaligned", x): (1.0 + (x == 1), 1.0) for x in range(1, 21)}, False),  # as often
        ({("misaligned", x): (1.0 + (x < 3), 1.0) for x in range(1, 21)}, True),
        ({("misaligned", 1): None, ("misaligned", 2): None}, None),
        ({("aligned", x): None for x in range(1, 21)}, None),
        ({("aligned", 20): (1.5, None)}, True),  # nothing to compare with
    ],
)
def test_direct_is_almost_always_as_good_but_on_misaligned_tiles(schedules, claim_holds):
    found = [r for r in records(schedules=schedules) if r.schedule]
    assert holds(found)["P11"] is claim_holds


@pytest.mark.parametrize(
    "claim, change",
    [
        ("P4", pvc1("Row", "C", "4-4-4") | pvc1("Block", "C", "4-4-4", 45, 55)),  # the third best
        ("P8", pvc2("Block", "B", "4-4-4", 62, 62) | pvc2("Outer", "B", "2-2-2", 68, 68)),
        (
            "P9",
            {
                **pvc2("Outer", "B", "4-4-2"),
                **pvc2("Outer", "B", "2-2-1", 72, 72),
                **pvc2("Outer", "B", "12-12-12", 30, 30),
            },
        ),
    ],
)
def test_a_claim_holds_at_the_edge_of_what_it_says(claim, change):
    assert verdict(claim, records(change, schedules=NO_SCHEDULES)) is True


def test_rows_of_other_kinds_say_nothing():
    """Measured ones, refused ones, other algorithms', lowered programs', and those of other
    layers."""
    told = check_claims(records())
    base = records()
    better = {"best_s": 0.1, "percent_of_peak": 99.0}
    other = [
        *(replace(r, mode="measured", **better) for r in base if r.mode == "simulated"),
        *(replace(r, mode="measured", **better) for r in base if r.mode == "published"),
        *(replace(r, algorithm="COSMA-NCCL", **better) for r in base if r.mode == "published"),
        *(replace(r, algorithm="summa", **better) for r in base if r.schedule == "exhaustive"),
        *(replace(r, status="failed", reason="-", **better) for r in base if r.machine == "pvc12"),
        *(replace(r, schedule="cost", **better) for r in base if r.machine == "pvc12"),
        *(replace(r, k=100, **better) for r in base if r.machine == "pvc12"),
        *(replace(r, machine="mars", **better) for r in base if r.machine == "pvc12"),
    ]
    assert check_claims([*other, *base]) == told
    assert "undecided, exhaustive being beyond its limit, 0" in next(
        each.ours for each in told if each.claim.name == "P11"
    )


@pytest.mark.parametrize("figure", ABOUT)
def test_a_claim_without_its_figure_is_undecided_and_the_others_still_hold(figure):
    without = {key: None for key in FIGURES if key[:2] == figure}
    expected = {claim: None if claim in ABOUT[figure] else True for claim in CLAIMS}
    assert holds(records(without)) == expected


def test_without_its_lines_nothing_is_said_about_dtensor():
    assert holds(records(published=dict.fromkeys(PUBLISHED)))["P12b"] is None
    found = holds(records(dtensor=dict.fromkeys(SIMULATED)))
    assert [found[claim] for claim in ("P12", "P12a", "P12b")] == [None] * 3
    assert holds([]) == dict.fromkeys(CLAIMS)
