"""Options of tools from the classes of options of nnet3-speech."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import click

from nnet3_tools.kaldi_command import boolean_option


def class_options(
    cls: type[attrs.AttrsInstance], helps: Mapping[str, str]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds an option for each field of a class that has a text of help; its default is the field's.

    The command gets each as an argument of the field's name, so that `cls(**options)` has them.
    """

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for field in reversed(attrs.fields(attrs.resolve_types(cls))):
            if field.name not in helps:
                continue
            name, about = f"--{field.name.replace('_', '-')}", helps[field.name]
            if field.type is bool:
                option = boolean_option(name, field.default, show_default=True, help=about)
            else:
                option = click.option(
                    name, type=field.type, default=field.default, show_default=True, help=about
                )
            function = option(function)
        return function

    return add
