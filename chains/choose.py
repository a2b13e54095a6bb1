"""The layouts of a chain: searched, simulated whole, beside what people use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from drbench.errors import OutOfMemory
from drbench.model.machine import Machine
from drbench.model.simulate import Simulated, simulate
from drbench.plan.schedule import pool_bytes
from drbench.program.trace import no_collection

from .costs import LAYOUTS, Allowed, Costs
from .description import Chain, Product
from .program import Bound, Way, traces
from .search import search

#: Look-aheads that every contender is simulated with.
LOOKAHEADS: tuple[int | str, ...] = (1, 4, "all")
#: Layouts by search that are simulated whole, besides what people use.
_MOST = 8


@dataclass
class Contender:
    """A chain in layouts, simulated.

    Attributes
    ----------
    name : str
        ``chosen``, or what people call it.
    bound : Bound
    prefetch : int or str
        The fastest look-ahead.
    time_s : float
        Of the whole chain as one program.
    apart_s : float
        The sum of its operations alone, which the search goes by.
    memory_bytes : int
        Tiles and buffers of the rank that has most.
    found : Simulated
    times : dict
        Seconds by look-ahead, of those that fit.
    """

    name: str
    bound: Bound
    prefetch: int | str
    time_s: float
    apart_s: float
    memory_bytes: int
    found: Simulated
    times: dict[int | str, float] = field(default_factory=dict)


@dataclass
class Choice:
    """What was found for a chain.

    Attributes
    ----------
    best : Contender
        The fastest of all that were simulated whole.
    contenders : list of Contender
        What people use, the fastest first.
    refused : dict of str to str
        Contender -> why it cannot be.
    tried : list of Contender
        All that were simulated whole.
    simulated : int
        Programs, of single operations and of whole chains.
    machine, arbitration : str
        Of the model: its name, how it shares links.
    """

    best: Contender
    contenders: list[Contender]
    refused: dict[str, str]
    tried: list[Contender] = field(default_factory=list)
    simulated: int = 0
    machine: str = ""
    arbitration: str | None = None


_COLLECTIVES = ("universal", "gather A", "gather B", "scatter C")
#: What is done by collectives alone: gathered in each product, or once and kept for all; and by a
#: ring, beside the products.
_GATHERED = Allowed(_COLLECTIVES, ("gather",), still=True)
_KEPT = Allowed(("universal", "scatter C"), ("gather",), still=True)
_RING = Allowed((*_COLLECTIVES, "ring B"), ("gather",), still=True)


def known_contenders(chain: Chain) -> dict[str, tuple[dict[str, str], tuple[Allowed, ...]]]:
    """What people use: layouts of the variables, and how products are made.

    ``megatron`` cuts weights by columns, then by rows, and sums everywhere (Shoeybi et al., 2019);
    ``sequence parallel`` keeps rows apart between the blocks and gathers and scatters them
    (Korthikanti et al., 2022); ``fsdp`` keeps rows apart and gathers weights (Zhao et al., 2023).
    What is gathered is kept for further products, or gathered in each: the faster counts.
    """
    variables, seen = chain.variables, {"X"}
    tensor: dict[str, str] = {}
    cut = "R"  # how the rows that come in are laid out: whole, or by columns
    for each in chain.operations:
        if not isinstance(each, Product) or chain.matrices[each.b].kind != "weight":
            continue
        if each.c.startswith("d"):
            break
        b, c = variables[each.b], variables[each.c]
        cut = "column" if cut == "R" and c not in seen else "R"
        tensor[b] = "column" if cut == "column" else "row"
        tensor.setdefault(c, cut)
        seen.add(c)
    ends = set(variables.values()) - set(tensor)
    megatron = tensor | dict.fromkeys(ends, "R")
    megatron |= {variables["X"]: "R"}
    sequence = {name: "row" if layout == "R" else layout for name, layout in megatron.items()}
    rows = dict.fromkeys(variables.values(), "row")
    return {
        "megatron": (megatron, (_GATHERED, _KEPT)),
        "sequence parallel": (sequence, (_GATHERED, _KEPT)),
        "fsdp": (rows, (_GATHERED, _KEPT, _RING)),
    }


def choose(
    chain: Chain,
    machine: Machine,
    nprocs: int,
    *,
    dtype: str = "float32",
    layouts: Sequence[str] | None = None,
    fixed: Mapping[str, str] | None = None,
    limit: float | None = None,
    layers: int = 1,
    progress: Callable[[str], None] | None = None,
) -> Choice:
    """The layouts of all matrices of a chain, and how its products are made.

    Parameters
    ----------
    chain : Chain
    machine : Machine
        As the chain sees it: with its element type and transport.
    nprocs : int
    dtype : str
    layouts : sequence of str, optional
        Text forms that are tried; by default rows, columns, blocks and copies.
    fixed : dict of str to str, optional
        Variables whose layout is given.
    limit : float, optional
        Bytes that a rank may hold; by default the memory of a device.
    layers : int
        So many layers' weights and their gradients a rank holds.
    progress : callable, optional
        Told what is done.

    Raises
    ------
    OutOfMemory
        If nothing fits.
    """
    costs = Costs(machine, nprocs, dtype, layouts or LAYOUTS, layers)
    limit = min(inf if limit is None else limit, machine.memory_bytes)
    tell = progress or (lambda text: None)
    tell("what each product costs in every layout")
    factors, domains = costs.factors(chain), costs.domains(chain)
    fixed = dict(fixed or {})
    chosen = search(domains, factors, limit, fixed)
    if chosen is None:
        raise OutOfMemory(
            f"no layout of {chain.name} on {nprocs} ranks fits {limit / 2**30:.1f} GiB a rank"
            + (f" with {', '.join(f'{x} {y}' for x, y in fixed.items())}" if fixed else "")
            + ". Use more ranks, fewer tokens, or further --layouts."
        )
    found = {tuple(chosen[1].items()): chosen}
    for variable, each in domains.items():  # the best one with every layout of every matrix
        for layout in each if variable not in fixed else ():
            other = search(domains, factors, limit, {**fixed, variable: layout})
            if other is not None:
                found.setdefault(tuple(other[1].items()), other)
    ranked = sorted(found.values(), key=lambda each: each[0].time_s)[:_MOST]
    tell(f"{len(ranked)} layouts and what people use, as whole programs")
    tried, contenders, refused = [], [], {}
    make = lambda name, label, layouts: simulated(name, chain, costs, label, layouts, limit)
    for label, layouts_ in ranked:
        tried.append(make("chosen", label, layouts_))
    for name, (known, ways) in known_contenders(chain).items():
        best = None
        for allowed in ways:
            outside = [
                f"{var} {text}" for var, text in known.items() if text not in domains.get(var, ())
            ]
            label = None
            if not outside:
                label = search(domains, costs.factors(chain, allowed), limit, known)
            if label is None:
                refused[name] = f"not with {', '.join(outside)}" if outside else "it does not fit"
                continue
            one = make(name, *label)
            if one is not None and (best is None or one.time_s < best.time_s):
                best = one
        if best is not None:
            refused.pop(name, None)
            contenders.append(best)
            if all(known.get(var) == text for var, text in fixed.items()):
                tried.append(best)
    tried = [each for each in tried if each is not None]
    if not tried:
        raise OutOfMemory(
            f"the buffers of {chain.name} on {nprocs} ranks do not fit {limit / 2**30:.1f} GiB a "
            "rank. Use more ranks or fewer tokens."
        )
    tried.sort(key=lambda each: each.time_s)
    contenders.sort(key=lambda each: each.time_s)
    model = machine.name, machine.arbitration
    return Choice(tried[0], contenders, refused, tried, costs.simulated, *model)


def simulated(
    name: str, chain: Chain, costs: Costs, label, layouts: dict, limit: float
) -> Contender | None:
    """A chain in layouts as one program, with the look-ahead that is fastest and fits; None if none
    fits."""
    ways: dict[str, Way] = dict(label.notes)
    bound = Bound(chain, costs.nprocs, layouts, ways, costs.dtype)
    best, times = None, {}
    with no_collection():
        found = traces(bound)
        tiles = max(_tile_bytes(bound, rank, costs.layers) for rank in range(costs.nprocs))
        for ahead in LOOKAHEADS:
            memory = tiles + max(pool_bytes(each, ahead) for each in found)
            if memory > limit:
                continue
            costs.simulated += 1
            run = simulate(found, costs.machine, prefetch=ahead)
            times[ahead] = run.time_s
            if best is None or run.time_s < best.time_s:
                best = Contender(name, bound, ahead, run.time_s, label.time_s, memory, run, times)
    return best


def _tile_bytes(bound: Bound, rank: int, layers: int) -> int:
    """Bytes of a rank's tiles, the weights of all layers included."""
    stays = bound.chain.stays
    return sum(
        nbytes * (layers if name in bound.chain.matrices and stays(name) else 1)
        for name, nbytes in bound.tile_bytes(rank).items()
    )
