"""Components without training that treat each column by itself: scales, products, identity."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3_descriptors.components.declaration import base, fields, info, initial, kinds, properties
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.properties import ComponentProperties as Property
from nnet3_descriptors.components.declaration.registry import component


@component
class NoOpComponent(base.Component):
    """y = x.

    Attributes:
        dim: Number of columns.
        backprop_scale: Multiplies the derivative.
    """

    PROPERTIES = properties.IN_PLACE
    # It once was a nonlinearity, with the statistics of one.
    OBSOLETE = (
        ("<ValueAvg>", kinds.VECTOR),
        ("<DerivAvg>", kinds.VECTOR),
        ("<Count>", kinds.Real()),
        ("<OderivRms>", kinds.VECTOR),
        ("<OderivCount>", kinds.Real()),
        ("<NumDimsSelfRepaired>", kinds.Real()),
        ("<NumDimsProcessed>", kinds.Real()),
    )

    dim: int = fields.integer(minimum=1)
    backprop_scale: float = fields.real(default=1.0, absent=1.0, shown="unless default")


@component
class ElementwiseProductComponent(base.Component):
    """y = product, element by element, of equal blocks of the columns.

    Attributes:
        input_dim: Number of columns of the input.
        output_dim: Number of columns of a block.
    """

    PROPERTIES = Property.SIMPLE | Property.BACKPROP_NEEDS_INPUT

    input_dim: int = fields.integer(minimum=1)
    output_dim: int = fields.integer(minimum=1)

    def check(self) -> None:
        """Raises NetworkError if the columns do not make two or more blocks."""
        self.require(
            self.input_dim > self.output_dim and self.input_dim % self.output_dim == 0,
            f"'output_dim' must divide {self.input_dim} and be less, got {self.output_dim}",
        )


def _clipping_items(component: Any) -> str:
    """Returns the text of `info` about how often the derivative was clipped."""
    proportion = np.float32(component.num_clipped) / np.float32(component.count or 1)
    return info.item("clipped-proportion", proportion if component.count > 0 else 0)


def _repairs(component: Any) -> bool:
    return bool(component.self_repair_scale != 0.0)


@component
class ClipGradientComponent(base.Component):
    """y = x; the derivative is clipped on its way back.

    Attributes:
        dim: Number of columns.
        clipping_threshold: Greatest size of a derivative; 0 for no clipping.
        norm_based_clipping: The threshold is for the norms of rows, not for elements.
        self_repair_clipped_proportion_threshold: Clipped proportion above which there is repair.
        self_repair_target: Size to which repair drives the input.
        self_repair_scale: Size of the repair; 0 for none.
        num_clipped: Number of rows or elements clipped.
        count: Number of rows or elements seen.
        num_self_repaired: Number of minibatches with repair.
        num_backpropped: Number of minibatches.
    """

    PROPERTIES = properties.IN_PLACE | Property.BACKPROP_NEEDS_INPUT
    INFO = (
        "dim",
        "norm_based_clipping",
        "clipping_threshold",
        _clipping_items,
        "self_repair_clipped_proportion_threshold",
        "self_repair_target",
        "self_repair_scale",
    )

    dim: int = fields.integer(minimum=1)
    clipping_threshold: float = fields.real(default=15.0, minimum=0.0)
    norm_based_clipping: bool = fields.boolean(default=False)
    self_repair_clipped_proportion_threshold: float = fields.real(
        default=0.01, absent=1.0, minimum=0.0, shown=_repairs
    )
    self_repair_target: float = fields.real(default=0.0, absent=0.0, minimum=0.0, shown=_repairs)
    self_repair_scale: float = fields.real(default=1.0, absent=0.0, minimum=0.0, shown=_repairs)
    num_clipped: int = fields.integer(default=0, token="<NumElementsClipped>", config=None)
    count: int = fields.integer(default=0, token="<NumElementsProcessed>", config=None)
    num_self_repaired: int = fields.integer(default=0, absent=0, config=None)
    num_backpropped: int = fields.integer(default=0, absent=0, config=None)


@component
class FixedScaleComponent(base.Component):
    """y = scales * x, column by column; not trained.

    Attributes:
        scales: (dim,).
    """

    PROPERTIES = properties.IN_PLACE
    INFO = ("input_dim", "output_dim", "scales")

    scales: fields.Array = fields.vector(show=info.mean_stddev)

    dim = base.columns(lambda self: len(self.scales))

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns scales from a file, all equal, or random (for tests)."""
        if config.has("scales"):
            return {"scales": initial.vector_from_file(config, "scales")}
        dim = config.integer("dim", minimum=1)
        if config.has("scale"):
            return {"scales": initial.filled(dim, config.real("scale"))}
        return {"scales": initial.normal(rng, dim, 1.0)}


@component
class FixedBiasComponent(base.Component):
    """y = x + bias, column by column; not trained.

    Attributes:
        bias: (dim,).
    """

    PROPERTIES = properties.IN_PLACE
    INFO = ("input_dim", "output_dim", "bias")

    bias: fields.Array = fields.vector(show=info.mean_stddev)

    dim = base.columns(lambda self: len(self.bias))

    @classmethod
    def initial_fields(cls, config: ConfigLine, rng: np.random.Generator) -> dict[str, Any]:
        """Returns offsets from a file, or random (for tests)."""
        if config.has("bias"):
            return {"bias": initial.vector_from_file(config, "bias")}
        return {"bias": initial.normal(rng, config.integer("dim", minimum=1), 1.0)}
