"""The tables of ``drbench peers``, from records alone."""

from math import inf

from .peer_bench import NAME, PARTITIONINGS

#: The header, and the rows of cells.
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
_HEADER = (
    "shape",
    "who",
    "setting",
    "best",
    "median",
    "GFLOP/s",
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
            Over all repeats; the rate is of the best one.
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
            gflops=by.gflops.max(),
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


def table_rows(chosen: list) -> Table:
    """Header and cells: shape, who, setting, times, rate and ratios as text."""
    rows = []
    for line in chosen:
        if line.best_s is None:
            rows.append((line.shape, line.who, line.label, *[""] * 5, line.reason))
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
                own,
                f"{line.roof:.1f} %" if line.roof is not None else "",
                "; ".join(
                    filter(None, (line.reason, "moves nothing" if line.moved_bytes == 0 else ""))
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
    """For each shape and library the setting with the smallest median, of those that are known to
    move something or do not tell.

    A partitioning that moves no bytes (an operand already everywhere) is another problem, and
    competes with nobody.
    """
    from pandas import DataFrame

    table = DataFrame(found)
    moving = table[table.median_s.notna() & (table.moved_bytes != 0)]
    fastest = moving.groupby(["shape", "who"], sort=False).median_s.idxmin()
    return [found[at] for at in fastest]


def summary(found: list) -> Table:
    """For each shape: drbench's best, median and worst of its five partitionings, the first setting
    of each peer, and which of these are as fast as drbench's median partitioning or faster.

    Cells are percent of drbench's roof, and of the contender's own roof; partitionings are ordered
    by their median time.
    """
    shapes = list(dict.fromkeys(line.shape for line in found))
    whos = [who for who in dict.fromkeys(line.who for line in found) if who != "drbench"]
    header = (
        "shape",
        "drbench best",
        "drbench median of five",
        "drbench worst",
        *whos,
        "ahead of the median",
    )
    rows = []
    for shape in shapes:
        of = lambda who: [line for line in found if (line.shape, line.who) == (shape, who)]
        five = sorted(
            (line for line in of("drbench") if line.label in PARTITIONINGS and line.median_s),
            key=lambda line: line.median_s,
        )
        middle = five[len(five) // 2] if five else None
        cells, ahead = (
            [_cell(five[0], True), _cell(middle), _cell(five[-1], True)] if five else [""] * 3,
            [],
        )
        for who in whos:
            first = next(iter(of(who)), None)
            cells.append(_cell(first, True) if first else "")
            if first and middle and (first.median_s or inf) <= middle.median_s:
                ahead.append(who)
        rows.append((shape, *cells, ", ".join(ahead) or "nobody"))
    return header, rows


def _cell(line, named: bool = False) -> str:
    if line.median_s is None:
        return line.reason.partition(":")[0]
    roof = f"{line.roof:.1f} %" if line.roof is not None else "?"
    own = (
        f", own {line.own_roof:.1f} %"
        if line.own_roof is not None and line.who != "drbench"
        else ""
    )
    return roof + own + (f" ({line.label})" if named else "")
