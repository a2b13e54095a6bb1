"""Every claim of MeshSlice's evaluation on made-up rows: some in which all hold, and for each thing
a claim says some in which just that is not so."""

import pytest
from judging import of_meshslice

from launch.papers.meshslice import DIFFERENCE, MODELS, NUMBERS, TABLE_3, traffic
from launch.papers.meshslice.rows import LlmRow

_, NLG = MODELS
#: Seconds and utilization on 256 chips, and launches, synchronisation and transfer over products.
ON_256 = {
    "meshslice": (1.0, (67.4, 82.2), (0.01, 0.10, 0.22)),
    "wang": (None, (59.0, 65.0), (0.05, 0.03, 0.27)),
    "collective": (1.5, (45.0, 55.0), (0.01, 0.02, 0.25)),
    "cannon": (4.0, (17.0, 20.0), (0.05, 0.05, 1.50)),
    "summa": (5.0, (13.0, 16.0), (0.05, 1.20, 0.30)),
    "tensor_parallel_1d": (6.0, (11.0, 14.0), (0.01, 0.10, 2.00)),
    "fsdp": (7.0, (10.0, 12.0), (0.01, 0.10, 2.50)),
}
SHAPES = (("fc1", "forward", (64, 32, 16)), ("fc2", "backward data", (64, 16, 32)))


def base():
    """(study, model, chips, algorithm, mark) -> what is set of a row, so that every claim holds.

    The mark is the layer, the variant, the mesh or the slices, whichever sets rows apart.
    """
    rows = {}
    for at, model in enumerate(MODELS):
        for name, (seconds, utilization, parts) in ON_256.items():
            rows["weak", model, 256, name, ""] = dict(
                zip(("launch_s", "sync_s", "transfer_s"), parts),
                seconds=seconds or 1 + NUMBERS["lead over wang"][at] / 100,
                utilization_percent=utilization[at],
            )
        rows["weak", model, 256, "wang-free", ""] = {"seconds": 1.01}
        few = ON_256["meshslice"][1][at] / (1 - NUMBERS["loss from 16 to 256"][at] / 100)
        rows["weak", model, 16, "meshslice", ""] = {"seconds": 1.0, "utilization_percent": few}
        rows["weak", model, 16, "wang", ""] = {"seconds": 1.1}
        for layer, product, shape in SHAPES:
            for name, seconds in (
                ("meshslice", 1.0),
                ("collective", 1.278),
                ("wang", 1.191),
                ("cannon", 2.0),
                ("summa", 2.0),
            ):
                rows["weak", model, 256, name, layer] = {
                    "seconds": seconds,
                    "layer": layer,
                    "product": product,
                    **dict(zip("mnk", shape)),
                }
        for name in ON_256:
            rows["strong", model, 16, name, ""] = {"seconds": 1.0, "utilization_percent": 60.0}
        for name, seconds in (
            ("meshslice", 1.0),
            ("wang", 1.1),
            ("collective", 1.15),
            ("summa", 2.0),
            ("tensor_parallel_1d", 3.0),
        ):
            rows["strong", model, 256, name, ""] = {"seconds": seconds}
        rows["dataflows", model, 256, "meshslice", "the largest stays"] = {"seconds": 1.0}
        rows["dataflows", model, 256, "meshslice", "Y stays"] = {
            "seconds": 1 + NUMBERS["dataflow speedup"][at] / 100
        }
        for mesh, seconds in (("32x8", 1.0), ("16x16", 1.2), ("8x32", 2.0)):
            rows["meshes", model, 256, "meshslice", mesh] = {
                "seconds": seconds,
                "estimated_s": seconds,
                "mesh": mesh,
            }
        for slices, seconds in (("4-4-4-4", 1.2), ("8-8-8-8", 1.0)):
            rows["slices", model, 256, "meshslice", slices] = {
                "seconds": seconds,
                "estimated_s": seconds,
                "slices": slices,
            }
        for algorithm, variant, utilization in (
            ("collective", "", TABLE_3["collective"][at]),
            ("wang", "nothing overlaps", TABLE_3["wang"][at]),
            ("meshslice", "nothing overlaps", TABLE_3["meshslice"][at]),
            ("meshslice", "overlapped", (65.7, 65.6)[at]),
        ):
            rows["slice4x4", model, 16, algorithm, variant] = {
                "seconds": (0.165, 0.37)[at],
                "utilization_percent": utilization,
            }
    return rows


