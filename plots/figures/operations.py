"""Where the time of a transformer layer goes, for the best sharding and the known schemes: a bar
for each, stacked by kind, and a thin one below it: communication that computation hides."""

from pandas import DataFrame

from drbench.measure.record import read_options
from drbench.plots.draw.chart import panels
from drbench.plots.draw.figure import Figure, Made
from drbench.plots.draw.page import patch_handle, width_in
from drbench.plots.draw.style import FONT_PT, SMALL_PT, FillStyle
from drbench.plots.select.cases import Options, SelectionError, names
from drbench.plots.select.records import Records, frame
from drbench.texts import time_text

EXPOSED = "exposed communication"
#: Kinds of time that add up to that of a layer, and their colours, from the left to the right.
COLORS = {"GEMM": "#0072B2", "attention": "#009E73", "element-wise": "#CC79A7", EXPOSED: "#D55E00"}


def add_times(records: Records) -> tuple:
    """The row of the last choice in some records; the seconds by kind of its shardings, the fastest
    first; and those of hidden communication. Of equal shardings, as the best and the known scheme
    that it is, the last is left.

    Raises
    ------
    SelectionError
        If there is no choice.
    """
    table = frame(records)
    choices = table.query("algorithm == 'chain' and case == 'chosen'")
    if choices.empty:
        raise SelectionError(
            "there is no chain to draw. Predict one with drbench chain --csv FILE."
        )
    own = table.loc[choices.index[-1] :].query("algorithm == 'chain operation'")
    about = DataFrame(map(read_options, own.options), own.index).replace("experts", "GEMM")
    times_s = DataFrame({kind: own.phase_gemm_s.where(about.kind == kind, 0) for kind in COLORS})
    times_s[EXPOSED] = own.phase_collective_wait_s
    times_s["hidden"] = own.effective_communication_s - own.phase_collective_wait_s
    by = own.case.replace("chosen", "A sharding found here") + " on " + about.mesh
    times_s = times_s.groupby(by, sort=False).sum().drop_duplicates(keep="last")[:6]
    return choices.iloc[-1], times_s, times_s.pop("hidden")


def make(records: Records, options: Options) -> Made:
    """Draw the fastest shardings, one below the other."""
    best, times_s, hidden_s = add_times(records)
    total_s, (name, *others) = times_s.sum(axis=1), times_s.index
    ties = [other for other in others if total_s[other] <= best.median_high_s]
    tied = f"tied with {names(ties, 2)} for " * bool(ties)
    shares = times_s.loc[name] / total_s[name]
    title = f"{best.preset}, {best.m} tokens, b{best.options.rpartition(';b')[2]}"
    page, (plot,) = panels(
        [(title, best.source.text)],
        [patch_handle(FillStyle(*kind)) for kind in COLORS.items()],
        [
            "predicted times on the rank with most work, of the six fastest shardings that drbench "
            "chain found; tied: in the interval in which a run of the fastest is expected; GEMM: "
            f"experts too; {EXPOSED}: waits for links too; hidden: communication behind computation"
        ],
        0.4 * len(total_s), 1, (0.2 + max(width_in(x, FONT_PT) for x in total_s.index), 0.8),
        f"{name} is {tied}fastest: {time_text(total_s[name])}, {100 * shares.max():.0f} % of it "
        f"{shares.idxmax()}",
    )  # fmt: skip
    end, places, least_s = 0, range(len(total_s)), 45 * max(total_s) / plot.bbox.width
    write = lambda time_s: time_text(time_s) if time_s > least_s else ""  # where it fits
    for kind, color in COLORS.items():
        bars = plot.barh(places, times_s[kind], 0.6, end, color=color)
        plot.bar_label(bars, fmt=write, label_type="center", color="white")
        end += times_s[kind]
    plot.bar_label(bars, map(time_text, total_s), padding=5)
    bars = plot.barh([place + 0.46 for place in places], hidden_s, 0.08, color=color)
    hidden = lambda time_s: f"{time_text(time_s)} hidden"
    plot.bar_label(bars, fmt=hidden, padding=3, size=SMALL_PT)
    plot.invert_yaxis()
    plot.set_yticks(places, total_s.index)
    plot.set_xticks([])
    return Made(page.picture, [])


FIGURES = (Figure.listed("operations", make, ("height",)),)
