"""``drbench calibrate --nodes``: links within a node and between nodes, on two nodes of one machine
and over TCP."""

from math import inf

import pytest

from drbench.launch.cases.machine_models import find_machine
from drbench.transport import parse_transport

CLIQUES = {"MPIR_CVAR_NUM_CLIQUES": "2"}
TCP = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"}
CASE = "-m 256 -n 256 -k 256 --preset row --stationary C".split()


def calibrated(drbench, path, ranks, environ):
    words = ["calibrate", "-p", str(ranks), "--nodes", "--threads", "1", "--yes", "--save", path]
    for rounds in (1, 3, 5, 5):
        ended = drbench(*map(str, words), "--rounds", str(rounds), env=environ, timeout=240)
        if "Measure when the machine is quiet" not in ended.stderr:
            break
    assert ended.returncode == 0, ended.stderr
    return find_machine(str(path))


def sane(link) -> None:
    """A get of a mebibyte takes some time, and less than two seconds."""
    per_byte = 1 / link.bandwidth_bytes_per_s + 1 / link.get.bytes_per_s
    assert 0 < per_byte * (1 << 20) < 2 and 0 <= link.latency_s < 1
    assert 0 < link.add.bytes_per_s < inf
    assert 0 < link.get.apart_bytes_per_s <= link.get.bytes_per_s
    assert 0 < link.add.apart_bytes_per_s <= link.add.bytes_per_s


@pytest.mark.mpi
def test_two_nodes_have_tiers_and_predict_over_both(drbench, run_cli, fault, tmp_path):
    path = tmp_path / "two.toml"
    made = calibrated(drbench, path, 4, fault("few GEMMs") | CLIQUES)
    assert [made.calibrated[name] for name in ("ranks", "nodes", "node")] == [4, 2, 2]
    for table in (made.sources["compute"], made.sources["dtypes"]["float64"]):
        assert len(table["transposed_element_s"]) == 2 and min(table["transposed_element_s"]) >= 0
    for kind, near in (("auto", "direct"), ("direct", "direct"), ("rma", "rma")):
        seen = made.for_transport(parse_transport(kind))
        joined = [seen.link(a, b).name for a, b in ((0, 1), (2, 3), (1, 2), (0, 3))]
        assert joined == [near, near, "network", "network"]
        sane(seen.link(0, 2))
    uplinks = [link for link in made.links if link.name == "uplink"]
    assert all((each.within, each.shared, each.node) == (1, "node", 2) for each in uplinks)
    for collective in made.collectives.values():
        assert collective.node == 2 and collective.across((1, 2)) and not collective.across((2, 3))
        assert collective.across_bandwidth_bytes_per_s > 0 and min(collective.starts((1, 2))) >= 0
    near = made.for_transport(parse_transport("auto"))
    assert not near.link(0, 1).latency_s and near.link(0, 2).latency_s >= 0

    text = run_cli("simulate", *CASE, "-p", "4", "--machine", str(path), "--json").json()
    assert text["status"] == "ok" and text["get_bytes"] > 0
    assert "rank" not in (text["beyond"] or "") and "node" not in (text["beyond"] or "")
    more = run_cli("simulate", *CASE, "-p", "8", "--machine", str(path), "--json").json()
    assert "8 ranks (calibrated on 4); 4 nodes (2)" in more["beyond"]
    words = "-p 4 --iters 1 --budget 0 -o gemm_only=false --yes --json".split()
    ran = drbench("run", *CASE, *words, env=CLIQUES).json()
    assert (ran["nodes"], ran["error"]) == (2, 0)
    # the launcher deals ranks to these nodes cyclically; the model counts neighbours
    moved = [each["get_bytes"] + each["direct_bytes"] for each in (ran, text)]
    assert moved[0] == moved[1]
    assert all(ran[name] == text[name] for name in ("chunk", "stationary"))


@pytest.mark.mpi
@pytest.mark.thorough
def test_over_tcp_every_rank_is_a_node_and_there_is_no_tier_within(drbench, fault, tmp_path):
    made = calibrated(drbench, tmp_path / "tcp.toml", 2, fault("few GEMMs") | TCP)
    assert [made.calibrated[name] for name in ("ranks", "nodes", "node")] == [2, 2, 1]
    assert "transports" not in made.sources
    network = made.link(0, 1)
    assert network.name == "network" and not network.reads_in_place
    sane(network)
    # TCP through the loopback is not as fast as memory
    assert 1 / network.bandwidth_bytes_per_s + 1 / network.get.bytes_per_s > 1 / 50e9
    assert {"allgather", "reducescatter", "shift"} == set(made.collectives)


@pytest.mark.mpi
def test_without_links_between_nodes_it_is_refused_in_one_line(drbench, tmp_path):
    words = ["calibrate", "-p", "2", "--save", str(tmp_path / "x.toml"), "--rounds", "1"]
    assert "leave --nodes out" in drbench(*words, "--nodes").refusal()
    assert "use --nodes" in drbench(*words, env=TCP).refusal()
    three = ["calibrate", "-p", "3", *words[3:], "--yes"]
    assert "got 1 to 2" in drbench(*three, "--nodes", env=CLIQUES).refusal()
