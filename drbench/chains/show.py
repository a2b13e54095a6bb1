"""The answer of ``drbench chain`` as text: its first lines, its table, and details. ``choice`` is a
``ShardingChoice`` of :func:`drbench.chain`, which prints itself by this module."""

from io import StringIO

from drbench.chains.model.choose import Solution
from drbench.chains.model.description import Matmul
from drbench.chains.script import layout_rows
from drbench.launch.host.show import Screen, console, table
from drbench.mappings import grouped
from drbench.measure.record import Record
from drbench.texts import between, bytes_text, marked, number, span, time_text


def text_of_choice(choice) -> str:
    """What :func:`show_choice` prints."""
    text = StringIO()
    show_choice(choice, console(file=text))
    return text.getvalue().rstrip("\n")


def show_choice(choice, out: Screen, measured: Record | None = None, verbose: bool = False) -> None:
    """Print the fastest sharding, a table of all, what is not possible, and a measured time; with
    ``verbose`` also the memory, layouts and programs of the best."""
    search, best = choice.search, choice.search.best
    for line in headlines(choice):
        out.line(line)
    columns = "!sharding|!mesh|>!time|>!memory a rank|>of the best|>MFU"
    rows = [_cells(row, choice) for row in choice.shown]
    out.print(table(columns, rows, [row.to_dict() for row in choice.shown]))
    if choice.within:
        out.line("= tied with the best: within the interval of its time")
    for names, why in refusals(search.refused).items():
        out.line(f"Not possible: {names}: {why}")
    if measured is not None:
        out.line(measured_text(choice.ranking[0], measured))
    if verbose:
        memory = (f"{what} {bytes_text(count)}" for what, count in best.memory.items() if count)
        out.line(f"Memory of the best: {', '.join(memory)}.")
        out.print(table("operation|~!layouts|~!how", operation_rows(best)))
        times = "operation|!kind|>!compute|>!exposed|>!hidden|>received"
        out.print(table(times, time_rows(best)))
        parts = ", ".join(f"{what} {time_text(time_s)}" for what, time_s in best.parts.items())
        out.line(f"Time of a layer: {parts}. Communication is that which nothing hides.")
        if best.costs.whole:
            step = ", ".join(f"{what} {time_text(time_s)}" for what, time_s in best.step.items())
            out.line(f"Whole model: {step}.")
        out.line(
            f"MFU {100 * best.mfu:.1f} %, hardware FLOPs {100 * best.hfu:.1f} % of the peak: with "
            "what is computed again, and without the masked half of fused attention."
        )
        out.print(table("matrix|~!drbench|~!PyTorch|~!JAX", layout_rows(best)))
        (bounded, simulated), chain = search.counts, best.chain
        ended = "it was interrupted" if search.interrupted else "the effort was exhausted"
        out.line(
            f"{chain.name}: {len(chain.multiplications)} multiplications, "
            f"{number(chain.flops / 1e12, 4)} TFLOP, {best.costs.dtype}, {best.mesh.ranks} ranks "
            f"of {best.costs.machine.name}: {bounded} programs of operations bounded, {simulated} "
            f"simulated{'' if search.finished else ', until ' + ended}."
        )


def show_fits(
    fits: list[Solution], refused: dict[str, str], limit: float, tokens: int, out: Screen
) -> None:
    """Print the known schemes with the fewest ranks where each fits, and its memory by what it
    is."""
    names = "weights", "gradients", "optimizer", "activations"
    if fits:
        first = fits[0]
        out.line(
            f"The fewest ranks: {first.name} on {first.mesh} needs "
            f"{bytes_text(first.memory_bytes)} a rank, of {bytes_text(limit)}."
        )
        rows = []
        for solution in fits:
            memory = solution.memory
            parts = [memory.pop(name, 0) for name in names]
            cells = *parts, sum(memory.values()), solution.memory_bytes
            rows.append((solution.name, str(solution.mesh), *(f"{x / 2**30:.3g}" for x in cells)))
        columns = "!scheme|!fewest ranks|" + "|".join(f">{name}" for name in names)
        out.print(table(f"{columns}|>other|>GiB a rank", rows))
        rest = [name for name, size in fits[0].memory.items() if name not in names and size]
        if rest:
            out.line(f"other: {', '.join(rest)}")
    else:
        out.line(f"With {tokens} tokens (-m) no known scheme fits into {bytes_text(limit)} a rank.")
    by_reason = grouped(refused, lambda name: refused[name])
    for why, schemes in by_reason.items():
        out.line(f"Not possible: {', '.join(schemes)}: {why}")


