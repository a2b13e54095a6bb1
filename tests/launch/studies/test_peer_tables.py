"""The comparison's order, names and tables, from records made up with known ratios."""

from fractions import Fraction

import pytest
from made_up import made_up

from drbench.errors import UsageError
from launch.cases.case import Case
from launch.commands.peers import markdown_table
from launch.studies.peers.bench import (
    Contender,
    Shape,
    case_name,
    contenders,
    going_on,
    only_of,
    rounds_of,
    shapes,
)
from launch.studies.peers.tables import best_settings, libraries, lines, summary, table_rows
from launch.studies.peers.triples import action, triple_rows


def row(turn, who, label, seconds, roof=None, shape="s", blas="ob", **more):
    """A record of 2·10⁹ FLOPs: at one second 2 GFLOP/s."""
    known = (
        {
            "roof_gflops": roof,
            "percent_of_roof": 100 * 2 / seconds / roof,
            "percent_of_roof_min": 1.0,
            "percent_of_roof_max": 99.0,
        }
        if roof
        else {}
    )
    return made_up(
        m=1000,
        n=1000,
        k=1000,
        case=f"{turn} | {shape} | {who} | {label}",
        best_s=seconds,
        median_s=seconds,
        samples_s=[seconds],
        gflops=2 / seconds,
        blas=blas,
        threads=1,
        **known | more,
    )


def refused(who, label, shape="s"):
    return made_up(
        status="unsupported",
        reason="it refuses: four ranks only",
        case=f"1 | {shape} | {who} | {label}",
    )


RECORDS = [
    row(1, "drbench", "row", 1.0, roof=4, direct_bytes=8),
    row(2, "drbench", "row", 2.0, roof=2, direct_bytes=8),
    row(1, "drbench", "column", 0.5, roof=4, direct_bytes=8),
    row(2, "drbench", "column", 1.0, roof=2, direct_bytes=8),
    row(1, "dtensor", "row", 2.0, roof=1, blas="mkl", collective_bytes=8),
    row(2, "dtensor", "row", 4.0, roof=1, blas="mkl", collective_bytes=8),
    row(1, "dtensor", "megatron", 0.1, roof=1, blas="mkl", collective_bytes=0),
    row(1, "cosma", "its own choice", 1.0),
    refused("pylops", "summa"),
]


def test_a_drifting_machine_cancels_in_ratios_to_the_roof_of_the_same_round():
    by_name = {(line.who, line.label): line for line in lines(RECORDS)}
    assert by_name["drbench", "row"].roof == 50.0 and by_name["drbench", "column"].roof == 100.0
    # 1 of 4 in the first round, 0.5 of 2 in the second
    assert by_name["dtensor", "row"].roof == 25.0
    assert by_name["dtensor", "row"].own_roof == 75.0  # 100 % and 50 % of its own
    assert (
        by_name["cosma", "its own choice"].roof == 50.0
        and by_name["cosma", "its own choice"].own_roof is None
    )
    assert by_name["drbench", "row"].best_s == 1.0 and by_name["drbench", "row"].median_s == 1.5


def test_times_are_compared_with_the_best_peers_default_round_by_round():
    """The machine is half as fast in every other round; the other settings of a peer do not
    count."""
    slow = [1.0, 2.0] * 3
    made = []
    for turn, factor in enumerate(slow, 1):
        made += [
            row(turn, "drbench", "row", 0.8 * factor * (1 + turn / 100), roof=4),
            row(turn, "heat", "row · row", 1.5 * factor),
            row(turn, "dtensor", "row", 1.0 * factor),
            row(turn, "dtensor", "column", 0.1 * factor),
        ]
    by_name = {(line.who, line.label): line for line in lines(made)}
    ours = by_name["drbench", "row"]
    assert ours.ratio == pytest.approx(0.8 * 1.035)
    assert (ours.ratio_low, ours.ratio_high) == pytest.approx((0.8 * 1.01, 0.8 * 1.06))
    assert ours.reference == "dtensor row" and by_name["heat", "row · row"].ratio == 1.5
    few = next(line for line in lines(made[:20]) if line.who == "drbench")
    assert few.ratio_low is None and few.ratio == pytest.approx(0.8 * 1.03)
    cells = {each[1:3]: each[6] for each in table_rows(lines(made))[1]}
    assert cells["drbench", "row"] == "0.83 (0.81-0.85)"
    assert cells["dtensor", "row"] == "1 (it is)"


