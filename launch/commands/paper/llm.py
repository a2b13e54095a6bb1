"""``drbench paper tune-llm`` and ``llm-study``: transformers on a torus of chips."""

import json
import re
from pathlib import Path

import click

from drbench.errors import UsageError
from launch.host.show import console, table
from launch.host.units import plural, seconds

from ..options import (
    arbitration_option,
    command,
    json_option,
    option,
    out_option,
    ranks_option,
    reading,
)


@command("tune-llm")
@option(
    "--model",
    "text",
    required=True,
    metavar="gpt3|megatron-nlg|HIDDENxHEADSxBLOCKS",
    help="The transformer, by name or as 12288x96x96.",
)
@ranks_option(default=256)
@option(
    "--machine",
    default="tpuv4",
    metavar="NAME",
    help="Machine model of a torus; its shape is what is looked for.",
)
@arbitration_option()
@option(
    "--batch",
    type=click.IntRange(1),
    help="Sequences. [default: half the chips, the paper's weak scaling]",
)
@option("--seq", type=click.IntRange(1), default=2048, help="Tokens of a sequence.")
@option(
    "--dataflow",
    "stays",
    type=click.Choice(["auto", "Y", "X", "W"]),
    default="auto",
    help="Matrix of each layer that stays: the largest, or always Y, X or W.",
)
@option(
    "--compare",
    is_flag=True,
    help="Simulate MeshSlice, Wang (also with a free loop count), Collective, Cannon and SUMMA, "
    "each at its best mesh.",
)
@json_option()
def tune_llm_command(text, ranks, machine, arbitration, batch, seq, stays, compare, as_json):
    """Choose dataflows, mesh shape and slice counts for the FC layers of a transformer (MeshSlice's
    LLM autotuner).

    \b
      drbench paper tune-llm --model gpt3 -p 256 --machine tpuv4
      drbench paper tune-llm --model megatron-nlg -p 64 --compare
    """
    from launch.cases.machine_models import find_torus
    from launch.studies.meshslice_study import ALGORITHMS, Study

    study = Study(
        "tune-llm",
        transformer(text),
        find_torus(machine, arbitration),
        ranks,
        batch or max(1, ranks // 2),
        stays=None if stays == "auto" else stays,
        seq=seq,
    )
    compared = list(filter(None, map(study.best, ALGORITHMS))) if compare else []
    if as_json:
        print(json.dumps(_as_json(study, compared)))
    else:
        _show(study, compared)


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


def _as_json(study, compared) -> dict:
    plan = study.plan
    return {
        "model": study.model.name,
        "chips": study.chips,
        "machine": study.base.sources["name"],
        "batch": study.batch,
        "seq": study.seq,
        "mesh": list(plan.mesh),
        "estimated_s": plan.seconds,
        "estimated_utilization_percent": study.utilization(plan.seconds),
        "layers": [
            {
                "layer": layer.name,
                "stays": stays,
                "transposed": products[0].flipped,
                "slices": slices,
                "products": [
                    {"product": p.name, "m": p.m, "n": p.n, "k": p.k, "dataflow": p.dataflow}
                    for p in products
                ],
            }
            for layer, slices, (stays, products) in zip(study.layers, plan.slices, study.dataflows)
        ],
        "meshes": [
            {**each, "utilization_percent": study.utilization(each["seconds"])}
            for each in plan.estimates
        ],
        "compared": [
            {
                "algorithm": found.algorithm,
                "mesh": list(found.mesh),
                "slices": list(found.slices),
                "simulated_s": found.seconds,
                "utilization_percent": study.utilization(found.seconds),
                "products_s": found.products,
            }
            for found in compared
        ],
    }


def _show(study, compared) -> None:
    out, plan, model = console(), study.plan, study.model
    share = lambda seconds: f"{study.utilization(seconds):.1f} %"
    out.print(
        f"{model.name}: hidden {model.hidden}, {model.layers} blocks; batch {study.batch} x "
        f"{study.seq} tokens on {study.chips} chips of {study.base.sources['name']}; times of one "
        "block's FC layers, forward and backward",
        markup=False,
    )
    rows = [
        (
            layer.name,
            stays + (", transposed" if products[0].flipped else ""),
            *(f"{p.dataflow} {p.m}x{p.n}x{p.k}" for p in products),
            str(slices),
        )
        for layer, slices, (stays, products) in zip(study.layers, plan.slices, study.dataflows)
    ]
    out.print(table("layer|stays|forward|backward data|backward weight|>S", rows))
    out.print(
        "mesh {}x{}: {} estimated, FLOP utilization {}".format(
            *plan.mesh, seconds(plan.seconds), share(plan.seconds)
        ),
        markup=False,
    )
    others = ", ".join(
        "{}x{} {}".format(*each["mesh"], share(each["seconds"])) for each in plan.estimates[1:6]
    )
    if others:
        out.print(f"next: {others}", markup=False)
    if compared:
        first = compared[0].seconds
        rows = [
            (
                found.algorithm,
                "{}x{}".format(*found.mesh),
                seconds(found.seconds),
                share(found.seconds),
                "" if found is compared[0] else f"{100 * (found.seconds / first - 1):.1f} %",
            )
            for found in compared
        ]
        columns = "simulated|best mesh|>time|>FLOP utilization|>MeshSlice is faster by"
        out.print(table(columns, rows))


@command("llm-study")
@click.argument("studies", nargs=-1, metavar="[STUDY]...")
@option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="gpt3 or megatron-nlg, or HIDDENxHEADSxBLOCKS; may be repeated. [default: both]",
)
@option(
    "--machine",
    default="tpuv4sim",
    metavar="NAME",
    help="Machine model of a torus, without its shape: tpuv4sim has the constants of the authors' "
    "simulation, tpuv4 their earlier ones.",
)
@arbitration_option()
@out_option(
    default="results/simulated/tpuv4-llm",
)
@option(
    "--claims/--no-claims",
    default=True,
    help="Say beside each number of the paper what the rows of the folder say.",
)
def llm_study_command(studies, models, machine, arbitration, out, claims):
    """Simulate the studies of MeshSlice's evaluation and write their rows: weak, strong, meshes,
    slices, dataflows, slice4x4, sensitivity.

    \b
      drbench paper llm-study                                 # all of them, minutes
      drbench paper llm-study weak --model gpt3 --out DIR
      drbench plot llm-weak results/simulated/tpuv4-llm/weak.csv
    """
    from launch.cases.machine_models import find_torus
    from launch.studies.meshslice_claims import show_claims
    from launch.studies.meshslice_study import STUDIES, check_studies, run_study
    from plots.select.llm_rows import read_rows, write_rows

    check_studies(studies)
    base = find_torus(machine, arbitration)
    chosen = [transformer(text) for text in models or ("gpt3", "megatron-nlg")]
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in studies or STUDIES:
            rows = run_study(name, chosen, base)
            write_rows(folder / f"{name}.csv", rows)
            click.echo(f"{folder / f'{name}.csv'}: {plural(len(rows), 'row')}")
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}. Use another --out.") from None
    if claims:
        files = [folder / f"{name}.csv" for name in STUDIES]
        with reading():
            show_claims(read_rows([path for path in files if path.exists()]))
    return 0
