"""``drbench llm-study``: the rows behind MeshSlice's figures, simulated."""

from __future__ import annotations

from pathlib import Path

import click

from drbench.errors import UsageError

__all__ = ["llm_study_command"]


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
    show_default=True,
    metavar="NAME",
    help="Machine model of a torus, without its shape.",
)
@click.option(
    "--out",
    default="results/simulated/tpuv4-llm",
    show_default=True,
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Folder of the rows, a CSV file a study; those of the studies asked for are written anew.",
)
@click.option(
    "--claims/--no-claims",
    default=True,
    show_default=True,
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

    from .tune_llm import transformer

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
        show_claims(read_rows([folder]))
    return 0
