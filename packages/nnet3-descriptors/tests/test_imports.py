"""The modules that importing the package loads, and those loaded on first use."""

import importlib
import subprocess
import sys
from pathlib import Path

import nnet3_descriptors.components
import pytest
from nnet3_descriptors.components import Component, PrecomputedIndexes
from nnet3_descriptors.lazy_exports import modules_of_exports

MODULES = {
    name: module
    for name, module in modules_of_exports("nnet3_descriptors.components").items()
    if ".declaration." not in module
}
"""The module of each component type, and of the other classes beside them."""

COMPONENTS = Path(nnet3_descriptors.components.__file__).parent


def modules_after(statement: str) -> set[str]:
    """Returns the names of the modules in a new process after a statement."""
    command = [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_import_loads_little() -> None:
    """Slow modules and the classes of component types are loaded on first use only."""
    loaded = modules_after("import nnet3_descriptors")

    slow = {"cattrs", "safetensors", "numpy.random", "difflib", "click", "tempfile", "secrets"}
    assert not loaded & slow
    assert not loaded & set(MODULES.values())


def test_a_type_loads_its_module_alone() -> None:
    """Using one class does not load the others."""
    loaded = modules_after("from nnet3_descriptors.components import NoOpComponent")

    assert "nnet3_descriptors.components.elementwise" in loaded
    assert "nnet3_descriptors.components.tdnn" not in loaded


def name_of(path: Path) -> str:
    """The name of a module below the package of components, such as "index_rules.windows"."""
    return ".".join(path.relative_to(COMPONENTS).with_suffix("").parts)


@pytest.mark.parametrize("path", sorted(COMPONENTS.rglob("*.py")), ids=name_of)
def test_registry_has_the_public_classes_of_each_module(path: Path) -> None:
    """The list of names has all types, so that all can be read from files."""
    name = f"nnet3_descriptors.components.{name_of(path)}"
    module = importlib.import_module(name)
    defined = {
        key
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Component | PrecomputedIndexes)
        and not vars(value).get("IS_ABSTRACT", False)
        and value.__module__ == name
    }

    assert defined == {key for key, module in MODULES.items() if module == name}


def test_all_names_are_there() -> None:
    """The package exports all of them by name."""
    names = set(MODULES)

    assert names <= set(dir(nnet3_descriptors.components))
    assert all(getattr(nnet3_descriptors.components, name).__name__ == name for name in names)