def headlines(choice) -> list[str]:
    """The fastest sharding with its time and its doubt, then what those that are tied with it
    save."""
    best, row, others = choice.search.best, choice.ranking[0], choice.ranking[1:]
    layers = best.costs.training.layers
    name = "a sharding found here (-v shows it)" if best.name == "chosen" else best.name
    time = between(best.total_s, *row.ends_s)
    if best.costs.whole:
        tokens = best.chain.matrices["X"].rows * best.costs.training.micro_batches
        rate = tokens / best.total_s / best.mesh.ranks
        time += (
            f" a {'step' if best.chain.has_backward else 'pass'}, {number(rate)} tokens/s a rank"
        )
    elif layers > 1:
        time += f" a layer, {time_text(layers * best.time_s)} for {layers}"
    doubt = f"optimality gap at most {100 * choice.search.gap:.0f} % (--effort searches longer)"
    ties = [row for row in others if row.name in choice.within and row.name != best.name]
    word = "Best found" if not choice.decided else "Tied for fastest" if ties else "Fastest"
    ends = [doubt] * (not choice.decided)
    ends += [f"tied with {', '.join(row.name for row in ties)}"] * bool(ties)
    lines = [
        f"{word}: {name} on {best.mesh}, {time} predicted, MFU {100 * best.mfu:.0f} %"
        f"{''.join(f'; {end}' for end in ends)}."
    ]
    saved = {
        name: f"{bytes_text(tied.memory_bytes)} instead of {bytes_text(best.memory_bytes)} a rank, "
        f"{_percent(tied.total_s / best.total_s)} time"
        for name, tied, *_ in ties
        if tied.memory_bytes < 0.9 * best.memory_bytes
    }
    lines += [f"{name} needs {less}." for name, less in list(saved.items())[:1]]
    if best.name == "chosen" and others and not ties:
        known = min(others, key=lambda row: row.solution.total_s)
        longer = known.solution.total_s / best.total_s
        lines.append(
            f"The fastest known scheme, {known.name}, takes {_percent(longer)[1:]} longer."
        )
    return lines


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f} %"


def refusals(refused: dict) -> dict[str, str]:
    """The names of schemes that are not possible for one reason -> the reason.

    Examples
    --------
    >>> from drbench.chains.model.published import Refusal
    >>> reasons = {"FSDP": "few rows", "HSDP": "few rows", "TP": "8 heads"}
    >>> refusals({name: Refusal(1, 8, why) for name, why in reasons.items()})
    {'FSDP, HSDP': 'few rows', 'TP': '8 heads'}
    """
    by_reason = grouped(refused, lambda name: refused[name].why)
    return {", ".join(names): why for why, names in by_reason.items()}


def measured_text(chosen, measured: Record) -> str:
    """The line with a measured time, its prediction and the verification.

    Examples
    --------
    >>> from types import SimpleNamespace as Any
    >>> from drbench.measure.record import Record
    >>> run = dict(mode="measured", status="ok", best_s=2.0, fill="integer")
    >>> measured = Record(**run, median_s=2.1, samples_s=[2.0, 2.2])
    >>> for low, high in ((1.8, 2.2), (1.8, 2.02), (None, None)):
    ...     chosen = Any(solution=Any(time_s=2.0), low_s=low, high_s=high)
    ...     print(measured_text(chosen, measured).partition("; ")[0])
    measured 2.1 s (median of 2), in 1.8-2.2, predicted 2 s: +5.0 %
    measured 2.1 s (median of 2), not in 1.8-2.02, predicted 2 s: +5.0 %
    measured 2.1 s (median of 2), predicted 2 s: +5.0 %
    """
    if measured.status != "ok":
        return f"{measured.status}: {measured.reason}"
    exact = "exact" if measured.fill == "integer" else f"{measured.error:.2f} of the tolerance"
    text, predicted_s, median_s = "", chosen.solution.time_s, measured.median_s
    if chosen.low_s is not None:
        verdict = "in" if chosen.low_s <= median_s <= chosen.high_s else "not in"
        text = f", {verdict} {span(chosen.low_s, chosen.high_s, median_s)}"
    return (
        f"measured {time_text(median_s)} (median of {len(measured.samples_s)}){text}, "
        f"predicted {time_text(predicted_s)}: {100 * (median_s / predicted_s - 1):+.1f} %; "
        f"every operation verified, {exact}."
    )


def _cells(row, choice) -> tuple[str, ...]:
    solution, best = row.solution, choice.search.best
    tied = choice.within and (row.name in (*choice.within, best.name))
    return (
        "found here" if row.name == "chosen" else row.name,
        str(solution.mesh),
        marked(between(solution.total_s, *row.ends_s), "=" if tied else ""),
        bytes_text(solution.memory_bytes),
        f"{solution.total_s / best.total_s:.3f}",
        f"{100 * solution.mfu:.0f} %",
    )


def operation_rows(solution: Solution) -> list[tuple[str, str, str]]:
    """(operation, layouts of its operands and result, algorithm) of a chain with layouts."""
    rows = []
    for operation in solution.chain.operations:
        taken = ", ".join(f"{name} {layout_text(solution, name)}" for name in operation.takes)
        how = solution.describe(operation) if isinstance(operation, Matmul) else "own tiles"
        rows.append((str(operation), f"{taken} → {layout_text(solution, operation.c)}", how))
    return rows


def time_rows(solution: Solution) -> list[tuple[str, ...]]:
    """(operation, kind, times of computing, exposed and hidden communication, bytes received)."""
    time = lambda time_s: time_text(time_s) if time_s > 0 else ""
    return [
        (
            row.operation if row.kind != "waits" else f"{row.direction} pass {row.operation}",
            row.kind,
            *map(time, (row.compute_s, row.exposed_s, row.hidden_s)),
            bytes_text(row.received_bytes) if row.received_bytes else "",
        )
        for row in solution.operations
    ]


def layout_text(solution: Solution, name: str) -> str:
    """The layout of a matrix in short: a word if all dimensions have one placement."""
    layout = solution.layout(name)
    words = {("S(0)",): "row", ("S(1)",): "column", ("R",): "R"}
    return words.get(tuple(dict.fromkeys(layout))) or ",".join(layout)
