"""A synthetic sweep that looks like a real one: every form, factor and movement of the two
layers."""

import random
from itertools import product
from types import SimpleNamespace

import pytest
from made_up import of_universal

from drbench.measure.record import Record

FORMS = {
    "UA - Row": ("row", "row", "row"),
    "UA - Column": ("column", "column", "column"),
    "UA - Block": ("block", "block", "block"),
    "UA - Inner Prod.": ("row", "column", "column"),
    "UA - Outer Prod.": ("column", "row", "row"),
    "UA - Traditional": ("traditional", "traditional", "traditional"),
}
# percent at the largest batch without replication, Stationary C: the order of the paper's Figure 2
LEVEL = {
    "mlp1": dict(zip(FORMS, (38, 88, 55, 79, 34, 47), strict=True)),
    "mlp2": dict(zip(FORMS, (30, 36, 74, 40, 71, 52), strict=True)),
}


def _divisors(p):
    return [c for c in range(1, p + 1) if p % c == 0]


def _with_factor(text, factor):
    return text if factor == 1 else f"{text}/c{factor}"


def case(**values):
    """A simulated case on pvc12."""
    known = {"mode": "simulated", "machine": "pvc12", "m": 1024, "ranks": 12, "get_bytes": 100}
    percent = values.get("percent_of_peak") or values.get("percent_of_roof") or 50.0
    ok = {"best_s": 50.0 / percent} if values.get("status", "ok") == "ok" else {}
    return of_universal(**{**known, "percent_of_peak": 50.0, **ok, **values})


def sweep(ranks=12, h=12288, quantity="percent_of_peak", seed=0, **common):
    """Every case of both layers, in a shuffled order; some fail, some move nothing."""
    chance = random.Random(seed)
    records = []
    triples = [(ab, ab, c) for ab, c in product(_divisors(ranks), repeat=2)]
    for layer, (n, k) in {"mlp1": (4 * h, h), "mlp2": (h, 4 * h)}.items():
        for (name, form), stationary, m in product(FORMS.items(), "ABC", (1024, 2048, 4096, 8192)):
            for factors in triples:
                percent = LEVEL[layer][name] * (0.55 + 0.15 * (m.bit_length() - 11))
                percent *= {"A": 1.2, "B": 1.05 if name == "UA - Outer Prod." else 0.8, "C": 1.0}[
                    stationary
                ]
                best_factor = {"UA - Row": 3, "UA - Outer Prod.": 2}.get(name, 1)
                percent *= 1 - 0.1 * abs(factors[0] - best_factor) ** 0.5 - 0.02 * (factors[2] != 1)
                percent = max(percent, 1) * chance.uniform(0.97, 1.03)
                still = name == "UA - Row" and factors == (ranks, ranks, ranks)
                ended = chance.random()
                values = {
                    "stationary": stationary,
                    "m": m,
                    "n": n,
                    "k": k,
                    "ranks": ranks,
                    **dict(zip("abc", map(_with_factor, form, factors), strict=True)),
                }
                if ended < 0.01:
                    values |= {
                        "status": "timeout",
                        "reason": "no end in 60 s",
                        "best_s": None,
                        "percent_of_peak": None,
                    }
                else:
                    gflops = percent / 100 * 22.7e3 * ranks
                    values |= {
                        "best_s": 2 * m * n * k / gflops / 1e9,
                        "gflops": gflops,
                        "percent_of_peak": None,
                    }
                    values |= {quantity: 250.0 if still else percent}
                    values |= {"get_bytes": 0 if still else m * k * 4, "replica_bytes": 0}
                records.append(case(**{**values, **common}))
    records += published(h)
    chance.shuffle(records)
    return records


def published(h=12288):
    """Peers' lines, close to those published for the H100 system."""
    tflops = {
        ("DT - Row", "mlp1"): (319.6, 323.4, 344.5, 346.3),
        ("DT - Column", "mlp1"): (345.2, 379.7, 382.9, 335.1),
        ("COSMA-NCCL", "mlp1"): (88.4, 117.8, 141.4, 157.1),
        ("DT - Row", "mlp2"): (360.4, 372.3, 376.8, 364.2),
        ("DT - Column", "mlp2"): (329.3, 328.9, 357.0, 360.3),
        ("COSMA-NCCL", "mlp2"): (123.7, 176.7, 235.6, 282.7),
    }
    return [
        Record(
            mode="published",
            machine="h100x8",
            algorithm=name,
            m=m,
            n=4 * h if layer == "mlp1" else h,
            k=h if layer == "mlp1" else 4 * h,
            dtype="float32",
            ranks=8,
            status="ok",
            reason="synthetic",
            best_s=100 / rate,
            percent_of_peak=100 * rate / 536,
        )
        for (name, layer), rates in tflops.items()
        for m, rate in zip((1024, 2048, 4096, 8192), rates, strict=True)
    ]


