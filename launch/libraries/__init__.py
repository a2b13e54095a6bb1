"""Peers: other people's distributed GEMMs, one adapter a file, by the name that ``--algorithm``
takes."""

import importlib

from algorithms import algorithms
from drbench.errors import MissingError, UsageError
from drbench.options import Option

from .base import Availability, Library
from .options import LIBRARIES, ON_DRBENCH

__all__ = [
    "ON_DRBENCH",
    "LIBRARIES",
    "Availability",
    "Library",
    "add_library",
    "get_library",
    "known_options",
    "present",
]


#: Peers of plugins.
_ADDED: dict[str, type[Library]] = {}


def add_library(library: type[Library]) -> None:
    """Let a library of one's own be found by its name, with its options.

    Raises
    ------
    UsageError
        If an algorithm or another library has that name.
    """
    if library.name in LIBRARIES or library.name in algorithms():
        raise UsageError(f"there is a {library.name!r} already. Give the library another name.")
    LIBRARIES[library.name], _ADDED[library.name] = library.options, library


def get_library(name: str) -> type[Library]:
    """The peer of that name; KeyError if there is none.

    Examples
    --------
    >>> get_library("dtensor").name
    'dtensor'
    """
    if name in _ADDED:
        return _ADDED[name]
    if name not in LIBRARIES:
        raise KeyError(name)
    found = importlib.import_module(f"{__name__}.{name.replace('+', '_')}").LIBRARY
    found.options = LIBRARIES[name]
    return found


def known_options() -> dict[str, dict[str, Option]]:
    """Every option that an algorithm or a peer takes: its name -> who takes it -> what it is there.

    Examples
    --------
    >>> list(known_options()["block"])
    ['meshslice', 'scalapack']
    """
    found: dict[str, dict[str, Option]] = {}
    ours = {name: each.options for name, each in algorithms().items()}
    for taker, options in (ours | LIBRARIES).items():
        for name, option in options.items():
            found.setdefault(name, {})[taker] = option
    return found


def present(library: type[Library]) -> str:
    """The version of a peer that is here.

    Raises
    ------
    MissingError
        If it is not, with the way to get it.
    """
    found = library.available()
    if not found.ok:
        raise MissingError(f"{library.name} is not available: {found.what}. {found.get}")
    return found.what
