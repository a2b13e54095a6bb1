"""Every claim about Figures 2 and 3 on made-up figures: one in which all hold, and for each thing a
claim says one in which just that is not so."""

from dataclasses import replace

import pytest

from drbench.measure.record import Record
from launch.studies.slicing_claims import CLAIMS, check_claims

BATCHES = (1024, 4096, 8192)
FORMS = {
    "Row": "row row row",
    "Column": "column column column",
    "Block": "block block block",
    "Inner": "row column column",
    "Outer": "column row row",
    "Traditional": "traditional traditional traditional",
}
SHAPES = {"mlp1": {"n": 256, "k": 64}, "mlp2": {"n": 64, "k": 256}}
RANKS = {"pvc12": 12, "h100x8": 8}

#: (machine, layer, partitioning, stationary, factors of A, B and C) -> percent of peak at the
#: smallest and at the largest batch, in the middle their mean if it is not given. Figures of which
#: every claim is true.
PVC1 = {
    ("Column", "C", "1-1-1"): (78, 82),
    ("Column", "C", "2-2-2"): (60, 70),
    ("Column", "B", "1-1-1"): (30, 30),
    ("Inner", "C", "1-1-1"): (68, 72),
    ("Inner", "B", "1-1-1"): (25, 25),
    ("Block", "C", "1-1-1"): (40, 50),
    ("Row", "C", "1-1-1"): (31, 20),
    ("Row", "C", "4-4-4"): (30, 35),
    ("Outer", "C", "1-1-1"): (33, 33),
    ("Traditional", "C", "1-1-1"): (31, 31),
}
PVC2 = {
    ("Outer", "B", "1-1-1"): (40, 40),
    ("Outer", "B", "4-4-2"): (72, 72),
    ("Outer", "B", "6-6-6"): (60, 60),
    ("Outer", "B", "12-12-12"): (50, 50),
    ("Outer", "C", "1-1-1"): (30, 30),
    ("Block", "B", "4-4-2"): (66, 66),
    ("Block", "C", "1-1-1"): (30, 30),
    ("Row", "C", "4-4-2"): (50, 50),
    ("Column", "C", "4-4-2"): (45, 45),
    ("Inner", "C", "2-2-2"): (40, 40),
    ("Traditional", "C", "1-1-1"): (20, 20),
}
H1001 = {
    ("Column", "C", "1-1-1"): (90, 91),
    ("Inner", "C", "1-1-1"): (89, 90),
    ("Block", "C", "1-1-1"): (70, 80),
    ("Row", "C", "1-1-1"): (70, 80),
    ("Outer", "C", "1-1-1"): (69, 79),
    ("Traditional", "C", "1-1-1"): (68, 78),
}
H1002 = {
    ("Outer", "C", "1-1-1"): (75, 76),
    ("Outer", "B", "1-1-1"): (60, 61),
    ("Block", "C", "1-1-1"): (70, 71),
    ("Row", "C", "1-1-1"): (70, 71),
    ("Column", "C", "1-1-1"): (72, 73),
    ("Inner", "C", "1-1-1"): (71, 72),
    ("Traditional", "C", "1-1-1"): (69, 70),
    ("Traditional", "B", "1-1-1"): (50, 50),
}
FIGURES = {
    (machine, layer, *line): percents
    for (machine, layer), lines in {
        ("pvc12", "mlp1"): PVC1,
        ("pvc12", "mlp2"): PVC2,
        ("h100x8", "mlp1"): H1001,
        ("h100x8", "mlp2"): H1002,
    }.items()
    for line, percents in lines.items()
}
#: Seconds of the products, where claims speak of them; a case takes 100 s over its
#: percent of peak.
PRODUCTS = {
    ("pvc12", "mlp1", "Column", "C", "1-1-1"): (0.4, 0.4),
    ("pvc12", "mlp1", "Inner", "C", "1-1-1"): (0.7, 0.7),
    ("pvc12", "mlp2", "Outer", "B", "1-1-1"): (2.0, 2.0),
    ("pvc12", "mlp2", "Outer", "B", "4-4-2"): (0.7, 0.7),
    ("pvc12", "mlp2", "Outer", "B", "12-12-12"): (0.9, 0.9),
}
#: The same for DTensor's published lines, (machine, layer, name) -> percents.
PUBLISHED = {
    ("h100x8", "mlp1", "DT - Row"): (60, 60),
    ("h100x8", "mlp1", "DT - Column"): (93, 95),
    ("h100x8", "mlp2", "DT - Row"): (50, 79),
}
#: Schedules of the same case: (partitioning, kind, batch) -> seconds of direct and of exhaustive.
SCHEDULES = {
    **{("aligned", x): (1.04, 1.0) for x in range(1, 10)},
    ("aligned", 10): (1.5, 1.0),
    ("misaligned", 1): (1.04, 1.0),
    ("misaligned", 2): (1.5, 1.0),
}
NONE_DIRECT = dict.fromkeys(SCHEDULES)
TEXTS = {"aligned": "column column column", "misaligned": "tiles:100x300 tiles:70x90 block"}


