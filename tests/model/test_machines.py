"""Machine models: the meaning of constants, the contents of files, and the links of a transfer."""

import itertools
import re
import tomllib
from fnmatch import fnmatch
from functools import reduce
from pathlib import Path

import pytest
import tomlkit

from drbench.errors import UnsupportedError, UsageError
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine, machine_names
from drbench.launch.cases.sweep_values import shipped
from drbench.launch.models.predict import predict
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine
from drbench.model.machine_file import ARITHMETICS
from drbench.program.problem import REAL_OF
from drbench.transport import parse_transport

#: A file of drbench calibrate.
CALIBRATED = str(Path(__file__).parents[2] / "results/measured/spr-2core/model/rma/here.toml")
OVERLAPPED = ("a100pcie", "a100nvlink", "h800", "mi308x", "dgxa100", "dgxh100", "mi300x")
SHIPPED = tuple(f"{name}-4x4" if "tpu" in name else name for name in machine_names())
#: Arithmetics by speed, and those for which a file has no peak.
ORDER = ("float64", "float32", "tf32", "bfloat16", "float16", "float8")
WITHOUT = {
    **dict.fromkeys(("a100nvlink", "a100pcie", "dgxa100", "pvc12"), {"float8"}),
    **dict.fromkeys(("tpuv4", "tpuv4sim", "tpuv4slice"), {*ORDER} - {"bfloat16"}),
    "lumic": {*ORDER[2:]},
    "h800": {"float64"},
}
#: Ranks of a node, or of a rack.
NODES = {"gb200nvl72": 72} | dict.fromkeys((*OVERLAPPED, "lumic"), 8)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_assumed_constant_can_be_varied_and_changes_the_machine(name):
    machine = find_machine(name)
    assert machine.assumed
    kinds = ("auto", *machine.sources.get("transports", {}))
    seen = lambda machine: [machine.for_transport(parse_transport(kind)) for kind in kinds]
    for path in machine.assumed:
        assert seen(machine.vary(path, 0.75)) != seen(machine)


@pytest.mark.parametrize("path", shipped("machines").values(), ids=lambda path: path.stem)
def test_what_a_file_calls_assumed_is_varied(path):
    """Numbers without a source must not look certain. In a table with an assumed heading each
    number is, unless it has its own source."""
    section = tomllib.loads(path.read_text()).get("model", {})
    table, wanted, of_table = "", set(), False
    for line in path.read_text().splitlines():
        if line.startswith("["):
            table, named = line.strip("[]").split("]")[0], "model.collectives" in line
            of_table = "ASSUMED" in line or (named and of_table)
        key = re.match(r"(\w+) = (-?[\d.e+-]+)( |$)", line)
        described = "ASSUMED" in line or (of_table and "collectives" in table and "#" not in line)
        if table.startswith("model") and key and described:
            wanted.add(".".join([*table.split(".")[1:], key[1]]))
    wanted -= {"copy_streams", "side_units", *(each for each in wanted if each.endswith(".node"))}
    varied = [text.split(" by ")[0] for text in section.get("assumed", ())]
    assert {each for each in wanted if not any(fnmatch(each, path) for path in varied)} == set()


