"""Machine models by name: the files of ``launch/data/machines``, or a file of your own."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from drbench.common import parse_transport
from drbench.errors import UsageError, did_you_mean
from drbench.model.machine import Machine

__all__ = ["FOLDER", "find_machine", "find_torus", "machine_names", "of_schedule"]

FOLDER = Path(__file__).parents[1] / "data" / "machines"
_TORUS = re.compile(r"(?P<file>[a-z0-9]+)-(?P<rows>[1-9]\d*)x(?P<cols>[1-9]\d*)")


def machine_names() -> list[str]:
    """Names of the machines that have a model.

    Examples
    --------
    >>> {"pvc12", "h100x8", "h200x8", "tpuv4"} <= set(machine_names())
    True
    """
    return sorted(
        path.stem
        for path in FOLDER.glob("*.toml")
        if re.search(r"^\[model", path.read_text(), re.M)
    )


def find_torus(name: str) -> Machine:
    """A torus by its name without a shape, on 4 x 4 devices.

    Raises
    ------
    UsageError
        If there is none, it has a shape already, or is no torus.

    Examples
    --------
    >>> find_torus("tpuv4").torus
    (4, 4)
    """
    if "-" in name:
        raise UsageError(
            f"--machine {name} has a shape already, and it is what is looked for. Use "
            f"{name.split('-')[0]}."
        )
    machine = find_machine(f"{name}-4x4") if name in machine_names() else find_machine(name)
    with open(FOLDER / f"{name}.toml", "rb") as file:
        if "torus" not in tomllib.load(file)["model"]:
            raise UsageError(f"--machine {name} is no torus. Use tpuv4.")
    return machine


def find_machine(name: str) -> Machine:
    """The model of a machine: by name, ``tpuv4-RxC`` for a torus of that shape, or from a TOML
    file.

    Raises
    ------
    UsageError
        If there is none of that name; the message lists those there are.

    Examples
    --------
    >>> find_machine("pvc12").compute.peak_flops, find_machine("tpuv4-4x8").devices
    (22700000000000.0, 32)
    """
    path = Path(name)
    if name.endswith(".toml") or "/" in name:
        return Machine.load(path)
    torus = _TORUS.fullmatch(name)
    known = machine_names()
    if torus and torus["file"] in known:
        return Machine.load(
            FOLDER / f"{torus['file']}.toml", name, torus=[int(torus["rows"]), int(torus["cols"])]
        )
    if name not in known:
        raise UsageError(
            f"no machine model {name!r}; there are {', '.join(known)} (tpuv4 as tpuv4-4x8), or "
            f"give a TOML file.{did_you_mean(name, known)}"
        )
    return Machine.load(FOLDER / f"{name}.toml")


def of_schedule(model: str | None, schedule: str | None, transport: str = "auto") -> dict:
    """The option ``machine`` of a lowered program: the model that ``cost`` and ``exhaustive`` go
    by, if one is named.

    Examples
    --------
    >>> (
    ...     of_schedule("pvc12", "cost")["machine"].name,
    ...     of_schedule("pvc12", "greedy"),
    ...     of_schedule(None, "cost"),
    ... )
    ('pvc12', {}, {})
    """
    if model is None or schedule not in ("cost", "exhaustive"):
        return {}
    return {"machine": find_machine(model).for_transport(parse_transport(transport))}
