"""``drbench chain``: choose the layouts of a sequence of multiplications together."""

import json
import sys

import click

from drbench.errors import EXIT_CODES, UnsupportedError, UsageError
from drbench.launch.commands.completion import names_of
from drbench.launch.commands.options import (
    BYTES,
    PICTURE,
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
    reading,
    save_option,
    take_options,
    verbose_option,
)


@command(
    "chain",
    needs=dict.fromkeys(("-o", "--iters", "--budget"), "--run")
    | dict.fromkeys(("--micro-batches", "--recompute", "--zero", "--gradients"), "--backward")
    | {"--context": "--decode"},
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
    "--sequence",
    type=SIZE,
    metavar="SIZE",
    group="Problem",
    help="Tokens of a sequence. [default: those of the model, at most 8Ki]",
)
@option(
    "--decode",
    is_flag=True,
    group="Problem",
    help="One new token of each sequence: -m counts sequences.",
)
@option(
    "--context",
    type=SIZE,
    default=4096,
    metavar="SIZE",
    group="Problem",
    help="With --decode: tokens of each sequence in the cache of keys and values.",
)
@option(
    "--attention",
    type=click.Choice(["fused", "unfused"]),
    default="fused",
    group="Problem",
    help="Whether a fused kernel computes attention where the machine model has one, or scores are "
    "written to memory.",
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
    "--programs",
    type=click.Choice(["nccl", "torch", "te", "all"]),
    default="all",
    group="Layout",
    help="What the framework has: collectives alone (nccl), also asynchronous tensor parallelism "
    "as PyTorch (torch) and Transformer Engine (te) have it, or all programs of drbench.",
)
@option(
    "--memory",
    type=BYTES,
    metavar="BYTES",
    group="Layout",
    help="Most bytes of a training step per rank. [default: the device's memory]",
)
@option(
    "--fit",
    is_flag=True,
    group="Training",
    help="Print the memory of each known scheme on the fewest ranks where it fits, and nothing "
    "else.",
)
@option(
    "--layers",
    type=click.IntRange(1),
    default=None,
    metavar="N",
    group="Training",
    help="Layers of the model, for its memory and time; one is predicted or run. [default: 1; of "
    "MODEL:model those of the model]",
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
    is_flag=False,
    flag_value="full",
    default="none",
    type=click.Choice(["none", "attention", "selective", "full"]),
    group="Training",
    help="What the backward pass computes again: the scores of unfused attention, every second "
    "GEMM and all functions (selective), or all but the input of each layer (full).",
)
@option(
    "--zero",
    type=click.IntRange(0, 2),
    default=0,
    metavar="STAGE",
    group="Training",
    help="Ranks with copies of a weight share its optimizer state (1), and its gradient (2). "
    "FSDP is stage 3.",
)
@option(
    "--gradients",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    default=None,
    group="Training",
    help="Element type in which gradients of weights are stored and reduced. [default: that of the "
    "weights]",
)
@option(
    "--effort",
    "effort_s",
    type=click.FloatRange(0),
    default=20.0,
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
@save_option(
    type=PICTURE, help="Draw where the time of each sharding goes: .svg, .png, .pdf, or .txt."
)
@json_option()
@verbose_option(help="Print the layouts and programs of every operation of the best.")
def chain_command(
    name, tokens, sequence, decode, context, attention, backward, dtype, machine, ranks, mesh,
    fix, programs, memory, fit, layers, micro_batches, recompute, zero, gradients, effort_s, run,
    iters, budget, transport, csv_path, placements, save, as_json, verbose, **values,
):  # fmt: skip
    """Choose the sharding of a transformer layer, or of another chain of multiplications, and
    compare it with Megatron TP, TP + SP, FSDP, HSDP, TP × FSDP, TP × DP and others.

    \b
      drbench chain --preset llama3-70b:mlp --machine h100x8
      drbench chain --preset llama3-8b:block --machine dgxh100 --mesh dp=2,tp=8
      drbench chain --preset gpt3:mlp --machine h100x8 --mesh dp=2,tp=4 --backward

    The search knows a lower bound on the time of each operation in every layout. It simulates the
    operations of the best chain until no other can be faster. If the effort is exhausted first,
    the first line has the optimality gap: how much faster an optimum could at most be.
    """
    from drbench.chains.answer import answer, find_fits, read_request, read_training, records_of
    from drbench.chains.model.programs import LIBRARY, PROGRAMS
    from drbench.chains.order import fill_of, order_of, run_order
    from drbench.launch.host.files import add_records, check_csv, check_output

    if name is None:
        raise UsageError(
            "--preset is missing. Use MODEL:PART (drbench list chains), config.json:PART or a file."
        )
    check_csv(csv_path)
    check_output("--save", save)
    values["fill"] = None  # chosen if not given
    take_options(values)
    if as_json and placements:
        raise UsageError("--json and --placements each print alone. Leave one out.")
    if machine is None:
        raise UsageError(
            "--machine is missing: times come from a model. Use h100x8, or a file of drbench "
            "calibrate."
        )
    if decode and (backward or run):
        raise UsageError(
            "--decode is predicted, and has no backward pass. Leave out "
            f"{'--backward' if backward else '--run'}."
        )
    if fit and (ranks or mesh or run):
        raise UsageError("--fit finds the number of ranks. Leave -p, --mesh and --run out.")
    if fit and (fix or csv_path or placements or save):
        raise UsageError(
            "--fit prints memory alone. Leave --fix, --csv, --placements and --save out."
        )
    length = sequence, context if decode else None
    asked, model, where, dtype = read_request(
        name, machine, ranks or int(fit), mesh, tokens, backward, dtype, run, *length
    )
    chain = asked.chain()
    training = read_training(
        asked.whole, layers, micro_batches, recompute, zero, gradients, attention
    )
    if fit:
        from drbench.chains.show import show_fits

        fits, refused = find_fits(asked, model, dtype, transport, training, memory)
        if as_json:
            rows = [{"mesh": str(x.mesh), "name": x.name, "memory": x.memory} for x in fits]
            print(json.dumps({"fits": rows, "refused": refused}))
        else:
            tokens = chain.matrices["X"].rows
            show_fits(fits, refused, memory or model.memory_bytes, tokens, printing()[0])
        return 0 if fits else EXIT_CODES["out_of_memory"]
    if run and any(matmul.experts[0] for matmul in chain.multiplications):
        raise UnsupportedError(
            f"--run multiplies no experts (our implementation), got {chain.name}. Leave --run out: "
            "the chain is predicted."
        )
    fill, seed = fill_of(chain, values["fill"], dtype) if run else None, values["seed"]
    progress = progress_line()
    choice = answer(
        asked,
        model,
        where,
        dtype,
        transport,
        training,
        fix,
        LIBRARY if run else PROGRAMS[programs],
        memory,
        effort_s,
        progress,
    )
    progress("")
    records, code, measured = records_of(choice), 0, None
    if run:
        how = {"seed": seed, "iters": iters, "budget_s": budget, "transport": transport}
        measured = run_order(order_of(choice.search.best, asked, model.name, fill, **how))
        records.append(measured)
        code = EXIT_CODES[measured.status]
    add_records(csv_path, *records)
    if as_json:
        print(json.dumps(choice.to_dict() | {"measured": measured and measured.to_json_dict()}))
    elif placements:
        print(choice.script(placements))
    else:
        from drbench.chains.show import show_choice

        out, print_line = printing()
        show_choice(choice, out, measured, verbose)
        if measured is None and not verbose:
            print_line("Layouts: -v. PyTorch code: --placements.")
    if save:
        from drbench.plots.registry import draw

        with reading("Use a folder that can be written."):
            drawn = draw("operations", records, save)
        for path in drawn.paths:
            click.echo(f"figure: {path}", err=as_json or bool(placements))
    return code


def progress_line():
    """A function that replaces the line of progress on a terminal's standard error."""
    if not sys.stderr.isatty():
        return lambda line: None
    return lambda line: click.echo(f"\r\033[K{line}", nl=False, err=True)


@click.command("serve-chain", hidden=True)
@click.argument("path")
@click.argument("answer")
def serve_chain(path: str, answer: str):
    """Run the chain that another process requested, on the ranks of this process."""
    from drbench.chains.ranks.run import serve_chain as serve

    return serve(path, answer)
