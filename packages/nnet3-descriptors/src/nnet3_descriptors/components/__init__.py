"""The component types, one class for each.

A class is made when it is first needed; see `registry`.
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.components.declaration.base import (
    Component,
    IndexesType,
    PrecomputedIndexes,
    UpdatableComponent,
)
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.properties import ComponentProperties
from nnet3_descriptors.components.declaration.registry import component_class, component_types
from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_descriptors.components.affine import (
        AffineComponent,
        BlockAffineComponent,
        FixedAffineComponent,
        LinearComponent,
        NaturalGradientAffineComponent,
        NaturalGradientRepeatedAffineComponent,
        RepeatedAffineComponent,
    )
    from nnet3_descriptors.components.attention import RestrictedAttentionComponent
    from nnet3_descriptors.components.columns import (
        PermuteComponent,
        PnormComponent,
        SumBlockComponent,
        SumGroupComponent,
    )
    from nnet3_descriptors.components.composite import CompositeComponent
    from nnet3_descriptors.components.elementwise import (
        ClipGradientComponent,
        ElementwiseProductComponent,
        FixedBiasComponent,
        FixedScaleComponent,
        NoOpComponent,
    )
    from nnet3_descriptors.components.general import (
        BackpropTruncationComponent,
        BackpropTruncationPrecomputedIndexes,
        ConstantComponent,
        DistributeComponent,
        DistributePrecomputedIndexes,
    )
    from nnet3_descriptors.components.index_rules.time_offsets import TimeOffsetPrecomputedIndexes
    from nnet3_descriptors.components.masks import (
        DropoutComponent,
        DropoutMaskComponent,
        GeneralDropoutComponent,
        GeneralDropoutPrecomputedIndexes,
        SpecAugmentTimeMaskComponent,
        SpecAugmentTimeMaskPrecomputedIndexes,
    )
    from nnet3_descriptors.components.nonlinear import (
        BatchNormComponent,
        LogSoftmaxComponent,
        NormalizeComponent,
        RectifiedLinearComponent,
        SigmoidComponent,
        SoftmaxComponent,
        TanhComponent,
    )
    from nnet3_descriptors.components.per_element import (
        ConstantFunctionComponent,
        NaturalGradientPerElementScaleComponent,
        PerElementOffsetComponent,
        PerElementScaleComponent,
        ScaleAndOffsetComponent,
    )
    from nnet3_descriptors.components.pooling import (
        ConvolutionComponent,
        MaxpoolingComponent,
    )
    from nnet3_descriptors.components.recurrent import (
        GruNonlinearityComponent,
        LstmNonlinearityComponent,
        OutputGruNonlinearityComponent,
    )
    from nnet3_descriptors.components.statistics import (
        StatisticsExtractionComponent,
        StatisticsExtractionPrecomputedIndexes,
        StatisticsPoolingComponent,
        StatisticsPoolingPrecomputedIndexes,
    )
    from nnet3_descriptors.components.tdnn import TdnnComponent
    from nnet3_descriptors.components.time_height_convolution import (
        TimeHeightConvolutionComponent,
    )
else:
    __getattr__, __dir__ = on_first_use(__name__)

__all__ = [
    "AffineComponent",
    "BackpropTruncationComponent",
    "BackpropTruncationPrecomputedIndexes",
    "BatchNormComponent",
    "BlockAffineComponent",
    "ClipGradientComponent",
    "Component",
    "ComponentProperties",
    "CompositeComponent",
    "ConfigLine",
    "ConstantComponent",
    "ConstantFunctionComponent",
    "ConvolutionComponent",
    "DistributeComponent",
    "DistributePrecomputedIndexes",
    "DropoutComponent",
    "DropoutMaskComponent",
    "ElementwiseProductComponent",
    "FixedAffineComponent",
    "FixedBiasComponent",
    "FixedScaleComponent",
    "GeneralDropoutComponent",
    "GeneralDropoutPrecomputedIndexes",
    "GruNonlinearityComponent",
    "IndexesType",
    "LinearComponent",
    "LogSoftmaxComponent",
    "LstmNonlinearityComponent",
    "MaxpoolingComponent",
    "NaturalGradientAffineComponent",
    "NaturalGradientPerElementScaleComponent",
    "NaturalGradientRepeatedAffineComponent",
    "NoOpComponent",
    "NormalizeComponent",
    "OutputGruNonlinearityComponent",
    "PerElementOffsetComponent",
    "PerElementScaleComponent",
    "PermuteComponent",
    "PnormComponent",
    "PrecomputedIndexes",
    "RectifiedLinearComponent",
    "RepeatedAffineComponent",
    "RestrictedAttentionComponent",
    "ScaleAndOffsetComponent",
    "SigmoidComponent",
    "SoftmaxComponent",
    "SpecAugmentTimeMaskComponent",
    "SpecAugmentTimeMaskPrecomputedIndexes",
    "StatisticsExtractionComponent",
    "StatisticsExtractionPrecomputedIndexes",
    "StatisticsPoolingComponent",
    "StatisticsPoolingPrecomputedIndexes",
    "SumBlockComponent",
    "SumGroupComponent",
    "TanhComponent",
    "TdnnComponent",
    "TimeHeightConvolutionComponent",
    "TimeOffsetPrecomputedIndexes",
    "UpdatableComponent",
    "component_class",
    "component_types",
]