def at_batches(values):
    """The values at all batches: that of the middle may be left out."""
    return values if len(values) == 3 else (values[0], sum(values) / 2, values[1])


def records(figures=None, products=None, published=None, schedules=None):
    """The figures in which all claims hold, with these entries instead; without those that are
    None."""

    def with_changes(base, changes):
        return {key: value for key, value in (base | (changes or {})).items() if value is not None}

    common = {"status": "ok", "dtype": "float32", "get_bytes": 8, "algorithm": "universal"}
    found = []
    products = with_changes(PRODUCTS, products)
    for key, percents in with_changes(FIGURES, figures).items():
        machine, layer, name, stationary, factors = key
        texts = [
            form if factor == "1" else f"{form}/c{factor}"
            for form, factor in zip(FORMS[name].split(), factors.split("-"))
        ]
        for at, (m, percent) in enumerate(zip(BATCHES, at_batches(percents))):
            best_s = 100 / percent
            found.append(
                Record(
                    mode="simulated",
                    machine=machine,
                    ranks=RANKS[machine],
                    stationary=stationary,
                    m=m,
                    **SHAPES[layer],
                    **dict(zip("abc", texts)),
                    preset=name.lower(),
                    best_s=best_s,
                    percent_of_peak=float(percent),
                    phase_gemm_s=at_batches(products.get(key, (0, 0)))[at],
                    **common,
                )
            )
    for (machine, layer, name), percents in with_changes(PUBLISHED, published).items():
        found += [
            Record(
                mode="published",
                machine=machine,
                ranks=RANKS[machine],
                m=m,
                **SHAPES[layer],
                best_s=1.0,
                percent_of_peak=float(percent),
                reason="made up",
                **common | {"algorithm": name},
            )
            for m, percent in zip(BATCHES, at_batches(percents))
        ]
    for (kind, x), times in with_changes(SCHEDULES, schedules).items():
        found += [
            Record(
                mode="simulated",
                machine="elsewhere",
                ranks=12,
                stationary="C",
                m=64 * x,
                n=512,
                k=512,
                **dict(zip("abc", TEXTS[kind].split())),
                preset="column" if kind == "aligned" else None,
                schedule=schedule,
                best_s=best_s,
                reason=None if best_s else "too many choices",
                **common | {"status": "ok" if best_s else "unsupported"},
            )
            for schedule, best_s in zip(("direct", "exhaustive"), times)
        ]
    return found


def holds(found):
    return {verdict.claim: verdict.holds for verdict in check_claims(found)}


#: The claims that speak of each figure.
ABOUT = {
    ("pvc12", "mlp1"): {"P1", "P2", "P2a", "P3", "P4", "P5", "P8"},
    ("pvc12", "mlp2"): {"P7", "P8", "P9", "P10"},
    ("h100x8", "mlp1"): {"P5", "P6", "P12"},
    ("h100x8", "mlp2"): {"P10", "P12"},
}


def verdict(claim, found):
    """What the records of the figures that a claim speaks of say about it."""
    spoken = {figure for figure, claims in ABOUT.items() if claim in claims}
    layers = {(shape["n"], shape["k"]): layer for layer, shape in SHAPES.items()}
    return holds([r for r in found if (r.machine, layers[r.n, r.k]) in spoken])[claim]


def test_there_are_figures_in_which_every_claim_holds():
    assert holds(records()) == dict.fromkeys(CLAIMS, True)


def pvc1(name, stationary, factors, *percents):
    return {("pvc12", "mlp1", name, stationary, factors): percents or None}


def pvc2(name, stationary, factors, *percents):
    return {("pvc12", "mlp2", name, stationary, factors): percents or None}


def h1001(name, stationary, factors, *percents):
    return {("h100x8", "mlp1", name, stationary, factors): percents or None}


