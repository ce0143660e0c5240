"""The component types by name, and how a class becomes one.

The module of a type is imported when the type is first needed: making the classes of all types
takes longer than the rest of importing the package.
"""

from __future__ import annotations

import importlib
from typing import Any, Final, TypeVar, dataclass_transform

from nnet3_descriptors.components.declaration.base import Component, component_family
from nnet3_descriptors.errors import NetworkError

_C = TypeVar("_C", bound="type[Component]")

MODULES: Final = {
    "composite": ("CompositeComponent",),
    "convolution.pooling": (
        "ConvolutionComponent",
        "MaxpoolingComponent",
    ),
    "convolution.tdnn": ("TdnnComponent",),
    "convolution.time_height_convolution": ("TimeHeightConvolutionComponent",),
    "general": (
        "BackpropTruncationComponent",
        "BackpropTruncationPrecomputedIndexes",
        "ConstantComponent",
        "DistributeComponent",
        "DistributePrecomputedIndexes",
    ),
    "index_rules.time_offsets": ("TimeOffsetPrecomputedIndexes",),
    "rowwise.affine": (
        "AffineComponent",
        "BlockAffineComponent",
        "FixedAffineComponent",
        "LinearComponent",
        "NaturalGradientAffineComponent",
        "NaturalGradientRepeatedAffineComponent",
        "RepeatedAffineComponent",
    ),
    "rowwise.columns": (
        "PermuteComponent",
        "PnormComponent",
        "SumBlockComponent",
        "SumGroupComponent",
    ),
    "rowwise.elementwise": (
        "ClipGradientComponent",
        "ElementwiseProductComponent",
        "FixedBiasComponent",
        "FixedScaleComponent",
        "NoOpComponent",
    ),
    "rowwise.masks": (
        "DropoutComponent",
        "DropoutMaskComponent",
        "GeneralDropoutComponent",
        "GeneralDropoutPrecomputedIndexes",
        "SpecAugmentTimeMaskComponent",
        "SpecAugmentTimeMaskPrecomputedIndexes",
    ),
    "rowwise.nonlinear": (
        "LogSoftmaxComponent",
        "RectifiedLinearComponent",
        "SigmoidComponent",
        "SoftmaxComponent",
        "TanhComponent",
    ),
    "rowwise.normalize": (
        "BatchNormComponent",
        "NormalizeComponent",
    ),
    "rowwise.per_element": (
        "ConstantFunctionComponent",
        "NaturalGradientPerElementScaleComponent",
        "PerElementOffsetComponent",
        "PerElementScaleComponent",
        "ScaleAndOffsetComponent",
    ),
    "sequences.attention": ("RestrictedAttentionComponent",),
    "sequences.recurrent": (
        "GruNonlinearityComponent",
        "LstmNonlinearityComponent",
        "OutputGruNonlinearityComponent",
    ),
    "sequences.statistics": (
        "StatisticsExtractionComponent",
        "StatisticsExtractionPrecomputedIndexes",
        "StatisticsPoolingComponent",
        "StatisticsPoolingPrecomputedIndexes",
    ),
}
"""The modules by family, and the component types and other public classes of each."""

_MODULE_OF: Final = {name: module for module, names in MODULES.items() for name in names}
_TYPES: Final = tuple(name for name in _MODULE_OF if name.endswith("Component"))
_classes: Final[dict[str, type[Component]]] = {}


@dataclass_transform(kw_only_default=True, frozen_default=True)
def component(cls: _C) -> _C:
    """Makes a frozen value class of a component type and registers it under its name."""
    built = component_family(cls)
    built.IS_ABSTRACT = False
    _classes[built.type] = built
    return built


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
