"""What cases of committed records are called, so that they tell who ran what."""

import re

#: drbench's partitionings whose median, best and worst are compared.
PARTITIONINGS = ("row", "column", "inner", "outer", "block")
#: The name of a case: its round, and what ran.
NAME = re.compile(r"^(?P<turn>\d+) \| (?P<shape>.+) \| (?P<who>.+) \| (?P<label>.+)")