def test_times_are_compared_with_the_fastest_setting_of_any_peer_that_was_run_in_turn():
    """Of settings that were run in fewer rounds no best one is taken, where others are."""
    made = []
    for turn, factor in enumerate([1.0, 2.0] * 3, 1):
        made += [
            row(turn, "drbench", "row", 0.9 * factor, roof=4),
            row(turn, "cosma", "its own choice", 2.0 * factor),
            row(turn, "cosma", "pk2", 1.0 * factor),
            row(turn, "dtensor", "megatron", 0.1 * factor, collective_bytes=0),
        ]
    made += [row(1, "cosma", "pm2", 0.5), row(1, "drbench", "column", 0.1, roof=4)]
    by_name = {(line.who, line.label): line for line in lines(made)}
    ours = by_name["drbench", "row"]
    assert (ours.reference, ours.best_reference) == ("dtensor megatron", "cosma pk2")
    assert (ours.best_ratio, ours.best_low, ours.best_high) == pytest.approx((0.9, 0.9, 0.9))
    assert (ours.rounds, by_name["cosma", "pm2"].rounds) == (6, 1)
    cells = {each[1:3]: each[7] for each in table_rows(lines(made))[1]}
    assert cells["drbench", "row"] == "0.90 (0.90-0.90)" and cells["cosma", "pk2"] == "1 (it is)"
    best = {(line.who, line.label) for line in best_settings(lines(made))}
    assert ("cosma", "pk2") in best


def test_after_a_first_round_of_everything_the_default_and_the_fastest_go_on():
    taking_part = [
        Contender("drbench", "row", {}),
        Contender("drbench", "row S-B", {}, False),
        Contender("drbench", "summa", {}),
        Contender("drbench", "wang", {}),
        Contender("heat", "row · row", {}),
        Contender("heat", "row · column", {}, False),
        Contender("heat", "all · row", {}, False),
        Contender("pylops", "summa", {}),
    ]
    first = [
        row(1, "drbench", "row", 3.0, roof=4, direct_bytes=8),
        row(1, "drbench", "row S-B", 2.0, roof=4, direct_bytes=8),
        row(1, "drbench", "summa", 0.5, roof=4, direct_bytes=8, noisy=True),
        row(1, "drbench", "wang", 1.0, roof=4, direct_bytes=8),
        row(1, "heat", "row · row", 3.0),
        row(1, "heat", "row · column", 2.0),
        row(1, "heat", "all · row", 1.0, collective_bytes=0),
        row(2, "heat", "all · row", 0.1),  # another round says nothing
        refused("pylops", "summa"),
    ]
    found = going_on(first, taking_part)
    chosen = {("drbench", "row"), ("drbench", "wang"), ("heat", "row · row")}
    chosen |= {("heat", "row · column"), ("pylops", "summa")}
    assert found == {("s", *each) for each in chosen}
    batches = rounds_of([Shape("s", 4, 5, 6)], taking_part, 3, Case(1, 1, 1), found)
    names = [case_name(made_up(case=name)) for batch in batches for name, _ in batch]
    assert len(names) == len(set(names)) == len(taking_part) + 2 * len(chosen)
    assert {name[2:] for name in names if name[0] > 1} == chosen