@pytest.mark.parametrize("name", (*SHIPPED, CALIBRATED))
def test_every_type_has_its_own_peak_that_its_gemms_never_beat_or_is_refused(name):
    machine = find_machine(name)
    assert set(machine.peaks) == {machine.dtype, *machine.dtypes}
    if name != CALIBRATED:
        assert set(machine.peaks) == {*ORDER} - WITHOUT.get(name.removesuffix("-4x4"), set())
    for dtype, peak in machine.peaks.items():
        compute = machine.for_dtype(dtype).compute
        assert compute.peak_flops == peak and machine.for_dtype(dtype).dtype == dtype
        for m, n, k in itertools.product((1, 37, 256, 3000), repeat=3):
            least_s = 2 * m * n * k / (peak * compute.sustained)
            assert compute.gemm_s(m, n, k) >= least_s * (1 - 1e-9)
    peaks = [machine.peaks[dtype] for dtype in ORDER if dtype in machine.peaks]
    assert peaks == sorted(peaks)
    for dtype, real in REAL_OF.items():  # at the rate of their parts
        if real in machine.peaks:
            compute, part = (machine.for_dtype(name).compute for name in (dtype, real))
            assert compute.peak_flops == part.peak_flops
            assert compute.gemm_s(3000, 3000, 3000) > 2.5 * part.gemm_s(3000, 3000, 3000)
    refused = {name for name in ARITHMETICS if REAL_OF.get(name, name) not in machine.peaks}
    for dtype in refused:
        with pytest.raises(UnsupportedError, match=f"none for {dtype}. Add .* or use --dtype") as e:
            machine.for_dtype(dtype)
        assert "\n" not in str(e.value)


def test_one_node_of_a_cluster_is_the_machine_of_one_node():
    """dgxh100 is h100x8, with cards: the same links, GEMMs and times on 8 ranks."""
    many, one = find_machine("dgxh100"), find_machine("h100x8")
    assert many.compute == one.compute and many.dtypes == one.dtypes
    layouts = {"a": "row", "b": "column", "c": "column", "dtype": "bfloat16"}
    case = Case(4096, 8192, 4096, **layouts, algorithm="ag_gemm", options={"tile": 256})
    assert predict(case, many, 8).best_s == predict(case, one, 8).best_s


@pytest.mark.parametrize(
    "name, nominal, links, each",
    [
        *((name, 300e9, 12, 20e9) for name in ("a100nvlink", "dgxa100")),
        *((name, 450e9, 18, 20.6e9) for name in ("h100x8", "h100x8measured", "dgxh100", "h200x8")),
        ("h800", 200e9, 8, 20.6e9),
        ("gb200nvl72", 900e9, 18, 40.1e9),
    ],
)
def test_nvlink_has_the_rate_of_copies_and_collectives_that_of_nccl(name, nominal, links, each):
    """Of 18 links of an H100 a copy reaches 0.83, of 8 of an H800 0.85; topo.h of NCCL has the rate
    of a link."""
    machine = find_machine(name)
    assert 0.83 <= machine.link(0, 1).bandwidth_bytes_per_s / nominal <= 0.85
    if machine.nccl:  # held against measurements
        assert machine.nccl.link_bytes_per_s == nominal and 0.7 < machine.nccl.link_share < 0.8
        return
    for kind in ("allgather", "reducescatter", "broadcast", "reduce"):
        assert machine.collective(kind).bandwidth_bytes_per_s == pytest.approx(links * each)


@pytest.mark.parametrize("name", sorted(NODES))
def test_ranks_of_a_node_are_joined_by_the_nearest_tier_and_nodes_by_cards(name):
    machine = find_machine(name).for_transport(parse_transport("auto"))
    size = NODES[name]
    links = {peer: machine.link(0, peer) for peer in range(1, 3 * size)}
    inside = {links[peer].name for peer in range(1, size)}
    outside = {links[peer].name for peer in range(size, 3 * size)}
    if machine.devices is None:
        assert "nic" in outside <= {"nic", "rail"} and not inside & outside
    assert machine.link(size - 1, 0).name in inside


def test_rails_join_gpus_of_the_same_place_and_the_spine_takes_the_same_cards():
    machine = find_machine("dgxh100")
    assert [machine.link(1, peer).name for peer in (2, 9, 10, 17)] == [
        "nvlink",
        "rail",
        "nic",
        "rail",
    ]
    (same, on_rail), (other, on_spine) = machine.route(1, 9), machine.route(1, 10)
    assert set(on_rail) == {("rail", "out", 1), ("rail", "in", 9)}
    assert {("rail", "out", 1), ("rail", "in", 10)} < set(on_spine)
    assert same.latency_s < other.latency_s and same.lane == other.lane == "nic"


