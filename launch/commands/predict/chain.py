"""``drbench chain``: choose the layouts of a sequence of multiplications together."""

import json
import sys

import click

from drbench.errors import EXIT_CODES, UnsupportedError, UsageError
from drbench.launch.host.show import table
from drbench.texts import between, bytes_text, marked, number, span, time_text

from ..completion import names_of
from ..options import (
    BYTES,
    SIZE,
    command,
    csv_option,
    json_option,
    machine_option,
    of_case,
    option,
    pairs_option,
    printing,
    ranks_option,
    take_options,
    verbose_option,
)


@command(
    "chain",
    needs=dict.fromkeys(("-o", "--iters", "--budget"), "--run")
    | dict.fromkeys(("--micro-batches", "--recompute"), "--backward"),
)
@option(
    "--preset",
    "name",
    metavar="MODEL:PART",
    group="Problem",
    help="Part of a transformer: llama3-70b:mlp (drbench list chains), ./config.json:mlp of "
    "Hugging Face, or a text file with a chain.",
    shell_complete=names_of("chains"),
)
@option(
    "-m",
    "--tokens",
    type=SIZE,
    metavar="SIZE",
    group="Problem",
    help="Rows of X: tokens of all sequences. [default: one sequence of the model, or as in the "
    "file]",
)
@option(
    "--backward",
    is_flag=True,
    group="Problem",
    help="Include the gradients of input and weights.",
)
@of_case(
    "dtype",
    default=None,
    help="Element type of all matrices.",
    default_text="bfloat16 where the machine has it; with --run float32",
)
@machine_option("machine")
@ranks_option()
@option(
    "--mesh",
    metavar="NAME=RANKS,…",
    group="Layout",
    help="Mesh of ranks, the last dimension inside a node, as dp=8,tp=8. [default: the best of "
    "one and two dimensions]",
)
@option(
    "--fix",
    multiple=True,
    metavar="NAME=LAYOUT",
    group="Layout",
    help="Layout of a matrix, and of all that share it: row, column, R, or a placement for each "
    "dimension of --mesh, as R,S(1) or P(None,'tp'). Repeatable.",
)
@option(
    "--memory",
    type=BYTES,
    metavar="BYTES",
    group="Layout",
    help="Most bytes of a training step per rank. [default: the device's memory]",
)
@option(
    "--layers",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    group="Training",
    help="Layers of the model, for its memory and time; one is predicted or run.",
)
@option(
    "--micro-batches",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    group="Training",
    help="Passes whose gradients are added up before data-parallel ranks reduce them.",
)
@option(
    "--recompute",
    is_flag=True,
    group="Training",
    help="Keep only the input of each layer, and run the forward pass again in the backward pass.",
)
@option(
    "--effort",
    "effort_s",
    type=click.FloatRange(0),
    default=25.0,
    metavar="SECONDS",
    group="Machine model",
    help="CPU seconds of the search; contenders are always simulated. Ctrl-C ends it with the "
    "best so far.",
)
@option(
    "--run",
    is_flag=True,
    group="Measurement",
    help="Choose among the programs of the Python library, run the choice on MPI ranks here, "
    "verify every operation, and compare its time with the prediction. Give --machine a file of "
    "this machine.",
)
@pairs_option("fill", "seed", help="With --run: fill or seed of the matrices. Repeatable.")
@of_case("iters", "budget", "transport")
@csv_option()
@option(
    "--placements",
    is_flag=False,
    flag_value="chosen",
    metavar="[WHO]",
    group="Output",
    help="Print only a Python script with placements to paste, and a test of them on PyTorch: of "
    "the best, or of WHO, as 'TP x FSDP'.",
)
@json_option()
@verbose_option(help="Print the layouts and programs of every operation of the best.")
def chain_command(
    name, tokens, backward, dtype, machine, ranks, mesh, fix, memory, layers, micro_batches,
    recompute, effort_s, run, iters, budget, transport, csv_path, placements,
    as_json, verbose, **values,
):  # fmt: skip
    """Choose the sharding of a transformer layer, or of another chain of multiplications, and
    compare it with Megatron TP, TP + SP, FSDP, HSDP, TP × FSDP and TP × DP.

    \b
      drbench chain --preset llama3-70b:mlp --machine h100x8
      drbench chain --preset llama3-8b:block --machine dgxh100 --mesh dp=2,tp=8
      drbench chain --preset gpt3:mlp --machine h100x8 --mesh dp=2,tp=4 --backward

    The search knows a lower bound on the time of each operation in every layout. It simulates the
    operations of the best chain until no other can be faster. If the effort is exhausted first,
    the first line has the optimality gap: how much faster an optimum could at most be.
    """
    from drbench.algorithms.chains.costs import Training
    from drbench.algorithms.chains.mesh import Mesh
    from drbench.algorithms.chains.presets import text_of
    from drbench.algorithms.chains.programs import EVERYTHING, LIBRARY
    from drbench.launch.cases.chains import Asked, dtype_of, fill_of, order_of
    from drbench.launch.cases.machine_models import find_machine
    from drbench.launch.host.files import add_records, check_csv
    from drbench.launch.models.chain_script import layout_rows, script_text
    from drbench.launch.models.chains import answer, operation_rows, records_of, run_order, summary
    from drbench.launch.models.predict import ranks_on

    if name is None:
        raise UsageError(
            "--preset is missing. Use MODEL:PART (drbench list chains), config.json:PART or a file."
        )
    asked = Asked(name, text_of(name, tokens), backward)
    chain = asked.chain()
    check_csv(csv_path)
    values["fill"] = None  # chosen if not given
    take_options(values)
    if as_json and placements:
        raise UsageError("--json and --placements each print alone. Leave one out.")
    grid = Mesh.read(mesh) if mesh else None
    if machine is None:
        raise UsageError(
            "--machine is missing: times come from a model. Use h100x8, or a file of drbench "
            "calibrate."
        )
    model = find_machine(machine)
    ranks = ranks_on(model, ranks or (grid.ranks if grid else None))
    if grid and grid.ranks != ranks:
        raise UsageError(f"--mesh {grid} has {grid.ranks} ranks, got -p {ranks}. Leave -p out.")
    dtype = dtype_of(dtype, model, run)
    if run and any(each.experts[0] for each in chain.multiplications):
        raise UnsupportedError(
            f"--run multiplies no experts (our implementation), got {chain.name}. Leave --run out: "
            "the chain is predicted."
        )
    fill, seed = fill_of(chain, values["fill"], dtype) if run else None, values["seed"]
    line = progress()
    text = answer(
        asked,
        model,
        grid or ranks,
        dtype,
        transport,
        training=Training(layers, micro_batches, recompute),
        fix=fix,
        limit=memory,
        effort_s=effort_s,
        programs=LIBRARY if run else EVERYTHING,
        tell=line,
    )
    line("")
    found = text.choice
    records, code, measured = records_of(text), 0, None
    if run:
        order = order_of(
            found.best,
            asked,
            model.name,
            fill,
            seed=seed,
            iters=iters,
            budget_s=budget,
            transport=transport,
        )
        measured = run_order(order)
        records.append(measured)
        code = EXIT_CODES[measured.status]
    add_records(csv_path, *records)
    if as_json:
        print(json.dumps(summary(text, measured)))
        return code
    if placements:
        print(script_text(text.row(placements).found))
        return code
    out, print_line = printing()
    for line in headlines(text, layers):
        print_line(line)
    rows = text.rows[found.best.name != "chosen" :]  # a scheme that is the best has its own row
    columns = "!sharding|!mesh|>!time|>!memory a rank|>of the best|>TFLOP/s a rank"
    out.print(table(columns, [_cells(row, text) for row in rows]))
    if text.within:
        print_line("= tied with the best: within the interval of its time")
    for names, why in refusals(found.refused).items():
        print_line(f"Not possible: {names}: {why}")
    if measured is not None:
        print_line(measured_text(text.rows[0], measured))
    if verbose:
        held = (f"{what} {bytes_text(count)}" for what, count in found.best.memory.items() if count)
        print_line(f"Memory of the best: {', '.join(held)}.")
        out.print(table("operation|~!layouts|~!how", operation_rows(found.best)))
        out.print(table("matrix|~!drbench|~!PyTorch|~!JAX", layout_rows(found.best)))
        bounded, simulated = found.counts
        ended = "it was interrupted" if found.interrupted else "the effort was spent"
        print_line(
            f"{chain.name}: {len(chain.multiplications)} multiplications, "
            f"{number(chain.flops / 1e12, 4)} TFLOP, {dtype}, {ranks} ranks of {model.name}: "
            f"{bounded} programs of operations bounded, {simulated} simulated"
            f"{'' if found.finished else ', until ' + ended}."
        )
    elif measured is None:
        print_line("Layouts: -v. PyTorch code: --placements.")
    return code


