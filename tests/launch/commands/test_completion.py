"""A shell completes commands, options and their values, and prints nothing else."""

import sys

import pytest
from click.shell_completion import ShellComplete

import drbench.launch.papers  # noqa: F401  (its figures)
from drbench.launch.commands.cli import cli
from drbench.launch.commands.completion import NAMES
from drbench.launch.commands.listing import KINDS
from drbench.plots.registry import figures


def completed(line: str) -> list[str]:
    """The completions of the last word of a line."""
    *before, last = line.split(" ")
    shell = ShellComplete(cli, {"obj": ()}, "drbench", "_DRBENCH_COMPLETE")
    return [item.value for item in shell.get_completions(before, last) if item.type == "plain"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_that_is_completed_is_listed(kind):
    listed = " ".join(" ".join(row) for row in KINDS[kind].rows())
    assert [*NAMES] == [*KINDS]
    assert [*NAMES[kind]()] and all(name in listed for name in NAMES[kind]())


def test_figures_are_completed_by_the_names_of_the_registry():
    assert {*NAMES["figures"]()} == {*figures()}, "write the names into plots/summaries.py"


@pytest.mark.parametrize(
    "line, some",
    [
        ("", "run tune explain list"),
        ("tu", "tune"),
        ("run --", "--preset --machine --alpha"),
        ("run --preset me", "megatron megatron-2"),
        ("run --a ", "row column block traditional"),
        ("run --algorithm ", "universal cannon scalapack"),
        ("run --stationary ", "auto A B C"),
        ("run --transport ", "auto direct rma"),
        ("run --transpose ", "a b ab"),
        ("run --backend ", "numpy cupy"),
        ("tune --machine h100", "h100x8 h100x8measured"),
        ("tune --iters 3 --mea", "--measure"),  # refused until it is completed
        ("tune --only universal,sum", "universal,summa universal,summa2.5d"),
        ("run -o ", "sums= chunk= seed= check="),
        ("run -o sums=", "sums=auto sums=accumulate sums=push"),
        ("run -o chunk=a", "chunk=auto"),
        ("run -o check=", "check=true check=false"),
        ("run --algorithm gemm_rs -o variant=", "variant=write variant=ring"),
        ("chain --preset llama3-8b", "llama3-8b:mlp"),
        ("sweep ml", "mlp mlp1"),
        ("sweep --launcher sl", "slurm"),
        ("plot over", "overlap-flux overlap-td"),
        ("list ", "algorithms machines"),
        ("list machines tpu", "tpuv4 tpuv4sim"),
    ],
)
def test_a_line_is_completed(line, some):
    assert set(some.split()) <= set(completed(line))


@pytest.mark.parametrize("line", ["advise --", "nothing ", "list nothing x", "run -o nothing="])
def test_a_line_that_is_wrong_is_completed_without_an_error(line, capsys):
    completed(line)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("line", ["drbench run --algorithm ", "drbench plot ", "drbench run -o "])
def test_completing_loads_nothing_that_draws_or_starts_mpi(process, line):
    code = (
        "import atexit, sys; from drbench.__main__ import main; atexit.register(lambda: "
        "print(*{'matplotlib', 'pandas', 'mpi4py', 'scipy'} & {*sys.modules}, file=sys.stderr)); "
        "main()"
    )
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    asked["_DRBENCH_COMPLETE"] = "bash_complete"
    ended = process(sys.executable, "-c", code, env=asked)
    assert ended.stdout.startswith("plain,") and ended.stderr.strip() == ""


def test_bash_completes_with_the_script_that_it_is_given(process, tmp_path):
    command = tmp_path / "drbench"
    command.write_text(
        f"#!{sys.executable}\nfrom drbench.__main__ import main\nmain()\n", encoding="utf-8"
    )
    command.chmod(0o755)
    code = (
        f'PATH={tmp_path}:$PATH; eval "$(_DRBENCH_COMPLETE=bash_source drbench)"; '
        'COMP_WORDS=(drbench tune --machine pv); COMP_CWORD=3; $(complete -p drbench | sed "s/.*-F '
        '//;s/ .*//") drbench pv tune; echo "${COMPREPLY[@]}"'
    )
    ended = process("bash", "-c", code)
    assert (ended.stdout, ended.stderr) == ("pvc12\n", "")
