"""Peers: other people's distributed GEMMs, one adapter a file, by the name that ``--algorithm``
takes."""

import importlib

from algorithms import algorithms
from drbench.errors import MissingError, UsageError
from drbench.options import Option

from .base import Availability, Peer
from .options import ON_DRBENCH, PEERS

__all__ = [
    "ON_DRBENCH",
    "PEERS",
    "Availability",
    "Peer",
    "add_peer",
    "get_peer",
    "known_options",
    "present",
]


#: Peers of plugins.
_ADDED: dict[str, type[Peer]] = {}


def add_peer(peer: type[Peer]) -> None:
    """Let a library of one's own be found by its name, with its options.

    Raises
    ------
    UsageError
        If an algorithm or another library has that name.
    """
    if peer.name in PEERS or peer.name in algorithms():
        raise UsageError(f"there is a {peer.name!r} already. Give the library another name.")
    PEERS[peer.name], _ADDED[peer.name] = peer.options, peer


def get_peer(name: str) -> type[Peer]:
    """The peer of that name; KeyError if there is none.

    Examples
    --------
    >>> get_peer("dtensor").name
    'dtensor'
    """
    if name in _ADDED:
        return _ADDED[name]
    if name not in PEERS:
        raise KeyError(name)
    found = importlib.import_module(f"{__name__}.{name.replace('+', '_')}").PEER
    found.options = PEERS[name]
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
    for taker, options in (ours | PEERS).items():
        for name, option in options.items():
            found.setdefault(name, {})[taker] = option
    return found


def present(peer: type[Peer]) -> str:
    """The version of a peer that is here.

    Raises
    ------
    MissingError
        If it is not, with the way to get it.
    """
    found = peer.available()
    if not found.ok:
        raise MissingError(f"{peer.name} is not available: {found.what}. {found.get}")
    return found.what
