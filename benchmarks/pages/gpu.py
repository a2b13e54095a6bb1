"""Tables of GPUs: results of ``launch/gpu_check.sh``."""

import json

from pandas import concat

from benchmarks.gpu.page import MODEL, NODE, lines_of, name_of
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.cases.sweep_file import load_sweep
from drbench.launch.models.predict import predict, with_interval
from drbench.texts import between

from .records import RESULTS, records
from .tables import say_yes, table


def _gpu(machine: str) -> dict:
    """The report of launch/gpu_check.sh."""
    path = RESULTS / "measured" / machine / "gpu_check.json"
    return json.loads(path.read_text(encoding="utf-8"))


#: Folders of verified cases, with their programs.
_RUNS = {
    "exact": "universal, layouts",
    "algorithms": "every algorithm",
    "overlap": "fused overlap, variants and tiles",
}


def gpu_runs(machine: str) -> str:
    """Numbers of exact cases, by the ranks that shared a GPU, and the settings of signals and
    collectives."""
    folder = RESULTS / "measured" / machine
    lines = []
    for ranks in sorted({path.name.partition("-p")[2] for path in folder.glob("*-p*")}):
        cells, ran = [], []
        for kind in _RUNS:
            if (folder / f"{kind}-p{ranks}").is_dir():
                cases = records(f"measured/{machine}/{kind}-p{ranks}")
                ran.append(cases[(cases.status == "ok") & (cases.error == 0)])
                cells.append(f"{len(ran[-1])} of {(cases.status != 'unsupported').sum()}")
            else:
                cells.append("–")
        exact = concat(ran)
        signals = {*exact.progress} - {"poll"}
        lines.append((ranks, *cells, ", ".join(signals), ", ".join({*exact.collectives})))
    header = [f"{run}: exact" for run in _RUNS.values()]
    return table(["ranks", *header, "signals", "collectives"], lines)


#: Words of the report, which is a committed record, and those of the pages.
_WORDS = {
    "products of": "local GEMMs of",
    "mlp": "MLP-",
    " h=": ", h = ",
    " m=": ", m = ",
    "memory, reading two and writing one": "speed of a kernel that reads two arrays, writes one",
}


def gpu_checks(machine: str, *without: str) -> str:
    """Speeds on one GPU against their bars, without lines whose name has a word of ``without``."""
    lines = []
    for check in _gpu(machine)["checks"]:
        name = check["what"]
        if check["value"].startswith("exit") or any(word in name for word in without):
            continue
        for old, new in _WORDS.items():
            name = name.replace(old, new)
        lines.append((name, check["value"], check["bar"].replace(">=", "≥"), say_yes(check["ok"])))
    return table(["what", "measured", "bar", "met"], lines)


def gpu_overlap(machine: str, *blocks: int) -> str:
    """A GEMM of 8192³ at the same time as accumulates, by the thread blocks that add (0: no
    limit), with the bar where there is one."""
    report = _gpu(machine)
    bars = {tuple(check["what"].split(" ", 3)[::3]): check for check in report["checks"]}
    lines = []
    for line in lines_of(report["stages"], kind="overlap", what="accumulates"):
        count = line["blocks"] or 0
        key = line["arithmetic"], f"accumulates, {count} blocks"
        bar = bars.get(key, {"bar": "", "ok": None})
        cells = (
            line["arithmetic"],
            count or "no limit",
            f"{line['gb_per_s']:.0f}",
            f"{line['both_ms'] / line['product_alone_ms']:.2f}",
            f"{line['hidden']:.2f}",
            bar["bar"].replace(">=", "≥").removesuffix(" hidden"),
            say_yes(bar["ok"]),
        )
        lines += [cells] * (count in blocks)
    header = ["arithmetic", "thread blocks that add", "GB/s of accumulates alone"]
    header += ["time of both / GEMM alone", "share of the shorter that is hidden"]
    return table([*header, "bar", "met"], lines)


#: Arithmetic whose predictions are listed.
_EXPECTED = ("fp32", "tf32", "bf16")


#: Of two programs on the same layouts the page has the one that ends like this.
_FASTER = ("S-C", "ring", "write")


def gpu_expected() -> str:
    """Predictions of the largest problems of the sweep of a node, by arithmetic: on layouts by
    column, and of fused overlap."""
    machine, ranks = find_machine(MODEL), 8
    lines: dict[str, dict[str, str]] = {}
    for case in load_sweep(NODE, ranks, overrides=[("m", "8192")], simulate=True).cases:
        if case.preset in (None, "column"):
            row = with_interval(predict(case, machine, ranks), case, machine, ranks)
            layer, _, arithmetic, program = name_of(row).split(", ")
            time = between(row.best_s, row.median_low_s, row.median_high_s)
            if program.endswith(_FASTER):
                cells = lines.setdefault(f"{layer}, {program}", {})
                cells[arithmetic] = f"{time}; {row.percent_of_gemm_only:.0f} %"
    rows = (
        (name, *(cells.get(arithmetic, "–") for arithmetic in _EXPECTED))
        for name, cells in lines.items()
    )
    return table(["program", *(arithmetic.replace("tf", "TF") for arithmetic in _EXPECTED)], rows)
