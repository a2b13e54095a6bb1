"""Arbitration of links: how transfers of all ranks wait for the links of a machine, or share them,
in virtual time.

A transfer is requested, may wait in a lane, and is then scheduled by one of two rules
(:data:`ARBITRATIONS`): each link carries one transfer at a time, the oldest first
(:class:`FirstCome`), or transfers share links max-min fairly (:class:`Fair`).
"""

from .fair import Fair
from .first_come import FirstCome
from .transfer import Lanes, LinkTransfer

#: The arbitration rules by their names in machine files.
ARBITRATIONS = {"fair": Fair, "fifo": FirstCome}

__all__ = ["ARBITRATIONS", "Fair", "FirstCome", "Lanes", "LinkTransfer"]
