"""Check that the site's reference has every public name: `uv run nox -s docs`.

python docs/check_reference.py .nox/site

Public is what the root of a package exports, what a subpackage exports that another package, an
example or a page of docs/ imports from, and every tool. The names are those of the site's
inventory, which Sphinx writes for links from other sites.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import sys
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(path.name for path in ROOT.glob("packages/*/src/nnet3*") if path.is_dir())
IMPORT = re.compile(r"^\s*(?:>>> )?from (nnet3(?:_\w+)?(?:\.\w+)*) import", re.MULTILINE)


def exporters() -> Iterator[str]:
    """The packages, and their subpackages that others import from."""
    yield from PACKAGES
    files = [
        *ROOT.glob("packages/*/src/**/*.py"),
        *ROOT.glob("examples/**/*.py"),
        *ROOT.glob("docs/**/*.md"),
    ]
    found = {
        module
        for file in files
        for module in IMPORT.findall(file.read_text(encoding="utf-8"))
        if module.partition(".")[0] not in file.parts
    }
    yield from sorted(module for module in found if "." in module)


def exported(module: types.ModuleType) -> list[str]:
    """The public names of a module: its `__all__`, or what it defines, or imports as itself."""
    if (named := getattr(module, "__all__", None)) is not None:
        return list(named)
    names: list[str] = []
    body = ast.parse(inspect.getsource(module)).body
    for node, following in itertools.zip_longest(body, body[1:]):
        match node, following:
            case ast.ImportFrom(names=aliases), _:
                names += [each.name for each in aliases if each.asname == each.name]
            case ((ast.FunctionDef(name=name) | ast.ClassDef(name=name)), _):
                names.append(name)
            case (
                ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(),
            ):  # a constant with a text
                names.append(name)
    return [name for name in names if not name.startswith("_")]


def undescribed(names: set[str]) -> Iterator[str]:
    """The exported names that the reference lacks at every module, or that have no docstring."""
    for exporter in exporters():
        module = importlib.import_module(exporter)
        for name in exported(module):
            value = getattr(module, name)
            if isinstance(value, types.ModuleType):
                continue
            home = getattr(value, "__module__", None) or ""
            package = home.partition(".")[0] if home.startswith("nnet3") else exporter
            places = [each for each in names if each.endswith(f".{name}")]
            if not any(each.split(".")[0] == package.split(".")[0] for each in places):
                yield f"{exporter}.{name}: not in the reference"
            is_code = inspect.isclass(value) or inspect.isroutine(value)
            if is_code and not inspect.getdoc(value):
                yield f"{exporter}.{name}: no docstring"


def main() -> None:
    """Print what is missing, and end with status 1 if anything is."""
    from sphinx.util.inventory import InventoryFile

    inventory = InventoryFile.loads(Path(sys.argv[1], "objects.inv").read_bytes(), uri="")
    names = {name for kind, entries in inventory.data.items() if "py:" in kind for name in entries}
    missing = sorted(set(undescribed(names)))
    page = (ROOT / "docs" / "reference" / "nnet3-tools.md").read_text(encoding="utf-8")
    tools = tomllib.loads((ROOT / "packages" / "nnet3-tools" / "pyproject.toml").read_text())
    missing += [
        f"{tool}: not in reference/nnet3-tools.md"
        for tool in tools["project"]["scripts"]
        if f":prog: {tool}\n" not in page
    ]
    print(*missing, sep="\n")
    sys.exit(f"{len(missing)} public names are not described" if missing else 0)


if __name__ == "__main__":
    main()