def test_a_transport_joins_ranks_of_one_node_and_links_join_the_others():
    machine = find_machine("lumic")
    for kind, near in (("auto", "direct"), ("direct", "direct"), ("rma", "rma")):
        seen = machine.for_transport(parse_transport(kind))
        assert [link.name for link in seen.links] == [near, "nic"]
        assert [seen.link(a, b).name for a, b in ((0, 7), (7, 8), (9, 15))] == [near, "nic", near]
        assert seen.route(3, 12)[1] == (("nic", "out", 0), ("nic", "in", 1))


def test_thin_gemms_are_slow_padding_and_waves_count():
    compute = Compute(1e12, tiles=((128, 128),), units=8)
    full = compute.gemm_s(1024, 1024, 4096)
    # one more row is one more row of tiles
    assert compute.gemm_s(1025, 1024, 4096) == pytest.approx(full * 9 / 8)
    # 16 of 128 rows: an eighth of the rate
    assert compute.gemm_s(16, 8192, 4096) == pytest.approx(full)
    assert compute.gemm_s(128, 128, 4096) == pytest.approx(full / 8)  # one tile: seven workers idle
    assert Compute(1e12, tiles=((128, 128),), units=8, splits=(1, 8)).gemm_s(
        128, 128, 4096
    ) == pytest.approx(full / 64)


def test_time_grows_with_each_extent():
    compute = find_machine("pvc12").compute
    sizes = [1, 60, 64, 65, 127, 128, 129, 500, 1024, 4096]
    for *others, at in itertools.product(sizes, sizes, range(3)):
        times = [compute.gemm_s(*others[:at], k, *others[at:]) for k in sizes]
        assert times == sorted(times)


def test_a_torus_route_is_a_shortest_path_of_neighbours():
    machine = Machine("t", Compute(1.0), (Link("ici", 1.0),), torus=(3, 5))

    def apart(one, other):
        """Hops between two places, by the shorter way around each ring."""
        rings = zip(divmod(one, 5), divmod(other, 5), (3, 5))
        return sum(min((x - y) % size, (y - x) % size) for x, y, size in rings)

    for source, target in itertools.product(range(15), repeat=2):
        at, (_, hops) = source, machine.route(source, target)
        for _, a, b in hops:
            assert a == at and apart(a, b) == 1
            at = b
        assert at == target and len(hops) == apart(source, target)


def test_a_transfer_to_another_node_occupies_the_ports_that_its_cards_hang_on():
    """FLUX, 4.3: PCIe ports are shared between inter-node and intra-node communication."""
    machine = find_machine("a100pcie")
    card, links = machine.route(1, 12)
    assert links == (
        ("nic", "out", 0),
        ("nic", "in", 3),
        ("pcie", "out", 1),
        ("pcie", "in", 12),
    )
    assert machine.shares(card) == (1, 1, 11.25 / 20, 11.25 / 20)
    numa, links = machine.route(3, 4)  # the other CPU of the node
    assert numa.name == "numa" and ("pcie", "out", 3) in links and ("numa", "out", 0) in links
    assert machine.route(0, 3)[1] == (("pcie", "out", 0), ("pcie", "in", 3))


def test_a_link_is_not_faster_than_the_links_it_passes_through():
    def machine(port, card):
        links = {
            "port": {"bandwidth_bytes_per_s": port, "within": 2},
            "card": {"bandwidth_bytes_per_s": card, "through": ["port"]},
        }
        return Machine.from_dict({"compute": {"peak_flops": 1.0}, "links": links})

    assert machine(20.0, 10.0).links[1].bandwidth_bytes_per_s == 10.0
    slow = machine(5.0, 10.0)
    assert slow.links[1].bandwidth_bytes_per_s == 5.0
    assert slow.shares(slow.links[1]) == ()
    # the constant itself is what is varied, whatever it was cut to
    wide = slow.vary("links.port.bandwidth_bytes_per_s", 4)
    assert wide.link(0, 2).bandwidth_bytes_per_s == 10.0


