"""Machine files and sweep files at random: those of drbench, with a few values, names or tables
changed, mostly to invalid ones."""

import json
import random
import tomllib
from copy import deepcopy
from math import inf, nan

from drbench.launch.cases.sweep_values import shipped

#: Replacements of a value.
HOSTILE = (
    *(0, 1, -1, 2, 3, 7, 0.5, -0.5, 1e-9, -0.0, 1.5, 1e9, 1e18, 1e24, 1e30, 1e-308, 5e-324, 1e308),
    *(inf, -inf, nan, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**40, -(2**63)),
    *(True, False, "", "x", "a", "row", "C", "inf", "all", "fastest", "auto", "48Ki", "-1", "1/0"),
    *("0/0", "a\nb", "\x1b[31m", "ü" * 300, "'; rm", "../..", "S(9)", "grid:1x1x2", "P", "/c2"),
    *([], {}, [[]], [{}], [0], [1], [1, 2], [1, 2, 3], [[1, 1]], [[0, 0]], [-1, -1], ["x"], [nan]),
    *([1e9, 1e9], [True], [None and 0], [2, 2], {"x": 1}, {"x": {}}, "1:5:2", "1:9:+0"),
    *(f"1:{2**62}:+1", "1:8:*2", "0:8:*2", "all:8:+1", ":::", "1:2:*", "2:1:+1"),
)
#: Names that replace or add constants and keys.
NAMES = (
    *("m", "n", "k", "a", "b", "c", "x", "name", "links", "compute", "node", "units", "splits"),
    *("tiles", "latency_s", "bandwidth_bytes_per_s", "launch_s", "packets", "torus", "assumed"),
    *("transpose", "stationary", "algorithm", "preset", "partitions", "replication", "zip"),
    *("options", "trace", "backend", "seed", "iters", "mesh", "slices", "_known"),
    *("sources", "copy_streams", "accumulate_slowdown", "devices"),
    *("k_block", "edge", "k_ramp", "pack_s", "through", "within", "rails", "lane", "shared"),
    *("residuals", "calibrated", "functions", "transports", "collectives", "dtypes", "dtype"),
    *("signal_s", "side_units", "arbitration", "shape", "adds_on_core", "gemm_per_fragment", "é"),
)


def machine_section(rng: random.Random) -> dict:
    """The section of a machine of drbench."""
    files = shipped("machines").values()
    sections = [tomllib.loads(path.read_text()).get("model") for path in files]
    section = rng.choice([section for section in sections if section])
    if section.get("torus"):
        section["torus"] = rng.choice([[2, 2], [2, 3], [1, 4]])
    return section


def sweep_table(rng: random.Random) -> dict:
    """A sweep of drbench, its lists cut to two values each."""
    table = tomllib.loads(rng.choice([*shipped("sweeps").values()]).read_text())
    table["scale"] = "1/64"
    for block in (table.get("defaults", {}), *table["cases"]):
        for key, value in block.items():
            if isinstance(value, list) and key != "zip":
                block[key] = value[:2]
            elif value == "all" and key in ("partitions", "replication"):
                block[key] = {"partitions": [["row"] * 3], "replication": [1]}[key]
    table["cases"] = rng.sample(table["cases"], min(2, len(table["cases"])))
    return table


def mutate(table: dict, donor: dict, rng: random.Random) -> list[str]:
    """Change a table in one to four places, some of them to values of ``donor``, another file, with
    the same name; return the changes."""
    return [_mutate_once(table, donor, rng) for _ in range(rng.choice([1, 1, 1, 2, 4]))]


def _mutate_once(table: dict, donor: dict, rng: random.Random) -> str:
    places = list(_places(table))
    place, key = rng.choice(places)
    value, how = place[key], rng.random()
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    same = [other[name] for other, name in _places(donor) if name == key and type(key) is str]
    if same and rng.random() < 0.4:
        place[key] = deepcopy(rng.choice(same))
    elif number and how < 0.6:  # another number of its type, or far beyond
        place[key] = value * 10.0 ** rng.choice([-300, -30, -9, -3, -1, -0.3, 0.3, 1, 3, 9, 30])
        if isinstance(value, int) and abs(place[key]) < 1e18 and rng.random() < 0.8:
            place[key] = int(place[key])
    elif how < 0.75:
        place[key] = deepcopy(rng.choice(HOSTILE))
    elif isinstance(place, dict) and how < 0.85:
        place[rng.choice(NAMES)] = deepcopy(rng.choice([rng.choice(HOSTILE), value]))
    elif isinstance(place, dict) and how < 0.90:
        place[rng.choice(NAMES)] = place.pop(key)
    elif isinstance(place, dict) and how < 0.95:
        del place[key]
    else:  # the value of another place
        other, name = rng.choice(places)
        place[key] = deepcopy(other[name])
    return f"{key}: {value!r:.60} -> {place[key] if _has(place, key) else 'gone'!r:.60}"


def _has(place, key) -> bool:
    return key in place if isinstance(place, dict) else key < len(place)


def _places(table):
    """(table or list, key or place) of everything in a table."""
    for key in table if isinstance(table, dict) else range(len(table)):
        yield table, key
        if isinstance(table[key], (dict, list)):
            yield from _places(table[key])


def to_toml(value) -> str:
    """A value as TOML on one line; a table's own entries are lines."""
    if isinstance(value, dict):
        entries = (f"{json.dumps(key)} = {to_toml(each)}" for key, each in value.items())
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, str) else repr(value)


def write(table: dict) -> str:
    """A table as the text of a TOML file."""
    return "".join(f"{json.dumps(key)} = {to_toml(value)}\n" for key, value in table.items())


def odd_numbers(value, where: str = ""):
    """Paths of numbers that no constant may have: below 0, none, and infinite ones with them."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from odd_numbers(each, f"{where}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from odd_numbers(each, where)
    elif isinstance(value, float) and not 0 <= value < inf:
        yield where, value
    elif isinstance(value, int) and not isinstance(value, bool) and value < 0:
        yield where, value
