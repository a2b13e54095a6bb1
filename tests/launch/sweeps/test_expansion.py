"""A sweep file expands to the cases of nested loops, in their order; a mistake is reported with
file and key."""

import itertools
import tomllib
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drbench.errors import UnsupportedError, UsageError
from drbench.launch.cases.case import bind_case
from drbench.launch.cases.sweep_file import expand, load_sweep, ranks_of
from drbench.launch.cases.sweep_values import shipped
from drbench.launch.sweeps.store import case_id


def expanded(block, ranks=4, **top):
    return expand({"name": "test", "cases": [block], **top}, ranks).cases


def test_mlp_2_has_a_factor_of_its_own_for_c():
    layouts = "row row row row, column column column column, block block block block, "
    layouts += "inner row column column, outer column row row, "
    layouts += "traditional traditional traditional traditional"
    factors = ["", *(f"/c{factor}" for factor in (2, 3, 4, 6, 12))]
    wanted = [
        (m, name, a + of_ab, b + of_ab, c + of_c, stationary)
        for m in (1024, 2048, 4096, 8192)
        for name, a, b, c in map(str.split, layouts.split(", "))
        for of_ab, of_c in itertools.product(factors, factors)
        for stationary in "CB"
    ]
    cases = load_sweep("mlp2", 12).cases
    assert [
        (case.m, case.preset, case.a, case.b, case.c, case.options["stationary"]) for case in cases
    ] == wanted
    assert {(case.n, case.k, case.gemm_only, case.iters) for case in cases} == {
        (12288, 49152, True, 10)
    }


@pytest.mark.parametrize("name", shipped("sweeps"))
@pytest.mark.parametrize("ranks", [1, 4, 6])
def test_every_shipped_sweep_expands_without_repetition_and_always_alike(name, ranks):
    cases = load_sweep(name, ranks).cases
    ids = [case_id(case, ranks) for case in cases]
    assert len(set(ids)) == len(ids) == len(cases) > 0
    assert cases == load_sweep(name, ranks).cases


values = st.lists(st.integers(1, 50), min_size=1, max_size=3, unique=True)