#: A valid machine file with every table.
SENSIBLE = """
name = "toy"
assumed = ["compute.peak_flops"]
compute = {peak_flops = 1e12, units = 4, tiles = [[64, 64], [32, 32]], functions = {gelu = 1e-9}}
dtypes.float64.peak_flops = 5e11
links.wire = {bandwidth_bytes_per_s = 1e9, within = 4}
links.nic = {bandwidth_bytes_per_s = 1e8, through = ["wire"], lane = "nic"}
transports.rma.bandwidth_bytes_per_s = 1e9
collectives.allgather = {node = 2, shape = "ring", both_directions = true}
calibrated = {ranks = 2, m = [8, 2048], date = "2026-11-23", dtypes = ["float32"]}
residuals.any = [1.0, 1.1]
"""
#: Values that are no number of the kind that any constant has; and that no finite one, no positive
#: one, or no whole one has.
_NONE = ("x", True, [], {}, float("nan"), -1, 1e308, -float("inf"), 1 << 200)
_FINITE = (*_NONE, float("inf"))
_POSITIVE, _WHOLE = (*_NONE, 0, 5e-324), (*_NONE, 1.5, 2147483648)
#: Constants, by the values that their descriptions forbid.
NUMBERS = {
    "accumulate_slowdown fence_s compute.edge compute.k_ramp compute.launch_s links.wire.latency_s "
    "collectives.allgather.launch_s": _FINITE,
    "compute.k_block compute.unit_bytes_per_s compute.memory_bytes_per_s memory_bytes "
    "collectives.allgather.bandwidth_bytes_per_s links.wire.core_bytes_per_s pull_efficiency "
    "links.wire.bandwidth_bytes_per_s": _POSITIVE,
    "compute.peak_flops accumulate_efficiency": (*_POSITIVE, float("inf")),
    "links.wire.within links.wire.rails collectives.allgather.node copy_streams": _WHOLE,
    "compute.units links.wire.node packets": (*_WHOLE, 0),
    "compute.peak_measured links.wire.reads_in_place collectives.allgather.both_directions": (
        1,
        "no",
    ),
    "speed compute.speed compute._known": (3,),
}
#: Other values that are forbidden, as in a file.
OTHERS = r"""
"name" = [5, ["x"], "a\nb"]
"compute" = [5, "x", [], {}]
"compute.sustained" = [0, 1.5]
"compute.tiles" = ["ab", 5, [], [[]], [[0, 0]], [[64]], [[1e308, 64]], [[true, 1]]]
"compute.splits" = [[], [0], [-1], ["x"], [1.5], 1, [2, 4]]
"compute.pack_s" = [0.0, "abc", [0.0, 0.0], [0.0, 0.0, "x"], [0.0, 0.0, -1.0]]
"compute.transposed_element_s" = [0.0, [0.0], [0.0, inf]]
"compute.functions" = [5, [], {gelu = -1}, {gelu = "x"}, {gelu = inf}]
"dtypes" = [5, "x"]
"dtypes.float64" = [5, {}, {peak_flops = "x"}]
"dtypes.bf16" = [{peak_flops = 1.0}]
"links" = [5, [], {x = 3}]
"links.wire" = [5, []]
"links.wire.name" = ["nic"]
"links.wire.shared" = ["all", 5, []]
"links.wire.lane" = ["nix", 5]
"links.nic.through" = ["wire", "l", 5, [5], ["wire", "x"]]
"transports" = [5, {rmaa = {bandwidth_bytes_per_s = 1e9}}, {rma = 5}, {rma = {}}]
"collectives" = [5, {gather = {}}, {allgather = 5}]
"collectives.allgather.shape" = ["star", 5]
"torus" = [4, "RxC", [0, 4], [-2, -2], [1e9, 1e9], [4], [4, 4, 4], [true, 4]]
"devices" = [0, 1.5, "x"]
"clock" = [0, -1, 1e-5, 1e308, inf, nan, true, "x", [1.0]]
"side_units" = [1.5, 4]
"arbitration" = [5, "lottery"]
"dtype" = [5, "half"]
"assumed" = [5, "x", [5], ["x"], ["links.x.latency_s"], ["name"], ["compute.tiles"], ["links"],
             ["fence_s by 0.5"], ["fence_s by much"]]
"calibrated" = [5, {ranks = 0}, {m = 5}, {m = [1]}, {date = 5}, {when = "x"}]
"residuals" = [5, {any = 5}, {any = [1.0]}, {any = [1, 0]}, {gpu = [1.0, 1.0]}]
"sources" = [{}, 5]
"""
HOSTILE = {path: values for paths, values in NUMBERS.items() for path in paths.split()}
HOSTILE |= tomllib.loads(OTHERS)


