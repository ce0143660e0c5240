"""The component types by name.

The module of a type is imported when the type is first needed: making the classes of all types
takes longer than the rest of importing the package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from nnet3_descriptors.errors import NetworkError

if TYPE_CHECKING:
    from nnet3_descriptors.components.base import Component

MODULES: Final = {
    "affine": (
        "AffineComponent",
        "BlockAffineComponent",
        "FixedAffineComponent",
        "LinearComponent",
        "NaturalGradientAffineComponent",
        "NaturalGradientRepeatedAffineComponent",
        "RepeatedAffineComponent",
    ),
    "attention": ("RestrictedAttentionComponent",),
    "columns": (
        "PermuteComponent",
        "PnormComponent",
        "SumBlockComponent",
        "SumGroupComponent",
    ),
    "composite": ("CompositeComponent",),
    "elementwise": (
        "ClipGradientComponent",
        "ElementwiseProductComponent",
        "FixedBiasComponent",
        "FixedScaleComponent",
        "NoOpComponent",
    ),
    "general": (
        "BackpropTruncationComponent",
        "BackpropTruncationPrecomputedIndexes",
        "ConstantComponent",
        "DistributeComponent",
        "DistributePrecomputedIndexes",
    ),
    "masks": (
        "DropoutComponent",
        "DropoutMaskComponent",
        "GeneralDropoutComponent",
        "GeneralDropoutPrecomputedIndexes",
        "SpecAugmentTimeMaskComponent",
        "SpecAugmentTimeMaskPrecomputedIndexes",
    ),
    "nonlinear": (
        "LogSoftmaxComponent",
        "RectifiedLinearComponent",
        "SigmoidComponent",
        "SoftmaxComponent",
        "TanhComponent",
    ),
    "normalize": (
        "BatchNormComponent",
        "NormalizeComponent",
    ),
    "per_element": (
        "ConstantFunctionComponent",
        "NaturalGradientPerElementScaleComponent",
        "PerElementOffsetComponent",
        "PerElementScaleComponent",
        "ScaleAndOffsetComponent",
    ),
    "pooling": (
        "ConvolutionComponent",
        "MaxpoolingComponent",
    ),
    "recurrent": (
        "GruNonlinearityComponent",
        "LstmNonlinearityComponent",
        "OutputGruNonlinearityComponent",
    ),
    "statistics": (
        "StatisticsExtractionComponent",
        "StatisticsExtractionPrecomputedIndexes",
        "StatisticsPoolingComponent",
        "StatisticsPoolingPrecomputedIndexes",
    ),
    "tdnn": ("TdnnComponent",),
    "time_height_convolution": ("TimeHeightConvolutionComponent",),
    "time_offsets": ("TimeOffsetPrecomputedIndexes",),
}
"""The modules, and the component types and other public classes of each."""

_MODULE_OF: Final = {name: module for module, names in MODULES.items() for name in names}
_TYPES: Final = tuple(name for name in _MODULE_OF if name.endswith("Component"))
_classes: Final[dict[str, type[Component]]] = {}


def register(cls: type[Component]) -> None:
    """Makes a component type known; all types do so when their class is made."""
    _classes[cls.type] = cls


def component_types() -> tuple[str, ...]:
    """Returns the names of all component types, sorted."""
    return tuple(sorted({*_TYPES, *_classes}))


def component_class(type_name: str) -> type[Component]:
    """Returns the class of a component type.

    Raises:
        NetworkError: there is no such type.
    """
    if type_name in _TYPES:
        class_named(type_name)
    try:
        return _classes[type_name]
    except KeyError:
        raise NetworkError(f"unknown component type '{type_name}'") from None


def class_named(name: str) -> Any:
    """Returns one of the classes in MODULES."""
    module = importlib.import_module(f"nnet3_descriptors.components.{_MODULE_OF[name]}")
    return getattr(module, name)


def make_all_classes() -> None:
    """Makes the classes of all types, for code that looks for all derived classes."""
    for name in _MODULE_OF:
        class_named(name)
