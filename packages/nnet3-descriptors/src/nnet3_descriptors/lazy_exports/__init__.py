"""Names of a package whose modules are imported at their first use.

Making the classes of a package takes longer than a small job, and a program that reads a model does
not need the optimizer. The `__init__` of such a package lists each of its names once, as an import
that type checkers and editors read, and that never runs::

    if TYPE_CHECKING:
        from nnet3_descriptors.nnet import Nnet
    else:
        __getattr__, __dir__ = on_first_use(__name__)

At the first use of a name these lines are read from the file of the package. So a program that is
frozen (by PyInstaller, for example) has to come with the source files of these packages.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["on_first_use"]

_IMPORT = r"(?m)^    from (\S+) import (\([^)]*\)|.*)"


def on_first_use(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and `__dir__` of a package that imports its exports at first use.

    Args:
        package: Its full name.

    Returns:
        The two functions. The first imports the module of a name, and raises an AttributeError for
        names that no module has. The names are also its `__all__`.
    """
    modules = functools.cache(functools.partial(modules_of_exports, package))

    def get(name: str) -> Any:
        value: Any
        if name == "__all__":
            value = list(modules())
        elif name.startswith("__") or name not in modules():
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        else:
            from nnet3_descriptors.forking import GATE

            with GATE.importing():
                value = getattr(importlib.import_module(modules()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules()})

    return get, names


def modules_of_exports(package: str) -> dict[str, str]:
    """Returns the module of each name that a package imports at first use, in the order there.

    Raises:
        ImportError: The file is no source file.
    """
    import re  # at the first use of a name

    file = getattr(sys.modules[package], "__file__", None) or ""
    loader: Any = sys.modules[package].__loader__
    if not file.endswith(".py"):
        raise ImportError(f"the exports of '{package}' are in its source file, found '{file}'")
    source: str = loader.get_data(file).decode("utf-8")
    return {
        name: module
        for module, names in re.findall(_IMPORT, source)
        if module != package  # an example in its docstring
        for name in re.findall(r"(\w+)(?: as \w+)?", names)
    }
