"""How Sphinx makes the site: `uv run nox -s docs`."""

import ast
import functools
import importlib
import inspect
import itertools
import pkgutil
import re
import sys
import types
import typing
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging

sys.path.append(str(Path(__file__).parent))
from check_reference import exported

project = "nnet3 in Python"
author = "The nnet3 in Python developers"
smartquotes = False  # options begin with "--"
html_title = "nnet3 in Python"
html_show_copyright = False
html_search_scorer = str(Path(__file__).with_name("search.js"))  # pages before declarations

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
html_theme = "furo"
exclude_patterns = ["reference/_*"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "imported-members": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes are described by their class

logger = logging.getLogger(__name__)

suppress_warnings = ["ref.python"]  # a name such as RunError that several packages have


ALIASES = type(list[int]), type(int | str), typing._GenericAlias
"""Aliases of types: `Name = list[int]` can be called, and is a constant nevertheless."""

owners: dict[tuple[str, str, int], str] = {}
"""By package, name and identity of an object: the module at which the reference describes it."""


def is_elsewhere(module: str, name: str, value: object) -> bool:
    """Whether the reference describes an object at another module of its package.

    The first module that asks describes it.
    """
    return owners.setdefault((module.partition(".")[0], name, id(value)), module) != module


def skip_member(app: Sphinx, what: str, name: str, value: object, skip: bool, _: object) -> object:
    """Leaves out a name that the module has from another package, or that stands elsewhere."""
    if what != "module":
        return None
    module = app.env.current_document.autodoc_module
    package = module.partition(".")[0]
    owner = getattr(value, "__module__", None) or package
    if owner.startswith("nnet3") and owner.partition(".")[0] != package:
        return True
    return True if is_elsewhere(module, name, value) else None


def describe_constants(
    app: Sphinx, what: str, name: str, value: object, _: object, lines: list[str]
) -> None:
    """Adds to the text of a module its constants: autodoc does not find the texts of imported ones.

    The text of a constant stands below its assignment, in whichever module that is.
    """
    if what != "module":
        return
    for at in range(len(lines) - 1, 0, -1):  # indented lines are code or a table
        if lines[at].startswith("    ") and not lines[at - 1].strip():
            begun = next((line for line in reversed(lines[:at]) if line.strip()), "")
            if not begun.startswith("    "):
                lines[at:at] = ["::", ""]
    texts = constants(name.partition(".")[0])
    own = {target for _, target in ModuleAnalyzer.for_module(name).find_attr_docs()}
    for constant in value.__all__:
        shown = getattr(value, constant)
        is_constant = isinstance(shown, ALIASES) or not callable(shown)
        if not is_constant or isinstance(shown, types.ModuleType) or constant in own:
            continue
        if is_elsewhere(name, constant, shown):
            continue
        text = texts.get(constant, {}).get(id(shown))
        if text is None:
            logger.warning("%s.%s has no text", name, constant)
        lines += ["", f".. py:data:: {constant}", f"   :module: {name}", ""]
        lines += [f"   {line}" for line in (text or "").splitlines()]


@functools.cache
def constants(package: str) -> dict[str, dict[int, str]]:
    """The described constants of a package: the texts by name and by identity of the value."""
    found: dict[str, dict[int, str]] = {}
    root = importlib.import_module(package)
    for place in pkgutil.walk_packages(root.__path__, f"{package}."):
        module = importlib.import_module(place.name)
        body = ast.parse(inspect.getsource(module)).body
        for node, following in itertools.pairwise(body):
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(following, ast.Expr):
                [target] = getattr(node, "targets", None) or [node.target]
                text = getattr(following.value, "value", None)
                names = getattr(target, "elts", [target])
                for each in names if isinstance(text, str) else ():
                    value = getattr(module, each.id)
                    found.setdefault(each.id, {})[id(value)] = inspect.cleandoc(text)
    return found


def plain_text(app: Sphinx, context: object, lines: list[str]) -> None:
    """Takes the help of tools for what it is: text, in which `"| command"` is no markup.

    A bar that begins a line is markup: of lines that sphinx-click leaves as they are.
    """
    lines[:] = [re.sub(r"(?<=.)\|", r"\|", line) for line in lines]


def setup(app: Sphinx) -> None:
    """Connects the functions of this file, and says what modules export that have no `__all__`."""
    for page in Path(__file__).parent.glob("reference/*.md"):
        for name in re.findall(r"automodule:: (\S+)", page.read_text(encoding="utf-8")):
            module = importlib.import_module(name)
            module.__all__ = exported(module)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", describe_constants)
    for part in ("description", "options", "epilog"):
        app.connect(f"sphinx-click-process-{part}", plain_text)