def progress():
    """A function that replaces the line of progress on a terminal's standard error."""
    if not sys.stderr.isatty():
        return lambda line: None
    return lambda line: click.echo(f"\r\033[K{line}", nl=False, err=True)


def headlines(text, layers: int) -> list[str]:
    """The fastest sharding with its time and its doubt, then what those that are tied with it
    save."""
    best, row = text.choice.best, text.rows[0]
    name = "a sharding found here (-v shows it)" if best.name == "chosen" else best.name
    time = between(best.time_s, row.low_s, row.high_s)
    if layers > 1:
        time += f" a layer, {time_text(layers * best.time_s)} for {layers}"
    rate = best.chain.flops / best.time_s / best.mesh.ranks
    share = 100 * rate / best.costs.machine.compute.peak_flops
    doubt = f"optimality gap at most {100 * text.choice.gap:.0f} % (--effort searches longer)"
    ties = [each for each in text.rows[1:] if each.name in text.within and each.name != best.name]
    word = "Best found" if not text.decided else "Tied for fastest" if ties else "Fastest"
    ends = [doubt] * (not text.decided)
    ends += [f"tied with {', '.join(each.name for each in ties)}"] * bool(ties)
    lines = [
        f"{word}: {name} on {best.mesh}, {time} predicted, {share:.0f} % of peak"
        f"{''.join(f'; {each}' for each in ends)}."
    ]
    saved = {
        each.name: f"{bytes_text(each.found.memory_bytes)} instead of "
        f"{bytes_text(best.memory_bytes)} a rank, {_percent(each.found.time_s / best.time_s)} time"
        for each in ties
        if each.found.memory_bytes < 0.9 * best.memory_bytes
    }
    lines += [f"{name} needs {less}." for name, less in list(saved.items())[:1]]
    if best.name == "chosen" and len(text.rows) > 1 and not ties:
        known = min(text.rows[1:], key=lambda each: each.found.time_s)
        longer = known.found.time_s / best.time_s
        lines.append(
            f"The fastest known scheme, {known.name}, takes {_percent(longer)[1:]} longer."
        )
    return lines


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f} %"


