"""The borders of packages: what they import from one another, in their code and their tests."""

import ast
import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from reference_cases import ROOT

SOURCES = sorted(ROOT.glob("packages/*/src"))
MODULES = {
    ".".join(file.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): file
    for source in SOURCES
    for file in source.rglob("*.py")
}
"""The file of each module, by its name."""


def imports(text: str) -> Iterator[tuple[str, str]]:
    """The modules that code imports, each with an imported name, or "" for the whole module."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, "") for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from ((module, alias.name) for alias in names)


def listed(file: Path) -> list[str]:
    """The names that a file imports as themselves."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = (each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom))
    return [alias.name for each in found for alias in each.names if alias.asname == alias.name]


def exported(file: Path) -> set[str]:
    """The names that a package lists, in __all__ or as `import name as name`; none for a module."""
    if file.name != "__init__.py":
        return set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assigned = (each for each in tree.body if isinstance(each, ast.Assign))
    lists = [each.value for each in assigned if "__all__" in map(ast.unparse, each.targets)]
    return {*listed(file), *(name for each in lists for name in ast.literal_eval(each))}


def crossings(package: str, text: str, modules: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """The imports of a package from other packages: module and name."""
    for module, name in imports(text):
        if module in modules and module.partition(".")[0] != package:
            yield module, name


def violations(package: str, text: str, modules: dict[str, Path]) -> list[str]:
    """The imports of a package that other packages do not export."""
    wrong = []
    for module, name in crossings(package, text, modules):
        inner = modules.get(f"{module}.{name}") if name else modules[module]
        is_package = inner is not None and inner.name == "__init__.py"
        if not is_package and name not in exported(modules[module]):
            wrong.append(f"{module}: {name}" if name else module)
    return wrong


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.parent.name)
def test_imports_are_of_exported_names(source: Path) -> None:
    """A package imports from others what the __init__ of a package lists."""
    [package] = [path.name for path in source.glob("nnet3*") if path.is_dir()]

    assert {
        str(file.relative_to(source)): wrong
        for file in source.rglob("*.py")
        if (wrong := violations(package, file.read_text(), MODULES))
    } == {}


def test_imports_of_private_modules_are_found(tmp_path: Path) -> None:
    """Imports of a module file, of a name not listed and of a module as such are violations."""
    (tmp_path / "__init__.py").write_text('__all__ = ["listed"]')
    (tmp_path / "inner.py").write_text("hidden = 1")
    modules = {"owner": tmp_path / "__init__.py", "owner.inner": tmp_path / "inner.py"}
    text = (
        "import owner\nimport owner.inner\nfrom owner import listed, hidden, inner\n"
        "def late():\n    from owner.inner import hidden"
    )

    assert violations("user", text, modules) == [
        "owner.inner",
        "owner: hidden",
        "owner: inner",
        "owner.inner: hidden",
    ]
    assert violations("owner", text, modules) == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.parent.name)
def test_sources_are_those_of_dependencies(source: Path) -> None:
    """A package names as its sources in the workspace the packages that it depends on."""
    described = tomllib.loads((source.parent / "pyproject.toml").read_text(encoding="utf-8"))
    project = described["project"]
    extras = project.get("optional-dependencies", {}).values()
    needed = itertools.chain(project["dependencies"], *extras)
    names = {re.split(r"[^\w-]", each)[0] for each in needed}

    sources = described["tool"].get("uv", {}).get("sources", {})
    assert set(sources) == {name for name in names if name.startswith("nnet3")}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.parent.name)
def test_tests_of_a_package_stand_alone(source: Path) -> None:
    """They import helpers that their sdist has, and none of other tests."""
    own = source.parent / "tests"
    helpers = {
        folder: {path.stem for path in folder.iterdir() if path.suffix in ("", ".py")}
        for folder in (ROOT / "tests", *ROOT.glob("packages/*/tests"))
    }
    shared = {path.stem for path in ROOT.glob("packages/*.py")}
    described = tomllib.loads((source.parent / "pyproject.toml").read_text(encoding="utf-8"))
    added = described["tool"]["hatch"]["build"]["targets"].get("sdist", {}).get("force-include", {})
    there = helpers[own] | {Path(name).stem for name in added.values()}
    foreign = shared.union(*helpers.values()) - there

    assert "conftest" in there
    assert ("test_errors" in there) == (own / "errors.txt").exists()
    assert all(name == f"tests/{Path(file).name}" for file, name in added.items())

    imported = {
        module.partition(".")[0]: file.name
        for file in own.rglob("*.py")
        for module, _ in imports(file.read_text(encoding="utf-8"))
    }
    assert {name: file for name, file in imported.items() if name in foreign} == {}


WRITING = {
    "nnet3.disk_cache",  # what it cannot write is no error
    "nnet3_descriptors.files.atomic_write",
    "nnet3_tools.streams",  # sees whether a page could be written
    "nnet3_training.chain.fsts.machines",  # a file in memory, for OpenFst
    "nnet3_training.recipes.archives",  # in a folder that has no name yet
    "nnet3_training.recipes.run_folder",  # a lock
}
"""The modules that open files to write; the others ask the first of them to do so."""


def writes_a_file(call: ast.Call) -> bool:
    """Whether a call opens a file to write."""
    name = ast.unparse(call.func).rpartition(".")[2]
    words = [*call.args, *(each.value for each in call.keywords)]
    texts = [str(each.value) for each in words if isinstance(each, ast.Constant)]
    return name in {"write_bytes", "write_text", "mkstemp", "NamedTemporaryFile"} or (
        name == "open" and any(re.fullmatch(r"[rwxabt+]*[wxa+][wxabt+]*", text) for text in texts)
    )


def test_where_files_are_written() -> None:
    """Files are written in one way, so that nobody reads half a file."""
    calls = {
        (name, node)
        for name, file in MODULES.items()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    }
    assert {name for name, call in calls if writes_a_file(call)} == WRITING


STARTING = {"nnet3_tables.commands", "nnet3_conformance.judge", "nnet3_runtime_c.rounding"}
"""The modules that start programs: commands that a caller names, the runtime that is judged, and a
compiler of C with what it makes."""


def test_where_programs_are_started() -> None:
    """Programs are started in one module, so that one place decides who may name a command."""
    found = set()
    for name, file in MODULES.items():
        text = file.read_text(encoding="utf-8")
        modules = {part for each in imports(text) for part in each}
        attributes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute))
        calls = set(map(ast.unparse, attributes))
        if modules & {"subprocess", "pty"} or calls & {"os.system", "os.popen", "os.execv"}:
            found.add(name)
    assert found == STARTING
