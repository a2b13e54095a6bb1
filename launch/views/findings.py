"""The findings of ``drbench doctor`` on GPUs, and the table of their pairs."""

from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from drbench.mappings import grouped
from drbench.measure.settings import SETTINGS
from drbench.texts import bytes_text, plural

#: Variables by which Slurm shows a rank some of the node's GPUs.
_SHOWN_BY_SLURM = ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND")
_ALL_GPUS = (
    "show every rank all GPUs of the node: --gpus-per-node, no --gpu-bind or --gpus-per-task"
)
#: Compute modes of CUDA other than the default, by their numbers.
_MODES = {1: "exclusive", 2: "prohibited", 3: "exclusive process"}
#: A pair is slow below this share of the median; memory is in use below this share of it.
_SLOW, _FREE = 0.5, 0.9
#: Several streams pay if they are faster by this factor.
_PAYS = 1.1
#: Most pairs that a finding lists.
_LISTED = 6


class Finding(NamedTuple):
    """One line of the report: ``ok``, ``advice`` (works, could be better), ``missing`` (does not
    work) or ``unknown`` (cannot be read)."""

    subject: str
    level: str
    text: str
    remedy: str = ""


def make_finding(fine, subject: str, text: str, otherwise: str, remedy: str = "", level="advice"):
    """A finding: ``text`` if the subject is fine, else ``otherwise`` and its remedy."""
    return Finding(subject, "ok", text) if fine else Finding(subject, level, otherwise, remedy)


def setting_findings(values: Mapping[str, str]) -> Iterator[Finding]:
    """The findings on the settings of a machine (:func:`~drbench.measure.settings.read_settings`).

    Examples
    --------
    >>> for finding in setting_findings({"governor": "powersave", "boost": "0", "virtual": "yes"}):
    ...     print(*finding, sep=" | ")  # doctest: +ELLIPSIS
    clock | advice | governor powersave: the clock rises ... | sudo cpupower frequency-set -g ...
    boost | ok | boost 0 |...
    settings | unknown | hardware threads, NUMA balancing, huge pages: not to be read ...
    """
    unknown = dict.fromkeys(setting.subject for setting in SETTINGS.values())
    for name, setting in SETTINGS.items():
        if value := values.get(name):
            unknown.pop(setting.subject, None)
            text, fine = f"{name} {value}", set(value.split()) <= set(setting.good)
            yield make_finding(
                fine, setting.subject, text, f"{text}: {setting.why}", setting.remedy
            )
    if unknown:
        where = "on the host" + " of this virtual machine" * ("virtual" in values)
        text = f"{', '.join(unknown)}: not to be read here"
        yield Finding("settings", "unknown", text, f"look {where}, or ask who runs it")


def gpu_findings(seen: dict, environ: Mapping[str, str], ranks: int) -> Iterator[Finding]:
    """The findings on the GPUs that one process sees.

    Parameters
    ----------
    seen : dict
        What :mod:`drbench.launch.ranks.gpu_report` prints.
    environ : mapping
        Variables of the environment.
    ranks : int
        Number of ranks, if a launcher has started this process, else 1.
    """
    devices = seen["devices"]
    model = lambda gpu: f"{gpu['name']}, {bytes_text(gpu['bytes'])}, {gpu['architecture']}"
    same = _by(devices, model).items()
    names = "; ".join(f"{_numbers(those)}: {what}" for what, those in same)
    cuda, driver = (f"{n // 1000}.{n % 1000 // 10}" for n in (seen["runtime"], seen["driver"]))
    text = f"{names}; CuPy {seen['cupy']}, {seen['cublas']}, CUDA {cuda}, driver for CUDA {driver}"
    name = "CUDA_VISIBLE_DEVICES"
    visible = f"{name}={environ[name]}" if name in environ else ""
    yield Finding("GPUs", "ok", f"{text}; {visible}" if visible else text)
    limits = [f"{name}={environ[name]}" for name in _SHOWN_BY_SLURM if name in environ]
    if ranks > 1 and len(devices) == 1 and visible:
        limits.append(visible)
    if limits:
        text = f"{' '.join(limits)}: a rank may see its own GPU only, and not reach the others"
        yield Finding("GPUs of a rank", "advice", text, _ALL_GPUS)
    for mode, those in _by(devices, lambda gpu: _MODES.get(gpu["compute_mode"])).items():
        text = f"GPU {_numbers(those)}: {mode}. Ranks cannot share a GPU, nor use one in use"
        yield Finding("compute mode", "advice", text, "nvidia-smi -c DEFAULT (as administrator)")
    yield make_finding(
        not seen["no_waits"],
        "signals between GPUs",
        "streams wait for flags in memory with one rank per GPU; else hosts signal",
        f"hosts signal instead of streams: {seen['no_waits']}",
        "programs of fused overlap run, but slower",
    )
    yield make_finding(
        seen["nccl"],
        "NCCL",
        seen["nccl"],
        seen["no_nccl"],
        "pip install nvidia-nccl-cu12 (or -cu13); without it collectives are staged",
    )
    staged = "" if seen["gpu_aware"] else ": staged through pinned host memory"
    yield Finding("MPI on GPU memory", "ok", seen["mpi"] + staged)


