"""What is pasted: a chain's layouts in three notations, plans of tensor and data parallelism, and a
script that computes the chain on stock DTensor as one process does."""

import ast
import json
import random
import re
import socket
import sys
from importlib.util import find_spec
from math import prod
from types import SimpleNamespace

import numpy as np
import pytest
from layer_chains import layers
from starting import find_mpiexec, run_process

from drbench.chains.model.description import LocalMap, read
from drbench.chains.model.functions import (
    apply,
    attention,
    columns,
    function,
    latent_attention,
)
from drbench.chains.model.mesh import DeviceMesh
from drbench.chains.model.transformers import preset
from drbench.chains.script import layout_rows, script_text
from drbench.errors import UnsupportedError

#: By mesh dimension: A, B and the result of a multiplication.
TRIPLES = [
    ("S(0)", "R", "S(0)"),
    ("R", "S(1)", "S(1)"),
    ("S(1)", "S(0)", "P"),
    ("R", "R", "R"),
]
SWAPPED = {"S(0)": "S(1)", "S(1)": "S(0)"}
#: Runs scripts one after another on ranks that share an import of PyTorch: arguments RANKS:SCRIPT.
DRIVER = """
import io, json, os, runpy, sys
from contextlib import redirect_stdout
import torch.distributed.fsdp, torch.distributed.tensor.parallel, torch.nn.parallel

torch.distributed.destroy_process_group = lambda: None
leave, os._exit = os._exit, sys.exit

def run(path):
    printed, code = io.StringIO(), 0
    try:
        with redirect_stdout(printed):
            runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        code = error.code
    text = code if isinstance(code, str) else ""
    return bool(code), printed.getvalue() + text

cases = [each.split(":") for each in sys.argv[1:]]
for ranks in {each for each, _ in cases}:
    children = []
    for rank in range(int(ranks)):
        children.append(os.fork())
        if not children[-1]:
            if ranks != "1":
                port = str(int(os.environ["MASTER_PORT"]) + int(ranks))
                os.environ |= {"RANK": str(rank), "WORLD_SIZE": ranks, "MASTER_PORT": port}
            found = {path: run(path) for each, path in cases if each == ranks}
            with open(f"answers-{ranks}-{rank}.json", "w") as file:
                json.dump(found, file)
            leave(0)
    for child in children:
        os.waitpid(child, 0)
"""


#: A block with latent attention of eight heads, four sequences.
LATENT = """
X = input(4096, 512)
Wqa = weight(512, 256)
A = X @ Wqa
Wqb = weight(256, 8 * 192)
Q = A @ Wqb
Wkva = weight(512, 576)
L = X @ Wkva
C = columns(L, first=512)
Wkvb = weight(512, 8 * 256)
KV = C @ Wkvb
O = latent_attention(Q, KV, heads=8, head_dim=128, rotary=64, sequence=1024)
Wo = weight(8 * 128, 512)
Y = O @ Wo
Z = X + Y
"""


def solution(chain, mesh, layouts, inner):
    """What the search returns, as far as scripts use it."""
    layout = lambda name: layouts[chain.variable(name)]
    return SimpleNamespace(
        name="chosen", chain=chain, mesh=mesh, layouts=layouts, layout=layout, inner=inner
    )


def possible(chain, mesh, variable, layout):
    """Whether functions find whole units of columns and whole sequences, and tiles are equal."""
    parts = [prod(n for n, x in zip(mesh.extents, layout) if x == f"S({side})") for side in (0, 1)]
    for each in chain.operations:
        if isinstance(each, LocalMap) and chain.variable(each.c) == variable:
            made, of = chain.matrices[each.c], each.function
            if made.rows // of.rows % parts[0] or made.cols // of.gives % parts[1]:
                return False
    shapes = [chain.matrices[name].shape for name, x in chain.variables.items() if x == variable]
    return not any(rows % parts[0] or cols % parts[1] for rows, cols in shapes)


def drawn(chain, mesh, seed):
    rng = random.Random(seed)
    layouts = {
        each: rng.choice([x for x in mesh.layouts() if possible(chain, mesh, each, x)])
        for each in dict.fromkeys(chain.variables.values())
    }
    inner = {}
    for each in chain.multiplications:
        *operands, c = zip(*(rng.choice(TRIPLES) for _ in mesh.extents))
        for x, (_, transposed) in enumerate(each.operands):
            if transposed:
                operands[x] = tuple(SWAPPED.get(one, one) for one in operands[x])
        inner[each.c] = *operands, c
    return solution(chain, mesh, layouts, inner)


