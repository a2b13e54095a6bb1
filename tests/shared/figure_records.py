"""Synthetic sweeps that look like real ones, for figures to choose from."""

import itertools
import random

from made_up import of_universal

from drbench.measure.record import Record
from drbench.plots.select.cases import LEGEND

#: The partitionings of A, B and C of the figures of the two layers, by their names.
FORMS = {name: form for name, form in LEGEND.items() if form}


def _divisors(p):
    return [c for c in range(1, p + 1) if p % c == 0]


def _with_factors(forms, factors):
    """Partitionings of A, B and C, each with its replication factor."""
    texts = [form if q == 1 else f"{form}/c{q}" for form, q in zip(forms, factors, strict=True)]
    return dict(zip("abc", texts, strict=True))


def case(**values):
    """A simulated case on pvc12."""
    known = {"mode": "simulated", "label": "pvc12", "m": 1024, "ranks": 12, "get_bytes": 100}
    percent = values.get("percent_of_peak") or values.get("percent_of_gemm_only") or 50.0
    ended = {"best_s": 50.0 / percent, "percent_of_peak": 50.0}
    if values.get("status", "ok") != "ok":
        ended = {"reason": "no end in 60 s"}
    return of_universal(**{**known, **ended, **values})


def sweep(ranks=12, h=12288, quantity="percent_of_peak", **common):
    """Every form, factor and movement of both layers, in a shuffled order, of which some fail; and
    libraries."""
    chance = random.Random(0)
    records = []
    layers = {"mlp1": (4 * h, h), "mlp2": (h, 4 * h)}
    for (n, k), forms, stationary, m in itertools.product(
        layers.values(), FORMS.values(), "ABC", (1024, 2048, 4096, 8192)
    ):
        for ab, c in itertools.product(_divisors(ranks), repeat=2):
            percent = chance.uniform(10, 70) + 15 * (stationary == "C")
            ended = {"percent_of_peak": None, quantity: percent}
            if chance.random() < 0.01:
                ended = {"status": "timeout"}
            sizes = {"m": m, "n": n, "k": k, "ranks": ranks, "stationary": stationary}
            records.append(case(**_with_factors(forms, (ab, ab, c)), **sizes, **ended, **common))
    records += published(h)
    chance.shuffle(records)
    return records


def published(h=12288):
    """Lines of libraries, close to those published for the H100 system."""
    tflops = {
        ("DT - Row", 4): (319.6, 323.4, 344.5, 346.3),
        ("DT - Column", 4): (345.2, 379.7, 382.9, 335.1),
        ("COSMA-NCCL", 4): (88.4, 117.8, 141.4, 157.1),
        ("DT - Row", 1): (360.4, 372.3, 376.8, 364.2),
        ("DT - Column", 1): (329.3, 328.9, 357.0, 360.3),
        ("COSMA-NCCL", 1): (123.7, 176.7, 235.6, 282.7),
    }
    return [
        Record(
            mode="published",
            label="h100x8",
            algorithm=name,
            m=m,
            n=wide * h,
            k=(5 - wide) * h,
            dtype="float32",
            ranks=8,
            status="ok",
            reason="synthetic",
            best_s=100 / rate,
            percent_of_peak=100 * rate / 536,
        )
        for (name, wide), rates in tflops.items()
        for m, rate in zip((1024, 2048, 4096, 8192), rates, strict=True)
    ]


def exhaustive(ranks=2):
    """Every triple of row, column and block × every triple of factors × Stationary A, B, C of one
    shape; some fail."""
    chance = random.Random(1)
    records = []
    for forms, factors, stationary in itertools.product(
        itertools.product(("row", "column", "block"), repeat=3),
        itertools.product(_divisors(ranks), repeat=3),
        "ABC",
    ):
        percent = chance.uniform(10, 99)
        ended = {
            "percent_of_peak": None,
            "best_s": 1e-3 * 100 / percent,
            "percent_of_gemm_only": percent,
            "gemm_only_gflops": 30.0,
            "phase_gemm_s": 8e-4,
            "phase_fence_s": 1e-5,
        }
        if chance.random() < 0.02:
            ended = {"status": "failed"}
        records.append(
            case(
                **_with_factors(forms, factors),
                **ended,
                stationary=stationary,
                ranks=ranks,
                mode="measured",
                m=64,
                n=768,
                k=192,
                label="small",
                transport="direct",
                get_bytes=0,
                direct_bytes=chance.choice([0, 4096, 65536, 2**20]),
                accumulate_bytes=2048 if stationary != "C" else 0,
            )
        )
    return records


ALGORITHMS = {
    "summa": [{"dataflow": flow, "panel": 256} for flow in ("OS", "LS", "RS")],
    "cannon": [{}],
    "collective": [{"dataflow": "OS"}],
    "meshslice": [{"dataflow": "OS", "slices": 4}],
    "scalapack": [{"block": 64}],
    "universal": [{"stationary": each, "a": "row", "b": "row"} for each in "ABC"],
}


def comparison(shapes=((64, 768, 192), (512, 512, 512)), ranks=(1, 2, 4), seed=2):
    """Several algorithms on several shapes and numbers of ranks; scalapack never on 4, and without
    phases."""
    chance = random.Random(seed)
    records = []
    for (m, n, k), p, (name, variants), mesh in itertools.product(
        shapes, ranks, ALGORITHMS.items(), ("1x2", "2x1")
    ):
        if (name, p) == ("scalapack", 4):
            continue
        for options in variants:
            ideal = 2 * m * n * k / (30e9 * p)
            best = ideal / chance.uniform(0.3, 1)
            values = {"stationary": None, "a": None, "b": None, "c": None, "mesh": mesh}
            if name == "universal":
                values = {"c": "row" if mesh == "1x2" else "column"}
            if name != "scalapack":
                values["phase_gemm_s"] = ideal
                values["phase_collective_wait_s"] = (best - ideal) / 2
                values["phase_pack_s"] = (best - ideal) / 9
            values |= options
            records.append(
                case(
                    **values,
                    algorithm=name,
                    m=m,
                    n=n,
                    k=k,
                    ranks=p,
                    best_s=best,
                    median_s=best * 1.1,
                    mode="measured",
                    label="small",
                    percent_of_peak=None,
                    percent_of_gemm_only=100 * ideal / best,
                    percent_of_gemm_only_min=90 * ideal / best,
                    percent_of_gemm_only_max=105 * ideal / best,
                    gemm_only_gflops=30.0 * p,
                    get_bytes=0,
                    collective_bytes=chance.randrange(10**6),
                )
            )
    return records


def weak(ranks=(1, 2, 4)):
    """The comparison with m growing with the ranks."""
    return [
        record
        for p in ranks
        for record in comparison(shapes=((96 * p, 300, 200),), ranks=(p,), seed=p)
    ]


#: The layouts of :func:`rounds`.
KINDS = "row", "column", "block"


def rounds(ratios, **more):
    """Six rounds of cases with these times in ms, on a machine that becomes twice as slow."""
    more = {"percent_of_gemm_only": 90.0, "percent_of_peak": 40.0} | more
    return [
        of_universal(
            **dict.fromkeys("abc", kind),
            median_s=1e-3 * ratio * (1 + turn / 5),
            samples_s=[1e-3 * ratio * (1 + turn / 5)],
            gemm_only_gflops=100.0 / (1 + turn / 100),
            case=f"{turn + 1} | {kind}",
            **more,
        )
        for kind, ratio in zip(KINDS, ratios)
        for turn in range(6)
    ]


def texts(description):
    """The texts of a described figure."""
    return list(map(str.strip, description.partition("texts:\n")[2].splitlines()))