def test_all_three_matrices_on_one_grid_take_part_whatever_the_shape():
    (found,) = [each for each in contenders(4, False) if each.label == "optimal"]
    base = Case(1, 1, 1)
    square, tall = Shape("s", 512, 512, 512), Shape("t", 4096, 64, 64)
    texts = {found.case(base, shape).a for shape in (square, tall)}
    assert texts == {"grid:2x2x1", "grid:4x1x1"}
    assert found.case(base, tall).preset == "optimal" and found.case(base, tall).m == 4096


def test_the_best_is_the_fastest_not_the_highest_ratio_and_never_a_noisy_row():
    made = [
        row(1, "drbench", "row", 0.6, roof=1, noisy=False),  # 333 % of a disturbed roof
        row(1, "drbench", "column", 0.5, roof=100, noisy=False),
        row(1, "drbench", "block", 0.1, roof=100, noisy=True),
        row(1, "heat", "row · row", 0.2, noisy=True),
        row(1, "heat", "row · column", 0.9, noisy=False),
    ]
    found = lines(made)
    assert [line.label for line in best_settings(found)] == ["column", "row · column"]
    (cells,) = summary(found)[1]
    assert [cell.rpartition(" (")[2] for cell in cells[1:4]] == [
        "column)",
        "of 2, 1 noisy)",
        "row)",
    ]
    assert cells[-1] == "not decided: heat is noisy"
    only_noisy = best_settings(lines(made[2:4]))
    assert [line.label for line in only_noisy] == ["block", "row · row"]


def test_a_peer_under_which_drbench_multiplies_is_nobody_s_competitor():
    """It is shown, and neither the peer that all are compared with nor ahead of drbench."""
    made = [row(1, "drbench", name, 1.0, roof=4) for name in ("row", "column", "inner")]
    made += [row(1, "dtensor", "row", 2.0), row(1, "dtensor+drbench", "row", 0.5)]
    found = lines(made)
    assert {line.reference for line in found} == {"dtensor row"}
    header, (cells,) = summary(found)
    assert cells[header.index("dtensor+drbench")] == "500 ms, 0.25 (row)"
    assert cells[-1] == "not told apart: drbench's row takes 0.50 of dtensor's time"


def test_oversubscribed_rows_say_so():
    (line,) = lines([row(1, "drbench", "row", 0.6, roof=1, oversubscribed=True)])
    assert table_rows([line])[1][0][-1] == "oversubscribed"


def test_what_moves_nothing_is_nobody_s_best_setting():
    assert {(line.who, line.label) for line in best_settings(lines(RECORDS))} == {
        ("drbench", "column"),
        ("dtensor", "row"),
        ("cosma", "its own choice"),
    }


def test_a_refusal_is_a_row_with_its_reason():
    header, rows = table_rows(lines(RECORDS))
    assert all(len(cells) == len(header) for cells in rows)
    assert (
        rows[-1][:3] == ("s", "pylops", "summa")
        and rows[-1][-1] == "unsupported: it refuses: four ranks only"
    )
    assert next(cells for cells in rows if cells[2] == "megatron")[-1] == "moves nothing"


def test_the_summary_names_best_median_and_worst_of_the_partitionings():
    five = [
        row(1, "drbench", name, seconds, roof=2)
        for name, seconds in zip(("row", "column", "inner", "outer", "block"), (1, 2, 4, 5, 8))
    ]
    # a setting is no partitioning of its own
    five.append(row(1, "drbench", "row S-B", 0.1, roof=2))
    header, rows = summary(
        lines(
            [
                *five,
                refused("heat", "row · row"),
                row(1, "cosma", "its own choice", 2.0),
                row(1, "pylops", "summa", 5.0),
            ]
        )
    )
    assert header == (
        "shape",
        "drbench best",
        "drbench median",
        "drbench worst",
        "heat",
        "cosma",
        "pylops",
        "who is faster",
    )
    assert rows == [
        (
            "s",
            "1000 ms, 0.50 (row)",
            "4000 ms, 2.00 (of 5)",
            "8000 ms, 4.00 (block)",
            "unsupported",
            "2000 ms, 1 (it is) (its own choice)",
            "5000 ms, 2.50 (summa)",
            "not told apart: drbench's row takes 0.50 of cosma's time",
        )
    ]