def _numbers(gpus: list[dict]) -> str:
    """Numbers of GPUs, short.

    Examples
    --------
    >>> [_numbers([{"index": n} for n in numbers]) for numbers in ([0, 1, 2, 3], [2], [0, 2])]
    ['0-3', '2', '0, 2']
    """
    indices = [gpu["index"] for gpu in gpus]
    if len(indices) > 1 and indices == list(range(indices[0], indices[-1] + 1)):
        return f"{indices[0]}-{indices[-1]}"
    return ", ".join(map(str, indices))


def pair_findings(probe: dict) -> Iterator[Finding]:
    """The findings on pairs of GPUs.

    Parameters
    ----------
    probe : dict
        The line of :mod:`drbench.launch.ranks.gpu_pairs`.
    """
    if "failed" in probe:
        again = "see mpiexec -n 2 python -m mpi4py -m drbench.launch.ranks.gpu_pairs"
        yield Finding("GPU pairs", "missing", probe["failed"], again)
        return
    pairs, gpus, together = probe["pairs"], probe["gpus"], probe.get("together", {"wrong": []})
    reached = [pair for pair in pairs if pair["reached"]]
    least = min(gpus, key=lambda gpu: gpu["free"] / gpu["bytes"])
    free = bytes_text(least["free"])
    yield make_finding(
        least["free"] >= _FREE * least["bytes"],
        "GPU memory",
        f"at least {free} free on each GPU",
        f"GPU {least['index']} has {free} of {bytes_text(least['bytes'])} free",
        "nvidia-smi shows which processes use it",
    )
    yield from _wrong(probe, pairs, together)
    yield from _out_of_reach(probe, pairs)
    if _shared(probe):
        text = f"{plural(len(gpus), 'rank')} share GPUs: times mean nothing, and no flags are tried"
        if reached and not any(pair["wrong"] for pair in pairs):
            text += ". Copies and atomic adds are right"
        yield Finding("GPU pairs", "ok", text)
        return
    slow = [pair for pair in reached if _is_slow(pair, reached)]
    if slow:
        links = "nvidia-smi topo -m shows the links; leave a GPU out with CUDA_VISIBLE_DEVICES"
        text = f"less than half as fast as the median pair: {_named(slow, probe)}"
        yield Finding("slow GPU pairs", "advice", text, links)
    if reached:
        text = f"{len(reached)} of {len(pairs)} pairs: copies {_range(reached, 'copy')} GB/s"
        if adds := _range(reached, "add"):
            text += f", atomic adds {adds} GB/s"
        if flags := _range(reached, "flag_us", ".1f"):
            text += f", a flag and its answer {flags} us"
        yield Finding("GPU pairs", "ok", text)
        widths = reached[0]["rows"]
        rows = ", ".join(bytes_text(int(width)) for width in widths)
        rates = [median(pair["rows"][width] for pair in reached) for width in widths]
        text = f"rows of {rows}: {', '.join(f'{rate:.0f}' for rate in rates)} GB/s"
        yield Finding("strided copies", "ok", text)
    if "from_all" in together:
        on_one, several = together["from_all"]
        text = f"copies {on_one:.0f} GB/s, on a stream for each {several:.0f}"
        text += f": use -o copy_streams={len(gpus) - 1}" * (several > _PAYS * on_one)
        yield Finding("one GPU from all others", "ok", text)


def _wrong(probe: dict, pairs: list[dict], together: dict) -> Iterator[Finding]:
    """Wrong copies, lost additions, flags that never arrived."""
    errors = "do not use these GPUs together; nvidia-smi nvlink -e shows errors of links"
    host = "--transport rma sends all transfers through the host"
    for subject, adds, text, remedy in (
        ("GPU copies", False, "wrong bytes", errors),
        ("GPU atomics", True, "updates are lost", host),
    ):
        wrong = lambda of: [what for what in of["wrong"] if ("add" in what) == adds]
        those = [pair for pair in pairs if wrong(pair)]
        if what := sorted({what_else for of in [*those, together] for what_else in wrong(of)}):
            text += f" ({', '.join(what)}): {_named(those, probe)}"
            yield Finding(subject, "missing", text, remedy)
    for why, those in _by(pairs, lambda pair: pair.get("no_flag")).items():
        text = f"{why}: {_named(those, probe)}"
        text += ". A stream still waits, so no more pairs were tried" * probe["stuck"]
        refuse = "run no programs of fused overlap on these GPUs, and report GPUs and driver"
        yield Finding("GPU flags", "missing", text, refuse)


