"""The claims of MeshSlice's evaluation (§5, Figures 9 to 14, Tables 2 and 3; §6), compared with the
rows of its studies (:mod:`drbench.launch.papers.meshslice.study`). No claim has its own constants.

Shared terms, the same for every claim:

- a *level* (FLOP utilization) agrees within 5 % of the paper's number;
- a *difference* (a lead, a loss, a gain) agrees within 30 % of the paper's number, so that none
  agrees by being 0;
- *faster* and *between* mean by more than 5 %, but where the paper calls two similar: at most 20 %;
- *slightly* more is at most a quarter more, *much* more at least twice as much.

**Which constants.** The figures are simulations of the authors, so they are compared with the
constants that the authors fitted to that simulation (``tpuv4sim``: branch ``simulation`` of their
repository); Table 3 was measured on a 4 × 4 slice, so it is compared with the constants that they
measured on such a slice (``tpuv4slice``). ``drbench artifact --sensitivity`` also judges them with
the constants of their autotuner (``tpuv4``).
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pandas import DataFrame

from drbench.chains.model.costs import LayoutCosts
from drbench.chains.model.description import LocalMap
from drbench.chains.model.mesh import DeviceMesh
from drbench.launch.cases.machine_models import find_machine

from ..blocks import block_of
from ..claims import Paper, ResultRows, concordance, name_values, read_claims
from .autotuner import MODELS, MULTIPLICATIONS, layers_of
from .rows import ALL, ROWS, SAME, is_tried
from .study import MACHINE, MOST_CHIPS, SEQ, STUDIES, VARIED, simulate

#: Allowed errors of a level and a difference, as shares of the paper's number.
LEVEL, DIFFERENCE = 0.05, 0.30
#: Ratio of times that counts as faster; largest ratio of slightly more, smallest of much more.
FASTER, SLIGHTLY, MUCH, SIMILAR = 1.05, 1.25, 2.0, 1.2
#: Allowed difference of ratios in Table 3, in points.
RATIO_POINTS = 3.0
#: Algorithms that Figure 11 compares with MeshSlice; the others are also in Figure 10.
_OTHERS, _SLOW = ["wang", "collective", "cannon", "summa"], ["fsdp", "tensor_parallel_1d"]
_SLOWER = [*_OTHERS[2:], *_SLOW]
_PARTS = ("launch", "sync", "transfer")
#: Heads of attention (Brown et al., 2020; Smith et al., 2022).
HEADS = {"gpt3": 96, "megatron-nlg": 128}


#: Variants and columns of Table 3.
_NOT_OVERLAPPED = "nothing overlaps"
_COLLECTIVE = "collective", ""
_TABLE_3 = "slice4x4", ["algorithm", "variant"]
#: Those of weak scaling.
_MESHSLICE, _WEAK = ("meshslice", 256), ("weak", ["algorithm", "chips"])


def _by(rows: ResultRows, column: str, study: str, across: str = "algorithm", **values):
    """A value of all multiplications of a study by model and algorithm, for both models.

    Raises
    ------
    KeyError
        If a model has no rows; from the table, if an algorithm is not in it.
    """
    table = rows.by(column, across, "model", study=study, product=ALL, **values)
    return table.loc[list(MODELS)].dropna(axis="columns")


def _agrees(ours, paper: Sequence[float], share: float = DIFFERENCE, points: float = 0.0):
    """Whether numbers agree with the paper's, within a share of these or a number of points; and
    both as text."""
    pairs = list(zip(ours, paper, strict=True))
    agrees = all(abs(value - other) <= max(share * abs(other), points) for value, other in pairs)
    return agrees, ", ".join(f"{value:.1f} (paper {other})" for value, other in pairs) + " %"


def _ordered(
    rows: ResultRows, table: Callable[[ResultRows], DataFrame], digits: int, *steps: tuple
):
    """Whether in each row of a table some columns are more than a factor larger than others: each
    step has the former, the factor and the latter."""
    values = table(rows)
    larger = [
        (values[more].min(axis=1) > factor * values[less].max(axis=1)).all()
        for less, factor, more in steps
    ]
    named_in = [name for less, _, more in steps for name in (*less, *more)]
    return all(larger), _text(values[[*dict.fromkeys(named_in)]], digits)


def _text(table: DataFrame, digits: int = 1) -> str:
    return "; ".join(f"{name}: {name_values(of.dropna(), digits)}" for name, of in table.iterrows())


def _fastest_in_all(rows: ResultRows):
    """Whether MeshSlice is the fastest in all, and its lead over the next."""
    of = {"study": "weak", "product": ALL}
    seconds = rows.by("seconds", "algorithm", ["model", "chips"], **of)
    lead = seconds.drop(columns="meshslice").min(axis=1) / seconds["meshslice"]
    return (lead > 1).all(), _text(lead.unstack(), 2)


def _gain(
    rows: ResultRows, paper, key, other, study=_TABLE_3[0], across=_TABLE_3[1], points: float = 0.0
):
    """Whether one FLOP utilization exceeds another by the percentage of the paper."""
    table = _by(rows, "utilization_percent", study, across)
    share = 0.0 if points else DIFFERENCE
    return _agrees(100 * (table[key] / table[other] - 1), paper, share, points)


def _level(rows: ResultRows, paper: Sequence[float], key, study=_TABLE_3[0], across=_TABLE_3[1]):
    """Whether a FLOP utilization agrees with the paper's."""
    return _agrees(_by(rows, "utilization_percent", study, across)[key], paper, LEVEL)


