"""A sequence of components as one component."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components.declaration import kaldi_io, kinds, registry
from nnet3_descriptors.components.declaration.base import Component, UpdatableComponent
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.fields import declare, integer
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property

if TYPE_CHECKING:
    from nnet3_descriptors.files.reader import Reader
    from nnet3_descriptors.files.writer import Writer

_MAX_COMPONENTS = 100_000
_LEAST_COMPONENT = len("<NoOpComponent> </NoOpComponent>")
"""The least number of bytes that a component takes."""


class _Components(kinds.Kind):
    """A tuple of components, preceded by their number."""

    expected = "a tuple of components"

    def convert(self, value: Any) -> Any:
        """Returns a sequence as a tuple."""
        return tuple(value) if isinstance(value, list) else value

    def accepts(self, value: Any) -> bool:
        """Tells whether the value is a tuple of components."""
        return type(value) is tuple and all(isinstance(item, Component) for item in value)

    def read(self, reader: Reader) -> tuple[Component, ...]:
        """Reads the number of components, and the components."""
        count = reader.count("components", maximum=_MAX_COMPONENTS, least_bytes=_LEAST_COMPONENT)
        return tuple(kaldi_io.read_component(reader) for _ in range(count))

    def write(self, writer: Writer, value: tuple[Component, ...]) -> None:
        """Writes the number and the components."""
        writer.integer(len(value))
        for item in value:
            kaldi_io.write_component(writer, item)


@registry.component
class CompositeComponent(UpdatableComponent):
    """Simple components one after the other, computed for some rows at a time to save memory.

    Parameters and arrays of the parts have names such as "0.linear_params".

    Attributes:
        max_rows_process: The number of rows to compute at a time; 0 or less for all.
        components: The parts; the output of each is the input of the next.
    """

    BACKPROP_NEEDS_EXACT_VALUES = True  # because a part may need them

    max_rows_process: int = integer(default=4096)
    components: tuple[Component, ...] = declare(_Components(), token="<NumComponents>", config=None)

    def check(self) -> None:
        """Raises NetworkError if the parts cannot be put together."""
        self.require(self.components, "there must be one component at least")
        for number, part in enumerate(self.components, start=1):
            self.require(
                part.properties & Property.SIMPLE and not isinstance(part, CompositeComponent),
                f"component {number} must be of a simple type, and no composite, got {part.type}",
            )
        for number, (first, second) in enumerate(
            zip(self.components[:-1], self.components[1:], strict=True), start=1
        ):
            self.require(
                first.output_dim == second.input_dim,
                f"component {number + 1} must take {first.output_dim} columns, as component "
                f"{number} gives, got {second.input_dim}",
            )

    @property
    def properties(self) -> Property:
        """The promises of this component; the backward computation runs forward again.

        If a part has a memo, its rows depend on one another, so the optimizer must not merge calls
        of the component. Therefore the component promises a memo, although it stores nothing in it.
        """
        parts = [part.properties for part in self.components]
        properties = Property.SIMPLE | Property.BACKPROP_NEEDS_INPUT
        properties |= parts[0] & (Property.BACKPROP_ADDS | Property.INPUT_CONTIGUOUS)
        properties |= parts[-1] & (
            Property.PROPAGATE_ADDS | Property.BACKPROP_NEEDS_OUTPUT | Property.OUTPUT_CONTIGUOUS
        )
        if parts[-1] & Property.STORES_STATS:
            properties |= Property.BACKPROP_NEEDS_OUTPUT
        for flag in (Property.UPDATABLE, Property.USES_MEMO):
            if any(part & flag for part in parts):
                properties |= flag
        return properties

    @property
    def input_dim(self) -> int:
        """Number of columns of the input."""
        return self.components[0].input_dim

    @property
    def output_dim(self) -> int:
        """Number of columns of the output."""
        return self.components[-1].output_dim

    # -- arrays of the parts -------------------------------------------------------------------

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters of the parts, part by part."""
        return tuple(
            f"{number}.{name}"
            for number, part in enumerate(self.components)
            for name in part.parameters
        )

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Returns all arrays of the parts."""
        return {
            f"{number}.{name}": array
            for number, part in enumerate(self.components)
            for name, array in part.arrays().items()
        }

    def replace(self, **changes: Any) -> Self:
        """Returns this component with other values for fields, or for fields of its parts."""
        own: dict[str, Any] = {}
        of_parts: dict[int, dict[str, Any]] = {}
        for name, value in changes.items():
            part, dot, field = name.partition(".")
            if dot:
                of_parts.setdefault(int(part), {})[field] = value
            else:
                own[name] = value
        parts = list(own.pop("components", self.components))
        for number, fields in of_parts.items():
            parts[number] = parts[number].replace(**fields)
        return super().replace(**own, components=tuple(parts))

    def with_test_mode(self, on: bool) -> Self:
        """Returns this component with its parts in test mode, or out of it."""
        return self.replace(components=tuple(part.with_test_mode(on) for part in self.components))

    # -- construction and description ----------------------------------------------------------

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the parts, which have config lines of their own."""
        for spec in UpdatableComponent.FIELDS:
            if spec.config is not None and config.has(spec.config):
                message = f"'{spec.config}' must be given for the components within"
                raise config.error(message, spec.config)
        count = config.integer("num-components", minimum=1)
        return {"components": tuple(_part(config, f"component{i + 1}", rng) for i in range(count))}

    def info(self) -> str:
        """Returns the line that nnet3-info prints for the component, from its type on."""
        parts = ", ".join(
            f"sub-component{number} = {{ {part.info()} }}"
            for number, part in enumerate(self.components, start=1)
        )
        return f"{self.type} {parts}"


def _part(config: ConfigLine, key: str, rng: np.random.Generator) -> Component:
    """Returns the component whose config line is the value of a key."""
    config.text(key)
    line = ConfigLine.parse(config.source, config.values[key].span)
    type_name = line.text("type")
    if line.first_word or not registry.is_component_type(type_name):
        raise line.error(f"'{key}' must begin with type= and a component type", "type")
    cls = registry.component_class(type_name)
    part = None if cls is CompositeComponent else cls.from_config(line, rng)
    if part is None or part.properties & Property.RANDOM:
        raise line.error(f"{type_name} must not be part of a CompositeComponent", "type")
    return part
