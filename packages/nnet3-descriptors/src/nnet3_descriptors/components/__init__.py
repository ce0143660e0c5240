"""The component types, one class for each.

A class is made when it is first needed; see `registry`.
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_descriptors.components.affine import AffineComponent as AffineComponent
    from nnet3_descriptors.components.affine import BlockAffineComponent as BlockAffineComponent
    from nnet3_descriptors.components.affine import FixedAffineComponent as FixedAffineComponent
    from nnet3_descriptors.components.affine import LinearComponent as LinearComponent
    from nnet3_descriptors.components.affine import (
        NaturalGradientAffineComponent as NaturalGradientAffineComponent,
    )
    from nnet3_descriptors.components.affine import (
        NaturalGradientRepeatedAffineComponent as NaturalGradientRepeatedAffineComponent,
    )
    from nnet3_descriptors.components.affine import (
        RepeatedAffineComponent as RepeatedAffineComponent,
    )
    from nnet3_descriptors.components.attention import (
        RestrictedAttentionComponent as RestrictedAttentionComponent,
    )
    from nnet3_descriptors.components.columns import PermuteComponent as PermuteComponent
    from nnet3_descriptors.components.columns import PnormComponent as PnormComponent
    from nnet3_descriptors.components.columns import SumBlockComponent as SumBlockComponent
    from nnet3_descriptors.components.columns import SumGroupComponent as SumGroupComponent
    from nnet3_descriptors.components.composite import CompositeComponent as CompositeComponent
    from nnet3_descriptors.components.declaration.base import Component as Component
    from nnet3_descriptors.components.declaration.base import IndexesType as IndexesType
    from nnet3_descriptors.components.declaration.base import (
        PrecomputedIndexes as PrecomputedIndexes,
    )
    from nnet3_descriptors.components.declaration.base import (
        UpdatableComponent as UpdatableComponent,
    )
    from nnet3_descriptors.components.declaration.config_line import ConfigLine as ConfigLine
    from nnet3_descriptors.components.declaration.properties import (
        ComponentProperties as ComponentProperties,
    )
    from nnet3_descriptors.components.declaration.registry import component_class as component_class
    from nnet3_descriptors.components.declaration.registry import component_types as component_types
    from nnet3_descriptors.components.elementwise import (
        ClipGradientComponent as ClipGradientComponent,
    )
    from nnet3_descriptors.components.elementwise import (
        ElementwiseProductComponent as ElementwiseProductComponent,
    )
    from nnet3_descriptors.components.elementwise import FixedBiasComponent as FixedBiasComponent
    from nnet3_descriptors.components.elementwise import FixedScaleComponent as FixedScaleComponent
    from nnet3_descriptors.components.elementwise import NoOpComponent as NoOpComponent
    from nnet3_descriptors.components.general import (
        BackpropTruncationComponent as BackpropTruncationComponent,
    )
    from nnet3_descriptors.components.general import (
        BackpropTruncationPrecomputedIndexes as BackpropTruncationPrecomputedIndexes,
    )
    from nnet3_descriptors.components.general import ConstantComponent as ConstantComponent
    from nnet3_descriptors.components.general import DistributeComponent as DistributeComponent
    from nnet3_descriptors.components.general import (
        DistributePrecomputedIndexes as DistributePrecomputedIndexes,
    )
    from nnet3_descriptors.components.index_rules.time_offsets import (
        TimeOffsetPrecomputedIndexes as TimeOffsetPrecomputedIndexes,
    )
    from nnet3_descriptors.components.masks import DropoutComponent as DropoutComponent
    from nnet3_descriptors.components.masks import DropoutMaskComponent as DropoutMaskComponent
    from nnet3_descriptors.components.masks import (
        GeneralDropoutComponent as GeneralDropoutComponent,
    )
    from nnet3_descriptors.components.masks import (
        GeneralDropoutPrecomputedIndexes as GeneralDropoutPrecomputedIndexes,
    )
    from nnet3_descriptors.components.masks import (
        SpecAugmentTimeMaskComponent as SpecAugmentTimeMaskComponent,
    )
    from nnet3_descriptors.components.masks import (
        SpecAugmentTimeMaskPrecomputedIndexes as SpecAugmentTimeMaskPrecomputedIndexes,
    )
    from nnet3_descriptors.components.nonlinear import BatchNormComponent as BatchNormComponent
    from nnet3_descriptors.components.nonlinear import LogSoftmaxComponent as LogSoftmaxComponent
    from nnet3_descriptors.components.nonlinear import NormalizeComponent as NormalizeComponent
    from nnet3_descriptors.components.nonlinear import (
        RectifiedLinearComponent as RectifiedLinearComponent,
    )
    from nnet3_descriptors.components.nonlinear import SigmoidComponent as SigmoidComponent
    from nnet3_descriptors.components.nonlinear import SoftmaxComponent as SoftmaxComponent
    from nnet3_descriptors.components.nonlinear import TanhComponent as TanhComponent
    from nnet3_descriptors.components.per_element import (
        ConstantFunctionComponent as ConstantFunctionComponent,
    )
    from nnet3_descriptors.components.per_element import (
        NaturalGradientPerElementScaleComponent as NaturalGradientPerElementScaleComponent,
    )
    from nnet3_descriptors.components.per_element import (
        PerElementOffsetComponent as PerElementOffsetComponent,
    )
    from nnet3_descriptors.components.per_element import (
        PerElementScaleComponent as PerElementScaleComponent,
    )
    from nnet3_descriptors.components.per_element import (
        ScaleAndOffsetComponent as ScaleAndOffsetComponent,
    )
    from nnet3_descriptors.components.pooling import ConvolutionComponent as ConvolutionComponent
    from nnet3_descriptors.components.pooling import MaxpoolingComponent as MaxpoolingComponent
    from nnet3_descriptors.components.recurrent import (
        GruNonlinearityComponent as GruNonlinearityComponent,
    )
    from nnet3_descriptors.components.recurrent import (
        LstmNonlinearityComponent as LstmNonlinearityComponent,
    )
    from nnet3_descriptors.components.recurrent import (
        OutputGruNonlinearityComponent as OutputGruNonlinearityComponent,
    )
    from nnet3_descriptors.components.statistics import (
        StatisticsExtractionComponent as StatisticsExtractionComponent,
    )
    from nnet3_descriptors.components.statistics import (
        StatisticsExtractionPrecomputedIndexes as StatisticsExtractionPrecomputedIndexes,
    )
    from nnet3_descriptors.components.statistics import (
        StatisticsPoolingComponent as StatisticsPoolingComponent,
    )
    from nnet3_descriptors.components.statistics import (
        StatisticsPoolingPrecomputedIndexes as StatisticsPoolingPrecomputedIndexes,
    )
    from nnet3_descriptors.components.tdnn import TdnnComponent as TdnnComponent
    from nnet3_descriptors.components.time_height_convolution import (
        TimeHeightConvolutionComponent as TimeHeightConvolutionComponent,
    )
else:
    __getattr__, __dir__ = on_first_use(__name__)
