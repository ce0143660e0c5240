"""Scripts beside the packages import only existing names; no other test runs all scripts."""

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from reference_cases import ROOT

PACKAGES = {path.name for path in ROOT.glob("packages/*/src/nnet3_*")}

SCRIPTS = [
    file
    for folder in ("benchmarks", "docs", "examples", "tests")
    for file in sorted(ROOT.joinpath(folder).rglob("*.py"))
]


def imports(text: str) -> Iterator[tuple[str, str]]:
    """The modules that code imports, each with an imported name, or with none."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, "") for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from ((module, alias.name) for alias in names)


def is_there(module: str, name: str) -> bool:
    """Whether a module of this project exists, and has this name or a module of this name."""
    try:
        owner = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Other libraries might not be installed.
        return (error.name or "").partition(".")[0] not in PACKAGES
    if not name or hasattr(owner, name):
        return True
    return hasattr(owner, "__path__") and importlib.util.find_spec(f"{module}.{name}") is not None


def missing(text: str) -> list[str]:
    """The imports of missing modules or names from packages of this project."""
    return [
        f"{module}: {name}" if name else module
        for module, name in imports(text)
        if module.partition(".")[0] in PACKAGES and not is_there(module, name)
    ]


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports(file: Path) -> None:
    """Each name that a script imports from a package of this project exists."""
    assert missing(file.read_text(encoding="utf-8")) == []


def test_imports_of_what_is_gone() -> None:
    """Imports of missing modules and names are found anywhere in the code."""
    text = (
        "import nnet3_graph, nnet3_graph.gone\nfrom nnet3_graph import graph, lost\n"
        "def late():\n    from nnet3_graph.gone import name\n    from elsewhere import thing"
    )

    assert missing(text) == ["nnet3_graph.gone", "nnet3_graph: lost", "nnet3_graph.gone: name"]