def refusals(refused: dict[str, str]) -> dict[str, str]:
    """The names of schemes that are not possible for one reason -> the reason.

    Examples
    --------
    >>> refusals({"FSDP": "too few rows", "HSDP": "too few rows", "TP": "8 heads"})
    {'FSDP, HSDP': 'too few rows', 'TP': '8 heads'}
    """
    return {
        ", ".join(name for name, other in refused.items() if other == why): why
        for why in dict.fromkeys(refused.values())
    }


def measured_text(chosen, measured) -> str:
    """The line with a measured time, its prediction and the verification.

    Examples
    --------
    >>> from types import SimpleNamespace as Any
    >>> from drbench.measure.record import Record
    >>> run = dict(mode="measured", status="ok", best_s=2.0, fill="integer")
    >>> measured = Record(**run, median_s=2.1, samples_s=[2.0, 2.2])
    >>> for low, high in ((1.8, 2.2), (1.8, 2.02), (None, None)):
    ...     chosen = Any(found=Any(time_s=2.0), low_s=low, high_s=high)
    ...     print(measured_text(chosen, measured).partition("; ")[0])
    measured 2.1 s (median of 2), in 1.8-2.2, predicted 2 s: +5.0 %
    measured 2.1 s (median of 2), not in 1.8-2.02, predicted 2 s: +5.0 %
    measured 2.1 s (median of 2), predicted 2 s: +5.0 %
    """
    if measured.status != "ok":
        return f"{measured.status}: {measured.reason}"
    exact = "exact" if measured.fill == "integer" else f"{measured.error:.2f} of the tolerance"
    text, predicted_s, median_s = "", chosen.found.time_s, measured.median_s
    if chosen.low_s is not None:
        verdict = "in" if chosen.low_s <= median_s <= chosen.high_s else "not in"
        text = f", {verdict} {span(chosen.low_s, chosen.high_s, median_s)}"
    return (
        f"measured {time_text(median_s)} (median of {len(measured.samples_s)}){text}, "
        f"predicted {time_text(predicted_s)}: {100 * (median_s / predicted_s - 1):+.1f} %; "
        f"every operation verified, {exact}."
    )


def _cells(row, text) -> tuple:
    found, best = row.found, text.choice.best
    flops = found.chain.flops / found.time_s / found.mesh.ranks
    tied = text.within and (row.name in (*text.within, best.name))
    return (
        "found here" if row.name == "chosen" else row.name,
        str(found.mesh),
        marked(between(found.time_s, row.low_s, row.high_s), "=" if tied else ""),
        bytes_text(found.memory_bytes),
        f"{found.time_s / best.time_s:.3f}",
        number(flops / 1e12, 4),
    )


@click.command("serve-chain", hidden=True)
@click.argument("path")
@click.argument("answer")
def serve_chain(path: str, answer: str):
    """Run the chain that another process requested, on the ranks of this process."""
    from drbench.launch.ranks.chain import serve_chain as serve

    return serve(path, answer)
