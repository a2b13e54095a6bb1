"""The tables of ``drbench peers``, from records alone."""

from math import inf, nan

from drbench.measure.noise import Ratio, median_interval
from launch.peers import ON_DRBENCH

from .names import NAME, PARTITIONINGS

_MARKS = ("noisy", "oversubscribed")
#: The header, and the rows of cells.
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
_HEADER = (
    "shape",
    "who",
    "setting",
    "best",
    "median",
    "GFLOP/s",
    "time / best peer's",
    "time / its best setting's",
    "of its own roof",
    "of drbench's roof",
    "note",
)


def lines(records) -> list:
    """One line for each shape and contender, in the order of the records.

    Parameters
    ----------
    records : DataFrame of :func:`plots.select.records.read_records`, or iterable of Record

    Returns
    -------
    list of named tuple
        ``shape``, ``who``, ``label``, and over all rounds, ``None`` if not known:

        ``best_s``, ``median_s``, ``gflops``
            Over all repeats; the rate is the median of the rounds.
        ``ratio``, ``ratio_low``, ``ratio_high``
            Its time over that of the best peer's default in the same round: the median over the
            rounds, and its 95 % interval (of six rounds or more). The best peer's default is the
            one with the smallest median time on this shape.
        ``reference``
            Which one that is.
        ``best_ratio``, ``best_low``, ``best_high``, ``best_reference``
            The same to the fastest setting of any peer that was run in every round.
        ``rounds``
            In how many rounds it was ok.
        ``noisy``, ``oversubscribed``
            Whether most of its rounds, and any of them, are so.
        ``own_roof``, ``own_low``, ``own_high``
            Percent of the roof of its own BLAS: the median of the rounds' medians, and the range of
            all pairs.
        ``roof``
            Percent of drbench's roof in the same round (median repeat), median over the rounds.
        ``own_gflops``
            The roof of its own BLAS, all ranks together.
        ``moved_bytes``, ``blas``, ``threads``
            Bytes of all ranks in one multiplication; who multiplies.
        ``reason``
            Why there is nothing, or less, else ``""``.
    """
    from plots.select.records import frame, rows

    found, keys = frame(records).drop(columns="shape"), ["shape", "who", "label"]
    found = found.join(found.case.str.extract(NAME)).dropna(subset="turn")
    if found.empty:
        return []
    ok = found[found.status == "ok"]
    ours = ok[(ok.who == "drbench") & (ok.roof_gflops > 0)].groupby(["turn", "shape"])
    ok = ok.join(ours.roof_gflops.median().rename("common"), on=["turn", "shape"])
    ok["roof"] = 100 * ok.gflops / ok.common
    ok["own_gflops"] = ok.roof_gflops.where(ok.percent_of_roof.notna())
    ok["blas"] = (ok.blas.fillna("") + " " + ok.blas_kernel.fillna("")).str.strip()
    peers = found[~found.who.isin(["drbench", *ON_DRBENCH])]
    defaults = peers.drop_duplicates(["shape", "who"])
    rounds = ok.groupby(keys).size().rename("rounds").reset_index()
    most = rounds[rounds.rounds == rounds.groupby("shape").rounds.transform("max")]
    still = (peers.moved_bytes == 0).fillna(False).astype(bool)
    moving = peers[~still].merge(most[keys], on=keys)
    ok = ok.join(_fastest(defaults, ok), on=["turn", "shape"])
    ok = ok.join(_fastest(moving, ok).add_prefix("best_"), on=["turn", "shape"])
    ok["ratio"], ok["best_ratio"] = ok.time_s / ok.reference_s, ok.time_s / ok.best_reference_s
    ok["noisy"], ok["oversubscribed"] = (
        ok[name].astype("boolean").fillna(False).astype(float) for name in _MARKS
    )
    by, times = ok.groupby(keys), ok.explode("samples_s").groupby(keys).samples_s
    found["reason"] = found.status.astype(str) + ": " + found.reason
    failed, rounds = found[found.status != "ok"].groupby(keys), found.groupby(keys).size()
    table = (
        by[["moved_bytes", "blas", "threads"]]
        .first()
        .join(by[["roof", "own_gflops"]].median())
        .assign(
            best_s=times.min().astype(float),
            median_s=times.median().astype(float),
            gflops=by.gflops.median(),
            ratio=by.ratio.median(),
            ratio_low=by.ratio.agg(lambda each: _interval(each)[0]),
            ratio_high=by.ratio.agg(lambda each: _interval(each)[1]),
            reference=by.reference.first(),
            best_ratio=by.best_ratio.median(),
            best_low=by.best_ratio.agg(lambda each: _interval(each)[0]),
            best_high=by.best_ratio.agg(lambda each: _interval(each)[1]),
            best_reference=by.best_reference.first(),
            rounds=by.size(),
            noisy=by.noisy.mean() > 0.5,
            oversubscribed=by.oversubscribed.any(),
            own_roof=by.percent_of_roof.median(),
            own_low=by.percent_of_roof_min.min(),
            own_high=by.percent_of_roof_max.max(),
        )
    )
    table = found[keys].drop_duplicates().join(table, on=keys).set_index(keys)
    some = failed.size().astype(str) + " of " + rounds.astype(str) + " rounds: "
    table["reason"] = (some + failed.reason.first()).where(table.best_s > 0, failed.reason.last())
    table["reason"] = table.reason.fillna("")
    return rows(table.reset_index())


