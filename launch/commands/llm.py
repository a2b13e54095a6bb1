"""``drbench tune-llm`` and ``llm-study``: transformers on a torus of chips."""

import json
import re
from pathlib import Path

import click

from drbench.errors import UsageError
from launch.host.show import console, table
from launch.host.units import seconds

from .options import json_option, reading


@click.command("tune-llm")
@click.option(
    "--model",
    "text",
    required=True,
    metavar="gpt3|megatron-nlg|HIDDENxHEADSxBLOCKS",
    help="The transformer, by name or as 12288x96x96.",
)
@click.option("--chips", type=click.IntRange(1), default=256, help="Chips of the torus.")
@click.option(
    "--machine",
    default="tpuv4",
    metavar="NAME",
    help="Machine model of a torus; its shape is what is looked for.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    help="Sequences. [default: chips / 2, the paper's weak scaling]",
)
@click.option("--seq", type=click.IntRange(1), default=2048, help="Tokens of a sequence.")
@click.option(
    "--dataflow",
    "stays",
    type=click.Choice(["auto", "Y", "X", "W"]),
    default="auto",
    help="Matrix of each layer that stays: the largest, or always Y, X or W.",
)
@click.option(
    "--compare",
    is_flag=True,
    help="Simulate MeshSlice, Wang (also with a free loop count), Collective, Cannon and SUMMA, "
    "each at its best mesh.",
)
@json_option("Print what was found as one JSON object.")
def tune_llm_command(text, chips, machine, batch, seq, stays, compare, as_json):
    """Choose dataflows, mesh shape and slice counts for the FC layers of a transformer (MeshSlice's
    LLM autotuner).

    \b
      drbench tune-llm --model gpt3 --chips 256 --machine tpuv4
      drbench tune-llm --model megatron-nlg --chips 64 --compare
    """
    from launch.cases.machine_models import find_machine, find_torus
    from launch.models.llm import choose_dataflows, layers_of, tune_llm
    from launch.studies.meshslice_compare import ALGORITHMS, best_mesh

    model, batch = transformer(text), batch or max(1, chips // 2)
    find_torus(machine)
    machines: dict = {}

    def machine_of(mesh):
        if mesh not in machines:
            machines[mesh] = find_machine(f"{machine}-{mesh[0]}x{mesh[1]}")
        return machines[mesh]

    dataflows = choose_dataflows(layers_of(model, batch, seq), None if stays == "auto" else stays)
    plan = tune_llm(dataflows, chips, machine_of((1, chips)))
    flops = sum(product.flops for _, _, products in dataflows for product in products)
    peak = chips * machine_of((1, chips)).compute.peak_flops
    compared = (
        [
            found
            for name in ALGORITHMS
            if (found := best_mesh(name, dataflows, plan, machine_of)) is not None
        ]
        if compare
        else []
    )
    if as_json:
        print(
            json.dumps(
                _as_json(model, chips, batch, seq, machine, dataflows, plan, compared, flops / peak)
            )
        )
    else:
        _show(model, chips, batch, seq, machine, dataflows, plan, compared, flops / peak)


def transformer(text: str):
    """A model by name or sizes.

    Examples
    --------
    >>> transformer("gpt3").hidden, transformer("1024x16x24").heads
    (12288, 16)
    """
    from launch.models.llm import MODELS, Transformer

    if text in MODELS:
        return MODELS[text]
    sizes = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", text)
    if not sizes:
        raise UsageError(
            f"no model {text!r}; there are {', '.join(MODELS)}, or give hidden size, heads and "
            "blocks as 12288x96x96."
        )
    return Transformer(text, *map(int, sizes.groups()))


def _as_json(model, chips, batch, seq, machine, dataflows, plan, compared, least) -> dict:
    layers = layers_text(model, batch, seq)
    return {
        "model": model.name,
        "chips": chips,
        "machine": machine,
        "batch": batch,
        "seq": seq,
        "mesh": list(plan.mesh),
        "estimated_s": plan.seconds,
        "estimated_utilization_percent": 100 * least / plan.seconds,
        "layers": [
            {
                "layer": name,
                "stays": stays,
                "transposed": transposed,
                "slices": slices,
                "products": [
                    {"product": p.name, "m": p.m, "n": p.n, "k": p.k, "dataflow": p.dataflow}
                    for p in products
                ],
            }
            for name, slices, (stays, transposed, products) in zip(layers, plan.slices, dataflows)
        ],
        "meshes": [
            {**each, "utilization_percent": 100 * least / each["seconds"]}
            for each in plan.estimates
        ],
        "compared": [
            {
                "algorithm": found.algorithm,
                "mesh": list(found.mesh),
                "slices": list(found.slices),
                "simulated_s": found.seconds,
                "utilization_percent": 100 * least / found.seconds,
                "products_s": found.products,
            }
            for found in compared
        ],
    }


def layers_text(model, batch: int, seq: int) -> list[str]:
    """Names of the layers."""
    from launch.models.llm import layers_of

    return [layer.name for layer in layers_of(model, batch, seq)]


def _show(model, chips, batch, seq, machine, dataflows, plan, compared, least) -> None:
    out = console()
    out.print(
        f"{model.name}: hidden {model.hidden}, {model.layers} blocks; batch {batch} x {seq} "
        f"tokens on {chips} chips of {machine}; times of one block's FC "
        "layers, forward and backward",
        markup=False,
    )
    rows = [
        (
            name,
            stays + (", transposed" if transposed else ""),
            *(f"{p.dataflow} {p.m}x{p.n}x{p.k}" for p in products),
            str(slices),
        )
        for name, slices, (stays, transposed, products) in zip(
            layers_text(model, batch, seq), plan.slices, dataflows
        )
    ]
    out.print(table("layer|stays|forward|backward data|backward weight|>S", rows))
    out.print(
        f"mesh {plan.mesh[0]}x{plan.mesh[1]}: {seconds(plan.seconds)} estimated, FLOP "
        f"utilization {100 * least / plan.seconds:.1f} %",
        markup=False,
    )
    others = ", ".join(
        f"{each['mesh'][0]}x{each['mesh'][1]} {100 * least / each['seconds']:.1f} %"
        for each in plan.estimates[1:6]
    )
    if others:
        out.print(f"next: {others}", markup=False)
    if compared:
        first = compared[0].seconds
        rows = [
            (
                found.algorithm,
                f"{found.mesh[0]}x{found.mesh[1]}",
                seconds(found.seconds),
                f"{100 * least / found.seconds:.1f} %",
                "" if found is compared[0] else f"{100 * (found.seconds / first - 1):.1f} %",
            )
            for found in compared
        ]
        columns = "simulated|best mesh|>time|>FLOP utilization|>MeshSlice is faster by"
        out.print(table(columns, rows))


@click.command("llm-study")
@click.argument("studies", nargs=-1, metavar="[STUDY]...")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="gpt3 or megatron-nlg, or HIDDENxHEADSxBLOCKS; may be repeated. [default: both]",
)
@click.option(
    "--machine",
    default="tpuv4",
    metavar="NAME",
    help="Machine model of a torus, without its shape.",
)
@click.option(
    "--out",
    default="results/simulated/tpuv4-llm",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Folder of the rows, a CSV file a study; those of the studies asked for are written anew.",
)
@click.option(
    "--claims/--no-claims",
    default=True,
    help="Say beside each number of the paper what the rows of the folder say.",
)
def llm_study_command(studies, models, machine, out, claims):
    """Simulate the studies of MeshSlice's evaluation and write their rows: weak, strong, meshes,
    slices, dataflows, slice4x4, sensitivity.

    \b
      drbench llm-study                                 # all of them, minutes
      drbench llm-study weak --model gpt3 --out DIR
      drbench plot llm-weak results/simulated/tpuv4-llm/weak.csv
    """
    from launch.cases.machine_models import find_torus
    from launch.studies.meshslice_claims import show_claims
    from launch.studies.meshslice_study import STUDIES, run_study
    from plots.select.llm_rows import read_rows, write_rows

    for name in studies:
        if name not in STUDIES:
            raise UsageError(
                f"no study {name!r}; there are {', '.join(STUDIES)}. Choose one, or name none "
                "for all."
            )
    base, chosen = (
        find_torus(machine),
        [transformer(text) for text in models or ("gpt3", "megatron-nlg")],
    )
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in studies or STUDIES:
            rows = run_study(name, chosen, base)
            write_rows(folder / f"{name}.csv", rows)
            click.echo(f"{folder / f'{name}.csv'}: {len(rows)} rows")
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}. Use another --out.") from None
    if claims:
        files = [folder / f"{name}.csv" for name in STUDIES]
        with reading():
            show_claims(read_rows([path for path in files if path.exists()]))
    return 0