def exhaustive(ranks=2, seed=1, **common):
    """Every triple of row, column and block × every triple of factors × Stationary A, B, C of one
    shape; some fail."""
    chance = random.Random(seed)
    records = []
    for forms, factors, stationary in product(
        product(("row", "column", "block"), repeat=3), product(_divisors(ranks), repeat=3), "ABC"
    ):
        percent = chance.uniform(10, 99)
        values = dict(zip("abc", map(_with_factor, forms, factors), strict=True)) | {
            "stationary": stationary,
            "ranks": ranks,
            "mode": "measured",
        }
        values |= {
            "m": 64,
            "n": 768,
            "k": 192,
            "machine": "small",
            "percent_of_peak": None,
            "transport": "direct",
        }
        if chance.random() < 0.02:
            values |= {"status": "failed", "reason": "rank 1 raised", "best_s": None}
        else:
            values |= {
                "best_s": 1e-3 * 100 / percent,
                "percent_of_roof": percent,
                "roof_gflops": 30.0,
                "phase_gemm_s": 8e-4,
                "phase_fence_s": 1e-5,
            }
            values |= {
                "get_bytes": 0,
                "direct_bytes": chance.choice([0, 4096, 65536, 2**20]),
                "accumulate_bytes": 2048 if stationary != "C" else 0,
            }
        records.append(case(**{**values, **common}))
    return records


ALGORITHMS = {
    "summa": [{"dataflow": flow, "panel": 256} for flow in ("OS", "LS", "RS")],
    "cannon": [{}],
    "collective": [{"dataflow": "OS"}],
    "meshslice": [{"dataflow": "OS", "slices": 4}],
    "scalapack": [{"block": 64}],
    "universal": [{"stationary": each} for each in "ABC"],
}


def comparison(shapes=((64, 768, 192), (512, 512, 512)), ranks=(1, 2, 4), seed=2):
    """Several algorithms on several shapes and numbers of ranks; scalapack never on 4, and without
    phases."""
    chance = random.Random(seed)
    records = []
    for (m, n, k), p, (name, variants), mesh in product(
        shapes, ranks, ALGORITHMS.items(), ("1x2", "2x1")
    ):
        if (name, p) == ("scalapack", 4):
            continue
        for options in variants:
            ideal = 2 * m * n * k / (30e9 * p)
            best = ideal / chance.uniform(0.3, 1)
            phases = (
                {}
                if name == "scalapack"
                else {
                    "phase_gemm_s": ideal,
                    "phase_collective_wait_s": (best - ideal) / 2,
                    "phase_pack_s": (best - ideal) / 9,
                }
            )
            values = {
                "stationary": None,
                "a": None,
                "b": None,
                "c": None,
                "percent_of_peak": None,
                "percent_of_roof": 100 * ideal / best,
            }
            values |= {
                "algorithm": name,
                "m": m,
                "n": n,
                "k": k,
                "ranks": p,
                "best_s": best,
                "median_s": best * 1.1,
                "mode": "measured",
                "machine": "small",
            }
            values |= {
                "percent_of_roof_min": 90 * ideal / best,
                "percent_of_roof_max": 105 * ideal / best,
                "roof_gflops": 30.0 * p,
                "mesh": mesh,
            }
            values |= (
                {"get_bytes": 0, "collective_bytes": chance.randrange(10**6)} | phases | options
            )
            if name == "universal":
                values |= {
                    "a": "row",
                    "b": "row",
                    "c": "row" if mesh == "1x2" else "column",
                    "mesh": None,
                }
            records.append(case(**values))
    return records


def weak(ranks=(1, 2, 4)):
    """The comparison with m growing with the ranks."""
    return [
        record
        for p in ranks
        for record in comparison(shapes=((96 * p, 300, 200),), ranks=(p,), seed=p)
    ]


@pytest.fixture(scope="session")
def synthetic():
    """The makers of synthetic records, for the tests of this folder."""
    return SimpleNamespace(
        case=case,
        sweep=sweep,
        published=published,
        forms=FORMS,
        exhaustive=exhaustive,
        comparison=comparison,
        weak=weak,
    )
