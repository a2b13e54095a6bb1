"""No rank of any program receives or sends faster than its links, on all shipped machines: an
oracle counts bytes into and out of ranks and nodes, without rings or rates."""

import itertools
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest
from traced import of_algorithm

from drbench.algorithms.registry import algorithms
from drbench.errors import DrbenchError
from drbench.launch.cases.machine_models import find_machine
from drbench.model.bounds import bound_of
from drbench.model.gemm import Compute
from drbench.model.simulate import simulate
from drbench.program.group_steps import AllGather, Broadcast, Reduce, ReduceScatter, Shift

#: Machines of several nodes with the ranks of one; and machines of one node with their ranks.
NODES = {"dgxh100": 8, "dgxa100": 8, "h800": 8, "a100nvlink": 8, "a100pcie": 8, "mi300x": 8,
         "lumic": 8, "gb200nvl72": 72}  # fmt: skip
SINGLE = {"h100x8": 8, "h100x8measured": 8, "h200x8": 8, "mi300x": 8, "mi308x": 8, "pvc12": 12}
MESHED = ("cannon", "summa", "collective", "wang", "meshslice")


def moves_alone(name):
    """A shipped machine that computes in no time."""
    return replace(find_machine(name), compute=Compute(1e30), side_units=0)


def carries(machine, inside, outside, inbound):
    """Bytes a second between two disjoint sets of ranks, over all links that the ranks ``inside``
    have; a rank's own memory aside."""
    rates = {}
    for a, b in itertools.product(inside, outside):
        ends = (b, a) if inbound else (a, b)
        link = machine.link(*ends)
        own = link.resources(*ends)[-1 if inbound else 0]
        rates[own] = link.bandwidth_bytes_per_s
    return sum(rates.values())


def least_seconds(traces, machine, node):
    """Seconds that the bytes of group steps, and of one-sided steps, need at least."""
    itemsize = traces[0].problem.itemsize
    of_groups, of_ranks = defaultdict(Counter), Counter()
    for each in traces:
        for step in each.steps:
            if step.grouped and len(step.group) > 1:
                members = step.group.members
                nodes = defaultdict(list)
                for rank in members:
                    nodes[rank // node].append(rank)
                mine = tuple(nodes[each.rank // node])
                for inside in {(each.rank,), mine}:
                    if len(inside) == len(members) or inside[0] != each.rank:
                        continue  # nobody is outside; one rank counts for its node
                    for inbound, elements in crossing(step, inside, members):
                        key = step.group.members, inside, inbound
                        of_groups[key]["bytes"] += itemsize * elements
            elif step.counter is not None and not step.grouped:
                for other, elements in step.moved(each.rank):
                    ends = (other, each.rank)
                    if type(step).__name__ in ("Accumulate", "ReplicaAdd", "Put", "Push"):
                        ends = ends[::-1]
                    link = machine.link(*ends)
                    for resource in link.resources(*ends):
                        seconds = itemsize * elements / link.bandwidth_bytes_per_s
                        of_ranks[resource] += seconds
    for (members, inside, inbound), found in of_groups.items():
        outside = [rank for rank in members if rank not in inside]
        found["seconds"] = found["bytes"] / carries(machine, inside, outside, inbound)
    longest = max((found["seconds"] for found in of_groups.values()), default=0.0)
    return max(longest, *of_ranks.values(), 0.0)


def crossing(step, inside, members):
    """(inbound or not, elements) that must pass between some members of a group and the others."""
    if type(step) is AllGather:
        yield (
            True,
            sum(fragment.size for fragment in step.fragments if fragment.owner not in inside),
        )
    elif type(step) is ReduceScatter:
        yield (
            False,
            sum(fragment.size for fragment in step.fragments if fragment.owner not in inside),
        )
    elif type(step) is Broadcast and step.root not in inside:
        yield True, step.fragment.size
    elif type(step) is Reduce and step.root not in inside:
        yield False, step.fragment.size
    elif type(step) is Shift and step.target not in inside and len(inside) == 1:
        yield False, step.shard()


def programs(ranks, some, meshes):
    """Traces of all ranks of algorithms that support so many, on meshes or without."""
    on_meshes = some(itertools.product(MESHED, meshes, ("OS", "LS", "RS")), 6)
    plain = () if ranks > 16 else {*algorithms(plain=True)} - {*MESHED}
    for name, *where in (*on_meshes, *some(zip(sorted(plain)), 2)):
        with suppress(DrbenchError):
            yield name, where, made(ranks, name, **dict(zip(("mesh", "dataflow"), where)))


@cache
def made(ranks, name, **options):
    """Machines of as many ranks run the same program."""
    return of_algorithm(name, 1024 * ranks, 2048 * ranks, 512 * ranks, ranks, **options)


CASES = [
    *((name, 2 * node, [f"2x{node}", f"{node}x2", f"4x{node // 2}"]) for name, node in NODES.items()
      if node == 8),
    ("dgxh100", 64, ["8x8", "4x16"]),
    ("dgxh100", 24, ["3x8", "8x3", "4x6", "12x2"]),
    pytest.param("gb200nvl72", 144, ["72x2"], marks=pytest.mark.thorough),
    *((name, ranks, ["1x8", "2x4", "3x4"]) for name, ranks in SINGLE.items()),
]  # fmt: skip


@pytest.mark.parametrize("name, ranks, meshes", CASES)
def test_no_program_is_faster_than_its_bytes_on_its_links(name, ranks, meshes, dealt):
    """On meshes a sixth of the programs on each machine, others on half of them."""
    machine, node, tried = moves_alone(name), NODES.get(name, ranks), set()
    turn = ranks + [*NODES, *SINGLE].index(name)
    some = lambda cases, every: dealt(cases, turn, every)
    for algorithm, mesh, traces in programs(ranks, some, meshes):
        least_s = least_seconds(traces, machine, node)
        time_s = simulate(traces, machine, prefetch="all").time_s
        assert least_s <= time_s * (1 + 1e-9), (algorithm, mesh)
        assert bound_of(traces, machine).seconds <= time_s * (1 + 1e-9), (algorithm, mesh)
        tried.add(algorithm)
    assert len(tried) >= (3 if ranks > 16 else 6)


def test_a_group_with_one_rank_a_node_has_one_network_card():
    """103 MB into one card of 400 Gb/s take 2.06 ms, by any program."""
    machine = moves_alone("dgxh100")
    traces = of_algorithm("collective", 8192, 57344, 4096, 64, mesh="8x8", dataflow="OS")
    least_s = 7 * (4096 // 8) * (57344 // 8) * 4 / 50e9
    assert simulate(traces, machine).time_s > least_s > 2e-3
    assert bound_of(traces, machine).seconds > least_s
