"""The studies of FLUX and Triton-distributed: the fastest of some methods, and the
numbers of multiprocessors of their kernels."""

import itertools
from math import inf

import pytest

from drbench.chains.model.choose import choose
from drbench.chains.model.costs import LayoutCosts
from drbench.chains.model.mesh import DeviceMesh
from drbench.chains.model.programs import COLLECTIVES
from drbench.errors import UsageError
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.papers.blocks import block_of, block_s
from drbench.launch.papers.overlap.study import (
    DTYPE,
    FLUX_SHAPES,
    KERNEL_TILES,
    StudyContender,
    StudyGrid,
    TransformerBlock,
    fastest,
    methods,
    seconds_of,
    tiles,
    with_tiles,
)


def seconds(shape, algorithm, machine=None, **options):
    case = Case(*shape, algorithm=algorithm, dtype=DTYPE, options=options)
    return seconds_of(machine or find_machine("h800"), 8, case)


RING, WRITE = {"variant": "ring"}, {"variant": "write"}
COPIES = [{"variant": variant, "buffer": "symmetric"} for variant in ("pull", "push")]


@pytest.mark.parametrize(
    "name, operation, algorithm, on, variants",
    [
        ("td", "ag", "ag_gemm", "h800", COPIES),
        ("td", "rs", "gemm_rs", "h800", [WRITE]),
        ("td", "rs", "gemm_rs", "mi308x", [WRITE | {"additions": "end"}]),
        ("flux", "rs", "gemm_rs", "a100nvlink", [WRITE | {"additions": "end"}]),
        ("flux", "rs", "gemm_rs", "a100pcie", [WRITE | {"additions": "end"}, RING]),
    ],
)
def test_a_fused_method_is_as_fast_as_its_fastest_variant_part_and_shape_of_tiles(
    name, operation, algorithm, on, variants
):
    """TD's kernels have the tiles of its repository, FLUX's store results without the copy engine;
    the GEMM alone has the library's tiles."""
    machine, shape = find_machine(on), (512, *FLUX_SHAPES[operation])
    if name == "td":
        machine = with_tiles(machine, KERNEL_TILES[on, operation])
    elif on == "a100nvlink":
        machine = machine.with_value("copy_streams", 0)
    of = lambda machine, how, part: seconds(shape, algorithm, machine, tile=64, part=part, **how)
    times = {
        (x, part): of(machine, variants[x], part)
        for x, part in itertools.product(range(len(variants)), (64, 128, 256))
    }
    x, part = min(times, key=times.get)
    shapes = [
        of(machine.with_value("compute.fused_tiles", [tile]), variants[x], part)
        for tile in machine.compute.tiles
        if tile[0] <= part
    ]
    found = methods(name, operation, shape, 8, on)
    best, _ = fastest(machine, 8, found)
    assert best == min(times[x, part], *shapes) and len(found) == len(times)
    assert tiles(512, 8) == [64]
    contenders = [StudyContender(name)]
    (row,) = StudyGrid([on], [(operation, shape)], contenders, constants=()).rows({})
    m, n, k = shape
    local = (m, n // 8, k) if operation == "ag" else (m, n, k // 8)
    assert row.seconds == best and row.gemm_s == find_machine(on).compute.gemm_s(*local, 2)


def test_on_two_nodes_flux_sends_round_a_ring_inside_each_on_pcie():
    """Through the link between the CPUs of a node, four GPUs send to four at once otherwise."""
    shape = (4096, 6144, 12288)
    for name, faster in (("a100pcie", "ring"), ("a100nvlink", "direct")):
        times = {
            inside: seconds_of(
                find_machine(name),
                16,
                Case(*shape, algorithm="ag2", dtype=DTYPE, options={"inside": inside}),
            )
            for inside in ("direct", "ring")
        }
        assert min(times, key=times.get) == faster
        found = [case.options.get("inside") for case in methods("flux", "ag", shape, 16, name)]
        assert ("ring" in found) == (faster == "ring")


def test_the_units_of_a_kernel_are_those_that_its_tiles_are_dealt_to():
    machine, shape = find_machine("h800").with_value("side_units", 0), (4096, 8192, 65536)
    on = lambda **more: seconds(shape, "gemm_rs", machine, variant="write", tile=128, **more)
    assert on() == on(units=132) < on(units=66) < on(units=33)
    with pytest.raises(UsageError, match="-o units is about the one kernel"):
        on(units=66, kernel="parts")


def block_costs(name):
    return LayoutCosts(find_machine(name), DeviceMesh.read("tp=8"), DTYPE, programs=COLLECTIVES)


@pytest.mark.parametrize("name", ["Megatron TP", "TP + SP"])
def test_a_forward_block_with_collectives_takes_as_long_as_the_contender(name):
    chain = block_of("llama3-70b", 2048, 2048, False)
    found = {each.name: each for each in choose(chain, [block_costs("a100pcie")]).contenders}
    seconds, alone_s = block_s(chain, block_costs("a100pcie"), name, lambda *_: inf)
    assert seconds == pytest.approx(found[name].time_s) and 0 < alone_s < seconds


def test_six_of_ten_collectives_of_a_training_block_are_exposed_if_links_are_fast():
    """In the backward pass the gathers of both results' gradients; those of two inputs and the sums
    of their gradients hide behind GEMMs."""
    chain, costs = block_of("gpt3", 2048, 2048, True), block_costs("a100nvlink")
    seconds, alone_s = block_s(chain, costs, "TP + SP", lambda *_: inf)
    (gather,) = costs.moves(chain.matrices["X"], ("S(0)",), ("R",))
    assert seconds == pytest.approx(alone_s + 6 * gather.times.seconds)
    slow = block_costs("a100pcie")  # where the four others take longer than these GEMMs
    seconds, alone_s = block_s(chain, slow, "TP + SP", lambda *_: inf)
    (gather,) = slow.moves(chain.matrices["X"], ("S(0)",), ("R",))
    assert alone_s < seconds - 6 * gather.times.seconds < alone_s + 4 * gather.times.seconds


def test_a_kernel_is_used_only_where_it_is_faster():
    chain, costs = block_of("gpt3", 512, 512, False), block_costs("h800")
    times = [block_s(chain, costs, "TP + SP", lambda *_, s=s: s)[0] for s in (0.0, 1e-4, 1.0, inf)]
    assert times[0] < times[1] < times[2] == times[3]
    slow, fast = list(TransformerBlock("decoding", "gpt3", 64, 1).rows({}))[-2:]  # of H800
    assert (slow.speedup, fast.speedup) == (1, pytest.approx(slow.seconds / fast.seconds))
    assert slow.gemm_s < fast.seconds < slow.seconds
