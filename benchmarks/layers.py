"""Check the imports of all modules, also those inside functions, against the table of layers in
docs/explanation/internals.md, that no two classes have the same name, and that locals are named for
what they are. ``make lint`` runs it; it prints a line for each fault."""

import ast
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from symtable import SymbolTable, symtable

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/explanation/internals.md"
#: Most modules of one folder.
MOST_MODULES = 14
#: No local has one of these names, for a noun would say what it is.
NO_NOUNS = {"found", "each", "one", "made", "kept"}
#: Packages that only some modules may import.
ONLY_IN = {
    "mpi4py": (
        *("drbench.host", "drbench.device.executor", "drbench.device.inbox"),
        *("drbench.device.matrix", "drbench.library", "drbench.measure", "drbench.torch"),
        *("drbench.launch.calibration", "drbench.launch.commands", "drbench.launch.host"),
        *("drbench.launch.libraries", "drbench.launch.ranks", "drbench.chains.ranks"),
    ),
    "click": ("drbench.chains.command", "drbench.launch.commands"),
    "cupy": ("drbench.device.gpu", "drbench.launch.libraries.cublasmp"),
    "cupy_backends": ("drbench.device.gpu",),
}
_DRAWING = ("drbench.plots", "drbench.launch.papers")
#: Packages that no rank loads unless its case needs them, and where they may be imported at module
#: level: no command loads papers before it checks or draws them.
HEAVY = dict.fromkeys(("matplotlib", "pandas", "drbench.plots"), _DRAWING) | {
    "cupy": _DRAWING,
    "cupy_backends": _DRAWING,
    "torch": ("drbench.plots", "drbench.torch"),
}
#: What is not loaded when these modules are, through others either.
UNLOADED = {
    ("drbench.partitions", "drbench.program", "drbench.plan"): {
        *("numpy", "mpi4py", "click", "pandas"),
    },
    (*ONLY_IN["click"], "drbench.__main__"): {"mpi4py", *HEAVY} - {"drbench.plots"},
}


def read_table(text: str) -> dict[str, list[str]]:
    """What each layer may import."""
    rows = re.findall(r"^\| `([\w.]+)` \| (.*) \|(.*)\|$", text.split("## From ")[0], re.M)
    names = lambda cell: re.findall(r"`([\w.]+)`", cell)
    return {layer: names(below) for layer, _, below in rows}