def test_a_valid_file_is_accepted(tmp_path):
    assert Machine.load(_file(tmp_path, tomllib.loads(SENSIBLE))).links[0].within == 4


@pytest.mark.parametrize("path", HOSTILE)
def test_a_value_that_its_description_forbids_is_refused_in_one_line_that_names_it(tmp_path, path):
    for value in HOSTILE[path]:
        section = tomllib.loads(SENSIBLE)
        *tables, last = path.split(".")
        reduce(dict.__getitem__, tables, section)[last] = value
        with pytest.raises(UsageError) as error:
            raise_taken(Machine.load(_file(tmp_path, section)), value)
        message = str(error.value)
        assert "\n" not in message and last in message and len(message) < 500, (
            value,
            message,
        )


def raise_taken(machine, value):
    raise AssertionError(f"{value!r} was taken")


def _file(folder, section):
    path = folder / "machine.toml"
    path.write_text(tomlkit.dumps({"model": section}))
    return path


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = 1" + "0" * 5000, "x = \x00"])
def test_a_file_that_cannot_be_read_as_toml_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "machine.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not TOML"):
        Machine.load(path)


def test_a_transport_without_a_model_is_refused():
    with pytest.raises(UsageError, match="no model of the transport rma"):
        find_machine("pvc12").for_transport(parse_transport("rma"))
    with pytest.raises(UsageError, match="Did you mean pvc12"):
        find_machine("pvc")


def test_a_changed_constant_and_a_transport_are_those_of_each_element_type():
    section = {
        "compute": {"peak_flops": 1e12, "launch_s": 1e-6},
        "dtypes": {"float64": {"peak_flops": 5e11}},
    }
    machine = Machine.from_dict(section, "toy")
    again = machine.with_value("compute.launch_s", 2e-6).for_dtype("float64")
    assert again.compute == Compute(5e11, launch_s=2e-6)
    through = machine.for_dtype("float64").for_transport(parse_transport("throttled:1,0"))
    assert through.compute.peak_flops == 5e11
    assert find_machine(CALIBRATED).calibrated["ranks"] == 2
    assert Machine.from_dict(section, "of an earlier drbench").calibrated == {}