def chains(backward):
    """Every function, and presets with attention of several sequences."""
    yield layers(64, (32, 96), backward=backward)
    for of in ("relu", "gelu", "silu", "swiglu", "geglu"):
        yield layers(128, (64, 96, 64), (of,), backward=backward)
    yield layers(64, (32, 64, 128, 32), ("gelu", "swiglu"), backward=backward)
    for name in ("llama3-8b:mlp", "llama3-8b:attention", "llama3-8b:block", "gpt3:block"):
        yield preset(name, 4 * (2048 if "gpt" in name else 8192), backward=backward)
    yield preset("mixtral-8x7b:block", 8 * 8192, backward=backward)
    yield preset("deepseek-v3:experts", backward=backward)
    yield read(LATENT, "latent", backward=backward)
    yield preset("gemma2-9b:block-window", 4 * 8192, backward=backward)


def names_of(text, names):
    """What the pasted part of a script defines, without torch: placements as their text."""
    tree = ast.parse(text)
    found = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return [
        {key.value: ast.unparse(value) for key, value in zip(found[x].keys, found[x].values)}
        if x in found
        else None
        for x in names
    ]


def calls(text):
    """The lines of comment that call something on the mesh."""
    lines = [line for line in text.splitlines() if re.match(r"# .*mesh\[.*\]", line)]
    return [re.split(r"[;#] ", line[2:])[0].strip() for line in lines]


def everything(per):
    """Solutions of every chain on the meshes of 4 and 8 ranks."""
    texts = "tp=4", "dp=2,tp=2", "tp=8", "dp=2,tp=4", "dp=4,tp=2"
    every = [
        (chain, text) for backward in (False, True) for chain in chains(backward) for text in texts
    ]
    for seed, (chain, text) in enumerate(every * per):
        yield drawn(chain, DeviceMesh.read(text), seed)


@pytest.fixture(scope="module")
def scripts(dealt):
    """Solutions of every chain, and their scripts."""
    return [(each, script_text(each)) for each in dealt(everything(1), 0, 3)]


def test_layouts_read_back_are_those_of_the_search_and_those_of_linear_the_transposed(scripts):
    for each, text in scripts:
        compile(text, "layer.py", "exec")
        placements, linear, inner = names_of(text, ["placements", "linear", "inner"])
        stored = [x for x in each.chain.matrices.values() if x.kind != "made"]
        assert [*placements] == [x.name for x in stored]
        assert [*linear] == [x.name for x in stored if x.kind == "weight"]
        read = lambda name, there: each.mesh.layout(back(each.chain.matrices[name], there))
        for name, there in placements.items():
            assert read(name, there) == each.layout(name)
        for name, there in linear.items():
            assert read(name, there) == tuple(SWAPPED.get(x, x) for x in each.layout(name))
        rows = ", ".join(names for names, *_ in layout_rows(each)).split(", ")
        multiplied = {x.c: x.b for x in each.chain.multiplications if x.c in rows}
        assert [*inner] == [*multiplied]
        for c, b in multiplied.items():
            texts = re.findall(r"\[.*?\]", inner[c])
            texts[1] = back(each.chain.matrices[b], texts[1])
            assert texts == [*map(each.mesh.torch, (*each.inner[c], each.layout(c)))]


def test_the_small_case_is_divided_evenly_and_keeps_heads_and_experts():
    mesh = DeviceMesh.read("dp=3,tp=64")
    for chain in chains(True):
        made = (
            script_text(drawn(chain, DeviceMesh.read("tp=1"), 0)),
            script_text(drawn(chain, mesh, 0)),
        )
        for ranks, one in zip((1, mesh.ranks), made):
            (shapes,) = names_of(one, ["shapes"])
            for name, there in shapes.items():
                *count, rows, cols = ast.literal_eval(there)
                matrix = chain.matrices[name]
                assert count == [matrix.count][matrix.count == 1 :]
                assert rows % ranks == cols % ranks == 0 and rows * cols < 4e6 * ranks
            ast.parse(one)