def under(name: str, prefixes: Iterable[str]) -> bool:
    """Whether a module is one of some modules, or in one of some packages."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def imports(module: str, text: str, package: bool = False) -> Iterator[tuple[str, int, bool]]:
    """(full name, line, whether at module level) of each import, of types too."""
    parts = module.split(".") if package else module.split(".")[:-1]

    def visit(node: ast.AST, at_module_level: bool) -> Iterator[tuple[str, int, bool]]:
        names = []
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                at_module_level = False  # not executed, but whoever reads the module follows it
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                at_module_level = False
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom():
                base = parts[: len(parts) - node.level + 1] if node.level else []
                base += [node.module] if node.module else []
                names = [".".join([*base, alias.name]) for alias in node.names]
            case ast.Call(args=[ast.Constant(name), *_]):
                if ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
                    names = [name]
        yield from ((name, node.lineno, at_module_level) for name in names)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, at_module_level)

    yield from visit(ast.parse(text), True)


def closure(start: Iterable[str], edges: Mapping[str, Iterable[str]]) -> set[str]:
    """Everything that is reached from some names, these included."""
    reached, left = set(), [*start]
    while left:
        for name in {left.pop()} - reached:
            reached.add(name)
            left += edges.get(name, ())
    return reached


class Layers:
    """The table, and what it says of an import."""

    def __init__(self, text: str):
        self.below = read_table(text)
        TopologicalSorter(self.below).prepare()  # the table itself has no cycle

    def layer_of(self, name: str) -> str | None:
        """The innermost layer of a module."""
        return max((layer for layer in self.below if under(name, (layer,))), key=len, default=None)

    def refused(self, module: str, name: str, at_module_level: bool) -> str | None:
        """Why a module may not import a name."""
        layer, top = self.layer_of(module), name.split(".")[0]
        if top == "drbench":
            allowed = closure({layer} - {None}, self.below)
            single = [entry for entry in allowed if entry not in self.below]
            if self.layer_of(name) not in allowed and not under(name, single):
                return f"{layer or module} may import {', '.join(sorted(allowed)) or 'nothing'}"
        elif layer == "drbench.partitions" and top not in sys.stdlib_module_names:
            return "partitions needs nothing beyond the standard library"
        if top in ONLY_IN and not under(module, ONLY_IN[top]):
            return f"only for {', '.join(ONLY_IN[top])}"
        heavy = next((package for package in HEAVY if under(name, (package,))), None)
        if heavy and at_module_level and not under(module, HEAVY[heavy]):
            return f"at module level only in {' and '.join(HEAVY[heavy])}"
        return None


def check(sources: dict[str, tuple[Path, str]], layers: Layers) -> Iterator[str]:
    """A line for each import that is forbidden, of modules by their names."""
    edges, inside = {}, {}
    for module, (path, text) in sources.items():
        edges[module] = {module.rpartition(".")[0]} - {""}
        inside[module] = set()
        for name, line, at_module_level in imports(module, text, path.name == "__init__.py"):
            if why := layers.refused(module, name, at_module_level):
                yield f"{path}:{line}: {module} imports {name}: {why}"
            parts = name.split(".")
            prefixes = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
            known = prefixes & sources.keys()
            inside[module] |= {prefix for prefix in known if not under(module, (prefix,))}
            if at_module_level:
                edges[module] |= known | {parts[0]}
    for starts, unloaded in UNLOADED.items():
        for module in [name for name in edges if under(name, starts)]:
            for name in sorted(closure([module], edges) & unloaded):
                yield f"{module} loads {name}, directly or through others"
    for module in [name for name in edges if not under(name, ONLY_IN["mpi4py"])]:
        if "mpi4py" in closure([module], edges):
            yield f"{module} loads mpi4py, directly or through others"
    try:
        TopologicalSorter(inside).prepare()
    except CycleError as error:
        yield f"a cycle of imports: {' -> '.join(error.args[1])}"


def crowded(paths: Iterable[Path]) -> Iterator[str]:
    """A line for each folder that has too many modules."""
    folders = Counter(path.parent for path in paths if path.name != "__init__.py")
    for folder, count in folders.items():
        if count > MOST_MODULES:
            yield f"{folder.relative_to(ROOT)} has {count} modules, more than {MOST_MODULES}"


def named_twice(texts: dict[str, str]) -> Iterator[str]:
    """A line for each name that classes in two modules have: a reader of one would think of the
    other."""
    where = defaultdict(list)
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(path)
    for name, paths in where.items():
        if len(paths) > 1:
            yield f"the class {name} is defined in {', '.join(paths)}"


def no_nouns(table: SymbolTable) -> Iterator[str]:
    """A line for each local of a function whose name is no noun, of those inside too."""
    if table.get_type() == "function":
        for name in sorted(NO_NOUNS & {*table.get_locals()}):
            yield f"line {table.get_lineno()}: {table.get_name()} has a local {name}"
    for inner in table.get_children():
        yield from no_nouns(inner)


def modules() -> dict[str, Path]:
    """Every module of drbench and its file, by the links to its parts."""
    paths = {}
    for folder, _, files in os.walk(ROOT / "drbench", followlinks=True):
        for path in sorted(Path(folder, name) for name in files if name.endswith(".py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            paths[".".join(parts).removesuffix(".__init__")] = path
    return paths


if __name__ == "__main__":
    sources = {
        name: (path.relative_to(ROOT), path.read_text("utf-8")) for name, path in modules().items()
    }
    paths = [*modules().values(), *(ROOT / "benchmarks").rglob("*.py")]
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in paths}
    faults = [
        *check(sources, Layers(PAGE.read_text("utf-8"))),
        *crowded(paths),
        *named_twice(texts),
    ]
    for path, text in texts.items():
        faults += [f"{path}, {line}" for line in no_nouns(symtable(text, path, "exec"))]
    print("\n".join(faults) or f"{len(sources)} modules import what their layers may")
    sys.exit(bool(faults))