def test_a_lower_clock_slows_products_and_softmax_of_each_type_and_nothing_else():
    prefill = {"rope_s": 1e-6, "memory_share": 1.0, "tensor_flops": 4e11, "block_s": 1e-6}
    prefill |= {"balance": 1.0, "fp8_flops": 8e11, "score_s": 1e-9}
    section = {
        "compute": {"peak_flops": 1e12, "launch_s": 1e-6, "peak_measured": True},
        "dtypes": {"float64": {"peak_flops": 6e11}, "float16": {"peak_flops": 4e12}},
        "links": {"wire": {"bandwidth_bytes_per_s": 1e9}},
        "prefill": prefill,
    }
    slow = Machine.from_dict(section | {"clock": 0.5})
    again = slow.with_value("fence_s", 0.0)
    for machine in (slow, again):
        assert machine.peaks == {"float32": 5e11, "float64": 3e11, "float16": 2e12}
    assert slow.for_dtype("float64").for_dtype("float16").compute.peak_flops == 2e12
    assert slow.for_dtype("float64").compute == Compute(3e11, launch_s=1e-6, peak_measured=True)
    kernel = slow.prefill
    assert (kernel.tensor_flops, kernel.fp8_flops, kernel.score_s) == (2e11, 4e11, 2e-9)
    assert (kernel.rope_s, kernel.block_s) == (1e-6, 1e-6)
    assert slow.links[0].bandwidth_bytes_per_s == 1e9
    assert slow.vary("clock", 2).compute.peak_flops == 1e12
    shipped_peak = find_machine("dgxh100").compute.peak_flops
    assert find_machine("dgxh100,clock=0.25").compute.peak_flops == shipped_peak / 4


def test_a_file_has_the_constants_of_its_base_that_it_does_not_replace(tmp_path):
    (tmp_path / "one.toml").write_text(
        '[model]\nname = "one"\nfence_s = 1.0\n[model.compute]\npeak_flops = 1e12\nedge = 2\n'
        "[model.links.wire]\nbandwidth_bytes_per_s = 1e9\nlatency_s = 2.0\n"
    )
    (tmp_path / "two.toml").write_text(
        '[model]\nname = "two"\nbase = "one.toml"\n[model.compute]\nedge = 4\n'
        "[model.links.wire]\nbandwidth_bytes_per_s = 3e9\n"
    )
    (tmp_path / "three.toml").write_text('[model]\nbase = "two.toml"\nfence_s = 5.0\n')
    machine = Machine.load(tmp_path / "three.toml")
    assert (machine.name, machine.fence_s) == ("two", 5.0)
    assert (machine.compute.peak_flops, machine.compute.edge) == (1e12, 4)
    (wire,) = machine.links
    assert (wire.bandwidth_bytes_per_s, wire.latency_s) == (3e9, 2.0)
    assert machine.vary("compute.peak_flops", 2).compute.peak_flops == 2e12


@pytest.mark.parametrize("base", ["5", '"mine.toml"', '"absent.toml"', '""'])
def test_a_base_that_is_no_other_file_is_refused(tmp_path, base):
    (tmp_path / "mine.toml").write_text(f"[model]\nbase = {base}\ncompute.peak_flops = 1e12\n")
    with pytest.raises(UsageError, match="machine file .*(base must be another|No such|directory)"):
        Machine.load(tmp_path / "mine.toml")


def test_measured_times_are_at_the_ends_of_their_intervals():
    nccl = dict.fromkeys(("launch_s", "hop_s", "wide_s", "simple_s", "exchange_launch_s"), 1e-6)
    rates = "link_bytes_per_s", "wide_bytes_per_s", "counted_ll_bytes_per_s"
    nccl |= dict.fromkeys(rates, 1e11)
    nccl |= {"link_share": 0.8, "exchange_simple_s": 1e-6, "exchange_link_share": 0.8}
    intervals = {"allgather": [[0, 0.5, 1.5], [1e6, 0.9, 1.25]], "any": [[0, 0.75, 1.25]]}
    machine = Machine.from_dict(
        {"compute": {"peak_flops": 1e12}, "nccl": nccl | {"intervals": intervals}}
    )
    seconds = lambda of, *call: of.nccl_s(*call, range(4))
    for call, low, high in (
        (("allgather", 1e3), 0.5, 1.5),
        (("allgather", 1e7), 0.9, 1.25),
        (("shift", 1e7), 0.75, 1.25),
    ):
        for end, factor in (("low", low), ("high", high)):
            expected = factor * seconds(machine, *call)
            assert seconds(machine.at_end(end), *call) == pytest.approx(expected)
