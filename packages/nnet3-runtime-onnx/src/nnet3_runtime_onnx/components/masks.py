"""Components that draw random masks; outside of test mode they are refused."""

from typing import Any

from nnet3_descriptors.components import (
    DropoutComponent,
    DropoutMaskComponent,
    GeneralDropoutComponent,
    SpecAugmentTimeMaskComponent,
)

from nnet3_runtime_onnx.components.declaration import Call, translates
from nnet3_runtime_onnx.graph import Tensor, constant
from nnet3_runtime_onnx.matrices import Region

REASON = "draws random numbers: set test mode"


def _if_random(*proportions: str) -> Any:
    """Refuses a component that is not in test mode, where one of its proportions is not 0."""

    def refuses(component: Any) -> str:
        is_random = any(getattr(component, name) != 0.0 for name in proportions)
        return REASON if is_random and not component.test_mode else ""

    return refuses


@translates(DropoutComponent, refuses=_if_random("dropout_proportion"))
def dropout(call: Call) -> Region:
    """y = (1 - p) x, in test mode."""
    return call.scaled(1.0 - float(call.component.dropout_proportion))


@translates(DropoutMaskComponent, refuses=_if_random("dropout_proportion"))
def dropout_mask(call: Call) -> Tensor:
    """y = 1 - p, or 1 if continuous, in test mode."""
    c = call.component
    value = 1.0 if c.continuous else 1.0 - float(c.dropout_proportion)
    return call.repeated(constant(call.graph, value))


@translates(
    GeneralDropoutComponent,
    refuses=_if_random("dropout_proportion", "specaugment_max_proportion"),
)
def general_dropout(call: Call) -> Region:
    """y = x, in test mode."""
    return call.scaled()


@translates(SpecAugmentTimeMaskComponent, refuses=_if_random("zeroed_proportion"))
def time_mask(call: Call) -> Region:
    """y = x, in test mode."""
    return call.scaled()
