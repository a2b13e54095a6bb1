"""Links and who waits for them, or shares them: how transfers of all ranks get over the links of a
machine in virtual time.

A transfer is asked for, may wait in a lane, and then goes by one of two rules
(:data:`ARBITRATIONS`): each link carries one transfer at a time, the oldest first
(:class:`FirstCome`), or transfers share links max-min fairly (:class:`Fair`).
"""

from .fair import Fair
from .first_come import FirstCome
from .transfer import Lanes, Transfer

#: How transfers get over links, by the word that users say.
ARBITRATIONS = {"fair": Fair, "fifo": FirstCome}

__all__ = ["ARBITRATIONS", "Fair", "FirstCome", "Lanes", "Transfer"]
