"""Wrong values of users and attackers: one line that names the value and the remedy, and nothing is
started, computed or written."""

import shlex
from pathlib import Path

import pytest
from made_up import made_up, of_universal

import drbench.launch.tune.rank  # noqa: F401  (before anything in it is replaced)
from drbench.launch.cases.machine_models import file_of
from drbench.launch.host.kernels import KernelSpeed
from drbench.measure.record_file import append_csv

FILE = Path(__file__).with_name("large_layers.txt")
#: Words that several lines of the tables begin with.
SHORT = {
    "RUN": "run -p 2 -m 8 -n 8 -k 8",
    "PLAN": "plan -p 2 -m 8 -n 8 -k 8",
    "EXPLAIN": "explain -m 64 -n 48 -k 80 --save page.html",
    "SIMULATE": "simulate -m 64 -n 64 -k 64 --machine",
    "LAYERS": f"chain --preset {FILE} --machine h100x8 --mesh dp=2,tp=2 --effort 0",
    "NINES": 400 * "9",
}

#: A command line on two cores; what its answer mentions, and (after !) does not mention. The exit
#: code is 2, or the number before the line.
WRONG = """
nosuch                                        | nosuch | --help
rnu                                           | run
run                                           | -m
list everything                               | everything
list algos                                    | Did you mean
list libraries dtensr                         | Did you mean
list sweeps lowerin                           | Did you mean
list machines dgxh10                          | Did you mean
list machines nope                            | nope
list machines /no/such.toml                   | /no/such.toml
run --chunk 256                               | --chunk | given by -o
list --chunk 256                              | --chunk | !given by -o

run -p 2 -m 8 -n 8                            | -k
run -p 2 -m 0 -n 8 -k 8                       | -m | 0 | at least 1
run -p 2 -m 99999999999999999999 -n 8 -k 8    | -m | below 2**63 | 99999999999999999999
run -p 2 -m NINES -n 8 -k 8                   | -m
run -p two -m 8 -n 8 -k 8                     | -p | two
run -p 1000 -m 8 -n 8 -k 8                    | -p 1000 | 2 cores | --yes | drbench simulate
run -p 3 -m 8 -n 8 -k 8 --a block:2x2         | --a | block:2x2 | 4 ranks | got 3 | block:1x3
RUN extra                                     | extra
RUN --threads 99                              | --threads 99 | 2 cores
RUN --transport pigeon                        | pigeon | auto | direct | rma | throttled
RUN --transport throttled:1                   | throttled:1 | throttled:20,5
RUN --preset innr                             | innr | did you mean inner
RUN --a blok                                  | --a | blok | did you mean block
RUN --a block-cyclic                          | tiles:RxC@PxQ
RUN --a 'S(2)'                                | --a | dimension 2 | S(0) | S(1)
RUN --b row/c3                                | --b | row/c3 | 2 ranks | 1, 2
RUN --c tiles:0x4                             | --c | 0x4 | at least 1
RUN --a ''                                    | --a
RUN --b ''                                    | --b
RUN --c ''                                    | --c
RUN --preset ''                               | --preset
RUN --csv ''                                  | --csv
RUN --csv .                                   | --csv | directory
RUN --csv /proc/q.csv                         | --csv /proc/q.csv: | !Errno
RUN --stationary D                            | --stationary | D | auto
RUN --dtype float16                           | float16 | float32
RUN --itrs 3                                  | --itrs | --iters
RUN --timeout 0                               | --timeout | 0
RUN --json --brief                            | --brief | --json
RUN --machine h100x8                          | --machine h100x8 | peak | Leave it out
RUN -o fill=ones                              | ones | integer
RUN -o warmup=-1                              | -o warmup | -1
RUN -o pool=lots                              | -o pool | lots | 64MiB
RUN -o chunk=0                                | -o chunk | 0
PLAN --rank 2                                 | --rank | 2

3 RUN --algorithm cannon --mesh 1x2           | square | 1x2 | summa
run -p 4 -m 64 -n 64 -k 64 --algorithm cannon --mesh 3x3 | Use 2x2, or 9 ranks | !1x4
3 RUN --algorithm meshslice -o slices=60 -o block=5 | 60 slices | at most
3 RUN --algorithm collective -o dataflow=OS --mesh 1x2 --a row | A as block:1x2 | got row
RUN --algorithm summa -o slices=2             | summa takes no slices | panel
RUN --algorithm summa --mesh 2x3              | mesh 2x3 needs 6 ranks | 1x2
RUN --algorithm wang -o dataflow=AG           | -o dataflow | one of auto, OS, LS, RS
PLAN --algorithm ag_gemm -o experts=4         | ag_gemm takes no experts

EXPLAIN -k '' -p 2                            | -k
explain -m 8 -n 8 -p 2 --save page.html       | -k is missing
EXPLAIN                                       | -p is missing | --machine
EXPLAIN -p 2 --transport rma                  | needs a machine model
EXPLAIN -p 2 --compare '--save x.html'        | --save applies to the whole page
EXPLAIN -p 2 --compare "--a 'row"             | Close the quotes
EXPLAIN -p 2 --save x.docx                    | .html | '.docx'
explain --timeline none.json --save page.html | No such file or directory | drbench run
explain --timeline none.json --transpose a --save page.html | takes no --transpose | Leave it out

simulate -m 8 -n 8 -k 8 -p 2                  | --machine is missing
simulate --machine pvc12                      | '-m'
SIMULATE pvc12,links.xe.speed=1               | no constant 'speed'
SIMULATE pvc12,fence_s=abc                    | fence_s must be a number from 0 to 1e+09 | 'abc'
SIMULATE pvc12,links.xe.bandwidth_bytes_per_s=abc | or inf, got 'abc' | !'str'
SIMULATE pvc12,compute.pack_s=1               | pack_s must be a list of 3 | got 1.0
SIMULATE pvc12 -p 13                          | has 12 devices
SIMULATE pvc12 --threads 3                    | --threads | pvc12 is not
SIMULATE pvc12 --algorithm dtensor            | dtensor is a library
SIMULATE pvc12 -p 2 --csv no/x.csv            | --csv no/x.csv
SIMULATE pvc12 -p 2 --csv notes.toml          | --csv | notes.toml
tune -m 64 -n 64 -k 64 -p 2 --machine pvc12 --csv no/x.csv | --csv no/x.csv
tune -m 64 -n 64 -k 64 -p 2 --machine pvc12 --csv notes.toml | --csv | notes.toml
calibrate -p 1000 --save x.toml               | -p 1000
calibrate --save /no/such/x.toml              | no folder
calibrate --save notes.toml                   | notes.toml is not TOML

bandwidth -p 2 --sizes 4                      | at least 8
bandwidth -p 2 --sizes 4KiB:64MiB:4           | FIRST:LAST:*FACTOR
bandwidth -p 2 --only send                    | 'send' is none of
bandwidth -p 2 --csv notes.toml               | holds no bandwidths
bandwidth -p 1                                | 1

LAYERS -p 8                                   | --mesh dp=2,tp=2 has 4 ranks | -p 8
LAYERS --mesh dp=2,dp=4                       | --mesh needs different names
3 LAYERS --mesh pp=2,tp=4                     | no pipeline stages | bubble | data, tensor
3 LAYERS --mesh cp=2,tp=4                     | no ring attention | keys and values
LAYERS --fix W1=row --fix W1=column           | W1 has row already
LAYERS --fix X=row --fix Y2=column            | Y2 shares the layout of X, row
LAYERS --fix Z=row                            | X, W1, Y1, W2, Y2
LAYERS --fix W1                               | NAME=LAYOUT
LAYERS --fix 'W1=S(0)'                        | for each of dp, tp
LAYERS --dtype bf8                            | bf8
LAYERS --dtype int8                           | int8
6 LAYERS --memory 1KiB                        | Use more ranks, fewer tokens or --layers
LAYERS --preset llama3-70b:mpl                | Did you mean llama3-70b:mlp
LAYERS --iters 3                              | --iters belongs to --run
LAYERS --budget 3                             | --budget belongs to --run
LAYERS -o seed=3                              | -o belongs to --run
3 chain --preset mixtral-8x7b:experts -m 64 --machine h100x8 -p 2 --run --effort 0 | experts

sweep mlp3                                    | mlp3 | mlp1
sweep mlp -o iters                            | 'iters' | KEY=VALUE
sweep mlp --simulate --machine h100x8 --peak 3 | --peak | Leave one
sweep scaling -p 8 -o ranks=1,2               | -p 8 | 1, 2 | Leave -p out
sweep mlp --csv /no/such/x.csv                | --csv /no/such
sweep mlp1 -p 2 --scale 1/192 --out /dev/null/results | --out /dev/null/results
sweep mlp --scale 0                           | --scale | 0
sweep mlp --scale 16                          | --scale | write 1/16 | or 16/1
sweep mlp --scale 1e3                         | --scale | write 1/1000
sweep mlp1 --dry-run --scale 16.0             | --scale | write 1/16
sweep libraries --scale -1/2                  | --scale | '-1/2' is not a scale | 1/16
sweep mlp --scale x                           | --scale | 'x' is not a scale
artifact --sensitivity --quick                | --sensitivity | --quick
artifact --sensitivity --out x                | --sensitivity | --out

plot                                          | NAME is missing
plot pie old.csv                              | no figure is called 'pie'
plot mlp2 old.csv                             | no case of mlp2 in 1 record
plot mlp1 old.csv --quantity peak             | no percent_of_peak
plot libraries old.csv --quantity peak        | no use for --quantity
plot volume old.csv --shape 4x4               | MxNxK
plot volume old.csv --shape 4x4x4             | no case of shape 4x4x4 | 64x256x64
plot volume old.csv --save fig.bmp           | '.bmp'
plot old.csv absent.csv                       | does not exist
plot volume empty                             | holds no CSV file
plot best binary.csv                          | binary.csv has another header
plot best wide.csv                            | wide.csv has another header | !column_number_7
plot mlp1 infinite.csv                        | line 2: | percent_of_gemm_only | inf | !Axis
plot mlp1 infinite.csv --save /nonexistent/x | --save | no folder
plot timeline no-trace.json --save x.pdf          | no trace
report empty                                  | holds no CSV file
report old.csv --save no/x.html                   | no folder no
report . --save x.pdf                             | .html | '.pdf'
compare old.csv --csv no/x.csv                | --csv no/x.csv
compare old.csv --tolerance 0.2               | --tolerance belongs to NEW
compare old.csv absent.csv                    | does not exist
compare old.csv notes.toml                    | another header
compare old.csv old.csv --tolerance -1        | not in the range
compare infinite.csv infinite.csv --csv no/x  | --csv no/x
"""
#: Lines of the second block of a sweep file: the answer names the block and the key.
SLIPS = """
algorithm = "sumna"                           | cases 2: algorithm: | 'sumna' | Did you mean summa?
stationary = ["D"]                            | cases 2: stationary: | 'D' | auto, A, B, C
algorithm = "summa"; stationary = "A"         | cases 2: summa takes no stationary | panel
b = "rwo"                                     | cases 2: b: | 'rwo' | did you mean row
partitions = [["row", "rwo", "row"]]          | cases 2: partitions: | 'rwo'
colour = 3                                    | cases 2: colour: there is no such key
"""