#: Seconds of drbench and of a library in six rounds, and which of them are noisy -> the last cell.
WHO = {
    "drbench: drbench's row takes 0.80 (0.80-0.80) of heat's time": (0.8, 1.0, ""),
    "heat: drbench's row takes 1.25 (1.25-1.25) of heat's time": (1.25, 1.0, ""),
    "not decided: drbench is noisy": (0.8, 1.0, "drbench"),
    "not decided: heat is noisy": (0.8, 1.0, "heat"),
    "no library ran": (0.8, None, ""),
}


@pytest.mark.parametrize("said", WHO)
def test_the_summary_says_in_words_who_is_faster(said):
    ours, theirs, noisy = WHO[said]
    made = []
    for turn in range(1, 7):
        made.append(row(turn, "drbench", "row", ours * turn, roof=4, noisy=noisy == "drbench"))
        if theirs:
            made.append(row(turn, "heat", "row · row", theirs * turn, noisy=noisy == "heat"))
    header, (cells,) = summary(lines(made))
    assert cells[-1] == said
    assert [cell == "noisy" for cell in cells[1:4]] == [noisy == "drbench"] * 3
    assert "five" not in " ".join(header) and ("(of 1)" in cells[2]) == (noisy != "drbench")


def test_no_column_of_the_summary_takes_a_noisy_row_that_another_leaves_out():
    """The best was slower than the median and the worst, since it alone left noisy rows out."""
    made = [
        row(1, "drbench", "row", 28.0, roof=4),
        row(1, "drbench", "column", 12.0, roof=4, noisy=True),
        row(1, "drbench", "block", 11.0, roof=4, noisy=True),
        row(1, "scalapack", "block 64", 24.0),
    ]
    (cells,) = summary(lines(made))[1]
    assert [float(cell.split(" ms")[0]) for cell in cells[1:4]] == [28000.0] * 3
    assert cells[-1] == "not told apart: drbench's row takes 1.17 of scalapack's time"


def test_each_library_is_named_with_its_own_speed():
    assert ("dtensor", "mkl", "1", "1") in libraries(lines(RECORDS))[1]
    assert ("cosma", "ob", "1", "unknown") in libraries(lines(RECORDS))[1]


def test_other_records_in_the_file_are_none_of_it():
    assert (
        lines(
            [
                made_up(case="0f3a"),
                made_up(),
            ]
        )
        == []
    )


def test_products_of_another_form_are_other_cases():
    plain, turned = (
        {
            name
            for batch in rounds_of(
                [Shape("s", 4, 5, 6)], [Contender("heat", "c", {})], 1, Case(1, 1, 1, **form)
            )
            for name, _ in batch
        }
        for form in ({}, {"transpose": "a"})
    )
    assert plain == {"1 | s | heat | c"} and turned == {"1 | s Aᵀ·B | heat | c"}
    assert case_name(made_up(case=turned.pop()))[1] == "s Aᵀ·B"


def test_all_rounds_visit_everyone_and_each_library_goes_first_in_turn():
    taking_part = [
        Contender("drbench", "a", {}),
        Contender("drbench", "b", {}),
        Contender("heat", "c", {"algorithm": "heat"}),
    ]
    batches = list(
        rounds_of(
            [Shape("s", 4, 5, 6), Shape("t", 7, 8, 9)], taking_part, 3, Case(1, 1, 1, iters=3)
        )
    )
    names, cases = zip(*(pair for batch in batches for pair in batch))
    assert len(set(names)) == len(cases) == 3 * 2 * 3
    assert [name.split(" | ")[2] for (name, _), *_ in batches[::2]] == [
        "drbench",
        "drbench",
        "heat",
        "heat",
        "heat",
        "heat",
    ]
    assert {(case.m, case.n, case.k) for case in cases} == {(4, 5, 6), (7, 8, 9)} and {
        case.iters for case in cases
    } == {3}
    assert all(len({name.split(" | ")[2] for name, _ in batch}) == 1 for batch in batches)
    assert case_name(made_up(case=names[-1])) == (
        3,
        "t",
        "drbench",
        "b",
    )