@settings(max_examples=60, deadline=None)
@given(values, values, values, values, st.booleans(), st.integers(1, 4))
def test_a_block_is_its_nested_loops(ms, ns, seeds, prefetches, zipped, scale):
    block = {"m": ms, "seed": seeds, "n": ns, "k": "1Ki", "prefetch": prefetches}
    if zipped:
        ns = [10 * m for m in ms]
        block |= {"n": ns, "zip": [["m", "n"]]}
    wanted = [
        (max(1, m // scale), max(1, n // scale), 1024 // scale, seed, prefetch)
        for m in ms
        for seed in seeds
        for n in ns
        for prefetch in prefetches
        if not zipped or n == 10 * m
    ]
    cases = expanded(block, scale=str(Fraction(1, scale)))
    found = [(case.m, case.n, case.k, case.seed, case.prefetch) for case in cases]
    assert found == list(dict.fromkeys(wanted))


def test_repeats_may_differ_between_cases_that_differ_otherwise():
    block = SHAPE | {"m": [8, 16], "iters": [3, 5], "zip": [["m", "iters"]]}
    assert [(case.m, case.iters) for case in expanded(block)] == [(8, 3), (16, 5)]


def test_a_range_of_replication_factors_is_one_for_all_three_matrices():
    block = {"m": 8, "n": 8, "k": 8, "preset": "row"}
    block["replication"] = "1:3:*2"
    found = [(case.a, case.b, case.c) for case in expanded(block)]
    assert found == [("row",) * 3, ("row/c2",) * 3]


@given(st.integers(1, 50), st.integers(1, 400), st.integers(1, 9), st.booleans())
def test_a_range_has_its_first_value_and_all_up_to_its_last(first, last, move, by_factor):
    wanted, value = [], first
    move += by_factor
    while value <= last:
        wanted.append(value)
        value = value * move if by_factor else value + move
    text = f"{first}:{last}:{'*' if by_factor else '+'}{move}"
    if wanted:
        assert [case.m for case in expanded({"m": ["7Ki", text], "n": 1, "k": 1})] == [
            7168,
            *wanted,
        ]
    else:
        with pytest.raises(UsageError):
            expanded({"m": text, "n": 1, "k": 1})


def test_sizes_that_are_left_out_are_those_of_m():
    shapes = [(case.m, case.n, case.k) for case in expanded({"m": "2:4:*2"})]
    assert shapes == [(2, 2, 2), (4, 4, 4)]
    assert [(case.m, case.n, case.k) for case in overridden("scan", "m=3,5 preset=row")] == [
        (3, 3, 3),
        (5, 5, 5),
    ]


def overridden(name, words, ranks=4):
    overrides = [word.split("=", 1) for word in words.split()]
    return load_sweep(name, ranks, overrides=overrides).cases


def test_any_key_of_a_file_can_be_overridden():
    found = overridden("mlp1-small", "m=64,1Ki preset=row stationary=C")
    assert [case.m for case in found] == [8, 128]
    (case,) = overridden("scaling", "m=8 n=8 k=8 a=S(0),R@2x2 transport=throttled:0.5,50")
    assert (case.a, case.b, case.transport) == ("S(0),R@2x2", "column", "throttled:0.5,50")
    both = overridden("scaling", "a=row a=block gemm_only=false")
    assert [case.a for case in both] == ["row", "block"] and not both[0].gemm_only
    found = overridden("exhaustive", "preset=inner replication=1,2")
    assert {case.a for case in found} == {"row", "row/c2"}
    assert overridden("scaling", "grow=m m=64")[0].m == 256


def test_libraries_keep_their_layouts_and_algorithms_take_the_options_that_are_theirs():
    cases = overridden("libraries", "m=8 n=9 k=7 preset=row libraries=heat,scalapack")
    assert {(case.m, case.n, case.k) for case in cases} == {(8, 9, 7)}
    found = {case.algorithm: case for case in cases}
    assert (found["universal"].preset, found["summa"].preset) == ("row", None)
    assert {*list(found)[-2:]} == {"scalapack", "heat"}
    every = overridden("libraries", "m=8 n=8 k=8 libraries=scalapack settings=all")
    assert sum(case.algorithm == "scalapack" for case in every) > 3
    flows = overridden("same-tiles", "dataflow=LS mesh=2x2")
    by_name = {case.algorithm: case.options for case in flows}
    assert by_name["summa"] == {"dataflow": "LS", "mesh": "2x2"} and by_name["fsdp"] == {}
    assert "tensor_parallel_1d" not in by_name  # which has no such dataflow


#: Words of -o that are refused, and what the refusal says.
WORDS = """
mm=3 | -o mm: there is no such key. Did you mean m?
slices=3 | -o slices: no case of mlp1 uses it
m=x | -o m: must be a whole number
m=[1 | -o m=[1 is not TOML
rounds=no | rounds: must be a whole number of at least 1, or known
view=pie | view: must be one of scaling
grow=a | grow: must be one of m, n, k
libraries=heat | heat takes no stationary
preset=rwo | did you mean row
gemm_only=true,false | -o gemm_only: records do not tell cases apart by it
"""


@pytest.mark.parametrize("line", WORDS.strip().splitlines())
def test_an_invalid_key_is_refused_in_one_line(line):
    word, _, mentioned = line.partition(" | ")
    with pytest.raises(UsageError) as caught:
        overridden("mlp1", word)
    assert mentioned in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["0", "1,two", "-1", "[]"])
def test_numbers_of_ranks_are_whole(text):
    with pytest.raises(UsageError, match="ranks: must be"):
        ranks_of("scaling", 4, [("ranks", text)])


def test_each_algorithm_is_next_to_the_universal_one_on_its_tiles():
    cases = overridden("same-tiles", "mesh=1x2 dataflow=OS m=64 n=64 k=64", ranks=2)
    layouts = {}
    for case in cases:
        with suppress(UnsupportedError):
            texts = tuple(bind_case(case, 2)[1].texts.values())
            layouts.setdefault(texts, []).append(case.algorithm)
    assert all("universal" in names for names in layouts.values())
    first = layouts["block:1x2", "block:1x2", "block:1x2"]
    assert {"collective", "meshslice", "summa", "universal", "wang"} <= {*first}
    ours = next(case for case in cases if case.algorithm == "universal")
    assert ours.options == {"stationary": "C"}


SHAPE = {"m": 8, "n": 8, "k": 8}
#: Keys of a sweep, or keys of its one case, and what the refusal says (a pattern).
MISTAKES = r"""
cases = [{m = 8, n = 8}] | cases 1: k: is missing
case.preset = "rwo" | preset: .* row
case.m = [] | m: .* not empty
case.m = "2:1:+1" | m: .*1 to 100000 values
case.m = "1:2000000000:+1" | m: .*1 to 100000 values
case.m = "512:8192:*1" | m: .*at least 2
case.m = "-8:8:*2" | m: .*at least 1
case.prefetch = "0:8:*2" | prefetch: .*from 1 on
case.prefetch = "all:8:+2" | prefetch: .*numbers
case.m = "1:9:2" | m: .*FIRST:LAST:.*'1:9:2'
case.m = "1:2:3:*4" | m: .*FIRST:LAST:
case.m = {start = 1, stop = 9} | m: .*FIRST:LAST:
case.seed = "0:9223372036854775807:+1" | seed: .*1 to 100000 values
case.check = "yes" | check: .*yes
case.label = "a\nb" | label: .*control
case.machine = "h100x8" | machine: nothing is planned by h100x8
case.machine = "box" | no machine model 'box'
case.zip = [["m", "seed"]] | zip: .*seed
case = {m = [1, 2], zip = [["m", "n"]]} | zip: .*length
case.iters = [1, 2] | cases 1: iters: records do not tell cases apart
case = {warmup = [0, 1], budget = [0, 1], zip = [["warmup", "budget"]]} | cases 1: warmup: records
case.exclude = [{preset = "row"}] | exclude: there is no such key
case = {libraries = "dtensor", same_tiles = true} | dtensor is a library with its own tiles
case = {preset = "megatron", replication = "equal"} | replication: .*their own factors
name = "" | name: must be a text
cases = [] | cases: must be one or more
cases = {} | cases: must be one or more
name = "../a" | name:
oops = 1 | oops: there is no such key
scale = "0" | scale '0' is not a scale
scale = 16 | scale 16: write 1/16
scale = "1e308/1" | is not a scale
scale = 1e308 | write 1/
defaults = 3 | defaults: must be a table
"""


@pytest.mark.parametrize("line", MISTAKES.strip().splitlines())
def test_a_mistake_is_reported_with_file_and_key_in_one_line(line):
    text, _, message = line.partition(" | ")
    table = tomllib.loads(text)
    cases = [SHAPE | {"preset": "row"} | table.pop("case", {})]
    with pytest.raises(UsageError, match=f"^mine.toml: .*{message}") as caught:
        expand({"name": "test", "cases": cases} | table, 4, "mine.toml")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_scale_that_makes_extents_too_large_is_refused():
    with pytest.raises(UsageError, match="8 times the scale '9000000000000000000' is too large"):
        expanded(SHAPE, scale="9000000000000000000/1")


@pytest.mark.parametrize("key", ["name", "cases"])
def test_a_sweep_without_a_name_or_without_cases_is_refused(key):
    table = {"name": "test", "cases": [SHAPE]}
    del table[key]
    with pytest.raises(UsageError, match="^mine.toml: "):
        expand(table, 4, "mine.toml")


def test_changing_anything_that_counts_changes_the_id():
    changes = 'stationary = "B"; m = 9; iters = 3; seed = 1; a = "row"; dtype = "float64"; '
    changes += 'check = false; label = "x"; chunk = 4; machine = "lumic"'
    plain = SHAPE | {"stationary": "C"}
    blocks = [plain, *(plain | tomllib.loads(change) for change in changes.split("; "))]
    ids = [case_id(*expanded(block), 4) for block in blocks]
    ids += [case_id(*expanded(plain), 2), case_id(*expanded(plain), 4, "another model")]
    assert len({*ids}) == len(ids) == 13


def test_too_many_cases_are_refused_before_they_are_made(monkeypatch):
    """Each range was bounded, the number of their combinations was not."""
    wide = "1:89999:+1"
    with pytest.raises(UsageError, match="8099820001 cases .* at most 250000 .* 89999 of m, 89999"):
        expanded({"m": wide, "n": wide, "k": 8})
    monkeypatch.setattr("drbench.launch.cases.sweep_file._MOST_CASES", 10)
    blocks = [{"m": [1, 2, 3], "n": [1, 2], "k": k, "preset": "row"} for k in (1, 2)]
    with pytest.raises(UsageError, match="cases 2: makes 12 cases in the file, at most 10"):
        expand({"name": "test", "cases": blocks}, 4)


def test_a_simulated_dtensor_is_one_case_of_its_program_wherever_its_operands_are():
    block = SHAPE | {"preset": "row", "algorithm": "dtensor", "device": ["cpu", "cuda"]}
    table = {"name": "test", "cases": [block]}
    assert [case.options["device"] for case in expand(table, 4).cases] == ["cpu", "cuda"]
    (case,) = expand(table, 4, simulate=True).cases
    assert (case.algorithm, case.options) == ("dtensor_mm", {})
