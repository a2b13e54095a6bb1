"""What a rank says before it ends all is read first."""

import select
import subprocess
import sys

import pytest
from starting import ROOT

SAYS = """
import sys
from drbench.common import until_heard
sys.stderr.write("said")
until_heard()
"""


def test_a_rank_waits_until_what_it_said_has_been_read():
    with subprocess.Popen([sys.executable, "-c", SAYS], cwd=ROOT, stderr=subprocess.PIPE) as rank:
        select.select([rank.stderr], [], [])
        with pytest.raises(subprocess.TimeoutExpired):
            rank.wait(0.4)
        assert rank.stderr.read() == b"said"
        assert rank.wait(60) == 0
