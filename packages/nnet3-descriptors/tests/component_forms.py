"""Components to and from config lines and Kaldi's two file forms, for tests."""

import io

import numpy as np
from nnet3_descriptors.components import Component, ConfigLine, component_class
from nnet3_descriptors.components.declaration.kaldi_io import read_component, write_component
from nnet3_descriptors.files import BinaryWriter, TextWriter, open_reader

CONFIGS = {
    "AffineComponent": "input-dim=3 output-dim=2 learning-rate=0.01",
    "BackpropTruncationComponent": "dim=4 scale=0.5 clipping-threshold=2 zeroing-interval=10",
    "BatchNormComponent": "dim=6 block-dim=3 epsilon=0.01",
    "BlockAffineComponent": "input-dim=6 output-dim=4 num-blocks=2 bias-mean=1",
    "ClipGradientComponent": "dim=4 clipping-threshold=2 norm-based-clipping=true",
    "CompositeComponent": (
        "num-components=2 component1='type=AffineComponent input-dim=3 output-dim=2' "
        "component2='type=TanhComponent dim=2'"
    ),
    "ConstantComponent": "output-dim=3 output-stddev=1 is-updatable=false",
    "ConstantFunctionComponent": "input-dim=3 output-dim=2 output-stddev=1 is-updatable=true",
    "ConvolutionComponent": (
        "input-x-dim=5 input-y-dim=4 input-z-dim=2 filt-x-dim=3 filt-y-dim=2 "
        "filt-x-step=2 filt-y-step=1 num-filters=3 input-vectorization-order=yzx"
    ),
    "DistributeComponent": "input-dim=6 output-dim=2",
    "DropoutComponent": "dim=4 dropout-proportion=0.25 dropout-per-frame=true",
    "DropoutMaskComponent": "output-dim=2 dropout-proportion=0.25 continuous=true test-mode=true",
    "ElementwiseProductComponent": "input-dim=6 output-dim=3",
    "FixedAffineComponent": "input-dim=3 output-dim=2",
    "FixedBiasComponent": "dim=3",
    "FixedScaleComponent": "dim=3 scale=2",
    "GeneralDropoutComponent": (
        "dim=6 block-dim=3 specaugment-max-proportion=0.25 specaugment-max-regions=2 "
        "test-mode=true time-period=10"
    ),
    "GruNonlinearityComponent": "cell-dim=4 recurrent-dim=2 self-repair-scale=0.01",
    "LinearComponent": "input-dim=4 output-dim=2 rank-in=1 orthonormal-constraint=-1.0",
    "LogSoftmaxComponent": "dim=4",
    "LstmNonlinearityComponent": "cell-dim=3 use-dropout=true self-repair-scale=0.01",
    "MaxpoolingComponent": (
        "input-x-dim=5 input-y-dim=4 input-z-dim=2 pool-x-size=3 pool-y-size=2 "
        "pool-z-size=1 pool-x-step=2 pool-y-step=2 pool-z-step=1"
    ),
    "NaturalGradientAffineComponent": "input-dim=3 output-dim=2 max-change=0.75 bias-mean=1",
    "NaturalGradientPerElementScaleComponent": "dim=3 param-stddev=0.5 rank=2 alpha=3",
    "NaturalGradientRepeatedAffineComponent": "input-dim=6 output-dim=4 num-repeats=2",
    "NoOpComponent": "dim=5 backprop-scale=0.5",
    "NormalizeComponent": "dim=6 block-dim=3 target-rms=0.5 add-log-stddev=true",
    "OutputGruNonlinearityComponent": "cell-dim=4 rank=3 param-mean=1",
    "PerElementOffsetComponent": "dim=6 block-dim=3 param-stddev=0.5",
    "PerElementScaleComponent": "dim=3 param-mean=2 param-stddev=0.5",
    "PermuteComponent": "column-map=2,0,1",
    "PnormComponent": "input-dim=6 output-dim=3",
    "RectifiedLinearComponent": "dim=4 block-dim=2 self-repair-scale=1.0e-05",
    "RepeatedAffineComponent": "input-dim=6 output-dim=4 num-repeats=2 bias-stddev=0.5",
    "RestrictedAttentionComponent": (
        "num-heads=2 key-dim=3 value-dim=2 num-left-inputs=2 num-right-inputs=1 "
        "time-stride=3 num-left-inputs-required=0 output-context=false"
    ),
    "ScaleAndOffsetComponent": "dim=6 block-dim=3 rank=5",
    "SigmoidComponent": "dim=4 self-repair-lower-threshold=0.05",
    "SoftmaxComponent": "dim=4",
    "SpecAugmentTimeMaskComponent": "dim=4 zeroed-proportion=0.2 time-mask-max-frames=5",
    "StatisticsExtractionComponent": "input-dim=3 input-period=2 output-period=4",
    "StatisticsPoolingComponent": "input-dim=7 left-context=2 right-context=3 output-stddevs=true",
    "SumBlockComponent": "input-dim=6 output-dim=3 scale=0.5",
    "SumGroupComponent": "sizes=1,3,2",
    "TanhComponent": "dim=4",
    "TdnnComponent": "input-dim=3 output-dim=2 time-offsets=-1,0,1 l2-regularize=0.01",
    "TimeHeightConvolutionComponent": (
        "num-filters-in=2 num-filters-out=3 height-in=4 height-out=2 "
        "height-subsample-out=2 time-offsets=-1,0,1 height-offsets=0,1 required-time-offsets=0"
    ),
}
"""A config line for each component type."""


def from_config(type_name: str, text: str) -> Component:
    """The component that a config line describes."""
    rng = np.random.default_rng(7)
    return component_class(type_name).from_config(ConfigLine.parse(text), rng)


def binary(component: Component) -> bytes:
    """The component in Kaldi's binary form."""
    writer = BinaryWriter()
    write_component(writer, component)
    return b"".join(writer.chunks)


def as_text(component: Component) -> str:
    """The component in Kaldi's text form."""
    writer = TextWriter()
    write_component(writer, component)
    return b"".join(writer.chunks).decode()


def from_binary(data: bytes) -> Component:
    """The component in a binary form that lacks the binary mark."""
    return read_component(open_reader(io.BytesIO(b"\0B" + data)))


def from_text(data: str) -> Component:
    """The component in Kaldi's text form."""
    return read_component(open_reader(io.BytesIO(data.encode())))
