"""Made-up figures in which every claim about Figures 2 and 3 holds, as records, and changes of
them."""

from drbench.measure.record import Record

BATCHES = (1024, 4096, 8192)
FORMS = {
    "Row": "row row row",
    "Column": "column column column",
    "Block": "block block block",
    "Inner": "row column column",
    "Outer": "column row row",
    "Traditional": "traditional traditional traditional",
}
SHAPES = {"mlp1": {"n": 256, "k": 64}, "mlp2": {"n": 64, "k": 256}}
RANKS = {"pvc12": 12, "h100x8": 8}

#: (machine, layer, partitioning, stationary, factors of A, B and C) -> percent of peak at the
#: smallest and at the largest batch, in the middle their mean if it is not given. Figures of which
#: every claim is true.
PVC1 = {
    ("Column", "C", "1-1-1"): (78, 82),
    ("Column", "C", "2-2-2"): (60, 70),
    ("Column", "B", "1-1-1"): (30, 30),
    ("Inner", "C", "1-1-1"): (68, 72),
    ("Inner", "B", "1-1-1"): (25, 25),
    ("Block", "C", "1-1-1"): (40, 50),
    ("Row", "C", "1-1-1"): (31, 20),
    ("Row", "C", "4-4-4"): (30, 35),
    ("Outer", "C", "1-1-1"): (33, 33),
    ("Outer", "C", "2-2-2"): (34, 32),
    ("Traditional", "C", "1-1-1"): (31, 31),
}
PVC2 = {
    ("Outer", "B", "1-1-1"): (40, 40),
    ("Outer", "B", "4-4-2"): (72, 72),
    ("Outer", "B", "6-6-6"): (60, 60),
    ("Outer", "B", "12-12-12"): (50, 50),
    ("Outer", "C", "1-1-1"): (30, 30),
    ("Block", "B", "4-4-2"): (66, 66),
    ("Block", "C", "1-1-1"): (30, 30),
    ("Row", "C", "4-4-2"): (50, 50),
    ("Column", "C", "4-4-2"): (45, 45),
    ("Inner", "C", "2-2-2"): (40, 40),
    ("Traditional", "C", "1-1-1"): (20, 20),
}
H1001 = {
    ("Column", "C", "1-1-1"): (90, 91),
    ("Inner", "C", "1-1-1"): (89, 90),
    ("Block", "C", "1-1-1"): (70, 80),
    ("Row", "C", "1-1-1"): (70, 80),
    ("Outer", "C", "1-1-1"): (69, 79),
    ("Traditional", "C", "1-1-1"): (68, 78),
}
H1002 = {
    ("Outer", "C", "1-1-1"): (75, 76),
    ("Outer", "B", "1-1-1"): (60, 61),
    ("Block", "C", "1-1-1"): (70, 71),
    ("Row", "C", "1-1-1"): (70, 71),
    ("Column", "C", "1-1-1"): (72, 73),
    ("Inner", "C", "1-1-1"): (71, 72),
    ("Traditional", "C", "1-1-1"): (69, 70),
    ("Traditional", "B", "1-1-1"): (50, 50),
}
FIGURES = {
    (machine, layer, *line): percents
    for (machine, layer), lines in {
        ("pvc12", "mlp1"): PVC1,
        ("pvc12", "mlp2"): PVC2,
        ("h100x8", "mlp1"): H1001,
        ("h100x8", "mlp2"): H1002,
    }.items()
    for line, percents in lines.items()
}
#: Seconds of the products, where claims speak of them; a case takes 100 s over its
#: percent of peak.
PRODUCTS = {
    ("pvc12", "mlp1", "Column", "C", "1-1-1"): (0.4, 0.4),
    ("pvc12", "mlp1", "Inner", "C", "1-1-1"): (0.7, 0.7),
    ("pvc12", "mlp2", "Outer", "B", "1-1-1"): (2.0, 2.0),
    ("pvc12", "mlp2", "Outer", "B", "4-4-2"): (0.7, 0.7),
    ("pvc12", "mlp2", "Outer", "B", "12-12-12"): (0.9, 0.9),
}
#: The same for DTensor's published lines, (machine, layer, name) -> percents.
PUBLISHED = {
    ("h100x8", "mlp1", "DT - Row"): (60, 60),
    ("h100x8", "mlp1", "DT - Column"): (93, 95),
    ("h100x8", "mlp2", "DT - Row"): (50, 79),
    ("h100x8", "mlp2", "DT - Column"): (60, 60),
}
#: And for DTensor as it is simulated, (machine, layer, by what all matrices lie) -> percents.
SIMULATED = {
    ("pvc12", "mlp1", "row"): (50, 50),
    ("pvc12", "mlp1", "column"): (77, 81),
    ("pvc12", "mlp2", "row"): (75, 75),
    ("h100x8", "mlp1", "row"): (60, 61),
    ("h100x8", "mlp1", "column"): (92, 94),
    ("h100x8", "mlp2", "row"): (50, 78),
    ("h100x8", "mlp2", "column"): (61, 59),
}
#: Schedules of the same case: (partitioning, kind, batch) -> seconds of direct and of exhaustive.
SCHEDULES = {
    **{("aligned", x): (1.04, 1.0) for x in range(1, 20)},
    ("aligned", 20): (1.5, 1.0),
    ("misaligned", 1): (1.04, 1.0),
    ("misaligned", 2): (1.5, 1.0),
}
TEXTS = {"aligned": "column column column", "misaligned": "tiles:100x300 tiles:70x90 block"}


