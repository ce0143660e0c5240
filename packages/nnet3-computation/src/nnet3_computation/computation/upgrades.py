"""The functions that turn a stored computation of an older version into the next version.

Each function takes the content of its version and returns that of the version after it: see
"Serialized form" in the README, and docs/interchange.md for what a version means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

Content = dict[str, Any]


def _from_1(content: Content) -> Content:
    """Version 2 adds the fingerprints and the memory plan; version 1 has none of them."""
    return {
        **content,
        "network_nodes": None,
        "network_components": None,
        "requests": [],
        "memory_plan": None,
    }


UPGRADES: Final[Mapping[int, Callable[[Content], Content]]] = MappingProxyType({1: _from_1})
