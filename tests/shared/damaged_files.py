"""Damaged records, configs and machine models, and the commands that read them.

Valid files are damaged at random: cells, keys, lines, bytes, encodings. The commands run in this
process. A try fails if its exit code is not documented, if an error is not one line (next to that
of a torn row), or if it takes too long.
"""

import io
import json
import random
import re
import shutil
import signal
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import drbench.launch.papers
from drbench.launch.cases.sweep_values import shipped
from drbench.launch.commands.cli import main as drbench
from drbench.measure.record import Record
from drbench.measure.record_file import append_csv
from drbench.plots.registry import kinds

LIMIT_S = 20
#: Cells of records, and constants of machine models.
CELLS = [
    *("", "0", "1", "-1", "2", "0.5", "0,5", "1e308", "1e-320", "1e400", "nan", "inf", "9" * 5000),
    *("true", "ok", "x;y", "=1+1", "\x1b[31m", "\0", "$\\frac{", "<b>", "x" * 20_000, "µ\u202e"),
    *("measured", "simulated", "timeout", "summa", "block", "1048576", str(2**63), "[]", "{}", '"'),
]
VALUES = [None, True, 0, 1, -1, 7, 2**70, 1e308, "", "silu", "x" * 9999, [], [1, 8], {"a": 1}]
KEYS = "num_experts kv_lora_rank head_dim layer_types n_shared_experts moe_k text_config".split()
CONFIG = """{"model_type": "llama", "hidden_act": "silu", "hidden_size": 512, "vocab_size": 99,
"num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 64,
"intermediate_size": 1024, "num_experts": 8, "num_experts_per_tok": 2}"""
SWEEP = 'name = "tiny"\n[[cases]]\nshape = "64x64x64"\npreset = ["block", "row"]\n'


def damage_bytes(rng: random.Random, data: bytes) -> bytes:
    """Damage lines, bytes or the encoding."""
    lines, at = data.splitlines(keepends=True) or [b""], rng.randrange(len(data) + 1)
    line = rng.choice(lines)
    ways = [
        lambda: data[:at],
        lambda: data[:at] + rng.randbytes(rng.randrange(9)) + data[at + rng.randrange(30) :],
        lambda: b"".join(rng.sample(lines, len(lines))),
        lambda: data + data,
        lambda: data.replace(line, rng.choice([b"", line * 3, line.rstrip(b"\n")]), 1),
        lambda: data.decode("utf-8", "replace").encode(rng.choice(["utf-16", "utf-8-sig"])),
        lambda: data.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\n", b",\n"])),
        lambda: data.replace(b",", rng.choice([b";", b"\t"])),
        lambda: data.replace(b".", b","),
        lambda: rng.randbytes(rng.randrange(200)),
    ]
    return rng.choice(ways)()


def damage_cell(rng: random.Random, data: bytes) -> bytes:
    """Replace a cell, or a value or table of a machine model."""
    text = data.decode("utf-8", "surrogateescape")
    found = [*re.finditer(r"(?<=,)[^,\n]*|(?<== )[^#\n]*|^\[.*\]$", text, re.M)]
    start, end = rng.choice(found).span() if found else (0, 0)
    cell = rng.choice(CELLS)
    cell = json.dumps(cell) if rng.random() < 0.2 else cell
    return (text[:start] + cell + text[end:]).encode("utf-8", "surrogateescape")


def damage_key(rng: random.Random, data: bytes) -> bytes:
    """Change a key of a config, or add one."""
    try:
        config = json.loads(data)
        config[rng.choice([*config, *KEYS])] = rng.choice([*VALUES, config.copy()])
    except (ValueError, TypeError, AttributeError):
        return data
    return json.dumps(config).encode()