def at_batches(values):
    """The values at all batches: that of the middle may be left out."""
    return values if len(values) == 3 else (values[0], sum(values) / 2, values[1])


def records(figures=None, products=None, published=None, schedules=None, dtensor=None):
    """The figures in which all claims hold, with these entries instead; without those that are
    None."""

    def with_changes(base, changes):
        return {key: value for key, value in (base | (changes or {})).items() if value is not None}

    common = {"status": "ok", "dtype": "float32", "get_bytes": 8, "algorithm": "universal"}
    found = []
    products = with_changes(PRODUCTS, products)
    for key, percents in with_changes(FIGURES, figures).items():
        machine, layer, name, stationary, factors = key
        texts = [
            form if factor == "1" else f"{form}/c{factor}"
            for form, factor in zip(FORMS[name].split(), factors.split("-"))
        ]
        for at, (m, percent) in enumerate(zip(BATCHES, at_batches(percents))):
            best_s = 100 / percent
            found.append(
                Record(
                    mode="simulated",
                    machine=machine,
                    ranks=RANKS[machine],
                    stationary=stationary,
                    m=m,
                    **SHAPES[layer],
                    **dict(zip("abc", texts)),
                    preset=name.lower(),
                    best_s=best_s,
                    percent_of_peak=float(percent),
                    phase_gemm_s=at_batches(products.get(key, (0, 0)))[at],
                    **common,
                )
            )
    for (machine, layer, name), percents in with_changes(PUBLISHED, published).items():
        found += [
            Record(
                mode="published",
                machine=machine,
                ranks=RANKS[machine],
                m=m,
                **SHAPES[layer],
                best_s=1.0,
                percent_of_peak=float(percent),
                reason="made up",
                **common | {"algorithm": name},
            )
            for m, percent in zip(BATCHES, at_batches(percents))
        ]
    for (machine, layer, by), percents in with_changes(SIMULATED, dtensor).items():
        found += [
            Record(
                mode="simulated",
                machine=machine,
                ranks=RANKS[machine],
                m=m,
                **SHAPES[layer],
                **dict.fromkeys("abc", by),
                best_s=100 / percent,
                percent_of_peak=float(percent),
                **common | {"algorithm": "dtensor_mm"},
            )
            for m, percent in zip(BATCHES, at_batches(percents))
        ]
    for (kind, x), times in with_changes(SCHEDULES, schedules).items():
        found += [
            Record(
                mode="simulated",
                machine="elsewhere",
                ranks=12,
                stationary="C",
                m=64 * x,
                n=512,
                k=512,
                **dict(zip("abc", TEXTS[kind].split())),
                preset="column" if kind == "aligned" else None,
                schedule=schedule,
                best_s=best_s,
                reason=None if best_s else "too many choices",
                **common | {"status": "ok" if best_s else "unsupported"},
            )
            for schedule, best_s in zip(("direct", "exhaustive"), times)
        ]
    return found


def pvc1(name, stationary, factors, *percents):
    return {("pvc12", "mlp1", name, stationary, factors): percents or None}


def pvc2(name, stationary, factors, *percents):
    return {("pvc12", "mlp2", name, stationary, factors): percents or None}


def h1001(name, stationary, factors, *percents):
    return {("h100x8", "mlp1", name, stationary, factors): percents or None}


def h1002(name, stationary, factors, *percents):
    return {("h100x8", "mlp2", name, stationary, factors): percents or None}