def rows(table):
    """(the line, what its answer mentions, what not) for each line of a table."""
    found = []
    for row in filter(None, table.splitlines()):
        line, *mentioned = (cell.strip() for cell in row.split(" | "))
        there = [text for text in mentioned if text[0] != "!"]
        absent = [text[1:] for text in mentioned if text[0] == "!"]
        found.append(pytest.param(line, there, absent, id=line))
    return found


def words_of(line):
    """The exit code of a line and its words."""
    code, _, rest = line.partition(" ")
    code, line = (int(code), rest) if code.isdigit() else (2, line)
    for name, meaning in SHORT.items():
        line = line.replace(name, meaning)
    return code, shlex.split(line)


def contents(folder):
    """What the files of a folder contain; empty ones are as good as none."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    return {path: path.read_bytes() for path in files}


@pytest.fixture(autouse=True)
def desk(tmp_path, monkeypatch):
    """A folder of files that are passed to commands by mistake, on a machine of two cores. No rank
    is started, no processor is measured, and nothing is predicted."""
    fail = lambda *_, **__: pytest.fail("work was done")
    for name in (
        *(
            f"drbench.launch.commands.{name}.run_ranks"
            for name in ("run", "bandwidth", "predict.model")
        ),
        *("drbench.launch.sweeps.sweep.supervised", "drbench.launch.sweeps.starter.Ranks.__init__"),
        *("drbench.launch.models.predict._simulated", "drbench.launch.tune.rank.tune"),
    ):
        monkeypatch.setattr(name, fail)
    monkeypatch.setattr(
        "drbench.launch.sweeps.estimate.measure_kernels", lambda: KernelSpeed("Test", 50e9)
    )
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    append_csv(tmp_path / "old.csv", of_universal())
    append_csv(tmp_path / "infinite.csv", made_up(percent_of_gemm_only=50.0))
    header, row = (tmp_path / "infinite.csv").read_text().splitlines()
    cells = row.split(",")
    cells[header.split(",").index("percent_of_gemm_only")] = "inf"
    for name, text in {
        "infinite.csv": f"{header}\n{','.join(cells)}\n",
        "wide.csv": ",".join(f"column_number_{n}" for n in range(300)) + "\n",
        "notes.toml": "these are notes\n",
        "no-trace.json": '{"traceEvents": 3}',
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("line, mentioned, unmentioned", rows(WRONG))
def test_a_wrong_value_is_refused_in_one_line(run_cli, desk, line, mentioned, unmentioned):
    code, words = words_of(line)
    before = contents(desk)
    answer = run_cli(*words).refusal(code)
    assert all(text in answer for text in mentioned), answer
    assert not any(text in answer for text in unmentioned), answer
    assert contents(desk) == before


@pytest.mark.parametrize("line, mentioned, unmentioned", rows(SLIPS))
def test_a_mistake_in_a_sweep_file_is_found_before_anything_starts(
    run_cli, desk, line, mentioned, unmentioned
):
    block = "[[cases]]\nm = 64\nn = 64\nk = 64\n"
    wrong = line.replace("; ", "\n")
    (desk / "mine.toml").write_text(f'name = "mine"\n{block}\n{block}{wrong}\n')
    for more in (["--dry-run"], ["--out", "out"]):
        answer = run_cli("sweep", "mine.toml", "-p", 2, *more).refusal()
        assert "mine.toml: " in answer and all(text in answer for text in mentioned), answer
        assert not (desk / "out").exists()


def test_a_machine_with_a_peak_is_of_use_for_a_run_once(run_cli, monkeypatch, desk):
    """Or for a library on GPUs, whose times it may describe."""
    monkeypatch.setattr("drbench.launch.commands.run.run_ranks", lambda *_: 0)
    known = file_of("h100x8").read_text()
    (desk / "mine.toml").write_text(f'{known}[peak.float32]\ncore_gflops = 9\nsource = "given"\n')
    run = "run -p 2 -m 8 -n 8 -k 8 --machine".split()
    assert run_cli(*run, "mine.toml").returncode == 0
    assert "times" in run_cli(*run, "mine.toml", "--peak", 9).refusal()
    on_gpus = [*run, "h100x8", *"--algorithm dtensor -o device=cuda".split()]
    assert "times" not in run_cli(*on_gpus).stderr


@pytest.mark.mpi
@pytest.mark.parametrize(
    "ranks, line, mentioned, unmentioned",
    [
        (ranks, *row.values)
        for ranks, row in zip(
            (2, 3, 2),
            rows("""
run -n 8 -k 8                                 | -m
run -m 8 -n 8 -k 8 --a block:2x2              | --a | block:2x2 | 4 ranks | got 3 | block:3x1
run -m 1 -n 1 -k 16777216                     | -o fill=integer | 2**24 | uniform
"""),
            strict=True,
        )
    ],
)
def test_under_mpiexec_the_line_is_printed_once_and_all_ranks_exit_alike(
    under_mpiexec, mpich, ranks, line, mentioned, unmentioned
):
    """The last one only ranks can find."""
    ended = under_mpiexec(ranks, *line.split())
    answer = ended.refusal()
    assert all(text in answer for text in mentioned), answer
    assert ended.codes == (2,) * ranks


@pytest.mark.mpi
def test_what_only_ranks_can_find_is_printed_once_where_they_are_started(drbench, mpich):
    line = drbench(*"run -p 2 -m 1 -n 1 -k 16777216".split()).refusal()
    assert "-o fill" in line and "uniform" in line