def _out_of_reach(probe: dict, pairs: list[dict]) -> Iterator[Finding]:
    """Pairs whose transfers go through the host."""
    for why, those in _by(pairs, lambda pair: pair["why"]).items():
        text = f"{why}, so transfers go through the host: {_named(those, probe)}"
        remedy = "nvidia-smi topo -p2p r shows which GPUs reach each other"
        if why.startswith("IPC"):
            remedy = f"{_ALL_GPUS}; containers: --ipc=host"
        yield Finding("GPUs out of reach", "advice", text, remedy)
    if those := [pair for pair in pairs if pair["reached"] and not pair["atomic"]]:
        text = f"no native atomics, so partial sums go through the host: {_named(those, probe)}"
        usual = "usual over PCIe; --stationary C adds nothing between GPUs"
        yield Finding("GPU atomics", "advice", text, usual)


def pair_tables(probe: dict) -> Iterator[Text | Table]:
    """Speeds of pairs, and round trips of flags if these differ, each with a line above; nothing
    for ranks that share GPUs, and without a probe."""
    if not probe or "failed" in probe or _shared(probe):
        return
    reached = [pair for pair in probe["pairs"] if pair["reached"]]

    def speed(pair: dict) -> Text:
        if not pair["reached"]:
            return Text("-")
        copy, add = f"{pair['copy']:.0f}", f"{pair['add']:.0f}" if "add" in pair else "-"
        if any("add" not in what for what in pair["wrong"]):
            return Text("wrong", "red")
        if pair["wrong"]:
            return Text(f"{copy}/lost", "red")
        return Text(f"{copy}/{add}", "yellow" if _is_slow(pair, reached) else "")

    yield Text(
        "GB/s of copies / atomic adds, row->column: in the memory of the column's GPU", "bold"
    )
    yield _grid(probe, speed)
    trips = [pair["flag_us"] for pair in reached if "no_flag" in pair]
    if trips and (None in trips or max(trips) > 2 * min(trips)):
        yield Text("\nus of a flag and its answer, row->column", "bold")
        late = lambda pair: "never" if pair.get("no_flag") else "-"
        yield _grid(
            probe,
            lambda pair: Text(f"{pair['flag_us']:.1f}" if pair.get("flag_us") else late(pair)),
        )


def _grid(probe: dict, cell: Callable[[dict], Text]) -> Table:
    names, pairs = _names(probe), {(pair["from"], pair["to"]): pair for pair in probe["pairs"]}
    grid = Table(box=None, pad_edge=False)
    for name in ("", *names):
        grid.add_column(name, justify="right")
    for row, name in enumerate(names):
        cells = (pairs.get((row, column)) for column in range(len(names)))
        grid.add_row(name, *(Text("") if pair is None else cell(pair) for pair in cells))
    return grid


def _names(probe: dict) -> list[str]:
    """The GPU of each rank; the rank, where ranks see one GPU each."""
    indices = [str(gpu["index"]) for gpu in probe["gpus"]]
    return indices if len({*indices}) == len(indices) else list(map(str, range(len(indices))))


def _named(pairs: list[dict], probe: dict) -> str:
    """The GPUs of some pairs, in words."""
    if len(pairs) == len(probe["pairs"]) > 2:
        return "every pair"
    names, more = _names(probe), f" and {len(pairs) - _LISTED} more" * (len(pairs) > _LISTED)
    listed = [f"{names[pair['from']]}->{names[pair['to']]}" for pair in pairs[:_LISTED]]
    return f"GPU {', '.join(listed)}{more}" if pairs else "all GPUs at once"


def _by(those: list[dict], text: Callable[[dict], str | None]) -> dict[str, list[dict]]:
    """Pairs or GPUs by a text about each, without those that have none."""
    return {what: members for what, members in grouped(those, text).items() if what}


def _shared(probe: dict) -> bool:
    return any(gpu["sharers"] > 1 for gpu in probe["gpus"])


def _is_slow(pair: dict, pairs: list[dict]) -> bool:
    """Whether a pair is far below the median of some pairs."""
    values = {what: [other[what] for other in pairs if what in other] for what in ("copy", "add")}
    return any(what in pair and pair[what] < _SLOW * median(values[what]) for what in values)


def _range(pairs: list[dict], key: str, form: str = ".0f") -> str:
    """The least and the largest value; empty without any."""
    values = [pair[key] for pair in pairs if pair.get(key) is not None]
    if not values:
        return ""
    low, high = (f"{end(values):{form}}" for end in (min, max))
    return low if low == high else f"{low}-{high}"
