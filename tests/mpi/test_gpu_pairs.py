"""The probe of pairs of GPUs on ranks without GPUs: real processes that open each other's memory,
and a fake device with one fault at a time."""

import json

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]


@pytest.fixture
def probe(mpirun, kernels):
    """``probe(ranks, fault, how=...)``: the line, for a fake with a fault."""

    def on(ranks, fault="none", **how):
        how = json.dumps({"devices": ranks} | how)
        return mpirun(ranks, "gpu_pairs.py", kernels, fault, how)

    return on


def test_all(probe):
    import pprint
    pprint.pprint(probe(3))