def holds(change=None):
    """The verdicts on the rows with some fields changed, and without those that are None."""
    empty = dict.fromkeys(LlmRow._fields)
    found = base()
    for key, fields in (change or {}).items():
        assert key in found, key
        found[key] = fields and found[key] | fields
    rows = []
    for (study, model, chips, algorithm, mark), fields in found.items():
        if fields is None:
            continue
        given = empty | {
            "mode": "simulated",
            "variant": mark if study in ("dataflows", "slice4x4") else "",
            "layer": "all",
            "product": "all",
            "mesh": "32x8",
            "utilization_percent": 50.0,
            "compute_s": 2.0,
        }
        given |= fields
        parts = {
            name: 2.0 * given[name]
            for name in ("launch_s", "sync_s", "transfer_s")
            if given[name] is not None
        }
        where = {"study": study, "model": model, "chips": chips, "algorithm": algorithm}
        rows.append(LlmRow(**given | parts | where))
    return {verdict.claim.name: verdict.holds for verdict in of_meshslice(rows)}


CLAIMS = [f"M{n}" for n in range(1, 22)]


def test_there_are_rows_in_which_every_claim_holds():
    assert holds() == dict.fromkeys(CLAIMS, True)


def one(study, chips, algorithm, mark="", model=NLG, **fields):
    return {(study, model, chips, algorithm, mark): fields or None}


def on_256(algorithm, **fields):
    return one("weak", 256, algorithm, **fields)


def all_shapes(algorithm, seconds):
    return {
        ("weak", model, 256, algorithm, layer): {"seconds": seconds}
        for model in MODELS
        for layer, _, _ in SHAPES
    }


#: Claim, what is not so, and the change that makes it not so, of one model of the two.
BROKEN = [
    ("M1", "Wang is faster on 16 chips", one("weak", 16, "wang", seconds=0.9)),
    ("M1", "FSDP is faster on 256", on_256("fsdp", seconds=0.9)),
    ("M2", "Wang is nearer", on_256("wang", seconds=1 + 0.26 * (1 - DIFFERENCE) - 0.001)),
    ("M2", "Wang is slower", on_256("wang", seconds=1 + 0.26 * (1 + DIFFERENCE) + 0.001)),
    ("M3", "1 % is lost", one("weak", 16, "meshslice", seconds=1.0, utilization_percent=83.0)),
    ("M3", "more is lost", one("weak", 16, "meshslice", seconds=1.0, utilization_percent=95.0)),
    ("M4", "utilization is lower", on_256("meshslice", utilization_percent=82.2 * 0.949)),
    ("M4", "utilization is higher", on_256("meshslice", utilization_percent=82.2 * 1.051)),
    ("M5", "Collective is before Wang", on_256("collective", seconds=1.2)),
    ("M5", "SUMMA is before Collective", on_256("summa", seconds=1.4)),
    ("M5", "Wang is 4 % behind", on_256("wang", seconds=1.04)),
    ("M5", "Wang is 4 % before Collective", on_256("wang", seconds=1.45)),
    ("M5", "SUMMA is 4 % behind Collective", on_256("summa", seconds=1.56)),
    ("M6", "Wang communicates less than Collective", on_256("wang", transfer_s=0.1)),
    ("M6", "Cannon communicates less than twice as much", on_256("cannon", transfer_s=0.44)),
    ("M6", "MeshSlice communicates a third more", on_256("meshslice", transfer_s=0.27)),
    ("M7", "Wang launches as Collective does", on_256("wang", launch_s=0.01)),
    ("M7", "Wang synchronises more than MeshSlice", on_256("wang", sync_s=0.11)),
    ("M7", "Collective synchronises as MeshSlice does", on_256("collective", sync_s=0.10)),
    ("M8", "SUMMA's transfers dominate", on_256("summa", transfer_s=1.2)),
    ("M8", "Collective moves as much as Cannon", on_256("collective", transfer_s=1.5)),
    ("M9", "SUMMA is as fast in one product", one("weak", 256, "summa", "fc1", seconds=1.0)),
    ("M9", "Wang is faster in one product", one("weak", 256, "wang", "fc2", seconds=0.9)),
    ("M10", "the lead over Collective is smaller", all_shapes("collective", 1.19)),
    ("M10", "the lead over Wang is larger", all_shapes("wang", 1.3)),
    ("M11", "one is at half", one("strong", 16, "fsdp", utilization_percent=50.0)),
    ("M12", "MeshSlice is a fifth faster than Wang", one("strong", 256, "wang", seconds=1.21)),
    ("M12", "MeshSlice is as slow as SUMMA", one("strong", 256, "summa", seconds=1.0)),
    ("M12", "1-D TP is faster", one("strong", 256, "tensor_parallel_1d", seconds=0.9)),
    ("M13", "dataflows bring more", one("dataflows", 256, "meshslice", "Y stays", seconds=1.07)),
    ("M13", "dataflows bring less", one("dataflows", 256, "meshslice", "Y stays", seconds=1.03)),
    ("M14", "another mesh is fastest", one("meshes", 256, "meshslice", "16x16", seconds=0.9)),
    ("M14", "the model says another",
     one("meshes", 256, "meshslice", "16x16", estimated_s=0.9)),
    ("M14", "another is fastest, as the model says",
     one("meshes", 256, "meshslice", "16x16", seconds=0.9, estimated_s=0.9)),
    ("M14", "the model has two others in another order",
     one("meshes", 256, "meshslice", "8x32", estimated_s=1.1)),
    ("M15", "another count is fastest", one("slices", 256, "meshslice", "4-4-4-4", seconds=0.9)),
    ("M15", "the model says another",
     one("slices", 256, "meshslice", "4-4-4-4", estimated_s=0.9)),
    ("M16", "MeshSlice is before Collective",
     one("slice4x4", 16, "meshslice", "nothing overlaps", utilization_percent=50.0)),
    ("M16", "Wang is between", one("slice4x4", 16, "wang", "nothing overlaps",
                                   utilization_percent=47.2)),
    ("M17", "Wang is as fast as Collective",
     one("slice4x4", 16, "wang", "nothing overlaps", utilization_percent=49.4)),
    ("M17", "Wang is slower", one("slice4x4", 16, "wang", "nothing overlaps",
                                  utilization_percent=44.8)),
    ("M18", "MeshSlice is as fast as Collective",
     one("slice4x4", 16, "meshslice", "nothing overlaps", utilization_percent=49.4)),
    ("M18", "it is 7 % slower",
     one("slice4x4", 16, "meshslice", "nothing overlaps", utilization_percent=46.1)),
    ("M19", "overlap gains more",
     one("slice4x4", 16, "meshslice", "overlapped", utilization_percent=72.0)),
    ("M19", "overlap gains less",
     one("slice4x4", 16, "meshslice", "overlapped", utilization_percent=60.0)),
    ("M20", "slicing takes a larger share", one("slice4x4", 16, "collective", seconds=0.2)),
]  # fmt: skip


