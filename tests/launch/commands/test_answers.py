"""Lines that a command ends with: how to resume, and why it stopped."""

import os
import sys
from textwrap import dedent

import pytest
from made_up import made_up
from starting import ROOT

from drbench.errors import UsageError
from drbench.launch.sweeps.plan import SweepRequest
from drbench.launch.sweeps.store import Store


def test_the_resume_command_keeps_all_options_except_those_that_apply_once():
    more = {"stream": True, "yes": True, "fresh": True, "override": (("m", "1,2"),)}
    request = SweepRequest("mlp1", 4, "out", scale="1/16", **more)
    assert request.arguments() == [
        *"drbench sweep mlp1 -p 4 --out=out --scale=1/16 -o m=1,2".split(),
        *("--stream", "--yes"),
    ]


def test_rows_of_another_number_of_ranks_are_not_moved_away(tmp_path):
    store = Store(tmp_path)
    store.open(2, ["a" * 16])
    store.add(made_up(status="failed", case="a" * 16, ranks=2))
    with pytest.raises(UsageError, match="1 row.* on 2 ranks, these on 4.*--out.*fresh"):
        Store(tmp_path).open(4, ["b" * 16])


@pytest.mark.parametrize("end", ["", "atexit.register(os.kill, os.getpid(), signal.SIGINT)"])
def test_an_interrupt_during_the_start_is_one_line_and_further_interrupts_change_nothing(
    process, end
):
    program = (
        "import atexit, os, signal, drbench.__main__ as entry, drbench.launch.commands.cli as cli\n"
        f"cli.main = lambda: os.kill(os.getpid(), signal.SIGINT)\n{end}\nentry.main()"
    )
    ended = process(sys.executable, "-c", program)
    assert (ended.returncode, ended.stderr) == (130, "drbench: interrupted\n")


def test_the_code_of_a_handled_interrupt_is_that_of_the_command(process, tmp_path, monkeypatch):
    """Also where it came while Python executed a text."""
    program = """
    import os, signal, drbench.__main__ as entry, drbench.launch.commands.cli as cli

    def run():
        try:
            exec("os.kill(os.getpid(), signal.SIGINT)")
        except KeyboardInterrupt:
            return 0

    cli.main = run
    entry.main()
    """
    (tmp_path / "handled.py").write_text(dedent(program))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(tmp_path)]))
    assert process(sys.executable, "-m", "handled").returncode == 0
