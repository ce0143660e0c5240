"""The public names of the design exist, so that users' imports keep working."""

import ast
import functools
import importlib
import inspect
import operator
import pkgutil
import re
import runpy
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from reference_cases import ROOT

DESIGN = Path(__file__).with_name("public_names.txt").read_text(encoding="utf-8").splitlines()
"""The public names of the design, each with its package, and calls with the arguments that it gives
them."""

MODULES = sorted({line.partition(":")[0] for line in DESIGN})


@pytest.mark.parametrize("line", DESIGN)
def test_public_names_of_the_design(line: str) -> None:
    """They are exported, and accept the arguments in the design, of which keywords end with =."""
    module, _, rest = line.partition(": ")
    names, is_call, arguments = rest.removesuffix(")").partition("(")
    package = importlib.import_module(module)
    value = operator.attrgetter(names)(package)

    assert names.partition(".")[0] in package.__all__
    if is_call:
        words = arguments.split(", ")
        positional = [word for word in words if not word.endswith("=")]
        keywords = {word.removesuffix("="): None for word in words if word.endswith("=")}
        inspect.signature(value).bind(*positional, **keywords)


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_described(module: str) -> None:
    """Every public name exists, and every public class and function has a docstring."""
    package = importlib.import_module(module)

    assert [
        name
        for name in package.__all__
        if (inspect.isclass(value := getattr(package, name)) or inspect.isfunction(value))
        and not inspect.getdoc(value)
    ] == []


WITHOUT_NAMES = {
    *("nnet3_computation", "nnet3_conformance", "nnet3_descriptors", "nnet3_runtime_cuda"),
}
"""Packages whose READMEs do not name all that they export."""


@pytest.mark.parametrize("module", [name for name in MODULES if name not in WITHOUT_NAMES])
def test_public_names_stand_in_the_readme(module: str) -> None:
    """The README names all exports of the package; that of nnet3_speech within longer texts."""
    readme = ROOT / "packages" / module.replace("_", "-") / "README.md"
    text = readme.read_text(encoding="utf-8")
    before = "" if module == "nnet3_speech" else "`"
    exported = importlib.import_module(module).__all__

    assert [name for name in exported if f"{before}{name}" not in text] == []


@functools.cache
def tree_of(module: ModuleType) -> ast.Module:
    """The source of a module, parsed."""
    return ast.parse(inspect.getsource(module))


@functools.cache
def named(name: str, module: ModuleType) -> object:
    """What a name means in a module, whose imports for type checkers count."""
    if hasattr(module, name):
        return getattr(module, name)
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return getattr(importlib.import_module(node.module), alias.name)
    return None


def classes_in(annotation: object) -> Iterator[type]:
    """The classes of this project that a type is made of."""
    for part in (annotation, *typing.get_args(annotation)):
        if inspect.isclass(part) and not typing.get_args(part):
            if part.__module__.startswith("nnet3_"):
                yield part
        elif part is not annotation:
            yield from classes_in(part)


def annotations_of(value: object) -> Iterator[tuple[str, ast.expr | None, ModuleType]]:
    """The annotations of a function, or of the public fields and methods of a class."""
    for part in value.__mro__ if inspect.isclass(value) else (inspect.unwrap(value),):
        if not part.__module__.startswith("nnet3_"):
            continue
        module = importlib.import_module(part.__module__)
        body = tree_of(module).body
        pending = [each for each in body if getattr(each, "name", "") == part.__name__]
        while pending:
            match pending.pop():
                case ast.ClassDef(body=body):
                    pending += body
                case ast.FunctionDef(name=name, args=args, returns=returns):
                    if not name.startswith("_"):
                        every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
                        for each in (returns, *(argument.annotation for argument in every)):
                            yield name, each, module
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                    if not name.startswith("_"):
                        yield name, annotation, module


def types_of(value: object) -> Iterator[tuple[str, type]]:
    """The classes that the annotations of a public name are made of, and where they stand."""
    for member, annotation, module in annotations_of(value):
        for words in re.findall(r"[A-Za-z_][\w.]*", ast.unparse(annotation) if annotation else ""):
            name, *attributes = words.split(".")
            found = functools.reduce(
                lambda owner, attribute: getattr(owner, attribute, None),
                attributes,
                named(name, module),
            )
            yield from ((member, each) for each in classes_in(found))


def test_public_names_use_exported_types() -> None:
    """A type that a public field, argument or result names is in the __all__ of a package."""
    packages = [importlib.import_module(name) for name in (*MODULES, "nnet3_tools")]
    found = [
        importlib.import_module(each.name)
        for package in packages
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if each.ispkg
    ]
    reference = runpy.run_path(str(ROOT / "docs" / "check_reference.py"))
    names = reference["exported"]
    exported = {
        id(getattr(module, name)) for module in (*packages, *found) for name in names(module)
    }
    missing = {
        f"{exporter}.{name}.{member}: {each.__module__}.{each.__qualname__}"
        for exporter in reference["exporters"]()
        for name in names(importlib.import_module(exporter))
        if inspect.isclass(value := getattr(importlib.import_module(exporter), name))
        or inspect.isroutine(value)
        for member, each in types_of(value)
        if id(each) not in exported
    }

    assert sorted(missing) == []
