"""Names of a package whose modules are imported at their first use.

Making the classes of a package takes longer than a small job, and a program that reads a model does
not need the optimizer. Type checkers see imports under TYPE_CHECKING in the same file;
`tests/test_lazy_exports.py` compares the two.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def on_first_use(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and `__dir__` of a package that imports its exports at first use.

    Args:
        package: Its full name.
        modules: The full names of modules, with the names that are taken from each.

    Returns:
        The two functions. The first imports the module of a name, and raises an AttributeError for
        names that no module has.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        try:
            module = module_of[name]
        except KeyError:
            raise AttributeError(f"module '{package}' has no attribute '{name}'") from None
        from nnet3_descriptors.forking import GATE

        with GATE.importing():
            value = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return get, names
