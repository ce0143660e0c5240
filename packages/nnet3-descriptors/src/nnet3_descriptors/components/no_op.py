"""The component that does nothing to its input."""

from nnet3_descriptors.components import kinds
from nnet3_descriptors.components.base import Component, component
from nnet3_descriptors.components.fields import integer, real
from nnet3_descriptors.components.properties import ComponentProperties as Property


@component
class NoOpComponent(Component):
    """y = x.

    Attributes:
        dim: Number of columns.
        backprop_scale: Multiplies the derivative.
    """

    PROPERTIES = Property.SIMPLE | Property.PROPAGATE_IN_PLACE | Property.BACKPROP_IN_PLACE
    # It once was a nonlinearity, with the statistics of one.
    OBSOLETE = (
        ("<ValueAvg>", kinds.Vector()),
        ("<DerivAvg>", kinds.Vector()),
        ("<Count>", kinds.Real()),
        ("<OderivRms>", kinds.Vector()),
        ("<OderivCount>", kinds.Real()),
        ("<NumDimsSelfRepaired>", kinds.Real()),
        ("<NumDimsProcessed>", kinds.Real()),
    )

    dim: int = integer(minimum=1)
    backprop_scale: float = real(default=1.0, absent=1.0, shown="unless default")
