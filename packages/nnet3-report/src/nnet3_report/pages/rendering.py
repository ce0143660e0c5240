"""Makes pages from the templates in this folder; a page loads nothing from elsewhere."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

import jinja2

from nnet3_report.curves import with_unit


def _source(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _option(value: object) -> str:
    """The value of an option, as the command line has it."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
        case tuple() | list():
            return ",".join(map(_option, value))
        case None | "":
            return "none"
    return str(value)


def rendered(template: str, **values: Any) -> str:
    """The page that a template gives with these values."""
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment() -> jinja2.Environment:
    """The templates; each is compiled once."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["bytes"] = with_unit
    environment.filters["option"] = _option
    return environment
