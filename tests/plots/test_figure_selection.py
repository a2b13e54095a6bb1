"""What each figure shows is what a slow reading of its rule gives."""

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations
from statistics import median, quantiles

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms import algorithms as names_of_algorithms
from plots.draw import style
from plots.figures import algorithms, best, peers, scaling, volume
from plots.select.cases import Options
from plots.select.records import rows

BYTES = (
    "get_bytes",
    "direct_bytes",
    "put_bytes",
    "accumulate_bytes",
    "replica_bytes",
    "collective_bytes",
)


@pytest.fixture(scope="module")
def records(synthetic):
    found = [*synthetic.exhaustive(ranks=2), *synthetic.comparison(), *synthetic.weak()]
    random.Random(8).shuffle(found)
    return found


def split(text):
    form, _, factor = text.partition("/c")
    return form, int(factor or 1)


def test_every_cell_of_the_heat_map_is_the_best_of_its_cases(records):
    (first, *others), _ = best.maps(
        [r for r in records if r.machine == "small" and r.transport == "direct"], Options()
    )
    assert (first.shape, others) == ((64, 768, 192), [])
    cells, struck = {}, set()
    for record in records:
        if record.transport != "direct":
            continue
        (a, ca), (b, cb), (c, cc) = map(split, (record.a, record.b, record.c))
        cell = ((a, b, c), (record.stationary, (ca, cb, cc)))
        if record.status == "ok":
            cells[cell] = max(cells.get(cell, 0), record.percent_of_roof)
        else:
            struck.add(cell)
    assert {cell: record.percent_of_roof for cell, record in first.cells.items()} == cells
    assert first.struck == struck - cells.keys() and len(struck) > 3
    assert first.best.percent_of_roof == max(cells.values())
    assert set(first.rows) == {row for row, _ in cells} and set(first.columns) == {
        column for _, column in cells
    }


def test_a_map_of_too_many_factors_is_folded_over_those_of_a_and_b(synthetic):
    records = synthetic.exhaustive(ranks=6)[:4000]
    (each,), notes = best.maps(records, Options())
    assert (
        each.folded
        and "columns are the factor of C; each cell is the best over the factors of A and B"
        in notes
    )
    expected = {}
    for record in records:
        if record.status == "ok":
            cell = (
                tuple(split(text)[0] for text in (record.a, record.b, record.c)),
                (record.stationary, (split(record.c)[1],)),
            )
            expected[cell] = max(expected.get(cell, 0), record.percent_of_roof)
    assert {cell: record.percent_of_roof for cell, record in each.cells.items()} == expected


def test_more_triples_than_fit_lose_the_worst_and_are_counted(synthetic):
    records = [
        synthetic.case(a=f"tiles:{number}x8@2x2", percent_of_peak=float(number), best_s=1 / number)
        for number in range(1, 101)
    ]
    (each,), notes = best.maps(records, Options())
    assert sorted(r.percent_of_peak for r in each.cells.values()) == list(
        map(float, range(41, 101))
    )
    assert notes == ["1024 × 256 × 64: not drawn: 40 partition triples below the best 60"]


def test_every_case_with_bytes_is_one_marker_at_its_sum(records):
    panels, _ = volume.scatters(records, Options(shape=(64, 768, 192)))
    shown = Counter(
        (source.ranks, nbytes, time)
        for (source, _), inside in panels
        for nbytes, time in zip(inside.moved_bytes, inside.best_s)
    )
    expected = Counter()
    for record in records:
        counts = [getattr(record, name) for name in BYTES]
        if (
            record.status == "ok"
            and (record.m, record.n, record.k) == (64, 768, 192)
            and any(count is not None for count in counts)
        ):
            expected[record.ranks, sum(count or 0 for count in counts), record.best_s] += 1
    assert shown == expected and sum(expected.values()) > 600


def test_a_bar_is_the_fastest_case_and_its_parts_add_up(records):
    panels, _ = algorithms.panels(records, Options(shape=(512, 512, 512)))
    for (source, _), bars in panels:
        expected = {}
        for record in records:
            if (
                record.status == "ok"
                and (record.m, record.n, record.k) == (512, 512, 512)
                and record.ranks == source.ranks
            ):
                movement = (
                    f" S-{record.stationary}"
                    if record.stationary
                    else f" {record.dataflow}"
                    if record.dataflow
                    else ""
                )
                expected.setdefault(record.algorithm + movement, []).append(record.time_s)
        assert list(zip(bars.variant, bars.time_s)) == sorted(
            ((n, min(t)) for n, t in expected.items()), key=lambda item: item[::-1]
        )
        for algorithm, seconds, (_, parts) in zip(
            bars.algorithm, bars.time_s, algorithms.parts(bars).iterrows(), strict=True
        ):
            parts = parts.dropna()
            assert parts.sum() == pytest.approx(seconds)
            assert (list(parts.index) == ["not broken down"]) == (algorithm == "scalapack")


