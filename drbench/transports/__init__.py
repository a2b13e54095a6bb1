"""How bytes move between ranks: windows of shared memory, RMA, locks, and a throttle for
experiments."""

from ..throttle import Throttle, TransportChoice, parse_transport
from .locks import RangeLocks
from .topology import Topology
from .window import Window

__all__ = ["RangeLocks", "Throttle", "Topology", "TransportChoice", "Window", "parse_transport"]