def _parts(rows: ResultRows) -> DataFrame:
    """Times of launches, synchronisation, transfers and their sum over that of local GEMMs, by
    model; columns as ``wang sync``, and ``wang`` for the sum."""
    compute, *parts = (_by(rows, f"{name}_s", "weak", chips=256) for name in ("compute", *_PARTS))
    shares = [part / compute for part in parts]
    named_parts = (share.add_suffix(f" {name}") for share, name in zip(shares, _PARTS))
    return sum(shares).join([*named_parts])


def _leads(rows: ResultRows) -> DataFrame:
    """By how many percent MeshSlice is faster than others on 256 chips: for each shape the least
    lead of its multiplications."""
    index = ["model", "m", "n", "k", "layer", "product"]
    of = {"study": "weak", "chips": 256, "product": [*MULTIPLICATIONS]}
    seconds = rows.by("seconds", "algorithm", index, **of).dropna(subset=["meshslice", "wang"])
    leads = 100 * (seconds[_OTHERS].div(seconds["meshslice"], axis="index") - 1)
    return leads.groupby(index[:4]).min()


def _fastest_of_all(rows: ResultRows):
    leads = _leads(rows)
    return not (leads <= 0).any(axis=None), (
        f"{len(leads)} shapes; the smallest leads over {name_values(leads.min())} %"
    )


def _mean_leads(rows: ResultRows):
    return _agrees(_leads(rows).mean()[["collective", "wang"]], (27.8, 19.1))


def _efficient(rows: ResultRows):
    shares = _by(rows, "utilization_percent", "strong", chips=16)
    return (shares > 50).all(axis=None), _text(shares)


def _picks(rows: ResultRows, study: str, field: str, wanted: str = ""):
    """Whether the cost model selects the fastest of a study, and ``wanted``; and orders all pairs
    that differ by more than 5 % correctly."""
    for model, times in rows.ours(study=study, product=ALL).groupby("model", sort=False):
        times = times.set_index(field)[["seconds", "estimated_s"]]
        simulated, modelled = times.idxmin()
        share, pairs = concordance(times.seconds, times.estimated_s, FASTER)
        yield (
            simulated == modelled == (wanted or modelled) and share == 1,
            (
                f"{model}: {modelled} by the cost model, {simulated} simulated, "
                f"{share * pairs:.0f} of {pairs} pairs in order"
            ),
        )


def _best_mesh(rows: ResultRows):
    """Whether GPT-3's best mesh exceeds the slowest of those that the authors' autotuner tries by
    as much as in the paper."""
    of = rows.ours(study="meshes", product=ALL, model="gpt3")
    seconds = of.seconds[of.mesh.map(is_tried)]
    return _agrees([100 * (seconds.max() / seconds.min() - 1)], (140,))


