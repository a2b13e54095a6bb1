"""F1-F13 and T1-T15 on made-up rows: each holds on rows as the papers tell them, fails when just
what it is about is otherwise, and is undecided without its rows."""

import pytest
from judging import of_overlap

from drbench.errors import UsageError
from launch.cases.machine_models import find_machine
from launch.host.files import ROOT
from launch.papers import overlap
from launch.papers.overlap import needed_bytes_per_s
from launch.papers.overlap.rows import RANGES, ROWS, OverlapRow
from launch.papers.overlap.study import FLUX_M, FLUX_MACHINES, FLUX_SHAPES, Benches, td, tiles

CLAIMS = [claim.name for claim in overlap.PAPER.claims]
PUBLISHED = ROOT / "results/published/overlap"

#: Overlap efficiency in percent as the papers have it, by figure: FLUX's, and that of chunks.
EFFICIENCIES = {
    "flux11": ([41, 45, 50, 57, 41, 45, 50, 57], [-125, -90, -90, 36] * 2),
    "flux12": ([36, 50, 55, 60, 65, 70, 72, 96], [-99, -99, -90, 50] * 2),
    "flux13": ([37, 70, 72, 75, 75, 76, 78, 93], [-40, 10, 20, 60, 5, 10, 20, 60]),
}


def row(study, machine, product, shape, method, seconds, variant="", tile=None, ranks=8, gemm_s=1.0,
        collective_s=2.0):  # fmt: skip
    hidden = 1 - (seconds - gemm_s) / (collective_s - gemm_s)
    return OverlapRow(study, "simulated", machine, ranks, product, *shape, method, variant, tile,
                      seconds, gemm_s, collective_s / seconds, 100 * hidden, "")  # fmt: skip


def with_efficiency(percent):
    """Seconds of a run of 1 s of products and 1 s of communication."""
    return 2.0 - percent / 100


def made_up():
    rows = []
    shapes = [(product, (m, *FLUX_SHAPES[product])) for product in ("ag", "rs") for m in FLUX_M]
    for study, machine in FLUX_MACHINES.items():
        for (product, shape), ours, theirs in zip(shapes, *EFFICIENCIES[study]):
            add = lambda method, percent: rows.append(
                row(study, machine, product, shape, method, with_efficiency(percent))
            )
            add("collective", 0)
            add("flux", ours)
            add("chunks", theirs)
    for product, m, naive in (("ag", 1024, 1.1), ("ag", 8192, 1.5), ("rs", 1024, 1.0),
                              ("rs", 8192, 1.2)):  # fmt: skip
        for variant, seconds in (("ranks", 1.0), ("naive", naive)):
            rows.append(row("flux8", "a100nvlink", product, (m, 8, 8), "flux", seconds, variant))
    for machine, pull, push in (("a100pcie", 1.2, 1.1), ("a100nvlink", 1.1, 1.2)):
        for m in FLUX_M:
            for variant, seconds in (("pull", pull), ("push", push)):
                rows.append(row("flux9", machine, "ag", (m, 8, 8), "flux", seconds, variant))
    for m, best in zip(FLUX_M, (128, 256, 256, 256)):
        for tile in tiles(m, 8):
            seconds = 1.0 if tile == best else 1.1
            rows.append(row("flux10", "a100nvlink", "ag", (m, 8, 8), "flux", seconds, "", tile))
    for machine, (least, most), (slow, fast) in (
        ("a100pcie", (-2, 41), (-213, -36)),
        ("a100nvlink", (14, 88), (-325, -49)),
        ("h800", (-165, -82), (-142, -93)),
    ):
        over = {"a100pcie": (1.45, 3.21), "a100nvlink": (1.33, 4.68), "h800": (0.95, 1.03)}[machine]
        for m, ours, theirs, ratio in ((64, least, slow, over[0]), (512, most, fast, over[1])):
            for product in ("ag", "rs"):
                one = row("flux14", machine, product, (m, 8, 8), "flux", with_efficiency(ours))
                other = row("flux14", machine, product, (m, 8, 8), "chunks", one.seconds * ratio)
                rows += [one, other._replace(efficiency_percent=theirs)]
    for machine, speedup, most in (
        ("a100pcie", 1.32, 18),
        ("a100nvlink", 1.57, 74),
        ("h800", 1.55, 56),
    ):
        for product in ("ag", "rs"):
            one = row("flux15", machine, product, (8192, 8, 8), "flux", 2 / speedup, ranks=16)
            rows.append(one._replace(efficiency_percent=most))
    theirs = ROWS.read([PUBLISHED / "speedups.csv", PUBLISHED / "moe.csv"])
    ranges = RANGES.read([PUBLISHED / "ranges.csv"])
    for each in theirs:
        if each.method in ("td", "flux") and each.study.startswith("td1"):
            shape = each.m, each.n, each.k
            over = {"td11": 1.09, "td12": 1.30, "td13": 0.956, "td14": 0.9636}.get(each.study, 1.0)
            td = 2 / next(r.speedup for r in theirs if r.study == each.study and r.method == "td"
                          and (r.m, r.n, r.k) == shape)  # fmt: skip
            seconds = td if each.method == "td" else td * over
            rows.append(row(each.study, each.machine, each.product, shape, each.method, seconds,
                            ranks=each.ranks))  # fmt: skip
        if each.study.startswith("td-table"):
            rows.append(row(each.study, each.machine, each.product, (each.m, each.n, each.k),
                            each.method, each.seconds, each.variant, ranks=each.ranks))  # fmt: skip
    for machine, product, good, bad in (("h800", "rs", "own rows last", "as they lie"),
                                        ("mi308x", "ag", "all peers", "one peer")):  # fmt: skip
        for variant, seconds in ((good, 1.0), (bad, 1.3)):
            rows.append(row("order", machine, product, (8, 8, 8), "td", seconds, variant))
    for variant, seconds in (("solved: 9", 1.03), ("searched: 16", 1.0), ("TD: 16", 1.0)):
        rows.append(row("split", "h800", "rs", (8, 8, 8), "td", seconds, variant, ranks=16))
    return [*rows, *theirs], ranges