def _fastest(chosen, ok):
    """By round and shape, which of the chosen contenders is the fastest (``reference``), and its
    time there."""
    keys = ["shape", "who", "label"]
    theirs = ok.merge(chosen[keys].drop_duplicates(), on=keys)
    times = theirs.groupby(keys, sort=False)
    ranked = times.agg(noisy=("noisy", _mostly), time_s=("time_s", "median")).reset_index()
    best = ranked.sort_values(["noisy", "time_s"], kind="stable").drop_duplicates("shape")
    rows = theirs.merge(best[keys], on=keys)
    rows = rows.assign(reference=rows.who + " " + rows.label, reference_s=rows.time_s)
    return rows.set_index(["turn", "shape"])[["reference", "reference_s"]]


def _mostly(marks) -> bool:
    """Whether most of them are true; unknown is not."""
    return marks.astype("boolean").fillna(False).mean() > 0.5


def _interval(ratios) -> tuple[float, float]:
    """The 95 % interval of the median; NaN of fewer than six."""
    return median_interval(list(ratios.dropna())) or (nan, nan)


def fastest_first(line) -> tuple[bool, float]:
    """The order of lines that are timed: noisy ones last, else by the median time; never by a
    ratio.

    Examples
    --------
    >>> from types import SimpleNamespace as Line
    >>> lines = [Line(noisy=True, median_s=1.0), Line(noisy=False, median_s=3.0)]
    >>> min(lines, key=fastest_first).median_s
    3.0
    """
    return bool(line.noisy), inf if line.median_s is None else line.median_s


def _ratio(line, to: str = "") -> str:
    """The paired ratio to the best peer's default, or with ``best_`` to its best setting, with its
    interval."""
    middle, reference = getattr(line, f"{to}ratio"), getattr(line, f"{to}reference")
    if middle is None:
        return ""
    if reference == f"{line.who} {line.label}":
        return "1 (it is)"
    low, high = ("best_low", "best_high") if to else ("ratio_low", "ratio_high")
    return str(Ratio(middle, getattr(line, low), getattr(line, high)))


def table_rows(chosen: list) -> Table:
    """Header and cells: shape, who, setting, times, rate and ratios as text."""
    rows = []
    for line in chosen:
        if line.best_s is None:
            rows.append((line.shape, line.who, line.label, *[""] * 7, line.reason))
            continue
        own = (
            f"{line.own_roof:.1f} % ({line.own_low:.0f}-{line.own_high:.0f})"
            if line.own_roof is not None
            else "unknown"
        )
        rows.append(
            (
                line.shape,
                line.who,
                line.label,
                f"{1000 * line.best_s:.4g} ms",
                f"{1000 * line.median_s:.4g} ms",
                f"{line.gflops:.4g}",
                _ratio(line),
                _ratio(line, "best_"),
                own,
                f"{line.roof:.1f} %" if line.roof is not None else "",
                "; ".join(
                    filter(
                        None,
                        (
                            line.reason,
                            "moves nothing" if line.moved_bytes == 0 else "",
                            "noisy" if line.noisy else "",
                            "oversubscribed" if line.oversubscribed else "",
                        ),
                    )
                ),
            )
        )
    return _HEADER, rows


