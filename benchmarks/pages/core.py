"""Tables of performance.md and algorithms.md: rows of ``benchmarks/core.py`` and of sweeps."""

from pandas import DataFrame

from .records import HERE, core, only, records
from .tables import block, describe_time, list_rows, say_yes, table


def describe_share(row) -> str:
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
    >>> describe_share(next(row.itertuples()))
    '[0.98 (0.97–0.99)]'
    """
    text = f"{row.percent_of_roof / 100:.2f}"
    low, high = row.percent_of_roof_low, row.percent_of_roof_high
    if not low > 0:
        low, high = row.percent_of_roof_min, row.percent_of_roof_max
    if low > 0:
        text += f" ({low / 100:.2f}–{high / 100:.2f})"
    return f"[{text}]" if str(row.noisy) == "True" else text


def _describe(row, name: str = "") -> str:
    """A median of ratios and its interval."""
    ratio, low, high = (getattr(row, f"{name}{each}") for each in ("ratio", "low", "high"))
    return f"{ratio:.2f} ({low:.2f}–{high:.2f})"


def _met(row, limit: float = 1.0) -> str:
    return say_yes(row.percent_of_roof >= 100 * row.bar * limit)


@block
def core_ratios(part: str) -> str:
    """The ratios to the roof on one node: ``cube``, ``mlp`` or ``rma``."""
    return _against_bars(core("one_node", table=part))


@block
def core_layers(m: int) -> str:
    """The ratios to the roof of MLP layers of m rows."""
    return _against_bars(core("layers", m=m))


@block
def core_collectives() -> str:
    """The 2-D algorithms that sum C."""
    found = core("collectives", collectives="mpi")
    return table(
        ["algorithm", "ratio to the roof"],
        [(row.case, describe_share(row)) for row in found.itertuples()],
    )


@block
def core_mixed() -> str:
    """Two virtual nodes against one: the ratio, and MiB that all ranks move, by what."""
    found = core("mixed").copy()
    moved = ["direct_bytes", "get_bytes", "put_bytes", "one_get_bytes", "one_accumulate_bytes"]
    found[moved] /= 2**20
    return list_rows(
        "case|m x n x k|ratio (range)|read in place|MPI_Rget|pushed|one node: Rget|accumulated|bar"
        "|met",
        "{case}|{m} x {n} x {k}|{ratio}|{direct_bytes:.0f}|{get_bytes:.0f}|{put_bytes:.0f}"
        "|{one_get_bytes:.0f}|{one_accumulate_bytes:.0f}|{bar:.2f}|{met}",
        found,
        met=lambda row: say_yes(row.ratio >= row.bar),
        ratio=_describe,
    )


def _against_bars(found: DataFrame) -> str:
    """A line a case; where ranks have uneven work also what the busiest one allows, by which the
    ratio is divided before it is held against its bar."""
    limits = found.reindex(columns=["balance_limit"]).balance_limit.fillna(1)
    uneven = bool((limits < 1).any())
    header = ["case", "ratio to the roof (interval)", *["limit by balance"] * uneven, "bar", "met"]
    return table(
        header,
        [
            (
                row.case,
                describe_share(row),
                *[f"{limit:.2f}" if limit < 1 else ""] * uneven,
                f"{row.bar:.2f}",
                _met(row, limit),
            )
            for row, limit in zip(found.itertuples(), limits)
        ],
    )


@block
def core_remote() -> str:
    """The ratios with every rank remote, by who drives MPI."""
    lines = []
    for case, each in core("remote").groupby("case", sort=False):
        by = {row.progress: row for row in each.itertuples()}
        poll, none = by["poll"], by.get("none")
        shares = describe_share(poll), describe_share(none) if none else ""
        lines.append((case, *shares, f"{poll.bar:.2f}", _met(poll)))
    return table(["case", "poll (default)", "none", "bar", "met"], lines)


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
            verdict = say_yes(met) if bar else ""
            lines.append((name, against, *map(_describe, cells), bar, verdict))
    return table(["program", "over", *(f"{share:g}" for share in shares), "bar", "met"], lines)


@block
def core_signals(section: str) -> str:
    """Fused overlap against the roof and against the universal algorithm, each program with the
    fastest of the tiles that were tried: ``signals`` on a node, ``signals_remote`` over TCP."""
    lines = []
    for kind in _KINDS:
        found = core(section, kind=kind).rename(columns={"of_universal": "of_universal_ratio"})
        for case, each in found.groupby("case", sort=False):
            row = max(each.itertuples(), key=lambda row: row.of_universal_ratio)
            if not row.tile > 0:
                lines.append((case, "", _describe(row), "1", ""))
                continue
            met = round(row.of_universal_ratio, 2) >= 0.97 or row.ratio >= row.bar
            shares = _describe(row), _describe(row, "of_universal_")
            lines.append((case, f"{row.tile:.0f}", *shares, say_yes(met)))
    return table(["program", "tile", "ratio to the roof", "to universal", "met"], lines)


@block
def core_executor() -> str:
    """What a step of next to no work takes of a core."""
    return list_rows(
        "products of 8 x 8 x 8, and their steps|a step|bar|met",
        "{case}|{step}|{bar}|{met}",
        core("executor"),
        step=lambda row: describe_time(row.median_s),
        bar=lambda row: describe_time(row.bar_s),
        met=lambda row: say_yes(row.median_s <= row.bar_s),
    )


@block
def core_planning() -> str:
    """Time to plan one rank of 4096."""
    return list_rows(
        "tiles of one rank of p = 4096|steps|time to plan|bar",
        "{case}|{steps:.0f}|{time}|{bar}",
        core("planning"),
        time=lambda row: describe_time(row.median_s),
        bar=lambda row: describe_time(row.bar_s),
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