@pytest.mark.parametrize(
    "claim, what, change",
    [pytest.param(*each, id="-".join(each[:2]).replace(" ", "_")) for each in BROKEN],
)
def test_a_claim_fails_where_one_thing_it_says_is_not_so_of_one_model(claim, what, change):
    assert holds(change)[claim] is False, what


#: Rows without which a claim cannot be decided.
NEEDED = [
    (("M2", "M4", "M5", "M6", "M7", "M8"), on_256("meshslice")),
    (("M6", "M7", "M8"), on_256("fsdp")),
    (("M3",), one("weak", 16, "meshslice")),
    (("M11", "M12"), one("strong", 256, "meshslice")),
    (("M11", "M12"), one("strong", 16, "meshslice")),
    (("M13",), one("dataflows", 256, "meshslice", "Y stays")),
    (("M16", "M17", "M18", "M19", "M20"), one("slice4x4", 16, "collective")),
    (("M19",), one("slice4x4", 16, "meshslice", "overlapped")),
]


@pytest.mark.parametrize("claims, change", NEEDED)
def test_a_claim_without_a_models_rows_is_undecided(claims, change):
    found = holds(change)
    assert [found[claim] for claim in claims] == [None] * len(claims)


def test_claims_about_a_study_that_is_not_there_are_undecided():
    for study, claims in (
        ("weak", CLAIMS[:10]),
        ("strong", CLAIMS[10:12]),
        ("dataflows", CLAIMS[12:13]),
        ("meshes", CLAIMS[13:14]),
        ("slices", CLAIMS[14:15]),
        ("slice4x4", CLAIMS[15:20]),
    ):
        found = holds({key: None for key in base() if key[0] == study})
        assert found == {claim: None if claim in claims else True for claim in CLAIMS}


def test_traffic_is_what_the_ways_of_the_matrices_add_up_to():
    """Step by step, on a small problem: 2 x 2 x 2 chips; and on 4 x 2 x 2."""
    m, n, k, item = 64, 32, 16, 2
    block = lambda one, other: item * one * other
    cannon = sum(block(m // 2, k // 2) + block(k // 2, n // 2) for _ in range(2 // 2))
    assert traffic(m, n, k, 2, 2, 2)[0] == cannon
    gathered = 3 * block(k // 4, n // 2)  # three other rows of the mesh have a shard of B
    scattered = 1 * block(m // 2 // 4, n // 2)  # one other column, on the mesh's half of the rows
    copied = 1 * block(k // 4, n // 2)  # from the one other mesh
    assert traffic(m, n, k, 4, 2, 2)[1] == gathered + scattered + copied
