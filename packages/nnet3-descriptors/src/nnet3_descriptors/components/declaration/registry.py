"""The registry of component types by name.

The module of a type is imported when the type is first needed: making the classes of all types
takes longer than the rest of importing the package.
"""

from __future__ import annotations

import importlib
from typing import Any, Final, TypeVar, dataclass_transform

from nnet3_descriptors import extensions, lazy_exports
from nnet3_descriptors.components.declaration.base import Component, component_family
from nnet3_descriptors.errors import NetworkError

_C = TypeVar("_C", bound="type[Component]")

_PACKAGE: Final = "nnet3_descriptors.components"
_MODULE_OF: Final = lazy_exports.modules_of_exports(_PACKAGE)
"""The module of each component type, and of other public classes beside them."""

_TYPES: Final = frozenset(
    name
    for name, module in _MODULE_OF.items()
    if name.endswith("Component") and not module.startswith(f"{_PACKAGE}.declaration.")
)
_classes: Final[dict[str, type[Component]]] = {}

ENTRY_POINTS: Final = _PACKAGE
"""The group in which other packages offer component types, each under its name."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
def component(cls: _C) -> _C:
    """Makes a frozen value class of a component type and registers it under its name.

    Raises:
        NetworkError: the name does not end with "Component", or another class has it.
    """
    name, module = cls.__name__, cls.__module__
    if not name.endswith("Component"):
        raise NetworkError(f"the name of a component type must end with 'Component' (got '{name}')")
    is_listed = name in _TYPES
    owner = (
        _classes[name].__module__ if name in _classes else _MODULE_OF[name] if is_listed else None
    )
    if owner is not None and owner != module:
        raise NetworkError(f"{module} defines the component type '{name}', which {owner} has")
    built = component_family(cls)
    built.IS_ABSTRACT = False
    _classes[built.type] = built
    return built


def component_types() -> tuple[str, ...]:
    """Returns the names of all component types that have been imported, or are Kaldi's, sorted."""
    return tuple(sorted({*_TYPES, *_classes}))


def is_component_type(name: str) -> bool:
    """Returns whether there is a component type of this name, here or in an installed package.

    Raises:
        Nnet3Error: an installed package offers it, but it cannot be imported.
    """
    if name not in _TYPES and name not in _classes:
        extensions.load_extensions(ENTRY_POINTS, name)
    return name in _TYPES or name in _classes


def component_class(type_name: str) -> type[Component]:
    """Returns the class of a component type.

    Raises:
        NetworkError: there is no such type.
        Nnet3Error: an installed package offers it, but it cannot be imported.
    """
    if not is_component_type(type_name):
        raise NetworkError(f"unknown component type '{type_name}'")
    if type_name in _TYPES:
        class_named(type_name)
    return _classes[type_name]


def class_named(name: str) -> Any:
    """Returns one of the public classes of the families."""
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def make_class(name: str) -> None:
    """Makes one of the public classes of the families, if it is one."""
    if name in _MODULE_OF:
        class_named(name)


def make_outside_classes() -> None:
    """Imports the types that other installed packages offer.

    Raises:
        Nnet3Error: one of them cannot be imported.
    """
    extensions.load_extensions(ENTRY_POINTS)
