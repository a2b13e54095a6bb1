"""Times of Llama-3 70B's MLP in bfloat16 against estimates by hand, from the shapes and the rates
of GEMMs and links alone.

Left out, of the same estimates: 24 GPUs in one group, whose columns are no longer cut unevenly; 512
GPUs, which were estimated for one multiplication."""

from dataclasses import replace

import pytest

from drbench.chains.answer import seen
from drbench.chains.model.choose import choose
from drbench.chains.model.costs import LayoutCosts, Training
from drbench.chains.model.mesh import DeviceMesh
from drbench.chains.model.programs import PROGRAMS
from drbench.chains.model.transformers import preset
from drbench.launch.cases.machine_models import find_machine


def at_rate(machine, rate):
    """NVLink, and collectives inside a node, at another rate: estimates of data sheets have 450
    GB/s, the machine files what NCCL counts with."""
    first, *others = machine.links
    collectives = {
        name: replace(each, bandwidth_bytes_per_s=rate)
        for name, each in machine.collectives.items()
    }
    return replace(
        machine,
        links=(replace(first, bandwidth_bytes_per_s=rate), *others),
        collectives=collectives,
        nccl=machine.nccl and replace(machine.nccl, link_bytes_per_s=rate, link_share=1.0),
    )


def in_nodes_of(machine, ranks):
    """The machine with fewer GPUs in a node, each with its card."""
    near, rail, *others = machine.links
    links = replace(near, within=ranks), replace(rail, rails=ranks), *others
    collectives = {
        name: replace(each, node=each.node and ranks) for name, each in machine.collectives.items()
    }
    return replace(machine, links=links, collectives=collectives)


#: Name; machine, mesh, tokens, layers, backward; GB/s of NVLink, or None for those of the machine;
#: the least and the most ms.
CASES = [
    ("best", "h100x8", "tp=8", 8192, 80, False, None, (2.0, 2.3)),
    ("TP + SP", "h100x8", "tp=8", 8192, 80, False, None, (2.5, 2.7)),
    ("TP + SP", "h100x8", "tp=8", 8192, 2, True, 450, (7.2, 7.2)),
    ("FSDP", "h100x8", "tp=8", 8192, 2, True, 450, (8.2, 8.4)),  # 3 x 1.23 GB
    ("FSDP", "h100x8", "tp=8", 65536, 1, True, 450, (48.0, 51.0)),
    ("TP × DP", "dgxh100", "dp=8,tp=8", 65536, 2, True, None, (9.0, 10.0)),
    ("Megatron TP", "2 nodes of 4", "tp=8", 8192, 2, True, 450, (9.0, 9.0)),
]


@pytest.mark.parametrize("who, name, mesh, tokens, count, backward, rate, ms", CASES)
def test_a_time_is_within_15_percent_of_its_estimate_by_hand(
    who, name, mesh, tokens, count, backward, rate, ms
):
    shared = name.startswith("2 nodes")
    machine = seen(find_machine("dgxh100" if shared else name), "bfloat16", "auto")
    machine = at_rate(machine, 1e9 * rate) if rate else machine
    machine = in_nodes_of(machine, 4) if shared else machine
    chain = preset("llama3-70b:mlp", tokens, backward=backward)
    costs = LayoutCosts(machine, DeviceMesh.read(mesh), "bfloat16", Training(count))
    found = choose(chain, [costs], effort_s=10 if who == "best" else 0)
    if who == "best":
        assert ("R",) not in {found.best.layouts["W1"], found.best.layouts["W2"]}
    known = {each.name: each for each in found.contenders} | {"best": found.best}
    assert 0.85 * ms[0] <= 1e3 * known[who].time_s <= 1.15 * ms[1]


def test_fsdp_wins_for_many_tokens_and_tensor_parallelism_for_few():
    machine = seen(find_machine("h100x8"), "bfloat16", "auto")
    for tokens, fastest in ((8192, "Megatron TP"), (65536, "FSDP")):
        chain = preset("llama3-70b:mlp", tokens, backward=True)
        mesh = DeviceMesh.read("tp=8")
        costs = LayoutCosts(machine, mesh, "bfloat16", Training(2), PROGRAMS["nccl"])
        assert choose(chain, [costs], effort_s=0).contenders[0].name == fastest
