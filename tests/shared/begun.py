"""A command until its work begins: its words, options and refusals."""

import sys

from launch.commands.cli import main

#: Functions in which the work of a command begins.
_WORK = (
    "launch.commands.run.run_ranks",
    "launch.commands.run.run_program",
    "launch.commands.sweep.run_sweep",
    "launch.sweeps.dry_run.dry_run",
    "launch.sweeps.slurm.write_jobs",
    "launch.models.chains.answer",
    "launch.models.explained.explained",
    "launch.models.tune.tune",
)
#: Functions that inspect this machine: its cores, its libraries, its folders.
_HERE = (
    *(f"launch.commands.{name}.refuse_too_many" for name in ("run", "sweep", "predict.tune")),
    *(f"launch.commands.{name}.without_weaker_pins" for name in ("run", "sweep")),
    *(f"launch.commands.{name}.check_output" for name in ("run", "sweep", "predict.explain")),
    *(f"launch.commands.{name}.check_csv" for name in ("run", "predict.model", "predict.tune")),
    "launch.commands.run.present",
)


def begun(words, monkeypatch) -> int:
    """The exit code of a command that ends where its work would begin; a plan and a prediction are
    made. What is refused is on standard error."""

    def work(*_, **__):
        raise SystemExit(0)

    for name in _WORK:
        monkeypatch.setattr(name, work)
    for name in _HERE:
        monkeypatch.setattr(name, lambda *_, **__: None)
    for name in ("run", "sweep"):
        monkeypatch.setattr(f"launch.commands.{name}.default_ranks", lambda *_: 2)
    monkeypatch.setattr(sys, "argv", ["drbench", *words])
    try:
        return main(list(words))
    except SystemExit as end:
        return end.code