def test_attention_to_a_cache_has_no_script():
    chain = preset("llama3-8b:attention", context=4096)
    with pytest.raises(UnsupportedError, match="has no caches"):
        script_text(drawn(chain, DeviceMesh.read("tp=4"), 0))


def back(matrix, text):
    """Placements of one of stacked matrices."""
    return text.translate({49: "0", 50: "1"}) if matrix.count > 1 else text


def test_rows_have_every_forward_matrix_once_in_three_notations_of_one_layout(scripts):
    for each, _ in scripts:
        rows, seen = layout_rows(each), []
        for names, *texts in rows:
            seen += names.split(", ")
            found = {each.mesh.layout(text) for text in texts}
            assert found == {each.layout(name) for name in names.split(", ")}
        assert sorted(seen) == sorted(x for x in each.chain.matrices if x[0] != "d")
    mesh = DeviceMesh.read("dp=2,tp=2")
    assert layout_rows(scheme(mesh, "TS"))[0] == (
        "X, Y2",
        "R,S(0)@2x2",
        "[Replicate(), Shard(0)]",
        "P('tp', None)",
    )


def scheme(mesh, kinds):
    """A gelu MLP in published layouts, one letter a mesh dimension: T tensor parallelism, S with
    divided activations between; F weights by rows, C by columns, gathered; D copies."""
    by = {
        "T": ("R", "S(1)", "S(1)", "S(0)"),
        "S": ("S(0)", "S(1)", "S(1)", "S(0)"),
        "F": ("S(0)", "S(0)", "S(0)", "S(0)"),
        "C": ("S(0)", "S(1)", "S(0)", "S(1)"),
        "D": ("S(0)", "R", "S(0)", "R"),
        "M": ("S(0)", "S(0)", "S(0)", "R"),
        "R": ("R", "R", "R", "R"),
    }
    first = {x: TRIPLES[1 if x in "TS" else 3 if x == "R" else 0] for x in by}
    second = {x: TRIPLES[2 if x in "TS" else 3 if x == "R" else 0] for x in by}
    chain = layers(64, (32, 128, 32), ("gelu",), backward=True)
    layouts = dict(zip(("X", "W1", "Y1", "W2"), zip(*(by[x] for x in kinds))))
    inner = {
        c: tuple(zip(*(triple[x] for x in kinds))) for c, triple in (("Y1", first), ("Y2", second))
    }
    return solution(chain, mesh, layouts, inner)


COLWISE = "ColwiseParallel(input_layouts={}, output_layouts=Shard(-1))"
ROWWISE = "RowwiseParallel(input_layouts=Shard(-1), output_layouts={})"
MEGATRON = {"W1": COLWISE.format("Replicate()"), "W2": ROWWISE.format("Replicate()")}
SEQUENCE = {
    "norm": "SequenceParallel(sequence_dim=0)",
    "W1": COLWISE.format("Shard(0)"),
    "W2": ROWWISE.format("Shard(0)"),
}
COPIED = 'DistributedDataParallel(model, device_mesh=mesh["dp"])'
PLANNED = 'parallelize_module(model, mesh["tp"], plan)'


@pytest.mark.parametrize(
    "text, kinds, plan, expected",
    [
        ("tp=4", "T", MEGATRON, [PLANNED]),
        ("tp=4", "S", SEQUENCE, [PLANNED]),
        ("dp=4", "C", None, ['fully_shard(model, mesh=mesh["dp"])']),
        ("dp=4", "F", None, ['fully_shard(model, mesh=mesh["dp"])']),
        ("dp=2,tp=2", "CS", SEQUENCE, [PLANNED, 'fully_shard(model, mesh=mesh["dp"])']),
        ("dp=2,tp=2", "DT", MEGATRON, [PLANNED, COPIED]),
        ("dp=2,fs=2", "DC", None, ['fully_shard(model, mesh=mesh["dp", "fs"])']),
        ("dp=2,tp=2", "FF", None, ['fully_shard(model, mesh=mesh["dp", "tp"]._flatten())']),
        ("dp=4", "D", None, [COPIED]),
        ("dp=4", "M", None, []),
        ("dp=4", "R", None, []),
    ],
)  # fmt: skip
def test_plans_are_those_of_the_published_schemes(text, kinds, plan, expected):
    pasted = script_text(scheme(DeviceMesh.read(text), kinds))
    assert names_of(pasted, ["plan"]) == [plan]
    assert calls(pasted) == expected
    assert ("no plan" in pasted) == (not expected)


