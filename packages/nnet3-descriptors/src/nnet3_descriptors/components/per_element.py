"""Components that treat each column by itself and are trained: scales, offsets, constants."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nnet3_descriptors.components.declaration import base, fields, initial, kinds, natural_gradient
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.info import InfoEntry, item, mean_stddev
from nnet3_descriptors.components.declaration.properties import CONTIGUOUS, IN_PLACE
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property
from nnet3_descriptors.components.declaration.registry import component


def _extremes(name: str) -> InfoEntry:
    """Returns an entry of `info`: the least and the greatest value of a field."""

    def items(component: Any) -> str:
        values = getattr(component, name)
        return item(f"{name}-min", values.min()) + item(f"{name}-max", values.max())

    return items


@component
class PerElementScaleComponent(base.UpdatableComponent):
    """y = scales * x, column by column.

    Attributes:
        scales: (dim,).
    """

    PROPERTIES = IN_PLACE | Property.UPDATABLE | Property.BACKPROP_NEEDS_INPUT
    INFO = (*base.UpdatableComponent.COMMON_INFO, _extremes("scales"), "scales")
    FILE_KEY: ClassVar[str] = "vector"
    """The key of a config line that names a file with the scales."""

    scales: fields.Array = fields.vector(token="<Params>", parameter=True, show=mean_stddev)

    dim = base.columns(lambda self: len(self.scales))

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial scales, from a file or random."""
        if not config.has(cls.FILE_KEY):
            return {"scales": initial.normal_vector(config, rng, "dim", "param", mean=1.0)}
        scales = initial.vector_from_file(config, cls.FILE_KEY)
        if config.has("dim") and config.integer("dim") != scales.size:
            found = config.text("dim")
            raise config.error(
                f"'dim' must be that of the vector, {scales.size}, got {found}", "dim"
            )
        return {"scales": scales}


@component
class NaturalGradientPerElementScaleComponent(PerElementScaleComponent):
    """y = scales * x, column by column, trained by natural-gradient descent.

    Attributes:
        rank: Rank of the estimate of the Fisher matrix.
    """

    INFO = (*PerElementScaleComponent.INFO, "rank", "update_period", "num_samples_history", "alpha")
    OBSOLETE = (("<MaxChangePerMinibatch>", kinds.Real()),)
    REPEATED = (("is_gradient", "scales"),)
    FILE_KEY = "scales"

    rank: int = fields.integer(default=8, minimum=1)
    update_period: int = natural_gradient.update_period(default=10)
    num_samples_history: float = natural_gradient.num_samples_history()
    alpha: float = natural_gradient.alpha()


@component
class PerElementOffsetComponent(base.UpdatableComponent):
    """y = x + offsets, column by column.

    Attributes:
        offsets: (block_dim,).
        dim: Number of columns, which are blocks with the same offsets.
        use_natural_gradient: The update uses the natural gradient.
    """

    INFO = (
        *base.UpdatableComponent.COMMON_INFO,
        _extremes("offsets"),
        "block_dim",
        "use_natural_gradient",
        "offsets",
    )

    offsets: fields.Array = fields.vector(parameter=True, show=mean_stddev)
    dim: int = fields.integer(
        default=lambda self: self.offsets.size, absent=lambda read: read["offsets"].size, minimum=1
    )
    use_natural_gradient: bool = natural_gradient.use_natural_gradient(absent=True)

    def check(self) -> None:
        """Raises NetworkError if the columns do not make blocks."""
        _check_blocks(self, self.offsets)

    @property
    def properties(self) -> Property:
        """The promises of this component."""
        properties = IN_PLACE | Property.UPDATABLE
        return properties | Property.OUTPUT_CONTIGUOUS if self.block_dim != self.dim else properties

    block_dim = base.block_columns(lambda self: len(self.offsets))

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial offsets, from a file or random."""
        if config.has("vector"):
            return {"offsets": initial.vector_from_file(config, "vector")}
        size_key = "block-dim" if config.has("block-dim") else "dim"
        return {"offsets": initial.normal_vector(config, rng, size_key, "param")}


def _block_size_item(component: Any) -> str:
    blocks = component.dim != component.scales.size
    return item("block-size", component.scales.size) if blocks else ""


@component
class ScaleAndOffsetComponent(base.UpdatableComponent):
    """y = scales * x + offsets, column by column.

    Attributes:
        dim: Number of columns, which are blocks with the same scales and offsets.
        scales: (block_dim,).
        offsets: (block_dim,).
        use_natural_gradient: The update uses the natural gradient.
        rank: Rank of the estimates of the Fisher matrices.
    """

    INFO = (*base.UpdatableComponent.COMMON_INFO, "rank", _block_size_item, "scales", "offsets")

    dim: int = fields.integer(minimum=1)
    scales: fields.Array = fields.vector(parameter=True, show=mean_stddev)
    offsets: fields.Array = fields.vector(parameter=True, shape=("block_dim",), show=mean_stddev)
    use_natural_gradient: bool = natural_gradient.use_natural_gradient()
    rank: int = fields.integer(default=20, minimum=1)

    def check(self) -> None:
        """Raises NetworkError if the columns do not make blocks."""
        _check_blocks(self, self.scales)

    @property
    def properties(self) -> Property:
        """The promises of this component."""
        properties = IN_PLACE | Property.UPDATABLE | Property.BACKPROP_NEEDS_OUTPUT
        if self.block_dim != self.dim:
            properties |= CONTIGUOUS
        return properties

    block_dim = base.block_columns(lambda self: len(self.scales))

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns scales of one and offsets of zero."""
        block_dim = config.integer("block-dim" if config.has("block-dim") else "dim", minimum=1)
        return {"scales": initial.filled(block_dim, 1.0), "offsets": initial.filled(block_dim, 0.0)}


def _check_blocks(component: Any, values: fields.Array) -> None:
    """Raises NetworkError unless the columns are blocks of the size of `values`."""
    component.require(
        values.size > 0 and component.dim % values.size == 0,
        f"the columns must be blocks of the same size, got {component.dim} columns and "
        f"a block of {values.size}",
    )


def _constant_function_items(component: Any) -> str:
    """Returns text that `info` repeats, as Kaldi does."""
    dims = item("input-dim", component.input_dim) + item("output-dim", component.output_dim)
    return f", {component.type}{dims}"


@component
class ConstantFunctionComponent(base.UpdatableComponent):
    """y = output, whatever x is.

    Attributes:
        input_dim: Number of columns of the input.
        output: (output_dim,).
        is_updatable: Training changes the output.
        use_natural_gradient: The update uses the natural gradient.
    """

    INFO = (
        *base.UpdatableComponent.COMMON_INFO,
        _constant_function_items,
        "is_updatable",
        "use_natural_gradient",
        "output",
    )

    input_dim: int = fields.integer(minimum=1)
    output: fields.Array = fields.vector(parameter=True, show=mean_stddev)
    is_updatable: bool = fields.boolean(default=True)
    use_natural_gradient: bool = natural_gradient.use_natural_gradient()

    @property
    def properties(self) -> Property:
        """The promises of this component."""
        properties = Property.SIMPLE | Property.BACKPROP_ADDS
        if self.is_updatable:
            properties |= Property.UPDATABLE
        if self.input_dim == self.output_dim:
            properties |= Property.PROPAGATE_IN_PLACE
        return properties

    output_dim = base.output_columns(lambda self: len(self.output))

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns the initial output."""
        return {"output": initial.normal_vector(config, rng, "output-dim", "output")}
