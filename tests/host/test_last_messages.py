"""The last message of a rank is read before the rank ends all others."""

import select
import subprocess
import sys

import pytest
from starting import ROOT

PRINTS = """
import sys
from drbench.host.launcher import until_heard
sys.stderr.write("last")
until_heard()
"""


def test_a_rank_waits_until_its_message_has_been_read():
    with subprocess.Popen([sys.executable, "-c", PRINTS], cwd=ROOT, stderr=subprocess.PIPE) as rank:
        select.select([rank.stderr], [], [])
        with pytest.raises(subprocess.TimeoutExpired):
            rank.wait(0.4)
        assert rank.stderr.read() == b"last"
        assert rank.wait(60) == 0