# -- with PyTorch ---------------------------------------------------------------------------------


def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(folder, command):
    """A command with PyTorch, to its end."""
    environ = {"OMP_NUM_THREADS": "1", "MASTER_PORT": str(port())}
    return run_process([*command], folder, environ, 300)


def check(folder, cases):
    """Run scripts, each on so many ranks: all of them end with code 0 exactly if what they print
    begins with ok, and what all print together matches."""
    names = [f"layer{x}.py" for x in range(len(cases))]
    for name, (_, text, _) in zip(names, cases):
        (folder / name).write_text(text)
    (folder / "driver.py").write_text(DRIVER)
    words = [f"{ranks}:{name}" for name, (ranks, *_) in zip(names, cases)]
    ended = start(folder, [sys.executable, "driver.py", *words])
    for name, (ranks, text, expected) in zip(names, cases):
        files = [folder / f"answers-{ranks}-{rank}.json" for rank in range(ranks)]
        assert all(each.exists() for each in files), ended.stderr[-3000:]
        codes, printed = zip(*(json.loads(each.read_text())[name] for each in files))
        assert {*codes} == {not expected.startswith(("ok", "(ok"))}, (text, printed)
        assert re.fullmatch(expected, "".join(printed)), (text, printed)


def with_torch(test):
    """A test that starts ranks of PyTorch."""
    found = find_spec("torch") is not None
    missing = pytest.mark.skipif(not found, reason="needs PyTorch")
    for mark in pytest.mark.torch, pytest.mark.mpi, pytest.mark.timeout(400), missing:
        test = mark(test)
    return test


@with_torch
@pytest.mark.parametrize("some", [(11, 43), pytest.param((1, 1), marks=pytest.mark.thorough)])
def test_scripts_of_any_layouts_agree_with_one_process(some, tmp_path):
    chosen = []
    for ranks, step in zip((4, 8), some):
        chosen += [each for each in everything(3) if each.mesh.ranks == ranks][::step]
    check(tmp_path, [(each.mesh.ranks, script_text(each), "ok: .*\n") for each in chosen])


@pytest.mark.torch
def test_functions_of_scripts_are_those_of_drbench():
    torch = pytest.importorskip("torch")
    text = script_text(drawn(preset("llama3-8b:attention"), DeviceMesh.read("tp=4"), 0))
    names = {"torch": torch, "F": torch.nn.functional}
    exec(text[text.index("def attention") : text.index("def layer")], names)
    rng = np.random.default_rng(0)
    elementwise = map(function, ("add", "relu", "silu", "gelu", "swiglu", "geglu"))
    heads = attention(8, 2, 3, 10), attention(8, 2, 3, 10, 4), latent_attention(2, 4, 3, 10)
    for of in [*elementwise, *heads, columns(6, 4)]:
        more = (of.rows, of.heads, of.head_dim, of.window) if of.heads else ()
        more = (of.rows, of.head_dim) if of.rotary else more
        units = 2
        if of.name == "columns":
            units, more = 1, (of.gives,)
        x = [rng.standard_normal((20, units * size)) for size in of.takes]
        expected = np.empty((20, units * of.gives))
        apply(of, expected, x)
        found = names[of.name](*map(torch.from_numpy, x), *more)
        assert np.allclose(found.numpy(), expected, rtol=1e-13, atol=1e-13), of.name


