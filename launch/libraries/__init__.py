"""Libraries: other distributed GEMMs, one adapter per file, with the names that ``--algorithm``
accepts."""

import importlib

from drbench.algorithms import algorithms
from drbench.errors import MissingError, UsageError
from drbench.options import Option

from .base import Availability, Library
from .options import LIBRARIES, ON_DRBENCH

#: Libraries of plugins.
_ADDED: dict[str, type[Library]] = {}


def add_library(library: type[Library]) -> None:
    """Register a library of a plugin by its name, with its options.

    Raises
    ------
    UsageError
        If an algorithm or another library has that name.
    """
    if library.name in LIBRARIES or library.name in algorithms():
        raise UsageError(f"there is a {library.name!r} already. Give the library another name.")
    LIBRARIES[library.name], _ADDED[library.name] = library.options, library


def get_library(name: str) -> type[Library]:
    """The library of that name; KeyError if unknown.

    Examples
    --------
    >>> get_library("dtensor").name
    'dtensor'
    """
    options = LIBRARIES[name]
    if name in _ADDED:
        return _ADDED[name]
    module = importlib.import_module(f"{__name__}.{name.partition('+')[0]}")
    library = module.ON_DRBENCH if name in ON_DRBENCH else module.LIBRARY
    library.options = options
    return library


def known_options() -> dict[str, dict[str, Option]]:
    """All options of algorithms and libraries: option name -> algorithm or library -> description.

    Examples
    --------
    >>> list(known_options()["block"])
    ['meshslice', 'scalapack']
    """
    options_by_name: dict[str, dict[str, Option]] = {}
    ours = {name: algorithm.options for name, algorithm in algorithms().items()}
    for owner, options in (ours | LIBRARIES).items():
        for name, option in options.items():
            options_by_name.setdefault(name, {})[owner] = option
    return options_by_name


def require_library(library: type[Library]) -> str:
    """The version of an installed library.

    Raises
    ------
    MissingError
        If it is not installed, with how to install it.
    """
    state = library.available()
    if not state.ok:
        raise MissingError(f"{library.name} is not available: {state.what}. {state.get}")
    return state.what
