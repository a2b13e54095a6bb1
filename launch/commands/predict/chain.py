"""``drbench chain``: choose the layouts of a sequence of multiplications together."""

import json
import sys

import click

from drbench.errors import EXIT_CODES, UnsupportedError, UsageError
from drbench.texts import between, bytes_text, number, span, time_text
from launch.host.show import table

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
    help="A part of a transformer: of a published one, as llama3-70b:mlp (drbench list chains), or "
    "of a file of Hugging Face, as ./config.json:mlp. Or a text file with a chain.",
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
    help="element type of all matrices.",
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
    help="Layers that a rank stores; one is run.",
)
@option(
    "--micro-batches",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    group="Training",
    help="Passes for which gradients are added up before data-parallel ranks reduce them.",
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
    "verify every operation, and compare its time with the prediction. --machine: a file of this "
    "machine.",
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
    "the chosen, or of WHO, as 'TP x FSDP'.",
)
@json_option()
def chain_command(
    name, tokens, backward, dtype, machine, ranks, mesh, fix, memory, layers, micro_batches,
    recompute, effort_s, run, iters, budget, transport, csv_path, placements,
    as_json, **values,
):  # fmt: skip
    """Choose the layouts of a sequence of multiplications together, and compare its prediction with
    Megatron TP, TP + SP, FSDP, HSDP, TP × FSDP and TP × DP.

    \b
      drbench chain --preset llama3-70b:mlp --machine h100x8
      drbench chain --preset llama3-8b:block --machine dgxh100 --mesh dp=2,tp=8
      drbench chain --preset gpt3:mlp --machine h100x8 --mesh dp=2,tp=4 --backward

    Each operation has a lower bound of its time in every layout. Dynamic programming searches the
    layouts, and the operations of the best are simulated until no other can be faster. If the
    effort is spent before, the first line shows how much faster another could be.
    """
    from algorithms.chains.costs import Training
    from algorithms.chains.mesh import Mesh
    from algorithms.chains.presets import text_of
    from algorithms.chains.programs import EVERYTHING, LIBRARY
    from launch.cases.chains import Asked, dtype_of, fill_of, order_of
    from launch.cases.machine_models import find_machine
    from launch.host.files import add_records, check_csv
    from launch.models.chain_script import layout_rows, script_text
    from launch.models.chains import answer, operation_rows, records_of, run_order, summary
    from launch.models.predict import ranks_on

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
        how = {"seed": seed, "iters": iters, "budget_s": budget, "transport": transport}
        order = order_of(found.best, asked, model.name, fill, **how)
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
    print_line(headline(text))
    print_line(
        f"{chain.name}: {len(chain.multiplications)} multiplications, "
        f"{number(chain.flops / 1e12, 4)} TFLOP, {dtype}, {ranks} ranks of {model.name}, "
        f"mesh {found.best.mesh}"
        f"{f', 1 of {layers} layers' * (layers > 1)}"
        f"{f', 1 of {micro_batches} micro-batches' * (micro_batches > 1)}"
        f"{', with recomputation' * recompute}"
    )
    out.print(table("operation|~layouts|~how", operation_rows(found.best)))
    out.print(table("matrix|~drbench|~PyTorch|~JAX", layout_rows(found.best)))
    columns = "who|mesh|>time|>of chosen|>TFLOP/s a rank|>memory a rank"
    out.print(table(columns, [_cells(row, found.best) for row in text.rows]))
    print_line(f"Memory of the chosen: {memory_text(found.best)}.")
    for who, why in found.refused.items():
        print_line(f"not {who}: {why}")
    if found.best.name != "chosen":
        print_line(f"No chain that was found is faster than {found.best.name}.")
    if text.within:
        print_line(f"Within the interval of the chosen: {', '.join(text.within)}.")
    bounded, simulated = found.counts
    ended = "it was interrupted" if found.interrupted else "the effort was spent"
    print_line(
        f"{bounded} programs of operations bounded, {simulated} simulated"
        f"{'' if found.finished else ', until ' + ended}."
    )
    if measured is not None:
        print_line(measured_text(text.rows[0], measured))
    return code


def progress():
    """A function that replaces the line of progress on a terminal's standard error."""
    if not sys.stderr.isatty():
        return lambda line: None
    return lambda line: click.echo(f"\r\033[K{line}", nl=False, err=True)


def memory_text(found) -> str:
    """What the memory of a rank holds."""
    return ", ".join(f"{k} {bytes_text(v)}" for k, v in found.memory.items() if v)


def headline(text) -> str:
    """The line with the time of the choice, and how much faster another chain could be by the
    bounds.

    Examples
    --------
    >>> from types import SimpleNamespace as Any
    >>> choice = Any(best=Any(time_s=2e-3), least_s=1e-3, gap=0.5)
    >>> print(headline(Any(choice=choice, decided=False)))
    best found: 2 ms, may be 50.0 % off: by the bounds no chain takes less than 1 ms
    >>> print(headline(Any(choice=choice, decided=True)))
    chosen: 2 ms; by the bounds no chain is more than 50.0 % faster
    """
    found = text.choice
    time, gap = time_text(found.best.time_s), f"{100 * found.gap:.1f} %"
    if text.decided:
        return f"chosen: {time}; by the bounds no chain is more than {gap} faster"
    return (
        f"best found: {time}, may be {gap} off: by the bounds no chain takes less than "
        f"{time_text(found.least_s)}"
    )


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


def _cells(row, best) -> tuple:
    found = row.found
    flops = found.chain.flops / found.time_s / found.mesh.ranks
    return (
        row.name,
        str(found.mesh),
        between(found.time_s, row.low_s, row.high_s),
        f"{found.time_s / best.time_s:.3f}",
        number(flops / 1e12, 4),
        bytes_text(found.memory_bytes),
    )


@click.command("serve-chain", hidden=True)
@click.argument("path")
@click.argument("answer")
def serve_chain(path: str, answer: str):
    """Run the chain that another process requested, on the ranks of this process."""
    from launch.ranks.chain import serve_chain as serve

    return serve(path, answer)