def _order_of_table_3(rows: ResultRows):
    both = rows.paired(SAME, study="slice4x4", variant=["", _NOT_OVERLAPPED])
    ours, paper = (
        both.pivot(index="model", columns="algorithm", values=f"utilization_percent{whose}")
        for whose in ("_ours", "")
    )
    return (ours.rank(axis=1) == paper.rank(axis=1)).all(axis=None), _text(ours)


def _slicing(rows: ResultRows):
    """The time to read and write MeshSlice's slices of the two moving matrices once in the memory
    of a chip, in percent of Collective's time. The simulation does not include it."""
    seconds = _by(rows, "seconds", "slice4x4", variant="")["collective"]
    rate = find_machine("tpuv4slice-4x4").compute.memory_bytes_per_s
    ours = []
    for name, hidden in MODELS.items():
        shapes = (shape for layer in layers_of(hidden, 16, 2048) for shape in layer.shapes)
        sizes = [(m * k, k * n, m * n) for m, n, k in shapes]
        moved = sum(sum(matrices) - max(matrices) for matrices in sizes)
        ours.append(100 * (2 * 2 * moved / 16 / rate) / seconds[name])
    return _agrees(ours, (1.3, 1.3))


def others_s(model: str) -> float:
    """Seconds of all that is not a FC layer in a block, forward and backward, on 32x8 chips: a chip
    has sequences of its row and heads of its column.

    Examples
    --------
    >>> f"{1e3 * others_s('gpt3'):.1f} ms"
    '4.5 ms'
    """
    hidden, heads = MODELS[model], HEADS[model]
    sizes = {"hidden_size": hidden, "intermediate_size": 4 * hidden}
    sizes |= dict.fromkeys(("num_attention_heads", "num_key_value_heads"), heads)
    chain = block_of("gpt3", MOST_CHIPS // 2 * SEQ, SEQ, True, **sizes)
    costs = LayoutCosts(find_machine(MACHINE), DeviceMesh.read("rows=32,columns=8"), "bfloat16")
    functions = (operation for operation in chain.operations if isinstance(operation, LocalMap))
    return sum(costs.map_s(chain, function, ("S(0)", "S(1)")) for function in functions)


def _end_to_end(rows: ResultRows):
    """Whether blocks are faster than with Wang by the paper's numbers."""
    seconds = _by(rows, "seconds", "weak", chips=256)
    seconds = seconds.add([others_s(model) for model in seconds.index], axis="index")
    return _agrees(100 * (seconds["wang"] / seconds["meshslice"] - 1), (12.0, 23.4))


def traffic(m: int, n: int, k: int, rows: int, columns: int, copies: int) -> tuple[float, float]:
    """Bytes that a chip receives in bfloat16: by Cannon's algorithm in 2.5 dimensions on ``copies``
    meshes of ``rows`` × ``rows`` (rows / copies shifts of both operands, the skew among them), and
    by MeshSlice on ``rows`` × ``columns`` with A in place, each mesh with its share of the rows of
    A (B gathered in a mesh and between the meshes, C scattered).

    Examples
    --------
    >>> one, _ = traffic(1 << 20, 12288, 49152, 16, 16, 4)
    >>> _, other = traffic(1 << 20, 12288, 49152, 32, 8, 4)
    >>> f"{one:.4g} {other:.4g}"
    '1.629e+09 3.366e+08'
    """
    chips, rounds = rows * columns, rows / copies
    a, b, c = (2 * size / chips for size in (m * k, k * n, m * n))
    return rounds * (a + b), (rows - 1) * b + (columns - 1) * c / copies + (copies - 1) * b


def _traffic(rows: ResultRows):
    shape = (1024 * 1024, 12 * 1024, 48 * 1024)
    ours = traffic(*shape, 16, 16, 4)[0], traffic(*shape, 32, 8, 4)[1]
    return all(abs(value / other - 1) <= LEVEL for value, other in zip(ours, (1.6e9, 336e6))), (
        f"{ours[0] / 1e9:.2f} GB (paper 1.6) and {ours[1] / 1e6:.0f} MB (paper 336)"
    )


_BY_ALGORITHM = partial(_by, column="utilization_percent", chips=256)
CLAIMS = read_claims(
    "meshslice",
    {
        "M1": (_fastest_in_all,),
        "M2": (_gain, (13.8, 26.0), _MESHSLICE, ("wang", 256), *_WEAK),
        "M3": (_gain, (-16.8, -5.8), _MESHSLICE, ("meshslice", 16), *_WEAK),
        "M4": (_level, (67.4, 82.2), _MESHSLICE, *_WEAK),
        "M5": (
            _ordered,
            partial(_BY_ALGORITHM, study="weak"),
            1,
            (["wang"], FASTER, ["meshslice"]),
            (["collective"], FASTER, ["wang"]),
            (_SLOWER, FASTER, ["collective"]),
        ),
        "M6": (
            _ordered,
            _parts,
            2,
            (["collective"], 1, ["wang", "meshslice"]),
            (["wang", "meshslice"], 1 / SLIGHTLY, ["collective"]),
            (["collective"], MUCH, _SLOWER),
        ),
        "M7": (
            _ordered,
            _parts,
            3,
            (["collective launch"], 1, ["wang launch"]),
            (["wang sync", "collective sync"], 1, ["meshslice sync"]),
        ),
        "M8": (
            _ordered,
            _parts,
            2,
            (["summa transfer"], 1, ["summa sync"]),
            (
                ["meshslice transfer", "wang transfer", "collective transfer"],
                1,
                ["cannon transfer"],
            ),
        ),
        "M9": (_fastest_of_all,),
        "M10": (_mean_leads,),
        "M11": (_efficient,),
        "M12": (
            _ordered,
            partial(_BY_ALGORITHM, study="strong"),
            1,
            (["meshslice"], 1 / SIMILAR, ["wang", "collective"]),
            (["summa", "tensor_parallel_1d"], 1, ["meshslice"]),
        ),
        "M13": (_gain, (21.2, 5.1), "the largest stays", "Y stays", "dataflows", "variant"),
        "M14": (_picks, "meshes", "mesh", "32x8"),
        "M15": (_picks, "slices", "slices"),
        "M16": (_order_of_table_3,),
        "M17": (
            _gain,
            (0.6, -6.1),
            ("wang", _NOT_OVERLAPPED),
            _COLLECTIVE,
            *_TABLE_3,
            RATIO_POINTS,
        ),
        "M18": (_gain, (4.2, 4.9), _COLLECTIVE, ("meshslice", _NOT_OVERLAPPED)),
        "M19": (_gain, (38.6, 32.8), ("meshslice", "overlapped"), _COLLECTIVE),
        "M20": (_slicing,),
        "M21": (_traffic,),
        "M22": (_end_to_end,),
        "M23": (_best_mesh,),
        "M24": (_level, (55.6, 78.2), "Y stays", "dataflows", "variant"),
        "M25": (_level, (47.4, 49.4), _COLLECTIVE),
        "M26": (_level, (45.5, 47.1), ("meshslice", _NOT_OVERLAPPED)),
        "M27": (_level, (47.7, 46.4), ("wang", _NOT_OVERLAPPED)),
        "M28": (_level, (65.7, 65.6), ("meshslice", "overlapped")),
    },
)


def judged(rows, results: Path) -> ResultRows:
    """Simulated rows with the published ones."""
    return ResultRows(DataFrame([*rows, *ROWS.read([results / "published/meshslice"])]))


PAPER = Paper(
    "MeshSlice",
    CLAIMS,
    lambda folder: ROWS.read([folder / "tpuv4-llm"]),
    judged,
    rows=ROWS,
    studies=STUDIES,
    folder="simulated/tpuv4-llm",
    quick=("slice4x4",),
    machines={MACHINE: VARIED},
    alternatives={"the constants of the authors' autotuner": {MACHINE: "tpuv4-4x4"}},
    factors=(0.75, 0.9, 1.25),
    simulate=simulate,
)
