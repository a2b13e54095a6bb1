"""How far a prediction can be trusted, by where its machine model comes from."""

from typing import NamedTuple

from drbench.model.machine import Machine
from launch.host.environment import processor_name


class Sure(NamedTuple):
    """How far an answer can be trusted: ``counted``, ``calibrated``, ``beyond`` (what was not
    calibrated: more ranks, other products or messages), ``elsewhere`` (calibrated on another
    processor) or ``published`` (a model made of published constants), and why in words."""

    level: str
    text: str


def how_sure(machine: Machine | None, ranks: int, needed: str | None = None) -> Sure:
    """How far predictions on a machine can be trusted for so many ranks; ``needed`` is what of
    them was beyond its calibration, in words (:func:`~launch.models.beyond.beyond`).

    Examples
    --------
    >>> from launch.cases.machine_models import find_machine
    >>> how_sure(None, 4).level, how_sure(find_machine("h100x8"), 4).level
    ('counted', 'published')
    """
    if machine is None:
        return Sure(
            "counted",
            "bytes and FLOPs are counted exactly; what they cost is not known without a machine "
            "model",
        )
    known = machine.calibrated
    if not known and not machine.compute.peak_measured:
        count = len(machine.assumed)
        return Sure(
            "published",
            f"{machine.name} is a model made of published constants, {count} of them assumed; it "
            "was not measured here",
        )
    on = f" on {known['ranks']} ranks" if "ranks" in known else ""
    when = f"calibrated{on}, {known['date']}" if known else "calibrated"
    if needed:
        needed = f"beyond that are {needed}"
    if known.get("processor", processor_name()) != processor_name():
        told = f"{when}, on another processor ({known['processor']})"
        if machine.assumed:
            told += f"; {len(machine.assumed)} constants are assumed"
        return Sure("elsewhere", f"{told}; {needed}" if needed else told)
    if not on:
        return Sure("beyond", "calibrated, but the file does not say on how many ranks")
    if ranks > known["ranks"]:
        return Sure("beyond", f"{when}: {needed or f'{ranks} ranks are beyond that'}")
    return (
        Sure("beyond", f"{when}: {needed}")
        if needed
        else Sure("calibrated", f"{when}, on this processor")
    )