def test_the_full_problems_are_those_of_the_comparison():
    assert [(shape.m, shape.n, shape.k) for shape in shapes("square,mlp1,mlp2", Fraction(1))] == [
        (4096, 4096, 4096),
        (256, 8192, 2048),
        (1024, 8192, 2048),
        (4096, 8192, 2048),
        (256, 2048, 8192),
        (1024, 2048, 8192),
        (4096, 2048, 8192),
    ]
    assert [shape.label for shape in shapes("mlp2:1024,square", Fraction(1))] == [
        "mlp2 m=1024",
        "square 4096",
    ]


@pytest.mark.parametrize(
    "kinds, scale",
    [
        ("cube", "1"),
        ("square,", "1"),
        ("mlp1:8", "1"),
        ("mlp1:", "1"),
        ("mlp1", "1/512"),
        ("square", "1/3"),
    ],
)
def test_shapes_that_do_not_exist_are_refused(kinds, scale):
    with pytest.raises(UsageError):
        shapes(kinds, Fraction(scale))


def test_every_setting_includes_every_default():
    few, many = contenders(4, False), contenders(4, True)
    assert set(map(repr, few)) < set(map(repr, many)) and all(
        contender.default for contender in few
    )
    assert {contender.who for contender in few} == {
        "drbench",
        "dtensor",
        "dtensor+drbench",
        "scalapack",
        "cosma",
        "pylops",
        "heat",
        "symm_mem",
        "cublasmp",
    }


def test_single_settings_take_part_alone_defaults_or_not():
    names = only_of("cosma:pk2, overlap,drbench:row S-B,heat", 2)
    found = {(each.who, each.label) for each in contenders(2, False, names)}
    assert found == {("cosma", "pk2, overlap"), ("drbench", "row S-B"), ("heat", "row · row")}


def test_a_cell_does_not_break_a_markdown_table():
    text = markdown_table(("a", "b"), [("1 | s", "x")])
    assert text.splitlines()[-1] == "| 1 \\| s | x |"


def triple(algorithm, texts, status="ok", **more):
    a, b, c = texts
    known = {"best_s": 1.0} if status == "ok" else {"reason": "Sharding propagation failed"}
    return made_up(status=status, algorithm=algorithm, a=a, b=b, c=c, **known | more)


def test_triples_are_paired_and_counted():
    records = []
    for texts, steps, theirs, ours in (
        (("row", "row", "row"), "all_gather, mm", 10, 8),
        (("row/c2", "row", "row"), "mm, reduce_scatter", 4, 4),
        (("row", "row/c2", "row"), None, None, 6),
        (("row/c2", "row/c2", "row"), "2x mm", 0, 6),
    ):
        done = (
            {"dataflow": steps, "collective_bytes": theirs} if steps else {"status": "unsupported"}
        )
        records += [triple("dtensor", texts, **done), triple("universal", texts, direct_bytes=ours)]
    single, counted = triple_rows(records)
    assert single == [
        ("row", "row", "row", "reshards an operand", "all_gather, mm", "10", "ok", "8")
    ]
    assert counted == [("row", "row", "row", "2", "0", "1", "0", "1", "1", "4 of 4", "1 / 1 / 0")]
    with pytest.raises(UsageError, match="alone"):
        triple_rows(records[:-1])


def test_a_refusal_is_what_dtensor_did():
    assert action(triple("dtensor", ("row",) * 3, status="unsupported")) == "refuses"