def test_what_is_missing_in_one_panel_is_said(records):
    _, notes = algorithms.panels(records, Options(shape=(512, 512, 512)))
    assert notes == ["512 × 512 × 512, 4 ranks, small, float32, measured: no case of scalapack"]
    alone = [r for r in records if r.ranks == 4]
    _, _, said = peers.panels(alone, Options(shape=(512, 512, 512)))
    assert said == []  # an algorithm that none of the records is of is no missing series
    _, _, said = peers.panels(records, Options(shape=(512, 512, 512)))
    assert said == ["4 ranks, small, float32, measured: no case of scalapack at all"]


def test_phases_longer_than_the_median_repeat_are_said(synthetic):
    case = synthetic.case(best_s=1.0, phase_gemm_s=0.9, phase_get_wait_s=0.2)
    ((_, bars),), notes = algorithms.panels([case], Options())
    assert algorithms.parts(bars).iloc[0].dropna().to_dict() == {"gemm": 0.9, "get wait": 0.2}
    assert notes == [
        "phases that overlap are longer together than the median repeat: universal S-C"
    ]


def test_phases_are_taken_from_the_median_time_not_from_the_best(synthetic):
    times = {"best_s": 1.0, "median_s": 2.0, "samples_s": [1.0, 2.0, 2.5]}
    case = synthetic.case(**times, phase_gemm_s=1.5, phase_fence_s=0.25)
    ((_, bars),), notes = algorithms.panels([case], Options())
    parts = algorithms.parts(bars).iloc[0].dropna().to_dict()
    assert parts == {"gemm": 1.5, "fence": 0.25, "other": 0.25} and notes == []


def test_a_dot_of_peers_is_the_setting_with_the_smallest_median_time(synthetic):
    def case(algorithm, setting, *times_s, **values):
        known = {"ranks": 2, "m": 64, "n": 64, "k": 64, "mode": "measured", "stationary": None}
        return [
            synthetic.case(
                algorithm=algorithm,
                mesh=setting,
                best_s=time_s / 2,
                median_s=time_s,
                samples_s=[time_s / 2, time_s, 2 * time_s],
                percent_of_roof=900.0 if time_s == 5.0 else 50.0,  # no ratio chooses
                **{**known, **values},
            )
            for time_s in times_s
        ]

    records = [
        *case("universal", "1x2", 5.0, 3.0),
        *case("universal", "2x1", 3.5, 3.7),
        *case("universal", "still", 1.0, 1.0, get_bytes=0),
        *case("heat", "1x2", 6.0, 8.0),
        *case("heat", "once", 1.0),
        *case("heat", "noisy", 1.0, 1.0, noisy=True),
        *case("dtensor", "noisy", 2.0, 2.0, noisy=True),
    ]
    ((_, dots),), drawn, notes = peers.panels(records, Options())
    assert drawn == ["universal", "dtensor", "heat"]
    work = 2 * 64**3 / 1e9
    shown = {
        dot.name: (dot.time_s, dot.hollow, dot.number, dot.low, dot.high) for dot in rows(dots)
    }
    assert shown == {
        "universal": (3.6, False, 2, work / 7.4, work / 1.75),
        "dtensor": (2.0, True, 1, work / 4, work / 1),
        "heat": (7.0, False, 2, work / 16, work / 3),
    }
    assert notes == [
        "hollow: 4 noisy cases, no best of anything",
        "not drawn: 2 cases moving nothing",
        "not drawn: 1 case of settings that were run in fewer rounds than the others, so not in "
        "turn with them",
    ]


def test_two_contenders_of_one_setting_are_one_round_of_it(synthetic):
    """``row`` and ``row S-C`` are one program where S-C is the choice; who ran in the first round
    alone is told, and no name is left without a dot."""
    known = {"ranks": 2, "m": 64, "n": 64, "k": 64, "mode": "measured", "median_s": 1e-5}
    ran = [
        ("universal", (1, 1, 2), ("row", "row S-C", "row")),
        ("heat", (1, 2), ("heat", "heat")),
        ("summa", (1,), ("summa",)),
    ]
    records = [
        synthetic.case(algorithm=name, case=f"{turn} | square 64 | {label}", **known)
        for name, turns, labels in ran
        for turn, label in zip(turns, labels)
    ]
    ((_, dots),), drawn, notes = peers.panels(records, Options())
    assert sorted(dots.name) == ["heat", "universal"] == sorted(drawn)
    assert len(notes) == 1 and notes[0].startswith("not drawn: 1 case of settings")


