"""The component types, one class for each."""

from nnet3_descriptors.components.affine import (
    AffineComponent,
    LinearComponent,
    NaturalGradientAffineComponent,
)
from nnet3_descriptors.components.base import (
    Component,
    PrecomputedIndexes,
    UpdatableComponent,
    component_class,
    component_types,
)
from nnet3_descriptors.components.batch_norm import BatchNormComponent
from nnet3_descriptors.components.config_line import ConfigLine
from nnet3_descriptors.components.masks import DropoutComponent
from nnet3_descriptors.components.no_op import NoOpComponent
from nnet3_descriptors.components.nonlinear import (
    LogSoftmaxComponent,
    RectifiedLinearComponent,
    SigmoidComponent,
    SoftmaxComponent,
    TanhComponent,
)
from nnet3_descriptors.components.properties import ComponentProperties
from nnet3_descriptors.components.recurrent import LstmNonlinearityComponent
from nnet3_descriptors.components.tdnn import TdnnComponent, TdnnPrecomputedIndexes

__all__ = [
    "AffineComponent",
    "BatchNormComponent",
    "Component",
    "ComponentProperties",
    "ConfigLine",
    "DropoutComponent",
    "LinearComponent",
    "LogSoftmaxComponent",
    "LstmNonlinearityComponent",
    "NaturalGradientAffineComponent",
    "NoOpComponent",
    "PrecomputedIndexes",
    "RectifiedLinearComponent",
    "SigmoidComponent",
    "SoftmaxComponent",
    "TanhComponent",
    "TdnnComponent",
    "TdnnPrecomputedIndexes",
    "UpdatableComponent",
    "component_class",
    "component_types",
]
