"""Waiting for a device or for MPI without blocking: generators that end when it is done."""

from __future__ import annotations

from collections.abc import Iterator

from mpi4py import MPI

from .base import Device, Stream

__all__ = ["completed", "until"]


def until(device: Device, stream: Stream) -> Iterator[None]:
    """Wait, in a generator, for everything given to a stream so far."""
    event = device.spare_event()
    stream.record(event)
    while not event.query():
        yield
    device.give_back(event)


def completed(request: MPI.Request) -> Iterator[None]:
    """Wait, in a generator, for an MPI request."""
    while not request.Test():
        yield
