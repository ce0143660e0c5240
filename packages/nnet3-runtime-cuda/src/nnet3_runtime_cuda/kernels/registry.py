"""The kernel class of each component type.

The module of a kernel is imported when a network first needs it: making all classes takes as long
as importing NumPy.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nnet3_descriptors.components import Component
from nnet3_descriptors.extensions import load_extensions

from nnet3_runtime_cuda.errors import UnsupportedComponentError

if TYPE_CHECKING:
    from nnet3_runtime_cuda.kernels.base import Kernel

MODULES: Final = {
    module: [f"{name}Component" for name in names.split()]
    for module, names in {
        "affine": "Affine BlockAffine FixedAffine Linear RepeatedAffine "
        "NaturalGradientAffine NaturalGradientRepeatedAffine",
        "composite": "Composite",
        "convolution": "TimeHeightConvolution",
        "fixed_maps": "ClipGradient ElementwiseProduct NoOp Permute Pnorm SumBlock SumGroup",
        "gru": "GruNonlinearity OutputGruNonlinearity",
        "lstm": "LstmNonlinearity",
        "masks": "Dropout DropoutMask GeneralDropout SpecAugmentTimeMask",
        "nonlinear": "RectifiedLinear Sigmoid Tanh",
        "normalize": "BatchNorm LogSoftmax Normalize Softmax",
        "over_time": "BackpropTruncation Distribute RestrictedAttention "
        "StatisticsExtraction StatisticsPooling",
        "per_element": "Constant ConstantFunction FixedBias FixedScale ScaleAndOffset "
        "NaturalGradientPerElementScale PerElementOffset PerElementScale",
        "pooling": "Convolution Maxpooling",
        "tdnn": "Tdnn",
    }.items()
}
"""The component types of each module of this package."""

ENTRY_POINTS: Final = "nnet3_runtime_cuda.kernels"
"""The group of entry points where other packages offer kernels, by name of component type."""

_MODULE_OF: Final = {name: module for module, names in MODULES.items() for name in names}
_kernels: Final[dict[type[Component], type[Kernel]]] = {}


def kernel_for(*component_types: type[Component]) -> Callable[[type[Kernel]], type[Kernel]]:
    """Registers a kernel class for component classes."""

    def register(kernel: type[Kernel]) -> type[Kernel]:
        for component_type in component_types:
            _kernels[component_type] = kernel
        return kernel

    return register


def kernel_class(component: Component, name: str = "") -> type[Kernel]:
    """The kernel class for a component, here or in an installed package.

    Raises:
        UnsupportedComponentError: there is none; the message names component and type.
        Nnet3Error: an installed package offers it, but it cannot be imported.
    """
    if type(component) not in _kernels:
        if component.type in _MODULE_OF:
            importlib.import_module(f"nnet3_runtime_cuda.kernels.{_MODULE_OF[component.type]}")
        else:
            load_extensions(ENTRY_POINTS, component.type)
    try:
        return _kernels[type(component)]
    except KeyError:
        raise UnsupportedComponentError(
            f"component '{name}' has the type {component.type}, which this runtime cannot compute"
        ) from None
