"""A command until its work begins: its words, options and refusals."""

import sys

from drbench.launch.commands.cli import main

#: Functions in which the work of a command begins.
_WORK = (
    "drbench.launch.commands.run.run_ranks",
    "drbench.launch.commands.run.run_program",
    "drbench.launch.commands.sweep.run_sweep",
    "drbench.launch.sweeps.dry_run.dry_run",
    "drbench.launch.sweeps.slurm.write_jobs",
    "drbench.chains.answer.answer",
    "drbench.launch.models.explained.explained",
    "drbench.launch.tune.rank.tune",
)
#: Functions that inspect this machine: its cores, its libraries, its folders.
_HERE = (
    *(
        f"drbench.launch.commands.{name}.refuse_too_many"
        for name in ("run", "sweep", "predict.tune")
    ),
    *(f"drbench.launch.commands.{name}.without_weaker_pins" for name in ("run", "sweep")),
    *(
        f"drbench.launch.commands.{name}.check_output"
        for name in ("run", "sweep", "predict.explain")
    ),
    *(
        f"drbench.launch.commands.{name}.check_csv"
        for name in ("run", "predict.model", "predict.tune")
    ),
    "drbench.launch.commands.run.require_library",
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
        monkeypatch.setattr(f"drbench.launch.commands.{name}.default_ranks", lambda *_: 2)
    monkeypatch.setattr(sys, "argv", ["drbench", *words])
    try:
        return main(list(words))
    except SystemExit as end:
        return end.code