def choose_command(rng: random.Random, folder: Path) -> tuple[str, list[str]]:
    """The name of a file in the folder, and a command that reads the file."""
    chain = f"c.json:{rng.choice(['block', 'mlp', 'experts', 'query'])}"
    choices = {
        "b.csv": ["compare a.csv b.csv", "compare b.csv", "report b.csv --save x.html"]
        + [f"plot {rng.choice(kinds())} b.csv --save x.svg"],
        "sweep/records.csv": [RESUME],
        "s.toml": [RESUME],
        "m.toml": ["simulate -m 64 -n 64 -k 64 -p 4 --machine m.toml"],
        "c.json": [f"list chains {chain}"]
        + [f"chain --preset {chain} -p 4 --effort 0 --machine dgxh100"],
    }
    name = rng.choices([*choices], [8, 2, 1, 4, 4])[0]
    words = rng.choice(choices[name]).split()
    return name, [f"{folder}/{each}" if re.search("[.]|^sweep/$", each) else each for each in words]


RESUME = "sweep s.toml --simulate --machine pvc12 -p 2 --out sweep/"


def run(words: list[str]) -> tuple[object, str]:
    """The exit code of a command, or what it raised, and its standard error."""

    def late(*_):
        raise TimeoutError(f"more than {LIMIT_S} s")

    errors = io.StringIO()
    signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT_S)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(errors):
            return drbench(words), errors.getvalue()
    except BaseException as error:
        return repr(error), errors.getvalue()
    finally:
        signal.alarm(0)


def fault_of(code: object, errors: str) -> str:
    """What is wrong with the end of a command; empty if nothing is."""
    lines = [line for line in errors.splitlines() if "is left out" not in line]
    # the list of cases exits with the largest code of a case
    if code in (0, 1, 3, 4, 5, 6)[: None if not lines else 2] and "Traceback" not in errors:
        return ""
    right = code in (2, 3, 6) and len(lines) == 1 and lines[0].startswith("drbench: ")
    return "" if right else f"{code}: {errors[-900:]}"


def prepare(folder: Path) -> None:
    """Write the valid files."""
    (folder / "s.toml").write_text(SWEEP)
    (folder / "c.json").write_text(CONFIG)
    shutil.copy(shipped("machines")["pvc12"], folder / "m.toml")
    case = {"mode": "measured", "algorithm": "universal", "stationary": "C", "dtype": "float32"}
    case |= {"m": 64, "n": 64, "k": 64, "ranks": 4, **dict.fromkeys("abc", "block")}
    case |= {"put_bytes": 8, "percent_of_gemm_only": 90.0, "gflops": 1.5}
    case |= {"timestamp": "2026-11-29T08:48:29+00:00"}
    for name, slower in (("a.csv", 1.0), ("b.csv", 1.1)):
        for time_s in (0.5, 0.75):
            times = [time_s, time_s * slower, time_s * 1.2]
            case |= {"best_s": time_s, "median_s": times[1], "samples_s": times}
            append_csv(folder / name, Record(**case, status="ok", chunk=int(100 * time_s)))
        append_csv(folder / name, Record(mode="measured", status="failed", reason="it ended"))
    words = RESUME.replace("s.toml", f"{folder}/s.toml").replace("sweep/", f"{folder}/sweep")
    assert run(words.split()) == (0, "")


def attack(count: int, seed: int = 0, keep: Path | None = None) -> list[str]:
    """The faults of that many tries."""
    faults = []
    with tempfile.TemporaryDirectory() as valid:
        prepare(Path(valid))
        for number in range(seed, seed + count):
            rng = random.Random(number)
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                shutil.copytree(valid, folder, dirs_exist_ok=True)
                name, words = choose_command(rng, folder)
                ways = [damage_cell, damage_cell, damage_bytes]
                ways += [damage_key] * 6 * name.endswith("json")
                for _ in range(rng.choice([1, 1, 2, 3])):
                    data = (folder / name).read_bytes()
                    (folder / name).write_bytes(rng.choice(ways)(rng, data))
                if fault := fault_of(*run(words)):
                    faults.append(f"{number}: {' '.join(words)}: {fault}")
                    print(faults[-1], flush=True)
                    if keep:
                        shutil.copytree(folder, keep / str(number), dirs_exist_ok=True)
    return faults
