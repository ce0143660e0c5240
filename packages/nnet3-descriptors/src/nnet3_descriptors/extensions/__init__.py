"""Entry points of installed packages, which are imported when a name is not known otherwise.

Installed packages are looked up once for each group, so that a file full of unknown names costs no
more than a look into a dictionary for each.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from nnet3_descriptors.errors import Nnet3Error

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["load_extensions"]


def load_extensions(group: str, name: str | None = None) -> bool:
    """Imports the objects that installed packages offer in a group of entry points.

    Args:
        group: The group, such as "nnet3_descriptors.components".
        name: The name of an entry point; None for all.

    Returns:
        Whether there is any.

    Raises:
        Nnet3Error: One of them cannot be imported.
    """
    offered = _offered(group)
    found = offered if name is None else tuple(each for each in offered if each.name == name)
    for entry_point in found:
        try:
            entry_point.load()
        except Exception as error:
            package = entry_point.dist.name if entry_point.dist is not None else "a package"
            raise Nnet3Error(
                f"'{entry_point.name}' of {package} cannot be imported from {entry_point.value} "
                f"(entry point of '{group}'): {error}"
            ) from error
    return bool(found)


@functools.cache
def _offered(group: str) -> tuple[EntryPoint, ...]:
    from importlib import metadata  # takes longer to import than most here, and is rarely needed

    return tuple(metadata.entry_points(group=group))
