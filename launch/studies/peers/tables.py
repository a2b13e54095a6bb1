"""Lines of drbench next to libraries, of records whose cases are named ``round | shape | who |
label``: those that are committed, of which the pages have tables."""

from math import nan

from drbench.measure.noise import median_interval
from launch.peers import ON_DRBENCH

from .names import NAME

_MARKS = ("noisy", "oversubscribed")


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