def test_the_roof_of_peers_is_drbench_s_own_not_that_of_the_library_it_runs_under(synthetic):
    known = {"ranks": 2, "m": 64, "n": 64, "k": 64, "mode": "measured", "stationary": None}
    roofs = {"universal": 100.0, "dtensor": 50.0, "dtensor+drbench": 60.0}
    records = [
        synthetic.case(algorithm=name, roof_gflops=roof, median_s=1e-5, **known)
        for name, roof in roofs.items()
    ]
    (chart,), _ = peers.charts(records, Options())
    assert list(chart.y.ticks.values()) == ["universal", "dtensor+drbench", "dtensor"]
    (rule,) = [marks for marks in chart.marks if marks.kind == "rule"]
    assert list(rule.x) == [100.0, 100.0]


def test_a_peer_that_does_not_say_its_nodes_stands_beside_drbench_on_one_and_not_on_two(synthetic):
    known = {"ranks": 2, "m": 64, "n": 64, "k": 64, "mode": "measured", "median_s": 1e-5}
    case = lambda name, nodes: synthetic.case(algorithm=name, nodes=nodes, **known)
    for nodes, panels in ((1, [["universal", "cosma"]]), (2, [["cosma"], ["universal"]])):
        found, _ = peers.charts([case("universal", nodes), case("cosma", None)], Options())
        assert sorted(list(chart.y.ticks.values()) for chart in found) == panels


def test_every_contender_of_the_comparison_has_a_row(synthetic):
    """All algorithms and peers, as many as ``drbench peers`` runs."""
    every = [*names_of_algorithms(plain=True), *style.PEERS, *style.ON_DRBENCH]
    assert len(every) > 20
    records = [
        replace(synthetic.comparison(shapes=((512,) * 3,), ranks=(2,))[0], algorithm=name)
        for name in every
    ]
    (_,), drawn, notes = peers.panels(records, Options())
    assert sorted(drawn) == sorted(every) and not [each for each in notes if "at most" in each]


def test_shapes_of_peers_are_named_and_in_order_and_no_panel_is_empty(synthetic):
    shapes = ((512, 512, 512), (64, 768, 192), (16, 768, 192), (64, 192, 768), (8, 9, 10))
    found, _ = peers.charts(synthetic.comparison(shapes=shapes, ranks=(2,)), Options())
    assert [chart.title for chart in found] == [
        "512³",
        "MLP-1, m = 16",
        "MLP-1, m = 64",
        "MLP-2, m = 64",
        "8 × 9 × 10",
    ]
    names = list(found[0].y.ticks.values())
    assert names == sorted(names, key=lambda name: (name != "universal", name == "scalapack", name))
    for chart in found:
        assert {marks.name for marks in chart.marks} == {*names, "drbench's roof"}
        assert (chart.x, chart.y) == (found[0].x, found[0].y)


def test_the_framed_cell_is_the_brightest_and_is_not_noisy(synthetic):
    records = synthetic.exhaustive(ranks=2)
    fastest = min((r for r in records if r.status == "ok"), key=lambda r: r.time_s)
    noisy = [replace(r, noisy=True) if r is fastest else r for r in records]
    for found, told in ((records, False), (noisy, True)):
        (chart,), _ = best.charts(found, Options())
        (cells,) = chart.marks
        y, x = cells.frame
        values = [value for row in cells.values for value in row if value == value]
        assert cells.values[y][x] == max(values) == 100.0
        assert (found[cells.cases[y][x]] is fastest) is not told
        places = {(y, x): case for y, row in enumerate(cells.cases) for x, case in enumerate(row)}
        assert {places[place] for place in cells.hollow} == {
            number for number, r in enumerate(found) if r.noisy
        }
    everything = [replace(r, noisy=True) for r in records]
    (chart,), _ = best.charts(everything, Options())
    assert chart.marks[0].frame is None
    assert chart.notes == ("best of 64 × 768 × 192: none, every case is noisy",)