def libraries(found: list) -> Table:
    """Who multiplies locally with which BLAS and kernels, on how many threads, and how fast that is
    alone: the largest roof of all shapes."""
    from pandas import DataFrame

    table = DataFrame(found)
    ran = table[table.best_s.notna()].groupby(["who", "blas", "threads"], sort=False, dropna=False)
    rows = [
        (who, blas, f"{threads:.0f}", f"{roof:.4g}" if roof > 0 else "unknown")
        for (who, blas, threads), roof in ran.own_gflops.max().items()
    ]
    return ("who", "BLAS and kernels", "threads a rank", "largest roof, GFLOP/s"), rows


def best_settings(found: list) -> list:
    """For each shape and library the setting with the smallest median time, of those that are known
    to move something or do not tell; a noisy one only where there is no other, and where several
    were run in every round those alone.

    A partitioning that moves no bytes (an operand already everywhere) is another problem, and
    competes with nobody.
    """
    from pandas import DataFrame

    table = DataFrame(found)
    moving = table[table.median_s.notna() & (table.moved_bytes != 0)]
    moving = moving.assign(noisy=moving.noisy.astype(bool))
    each = moving.groupby(["shape", "who"])
    most = moving.rounds == each.rounds.transform("max")
    several = most.groupby([moving["shape"], moving.who]).transform("sum") > 1
    moving = moving[most | ~several]
    fastest = moving.sort_values(["noisy", "median_s"], kind="stable")
    best = fastest.drop_duplicates(["shape", "who"]).index
    order = moving.drop_duplicates(["shape", "who"])[["shape", "who"]].itertuples(index=False)
    of = {(found[at].shape, found[at].who): found[at] for at in best}
    return [of[shape, who] for shape, who in order]


def summary(found: list) -> Table:
    """For each shape: drbench's best, median and worst of its partitionings, the first setting of
    each library, and in words who is faster, drbench's best or the best library.

    A cell is the median time, and its ratio to the best library's default in the same rounds. Noisy
    lines are no best, median or worst, and win nothing. A library under which drbench multiplies is
    no competitor.
    """
    shapes = list(dict.fromkeys(line.shape for line in found))
    whos = [who for who in dict.fromkeys(line.who for line in found) if who != "drbench"]
    header = ("shape", "drbench best", "drbench median", "drbench worst", *whos, "who is faster")
    rows = []
    for shape in shapes:
        of = lambda who: [line for line in found if (line.shape, line.who) == (shape, who)]
        ours = [line for line in of("drbench") if line.label in PARTITIONINGS and line.median_s]
        sure = sorted((line for line in ours if not line.noisy), key=fastest_first)
        if sure:
            left_out = f", {len(ours) - len(sure)} noisy" if len(sure) < len(ours) else ""
            middle = f"{_cell(sure[len(sure) // 2])} (of {len(sure)}{left_out})"
            cells = [_cell(sure[0], True), middle, _cell(sure[-1], True)]
        else:
            cells = ["noisy" if ours else ""] * 3
        firsts = {who: next(iter(of(who)), None) for who in whos}
        cells += [_cell(first, True) if first else "" for first in firsts.values()]
        rivals = [
            first
            for who, first in firsts.items()
            if first and who not in ON_DRBENCH and first.median_s is not None
        ]
        rows.append((shape, *cells, _who_is_faster(sure, rivals)))
    return header, rows


def _who_is_faster(ours: list, theirs: list) -> str:
    """Drbench's best or the best library, by the paired ratio of their times, where its interval
    tells them apart."""
    if not theirs:
        return "no library ran"
    named = {f"{line.who} {line.label}": line for line in theirs}
    best = min(theirs, key=fastest_first)
    library = named.get(ours[0].reference, best) if ours else best
    if not ours or library.noisy:
        return f"not decided: {'drbench' if not ours else library.who} is noisy"
    ratio = Ratio(ours[0].ratio, ours[0].ratio_low, ours[0].ratio_high)
    told = f"drbench's {ours[0].label} takes {ratio} of {library.who}'s time"
    if not ratio.apart:
        return f"not told apart: {told}"
    return f"{'drbench' if ratio.middle < 1 else library.who}: {told}"


def _cell(line, named: bool = False) -> str:
    if line.median_s is None:
        return line.reason.partition(":")[0]
    marks = [name for name in _MARKS if getattr(line, name)]
    told = [f"{1000 * line.median_s:.4g} ms", _ratio(line), *marks]
    return ", ".join(filter(None, told)) + (f" ({line.label})" if named else "")
