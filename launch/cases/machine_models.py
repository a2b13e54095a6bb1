"""Machine models by name: the files of ``launch/data/machines``, or your own file."""

import hashlib
import json
import os
import re
from itertools import takewhile
from pathlib import Path

from drbench.algorithms.registry import needs_model
from drbench.algorithms.universal.packing import cores
from drbench.errors import UsageError, did_you_mean
from drbench.launch.host.files import refuse_os_errors, write_whole
from drbench.model.machine import Machine
from drbench.transport import parse_transport

from .sweep_values import read_toml, shipped

#: The command that measures a model of this machine.
CALIBRATE = "drbench calibrate -p 2 --save mine.toml"
#: A machine with the shape of its torus.
_TORUS = re.compile(r"([a-z0-9]+)-([1-9]\d*)x([1-9]\d*)")


def machine_names() -> list[str]:
    """The names of the machines that have a model.

    Examples
    --------
    >>> {"pvc12", "h100x8", "h200x8", "tpuv4"} <= set(machine_names())
    True
    """
    return [
        name
        for name, path in shipped("machines").items()
        if re.search(r"^\[model", path.read_text("utf-8"), re.M)
    ]


def model_version(machine: Machine) -> str:
    """A hash of a machine model with all its constants."""
    text = json.dumps(machine.sources, sort_keys=True, default=str)
    return f"model:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def file_of(name: str) -> Path:
    """The file of a machine: by name, with or without the shape of a torus, or by path.

    Examples
    --------
    >>> file_of("tpuv4-4x8").name, file_of("./mine.toml").name
    ('tpuv4.toml', 'mine.toml')
    """
    name = name.partition(",")[0]
    return shipped("machines").get(name.partition("-")[0], Path(name))


def describe_file(path: Path) -> str:
    """The comment at the start of a machine file, in one line; empty if there is none.

    Examples
    --------
    >>> describe_file(file_of("dgxh100")).partition(",")[0]
    'NVIDIA DGX H100'
    """
    lines = takewhile(lambda line: line.startswith("#"), path.read_text("utf-8").splitlines())
    return " ".join(line.strip("# ") for line in lines)


def find_machine(name: str) -> Machine:
    """The model of a machine: by name, ``tpuv4-RxC`` for a torus of that shape, or from a TOML
    file; ``NAME,CONSTANT=VALUE`` changes a constant.

    Raises
    ------
    UsageError
        If the name is unknown; the message lists the known ones.

    Examples
    --------
    >>> find_machine("pvc12").compute.peak_flops, find_machine("tpuv4-4x8").devices
    (22700000000000.0, 32)
    >>> find_machine("pvc12,arbitration=fair").arbitration
    'fair'
    """
    name, changed, change = name.rpartition(",")
    if changed:
        constant, _, text = change.partition("=")
        if not (constant and text):
            raise UsageError(f"--machine ...,{change}: write CONSTANT=VALUE, as fence_s=2e-6.")
        try:
            value: float | str = float(text)
        except ValueError:
            value = text
        return find_machine(name).with_value(constant, value)
    name = change
    path = Path(name)
    if name.endswith(".toml") or "/" in name:
        return Machine.load(path)
    file, torus, known = name, _TORUS.fullmatch(name), machine_names()
    changes: dict = {}
    if torus:
        file, *shape = torus.groups()
        changes = {"name": name, "torus": [*map(int, shape)]}
    if file not in known:
        raise UsageError(
            f"no machine model {name!r}; there are {', '.join(known)} (tpuv4 as tpuv4-4x8), or "
            f"give a TOML file.{did_you_mean(name, known)}"
        )
    return Machine.load(shipped("machines")[file], **changes)


def find_planning_model(
    model: str | None, resolved: dict, transport: str = "auto", dtype: str = "float32"
) -> Machine | None:
    """The performance model that the schedule of these options depends on; None if there is none,
    or none is given. Packing on cores has a built-in one.

    Raises
    ------
    UsageError
        If the name is unknown, or it has no model of the transport.
    UnsupportedError
        If it has no peak for the element type of A and B.

    Examples
    --------
    >>> find_planning_model("pvc12", {"schedule": "cost"}).name
    'pvc12'
    >>> (
    ...     find_planning_model("pvc12", {"schedule": "greedy"}),
    ...     find_planning_model(None, {"schedule": "cost"}),
    ... )
    (None, None)
    >>> find_planning_model(None, {"pack": "auto"}).name
    'cores'
    """
    if model is None and resolved.get("pack", "never") != "never":
        choice, machine = parse_transport(transport), cores(dtype)
        if machine and choice.kind == "throttled":  # its text has the bandwidth
            machine = machine.for_transport(choice)
        return machine
    if model is None or not needs_model(resolved):
        return None
    machine = find_machine(model).for_dtype(dtype.partition(":")[0])
    return machine.for_transport(parse_transport(transport))


def read_document(path: str | os.PathLike):
    """A machine file with its comments, to be changed; an empty one if the file does not exist.

    Raises
    ------
    UsageError
        If the file cannot be read, or is not TOML.
    """
    import tomlkit

    path = Path(path)
    return read_toml(path, parse=tomlkit.parse) if path.exists() else tomlkit.document()


def write_model(path: str | os.PathLike, model: dict) -> str:
    """Replace the ``[model]`` tables of a machine file, keep its other tables, and return the text
    of the new ones.

    Parameters
    ----------
    model : dict
        Numbers, texts, lists of them, and tables; a pair (value, text) has the text as its comment.
        In each table ``"#"`` is the comment next to its name.

    Raises
    ------
    UsageError
        If the file is not TOML, or cannot be written.
    """
    import tomlkit

    document, own = read_document(path), tomlkit.document()
    if "model" in document:
        document.remove("model")
    own.add("model", _table(model))
    rest, text = (tomlkit.dumps(part).strip("\n") for part in (document, own))
    with refuse_os_errors(f"--save {path}", "Use a file that can be written."):
        write_whole(Path(path), f"{rest}\n\n{text}\n" if rest else f"{text}\n")
    return text


def _table(values: dict):
    """A TOML table of values, numbers with six digits."""
    import tomlkit

    plain = lambda value: f"{value:.6g}" if isinstance(value, float) else json.dumps(value)
    of_tables = all(isinstance(value, dict) for value in values.values())
    table = tomlkit.table(of_tables)
    for key, value in values.items():
        if key == "#":
            table.comment(value)
        elif isinstance(value, dict):
            table.add(key, _table(value))
        else:
            value, description = value if isinstance(value, tuple) else (value, "")
            if isinstance(value, list):
                value = tomlkit.value(f"[{', '.join(map(plain, value))}]")
            table.add(key, tomlkit.value(plain(value)) if isinstance(value, float) else value)
            if description:
                table[key].comment(description)
    if not of_tables:
        table.add(tomlkit.nl())
    return table