def test_a_median_of_volume_is_that_of_the_cases_with_as_many_bytes(synthetic):
    records = synthetic.exhaustive(ranks=2)
    noisy = [
        replace(r, noisy=True, median_s=9.0) if r.m and n % 5 == 0 else r
        for n, r in enumerate(records)
    ]
    noisy = [replace(r, noisy=None, median_s=None) if r.status != "ok" else r for r in noisy]
    (chart,), notes = volume.charts(noisy, Options())
    expected = {}
    for record in noisy:
        if record.status == "ok" and not record.noisy:
            power = record.moved_bytes.bit_length()
            expected.setdefault((f"universal S-{record.stationary}", power), []).append(
                record.time_s
            )
    shown = {}
    for marks in chart.marks:
        if marks.kind != "rule":
            for y, low, high, number in zip(marks.y, marks.low, marks.high, marks.cases):
                power = noisy[number].moved_bytes.bit_length()
                shown[marks.name, power] = (y, low, high)
    assert shown.keys() == expected.keys() and len(shown) > 6
    for key, times in expected.items():
        assert shown[key] == pytest.approx(
            [1e3 * median(times), *(1e3 * q for q in quartiles(times))]
        )
    assert any(note.startswith("hollow: ") for note in notes)


def quartiles(values):
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def lines_of(panels):
    return {
        (title, name): dict(zip(line.ranks, line.best_s))
        for title, _, lines in panels
        for name, line in lines.groupby("series")
    }


def test_strong_lines_are_the_fastest_case_on_each_number_of_ranks(records):
    panels, _ = scaling.strong_panels(records, Options())
    expected = {}
    for record in records:
        if record.status == "ok":
            name = (
                {"row": "UA - Row", "column": "UA - Column"}.get(record.a)
                if record.algorithm == "universal"
                else record.algorithm
            )
            if name and (record.a is None or record.b == "row"):
                shape = f"{record.m} × {record.n} × {record.k}  (m × n × k)"
                here = expected.setdefault((shape, name), {})
                here[record.ranks] = min(here.get(record.ranks, 9e9), record.best_s)
    shown = lines_of(panels)
    names = {"summa", "cannon", "collective", "meshslice", "scalapack"}
    assert {key: line for key, line in shown.items() if key[1] in names} == {
        key: line
        for key, line in expected.items()
        if key[1] in names
        and len({r.ranks for r in records if f"{r.m} × {r.n} × {r.k}" in key[0]}) > 1
    }
    assert {title for title, _ in shown} == {
        "64 × 768 × 192  (m × n × k)",
        "512 × 512 × 512  (m × n × k)",
    }


def test_the_ideal_starts_from_the_fastest_case_on_the_fewest_ranks(records):
    for _, _, lines in scaling.strong_panels(records, Options())[0]:
        fewest = lines.best_s[lines.ranks == lines.ranks.min()]
        assert scaling.reference(lines).best_s == fewest.min()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([8, 16, 32]),
            st.sampled_from([8, 16]),
            st.sampled_from([8, 24]),
            st.sampled_from([1, 2, 4]),
        ),
        max_size=12,
    )
)
def test_a_weak_family_has_the_same_work_a_rank_and_one_shape_for_each_number_of_ranks(
    synthetic, shapes
):
    records = [
        synthetic.case(m=m, n=n, k=k, ranks=p, best_s=1.0 + index)
        for index, (m, n, k, p) in enumerate(shapes)
    ]
    possible = any(
        one[3] != other[3]
        and one[0] * one[1] * one[2] * other[3] == other[0] * other[1] * other[2] * one[3]
        for one, other in combinations(shapes, 2)
    )
    try:
        panels, _ = scaling.weak_panels(records, Options())
    except scaling.SelectionError:
        panels = []
    assert possible or not panels
    for _, _, lines in panels:
        every = rows(lines)
        assert len({r.m * r.n * r.k / r.ranks for r in every}) == 1
        assert len({(r.ranks, r.m, r.n, r.k) for r in every}) == len({r.ranks for r in every}) > 1


def test_a_growing_batch_is_one_family_and_its_efficiency_is_the_rate_kept(synthetic):
    records = [synthetic.case(m=64 * p, ranks=p, best_s=1.0 + 0.25 * (p > 1)) for p in (1, 2, 4)]
    (panel,), notes = scaling.weak_panels([*records, synthetic.case(m=7)], Options())
    title, _, lines = panel
    assert title == "m = 64 a rank, n = 256, k = 64"
    assert list(scaling.efficiency(lines)) == [100.0, 80.0, 80.0]
    assert notes == ["not drawn: 1 case whose work a rank is not found on another number of ranks"]
