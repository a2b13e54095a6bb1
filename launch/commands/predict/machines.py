"""``drbench machines``: the machine models there are, and what one of them rests on."""

import json

import click

from drbench.common import TransportChoice
from drbench.model.machine import Link, Machine
from drbench.model.machine_file import ARITHMETICS
from launch.cases.machine_models import about_file, file_of, find_machine, machine_names
from launch.cases.sweep_values import read_toml
from launch.host.show import console, table
from launch.host.units import plural, seconds

from ..options import TEXT, command, json_option


@command("machines")
@click.argument("name", required=False, type=TEXT, metavar="[NAME|FILE]")
@json_option("Print one JSON object a machine.")
def machines(name, as_json):
    """List the machine models: peaks by element type, tiers of network, how many constants are
    assumed; with NAME or FILE all of one.

    \b
      drbench machines
      drbench machines dgxh100
      drbench simulate -m 8Ki -n 48Ki -k 12Ki -p 16 --machine dgxh100 --dtype bfloat16

    A file of your own is made by drbench calibrate, or copied from one of these; every constant has
    its source beside it there.
    """
    found = {each: _seen(each) for each in ([name] if name else machine_names())}
    if as_json:
        for each, machine in found.items():
            print(json.dumps(_told(each, machine)))
    elif name:
        _show(name, found[name])
    else:
        rows = [
            (each, _size(machine), _tiers(machine), _peaks(machine), str(len(machine.assumed)))
            for each, machine in found.items()
        ]
        heads = "machine|ranks|~links, GB/s|~peaks of a device, TFLOP/s|>assumed"
        console().print(table(heads, rows, "machine models, for --machine"))


def _seen(name: str) -> Machine:
    """A machine with its links; a torus without a shape on 4 x 4 devices."""
    shapeless = name in machine_names() and "torus" in read_toml(file_of(name))["model"]
    return find_machine(f"{name}-4x4" if shapeless else name).for_transport(TransportChoice("auto"))


def _size(machine: Machine) -> str:
    if machine.torus:
        return "RxC"
    return str(machine.devices or "any")


def _rate(value: float) -> str:
    return f"{value:.4g}"


def _speed(link: Link) -> str:
    return "in place" if link.free else _rate(link.bandwidth_bytes_per_s / 1e9)


def _peaks(machine: Machine) -> str:
    """Each element type and its peak."""
    told = [
        f"{name} {_rate(machine.peaks[name] / 1e12)}"
        for name in ARITHMETICS
        if name in machine.peaks
    ]
    return ", ".join(told) + (" (measured)" if machine.compute.peak_measured else "")


def _tiers(machine: Machine) -> str:
    """Each class of links and its bandwidth, the nearest ranks first."""
    return ", ".join(f"{link.name} {_speed(link)}" for link in machine.links)


def _joins(link: Link) -> str:
    """Which ranks a class of links joins.

    Examples
    --------
    >>> (
    ...     _joins(Link("nvlink", 1.0, within=8)),
    ...     _joins(Link("nic", 1.0)),
    ...     _joins(Link("port", 1.0, within=1)),
    ... )
    ('8 ranks', 'all others', 'nobody by itself')
    """
    if link.within == 1:
        return "nobody by itself"
    return f"{link.within} ranks" if link.within else "all others"


def _told(name: str, machine: Machine) -> dict:
    """As data: bytes and FLOPs a second, seconds."""
    return {
        "machine": name,
        "about": about_file(file_of(name)),
        "file": str(file_of(name)),
        "devices": None if machine.torus else machine.devices,
        "dtype": machine.dtype,
        "peaks": machine.peaks,
        "tiers": [
            {
                "name": link.name,
                "within": link.within,
                "shared": link.shared,
                "bandwidth_bytes_per_s": None if link.free else link.bandwidth_bytes_per_s,
                "latency_s": link.latency_s,
                "through": list(link.through),
            }
            for link in machine.links
        ],
        "assumed": list(machine.assumed),
        "calibrated": machine.calibrated,
    }


def _show(name: str, machine: Machine) -> None:
    """One machine: peaks, tiers, what is assumed, where the sources stand."""
    out, about = console(), about_file(file_of(name))
    if about:
        out.print(about, markup=False)
    rows = [
        (
            each,
            _rate(peak / 1e12),
            "measured" if compute.peak_measured else _share(compute.sustained),
        )
        for each, peak in machine.peaks.items()
        for compute in [machine.compute if each == machine.dtype else machine.dtypes[each]]
    ]
    out.print(table("element type|>TFLOP/s|>sustained", rows, "peaks of a device"))
    rows = [
        (
            link.name,
            _joins(link),
            _speed(link),
            seconds(link.latency_s),
            link.shared,
            ", ".join(link.through) or "-",
        )
        for link in machine.links
    ]
    heads = "link|~joins|>GB/s|>latency|~shared by|~goes through"
    out.print(table(heads, rows, "tiers of network, the nearest ranks first"))
    if machine.assumed:
        count = plural(len(machine.assumed), "constant")
        out.print(f"{count} assumed: {', '.join(machine.assumed)}", markup=False)
    out.print(f"sources: {file_of(name)}", markup=False, soft_wrap=True)


def _share(value: float) -> str:
    return f"{100 * value:.3g} %"