def change(rows, where, **fields):
    """The rows with other values in those that ``where`` picks; there must be some."""
    assert any(where(each) for each in rows)
    return [each._replace(**fields) if where(each) else each for each in rows]


def scaled(rows, where, factor):
    assert any(where(each) for each in rows)
    return [
        each._replace(seconds=each.seconds * factor, speedup=each.speedup / factor)
        if where(each)
        else each
        for each in rows
    ]


def of(study, **fields):
    return lambda row: (
        row.study == study
        and row.mode == "simulated"
        and all(getattr(row, name) == value for name, value in fields.items())
    )


#: Claim -> what makes it fail, of the rows that pass.
OTHERWISE = {
    "F1": lambda rows: change(rows, of("flux12", method="flux", m=8192), efficiency_percent=5.0),
    "F2": lambda rows: scaled(rows, of("flux11", method="chunks", m=1024, product="rs"), 0.4),
    "F3": lambda rows: change(rows, of("flux13", method="chunks", m=1024), efficiency_percent=1.0),
    "F4": lambda rows: [
        each._replace(efficiency_percent=min(91.0, each.efficiency_percent)) for each in rows
        if each.mode == "simulated"
    ],
    "F5": lambda rows: scaled(rows, of("flux8", variant="naive", m=8192, product="rs"), 0.8),
    "F6": lambda rows: scaled(rows, of("flux9", variant="push", machine="a100nvlink"), 0.8),
    "F7": lambda rows: scaled(rows, of("flux15", machine="a100pcie"), 0.8),
    "F9": lambda rows: change(rows, of("flux14", m=512, machine="h800", method="flux"),
                              efficiency_percent=1.0),
    "F10": lambda rows: change(rows, of("flux14", m=512, machine="a100pcie", method="flux"),
                               efficiency_percent=67.0),
    "F11": lambda rows: change(rows, of("flux15", machine="h800"), efficiency_percent=30.0),
    "F12": lambda rows: change(rows, of("flux12", method="chunks", m=1024),
                               efficiency_percent=-130.0),
    "F13": lambda rows: change(rows, of("flux14", machine="h800", m=64, method="chunks"),
                               efficiency_percent=-169.0),
    "T1": lambda rows: scaled(rows, of("td11"), 0.84),
    "T2": lambda rows: scaled(rows, of("td12"), 1.2),
    "T3": lambda rows: scaled(rows, of("td13", m=32768, n=11008), 1.5),
    "T4": lambda rows: scaled(rows, of("td14", m=4096), 0.7),
    "T5": lambda rows: scaled(rows, of("td18"), 1.2),
    "T12": lambda rows: scaled(rows, of("td11", method="flux"), 0.94),
    "T13": lambda rows: scaled(rows, of("td12", method="flux"), 0.94),
    "T14": lambda rows: scaled(rows, of("td13", method="flux"), 1.048),
    "T15": lambda rows: scaled(rows, of("td14", method="flux"), 1.04),
    "T6": lambda rows: scaled(rows, of("order", variant="one peer"), 0.5),
    "T7": lambda rows: scaled(rows, of("split", variant="solved: 9"), 1.03),
    "T8": lambda rows: scaled(rows, of("td-table4", method="td", ranks=8), 1.2),
    "T9": lambda rows: scaled(
        rows, of("td-table5", method="td", variant="8 experts, top 2", ranks=8), 0.6
    ),
    "T10": lambda rows: scaled(rows, of("td-table4", method="td", ranks=16, m=4096), 1.4),
    "T11": lambda rows: scaled(rows, of("td-table5", method="td", ranks=16), 0.8),
}  # fmt: skip
#: Other rows that claims take.
MORE = {
    "F1, mean alone": lambda rows: [
        each._replace(efficiency_percent=each.efficiency_percent - 16)
        if of("flux13", method="flux")(each) else each for each in rows
    ],
    "F2, H800's maximum": lambda rows: scaled(rows, of("flux13", method="chunks"), 1.3),
    "F4, all hidden": lambda rows: change(rows, of("flux12", method="flux", efficiency_percent=96),
                                          efficiency_percent=99.0),
    "F4, on another machine": lambda rows: change(rows, of("flux13", method="flux", m=1024),
                                                  efficiency_percent=97.0),
    "F3, at large m": lambda rows: change(rows, of("flux13", method="chunks", m=8192, product="rs"),
                                          efficiency_percent=-1.0),
    "F6, less than 1 %": lambda rows: scaled(rows, of("flux9", variant="push",
                                                      machine="a100nvlink"), 0.924),
    "F13, ratios": lambda rows: scaled(rows, of("flux14", machine="a100pcie", m=512,
                                                method="chunks"), 1.3),
    "T5, one point": lambda rows: scaled(rows, of("td17", m=8192, n=11008), 0.7),
    "F6, all tiles alike": lambda rows: change(rows, of("flux10"), seconds=1.0),
    "T6, own rows first": lambda rows: scaled(rows, of("order", variant="as they lie"), 0.5),
}  # fmt: skip


