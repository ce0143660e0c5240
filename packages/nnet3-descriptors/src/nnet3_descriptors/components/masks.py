"""Components that set some of their input to zero at random while training."""

from nnet3_descriptors.components.base import Component, component
from nnet3_descriptors.components.fields import boolean, integer, real
from nnet3_descriptors.components.properties import ComponentProperties as Property


@component
class DropoutComponent(Component):
    """y = x with a random part of the elements, or rows, set to zero.

    In test mode y = (1 - dropout_proportion) x.

    Attributes:
        dim: Number of columns.
        dropout_proportion: Probability that an element, or row, becomes zero.
        dropout_per_frame: Rows are dropped, not elements.
        test_mode: Nothing is random.
    """

    PROPERTIES = (
        Property.SIMPLE
        | Property.BACKPROP_IN_PLACE
        | Property.BACKPROP_NEEDS_INPUT
        | Property.BACKPROP_NEEDS_OUTPUT
        | Property.RANDOM
    )

    dim: int = integer(minimum=1)
    dropout_proportion: float = real(minimum=0.0, maximum=1.0)
    dropout_per_frame: bool = boolean(default=False, absent=False)
    test_mode: bool = boolean(default=False, absent=False, info=None)