@pytest.mark.torch
def test_weights_of_checkpoints_are_reordered_by_the_pasted_lines():
    torch = pytest.importorskip("torch")
    text = script_text(drawn(preset("llama3-8b:block"), DeviceMesh.read("tp=4"), 0))
    names = {"torch": torch, "F": torch.nn.functional, "N": 2}
    exec(text[text.index("def attention") : text.index("def layer")], names)
    line = lambda start: next(x[1:].strip() for x in text.splitlines() if f"  torch.{start}" in x)
    draw = lambda *shape: torch.rand(shape, dtype=torch.float64)
    x, gate, up = draw(12, 5), draw(7, 5), draw(7, 5)
    found = names["swiglu"](x @ eval(line("stack"), names | {"gate": gate, "up": up}).T)
    assert torch.allclose(found, torch.nn.functional.silu(x @ gate.T) * (x @ up.T))
    q, k, v = draw(6 * 3, 5), draw(2 * 3, 5), draw(2 * 3, 5)  # six heads share two keys and values
    found = names["attention"](x @ eval(line("cat"), names | {"q": q, "k": k, "v": v}).T, 12, 3, 3)
    split = [(x @ w.T).unflatten(1, (-1, 3)).transpose(0, 1) for w in (q, k, v)]
    made = torch.nn.functional.scaled_dot_product_attention(
        *(x[None] for x in split), is_causal=True, enable_gqa=True
    )
    assert torch.allclose(found, made[0].transpose(0, 1).flatten(1))


#: A model of modules, parallelized by what was pasted: its weights are placed as ``linear`` has it.
MODEL = """
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

model = nn.Sequential()
model.add_module("norm", nn.LayerNorm(32))
model.add_module("W1", nn.Linear(32, 128, bias=False))
model.add_module("gelu", nn.GELU())
model.add_module("W2", nn.Linear(128, 32, bias=False))
inside, shapes = model, {"W1": (32, 128), "W2": (128, 32)}
CALLS
for name, there in linear.items():
    weight, shape = getattr(inside, name).weight, list(shapes[name][::-1])
    for each, parts in zip(there, mesh.shape):
        if each.is_shard():
            shape[each.dim] //= parts
    local = weight.to_local() if isinstance(weight, DTensor) else weight
    assert list(local.shape) == shape, (name, local.shape, there)
model(torch.rand(16 // INSIDE, 32)).sum().backward()
print("ok: placed")
"""


@with_torch
def test_plans_place_modules_and_wrong_scripts_say_what_is_wrong_in_one_line(tmp_path):
    text = script_text(scheme(DeviceMesh.read("dp=2,tp=2"), "FS"))
    names = "Y2, dX, dW1, dW2"
    cases = [(4, text, rf"ok: {names} agree with one process \(.* \S+e-1\d\)\n")]
    for old, new in (
        (", [Replicate(), Shard(1)]", ", [Replicate(), Replicate()]"),  # a wrong layout
        ("[Shard(0), Partial()]", "[Shard(0), Replicate()]"),
        (  # a missing sum
            "return c.redistribute(placements=stored)",
            "return DTensor.from_local(c.to_local(), mesh, [x if x != Partial() else Replicate() "
            "for x in result])",
        ),
        ('"tanh"', '"none" if rank == "3" else "tanh"'),
    ):
        assert text.count(old) == 1
        cases.append((4, text.replace(old, new), r"wrong: .*\n?"))
    for extents, kinds in (
        ("tp=4", "T"), ("tp=4", "S"), ("dp=4", "C"), ("dp=4", "D"),
        ("dp=2,tp=2", "CS"), ("dp=2,tp=2", "CT"), ("dp=2,tp=2", "DT"), ("dp=2,fs=2", "DC"),
    ):  # fmt: skip
        pasted = script_text(scheme(DeviceMesh.read(extents), kinds)).partition("# -----------")[0]
        lines = [line.partition(", activations")[0] for line in calls(pasted)]
        called = "\n".join(f"model = {line}" for line in lines)
        model = pasted + MODEL.replace("CALLS", called).replace("INSIDE", "2")
        cases.append((4, model, "(ok: placed\n){4}"))
    of_two = script_text(scheme(DeviceMesh.read("tp=2"), "S"))
    line = r"the mesh has 2 ranks: torchrun --nproc-per-node 2 \S+\.py"
    check(tmp_path, cases + [(ranks, of_two, line) for ranks in (1, 4)])


@with_torch
def test_torchrun_and_mpiexec_start_a_script(tmp_path):
    (tmp_path / "layer.py").write_text(script_text(scheme(DeviceMesh.read("tp=2"), "S")))
    torchrun = "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port", port()
    for command in [find_mpiexec(), "-n", 2, sys.executable], [sys.executable, *torchrun]:
        ended = start(tmp_path, [*command, "layer.py"])
        assert (ended.returncode, ended.stdout[:3]) == (0, "ok:"), ended.stderr
