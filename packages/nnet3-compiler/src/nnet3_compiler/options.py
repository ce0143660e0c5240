"""Options of the compiler."""

from __future__ import annotations

import attrs
from nnet3_computation import OptionError


@attrs.frozen(kw_only=True)
class CompilerOptions:
    """Options of the compiler.

    Attributes:
        output_debug_info: Whether the computation names the cindexes of the rows of its matrices.
        shortcut: Whether the compiler compiles one of several equal sequences, and derives the
            commands for all of them from it.

    Raises:
        OptionError: A switch is not True or False.
    """

    output_debug_info: bool = True
    shortcut: bool = True

    def __attrs_post_init__(self) -> None:
        for name in ("output_debug_info", "shortcut"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} must be True or False (got {getattr(self, name)!r})")