def holds(rows, ranges):
    return {verdict.claim.name: verdict.holds for verdict in of_overlap(rows, ranges)}


def test_every_claim_holds_on_rows_as_the_papers_tell_them():
    assert holds(*made_up()) == dict.fromkeys(CLAIMS, True)
    assert {*OTHERWISE, "T7a"} == {*CLAIMS}  # that is arithmetic, and takes no rows


@pytest.mark.parametrize("case", [*OTHERWISE, *MORE])
def test_a_claim_fails_when_what_it_is_about_is_otherwise(case):
    rows, ranges = made_up()
    theirs = [each for each in rows if each.mode == "published"]
    mutated = {**OTHERWISE, **MORE}[case](rows)
    again = [*(each for each in mutated if each.mode == "simulated"), *theirs]
    after = holds(again, ranges)
    assert after[case.partition(",")[0]] is False
    # claims about other numbers of the same rows
    allowed = {"F3": {"F12"}, "F4": {"F1"}, "F1": {"F4"}, "T1": {"T12"}, "T2": {"T13"},
               "T3": {"T14"}, "T4": {"T15"}, "F13": {"F2"}, "F2": {"F12"}}  # fmt: skip
    allowed = allowed.get(case.partition(",")[0], set())
    assert {claim for claim, held in after.items() if not held} <= {
        case.partition(",")[0],
        *allowed,
    }


@pytest.mark.parametrize("claim", sorted({*CLAIMS} - {"T7a"}))
def test_a_claim_without_its_rows_is_undecided(claim):
    _, ranges = made_up()
    (verdict,) = (each for each in of_overlap([], ranges) if each.claim.name == claim)
    assert verdict.holds is None and "missing" in verdict.ours


def test_sums_need_what_the_text_works_out():
    """9 B in the time that 7 B over NVLink take longer than B over the card (TD, 3.5)."""
    assert needed_bytes_per_s(170e9, 45e9) == pytest.approx(9 / (7 / 170e9 - 1 / 45e9))
    assert needed_bytes_per_s(170e9, 45e9) == pytest.approx(470e9, rel=0.02)


def test_a_fused_method_is_as_fast_as_its_fastest_tile_and_variant():
    bench = Benches({}).of("h800")
    shape = (1024, 2048, 1024)
    methods = td("ag", 8, "h800")
    found = bench.fastest(8, shape, methods)
    every = [
        bench.seconds(8, shape, each.algorithm, **each.options, tile=tile)
        for each in methods
        for tile in tiles(1024, 8)
    ]
    assert found.seconds == min(every) and len(every) == 2
    assert bench.row("td11", "ag", 8, shape, found).gemm_s == bench.machine.compute.gemm_s(
        1024, 256, 1024, 2
    )


def test_the_best_possible_is_below_every_program_and_its_split_hides_the_sums():
    """On H800 the workers that the split gives the sums do as well as the best of a search."""
    shape, every = (2048, 4096, 11008), find_machine("h800").compute.units
    methods = td("rs", 8, "h800")
    usual = Benches({}).of("h800")
    best = usual.headroom("rs", 8, shape, methods)
    assert best.seconds <= usual.fastest(8, shape, methods).seconds * (1 + 1e-9)
    assert 1 <= best.least_units < every

    def with_sums_on(units):
        rest = [each._replace(options=each.options | {"units": every - units}) for each in methods]
        return Benches({}).of("h800", side_units=units).fastest(8, shape, rest).seconds

    solved = with_sums_on(best.least_units)
    assert solved <= 1.1 * min(map(with_sums_on, (2, 4, 8, 16, 32, 64)))


def test_the_units_of_a_kernel_are_those_that_its_tiles_are_dealt_to():
    bench, shape = Benches({}).of("h800", side_units=0), (4096, 8192, 65536)
    seconds = lambda **more: bench.seconds(8, shape, "gemm_rs", variant="write", tile=128, **more)
    assert seconds() == seconds(units=132) < seconds(units=66) < seconds(units=33)
    with pytest.raises(UsageError, match="-o units is about the one kernel"):
        seconds(units=66, kernel="parts")