def h1002(name, stationary, factors, *percents):
    return {("h100x8", "mlp2", name, stationary, factors): percents or None}


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
        **pvc1("Row", "C", "4-4-4", 10, 10), **pvc1("Column", "C", "2-2-2", 79, 83),
    }),
    ("P4", "what is replicated leaves B in place", {
        **pvc1("Row", "C", "4-4-4"), **pvc1("Row", "B", "4-4-4", 36, 36),
    }),
    ("P5", "differences are as large", {
        ("h100x8", "mlp1", *line): percents for line, percents in PVC1.items()
    }),
    ("P5", "one line is far below", h1001("Traditional", "C", "1-1-1", 10, 10)),
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
    ("P8", "half of the lines have C's factor of their own", pvc2("Block", "B", "4-4-4", 67, 67)),
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
    ("P10", "Outer Prod. is better with B in place at the smallest batch",
     h1002("Outer", "B", "1-1-1", 76, 61)),
    ("P10", "both ways are equal at one batch", h1002("Outer", "B", "1-1-1", 75, 61)),
    ("P10", "Outer Prod. is drawn with B in place", {
        **h1002("Outer", "C", "1-1-1", 50, 50), **h1002("Outer", "C", "2-1-1", 75, 76),
    }),
    ("P10", "another line with B in place wins", h1002("Traditional", "B", "1-1-1", 50, 77)),
]  # fmt: skip


@pytest.mark.parametrize(
    "claim, what, change",
    [pytest.param(*each, id="-".join(each[:2]).replace(" ", "_")) for each in BROKEN],
)
def test_a_claim_fails_where_one_thing_it_says_is_not_so(claim, what, change):
    assert verdict(claim, records(change, schedules=NONE_DIRECT)) is False, what


COLUMN = ("pvc12", "mlp1", "Column", "C", "1-1-1")
NONE, MOST = (("pvc12", "mlp2", "Outer", "B", factors) for factors in ("1-1-1", "12-12-12"))


@pytest.mark.parametrize(
    "claim, products",
    [
        ("P2a", {COLUMN: (0.4, 0.8)}),  # Column's products take longer at one batch
        ("P2a", {COLUMN: (0.7, 0.4)}),  # as long as Inner Prod.'s
        ("P9", {NONE: (2.0, 0.6)}),  # unreplicated products are faster than those of the best
        ("P9", {NONE: (0.7, 2.0)}),  # as fast
        ("P9", {MOST: (0.9, 1.5)}),  # the highest factors wait less than the best
    ],
)
def test_a_claim_about_products_fails_where_they_are_slower(claim, products):
    assert verdict(claim, records(products=products, schedules=NONE_DIRECT)) is False


def test_claims_about_products_need_both_cases_without_replication():
    changes = pvc1("Inner", "C", "1-1-1") | pvc1("Inner", "C", "2-2-2", 68, 72)
    assert holds(records(changes))["P2a"] is False


@pytest.mark.parametrize(
    "percents, competitive",
    [((94.5, 95), True), ((93, 95.7), True), ((93, 96), False), ((95, 95), False)],
)
def test_competitive_is_95_percent_of_dtensors_best_line_at_every_batch(percents, competitive):
    changed = {("h100x8", "mlp1", "DT - Column"): percents}
    found = records(published=changed, schedules=NONE_DIRECT)
    assert verdict("P12", found) is competitive


@pytest.mark.parametrize(
    "schedules, claim_holds",
    [
        ({("aligned", 9): (1.5, 1.0)}, False),  # eight of ten
        ({("misaligned", 2): (1.0, 1.0)}, False),  # misaligned tiles never gain
        ({("misaligned", x): (1.5, 1.0) for x in range(1, 9)}, True),
        ({("misaligned", x): (1.0 + (x == 1), 1.0) for x in range(1, 11)}, False),  # as often
        ({("misaligned", 1): None, ("misaligned", 2): None}, None),
        ({("aligned", x): None for x in range(1, 11)}, None),
        ({("aligned", 10): (1.5, None)}, True),  # nothing to compare with
    ],
)
def test_direct_is_almost_always_as_good_but_on_misaligned_tiles(schedules, claim_holds):
    found = [r for r in records(schedules=schedules) if r.schedule]
    assert holds(found)["P11"] is claim_holds


@pytest.mark.parametrize(
    "claim, change",
    [
        ("P4", pvc1("Row", "C", "4-4-4") | pvc1("Block", "C", "4-4-4", 45, 55)),  # the third best
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
    assert verdict(claim, records(change, schedules=NONE_DIRECT)) is True


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
    assert "exhaustive was beyond its limit in 0" in told[-2].numbers


@pytest.mark.parametrize("figure", ABOUT)
def test_a_claim_without_its_figure_is_undecided_and_the_others_still_hold(figure):
    without = {key: None for key in FIGURES if key[:2] == figure}
    without_lines = ABOUT[figure] - {"P12"}  # which the other layer still decides
    expected = {claim: None if claim in without_lines else True for claim in CLAIMS}
    assert holds(records(without)) == expected


def test_without_published_lines_nothing_is_said_about_dtensor():
    assert holds(records(published=dict.fromkeys(PUBLISHED)))["P12"] is None
    assert holds([]) == dict.fromkeys(CLAIMS)
