"""An algorithm describes its options once, in its file: every command knows them from there. How
such a file is run, swept and drawn, ``test_plugins.py`` tests."""

import json
import sys
from textwrap import dedent

TOY = '''"""A toy: the universal algorithm in slabs."""

from algorithms.registry import algorithm
from algorithms.universal.program import program as universal
from drbench.options import Option


@algorithm(
    "toy",
    options=(
        Option("slab", int, least=1, unit="elements", help="thickness.", tried=(4, 8)),
        Option("colour", ("red", "blue"), help="looks.", default_text="red"),
        Option("bright", bool, False, help="shines."),
    ),
)
def program(problem, rank, *, slab=None, colour="red", bright=False):
    """C stays; k in slabs."""
    return universal(problem, rank, stationary="C", chunk=slab)
'''
#: One process calls the commands one after another: exit code, output and errors of each.
CALLS = """
    import contextlib, io, json, sys
    sys.path.insert(0, ".")
    import toy
    from launch.commands.cli import main
    answers = []
    for words in json.loads(sys.argv[1]):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            with contextlib.redirect_stderr(io.StringIO()) as err:
                code = main(words.split())
        answers.append((code, out.getvalue(), err.getvalue()))
    print(json.dumps(answers))
"""


def test_options_are_listed_checked_planned_recorded_and_tuned(process, tmp_path):
    (tmp_path / "toy.py").write_text(TOY)
    toy = "-m 16 -n 16 -k 16 -p 2 --algorithm toy"
    simulate = f"simulate {toy} -o slab=4 -o colour=blue -o bright=true --machine pvc12 --json"
    lines = [
        *("list algorithms toy", f"plan {toy} -o slab=0", f"plan {toy} -o slap=4"),
        f"plan {toy.replace('toy', 'summa')} -o slab=4",
        *(f"plan {toy} --json", f"plan {toy} -o slab=4 --json", simulate),
        "tune -m 16 -n 16 -k 16 -p 2 --machine pvc12 --only toy --json",
    ]
    listed, thin, misspelt, strange, whole, slabs, simulated, tuned = process(
        sys.executable, "-c", dedent(CALLS), json.dumps(lines), timeout=60
    ).json()
    text = " ".join(listed[1].split())
    assert "-o slab=SIZE thickness." in text and "-o bright=true|false shines." in text
    assert "-o colour=red|blue looks. [default: red]" in text
    for (code, _, line), mentions in (
        (thin, ("-o slab: ", "at least 1")),
        (misspelt, ("Did you mean slab?",)),
        (strange, ("summa takes no slab",)),
    ):
        assert code == 2 and line.count("\n") == 1 and all(each in line for each in mentions)
    assert json.loads(whole[1])["steps"] < json.loads(slabs[1])["steps"]
    assert json.loads(simulated[1])["options"] == "slab=4;colour=blue;bright=true"
    places = json.loads(tuned[1])["ranking"]
    assert {place["record"]["options"] for place in places} == {"slab=4", "slab=8"}
