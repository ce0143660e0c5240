"""Small networks and their computations, for tests."""

from __future__ import annotations

import re

import attrs
import numpy as np
from nnet3_compiler import compile_computation, compile_looped
from nnet3_computation import (
    ComputationRequest,
    IoSpecification,
    NnetComputation,
    parse_computation,
)
from nnet3_computation.text import SUBMATRIX
from nnet3_descriptors import Nnet, parse_config

NODES = """
component-node name=c component=c input={descriptor}
output-node name=output input=c
"""

"""Config lines of a network with an i-vector for each sequence."""

PROJECTED = """
input-node name=input dim=5
component name=gates type=NaturalGradientAffineComponent input-dim={input_dim} output-dim=4
component-node name=gates component=gates input=Append(input, IfDefined(Offset(back, -{delay})))
component name=squashed type=TanhComponent dim=4
component-node name=squashed component=squashed input=gates
component name=projection type=NaturalGradientAffineComponent input-dim=4 output-dim=6
component-node name=projection component=projection input=squashed
dim-range-node name=back input-node=projection dim-offset={begin} dim={width}
component name=top type=AffineComponent input-dim=12 output-dim=3
component-node name=top component=top input=Append(projection, IfDefined(Offset(projection, -1)))
output-node name=output input=top
"""
"""A projected recurrence: some of six columns go back into it, the layer above reads all."""


def single(component: str, *, dim: int, descriptor: str = "input", seed: int = 0) -> Nnet:
    """A network of one component with random parameters.

    Args:
        component: `type=... key=value ...`.
        dim: Columns of the input node.
        descriptor: The input of the component.
        seed: Seed of the parameters.
    """
    text = f"input-node name=input dim={dim}\ncomponent name=c {component}\n"
    return parse_config(text + NODES.format(descriptor=descriptor), rng=np.random.default_rng(seed))


def request(
    inputs: range, outputs: range, *, sequences: int = 2, training: bool = True
) -> ComputationRequest:
    """A request for times of 'input' and 'output'; for training, with all derivatives."""
    specifications = [
        IoSpecification.from_range(
            name, times.start, times.stop, sequences, t_step=times.step, has_deriv=training
        )
        for name, times in (("input", inputs), ("output", outputs))
    ]
    return ComputationRequest(
        inputs=(specifications[0],),
        outputs=(specifications[1],),
        need_model_derivative=training,
        store_component_stats=training,
    )


def program(nnet: Nnet, text: str) -> NnetComputation:
    """A computation, given as its matrices, lists of rows and commands, one on each line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    sizes = [line for line in lines if re.match(r"m\d+ = \d+ x ", line)]
    lists = [line for line in lines if re.match(r"j\d+ = ", line)]
    commands = [line for line in lines if line not in (*sizes, *lists)]
    matrices = [line.split(" =")[0] for line in sizes]
    named = re.findall(SUBMATRIX, "\n".join(commands))
    return parse_computation(
        "\n".join(
            [
                "nnet3 computation 1",
                "debug_info = false",
                "need_model_derivative = true",
                *(f"node {node.name} = {number}" for number, node in enumerate(nnet.nodes)),
                *(f"component {name} = {n}" for n, name in enumerate(nnet.component_names)),
                *sizes,
                *(f"submatrices: {name}" for name in dict.fromkeys([*matrices, *named])),
                *lists,
                *(f"c{number}: {line}" for number, line in enumerate(commands)),
            ]
        ),
        nnet,
    )


def loop(nnet: Nnet, frames: int, *, sequences: int = 1) -> NnetComputation:
    """A loop over chunks of `frames` frames of 'input', and as many of 'output'."""
    chunks = [range(start, start + frames) for start in range(0, 3 * frames, frames)]
    requests = [request(each, each, sequences=sequences, training=False) for each in chunks]
    return compile_looped(nnet, requests)


@attrs.frozen
class Case:
    """A component, and its input and output times.

    Attributes:
        component: `type=... key=value ...`.
        dim: Columns of the input node.
        inputs: Times of the input.
        outputs: Times of the output.
        descriptor: The input of the component.
    """

    component: str
    dim: int
    inputs: range = range(6)
    outputs: range = range(6)
    descriptor: str = "input"

    def nnet(self, seed: int = 0) -> Nnet:
        """The network."""
        return single(self.component, dim=self.dim, descriptor=self.descriptor, seed=seed)

    def compile(self, nnet: Nnet, *, training: bool = True) -> NnetComputation:
        """The computation, not optimized."""
        return compile_computation(nnet, request(self.inputs, self.outputs, training=training))


DIFFERENTIABLE = {
    "affine": Case("type=AffineComponent input-dim=4 output-dim=3", 4),
    "natural gradient affine": Case(
        "type=NaturalGradientAffineComponent input-dim=4 output-dim=3", 4
    ),
    "linear": Case("type=LinearComponent input-dim=4 output-dim=3", 4),
    "fixed affine": Case("type=FixedAffineComponent input-dim=4 output-dim=3", 4),
    "block affine": Case("type=BlockAffineComponent input-dim=6 output-dim=4 num-blocks=2", 6),
    "repeated affine": Case(
        "type=RepeatedAffineComponent input-dim=6 output-dim=4 num-repeats=2", 6
    ),
    "natural gradient repeated affine": Case(
        "type=NaturalGradientRepeatedAffineComponent input-dim=6 output-dim=4 num-repeats=2", 6
    ),
    "sigmoid": Case("type=SigmoidComponent dim=5", 5),
    "tanh": Case("type=TanhComponent dim=5", 5),
    "rectified linear": Case("type=RectifiedLinearComponent dim=5", 5),
    "rectified linear in blocks": Case("type=RectifiedLinearComponent dim=6 block-dim=3", 6),
    "softmax": Case("type=SoftmaxComponent dim=5", 5),
    "log softmax": Case("type=LogSoftmaxComponent dim=5", 5),
    "normalize": Case("type=NormalizeComponent dim=6 target-rms=0.7", 6),
    "normalize with stddev": Case(
        "type=NormalizeComponent dim=6 block-dim=3 add-log-stddev=true", 6
    ),
    "batch norm": Case("type=BatchNormComponent dim=4 target-rms=0.8", 4),
    "batch norm in blocks": Case("type=BatchNormComponent dim=6 block-dim=3", 6),
    "no op": Case("type=NoOpComponent dim=4", 4),
    "clip gradient": Case("type=ClipGradientComponent dim=4 clipping-threshold=1000", 4),
    "clip gradient by norm": Case(
        "type=ClipGradientComponent dim=4 clipping-threshold=1000 norm-based-clipping=true", 4
    ),
    "product": Case("type=ElementwiseProductComponent input-dim=6 output-dim=2", 6),
    "scale": Case("type=PerElementScaleComponent dim=4 param-stddev=0.5", 4),
    "natural gradient scale": Case(
        "type=NaturalGradientPerElementScaleComponent dim=4 param-stddev=0.5", 4
    ),
    "offset": Case("type=PerElementOffsetComponent dim=6 block-dim=3 param-stddev=0.5", 6),
    "scale and offset": Case("type=ScaleAndOffsetComponent dim=6 block-dim=3", 6),
    "constant function": Case(
        "type=ConstantFunctionComponent input-dim=4 output-dim=3 output-stddev=0.5", 4
    ),
    "fixed scale": Case("type=FixedScaleComponent dim=4", 4),
    "fixed bias": Case("type=FixedBiasComponent dim=4", 4),
    "sum of groups": Case("type=SumGroupComponent sizes=1,3,2", 6),
    "sum of blocks": Case("type=SumBlockComponent input-dim=6 output-dim=2 scale=0.5", 6),
    "permutation": Case("type=PermuteComponent column-map=2,0,3,1", 4),
    "p-norm": Case("type=PnormComponent input-dim=6 output-dim=2", 6),
    "convolution": Case(
        "type=ConvolutionComponent input-x-dim=3 input-y-dim=4 input-z-dim=2 filt-x-dim=2 "
        "filt-y-dim=2 filt-x-step=1 filt-y-step=2 num-filters=3",
        24,
    ),
    "max-pooling": Case(
        "type=MaxpoolingComponent input-x-dim=3 input-y-dim=4 input-z-dim=2 pool-x-size=2 "
        "pool-y-size=2 pool-z-size=1 pool-x-step=1 pool-y-step=2 pool-z-step=1",
        24,
    ),
    "lstm": Case("type=LstmNonlinearityComponent cell-dim=3 self-repair-scale=0.0", 15),
    "lstm with dropout": Case(
        "type=LstmNonlinearityComponent cell-dim=3 use-dropout=true self-repair-scale=0.0", 18
    ),
    "gru": Case("type=GruNonlinearityComponent cell-dim=4 recurrent-dim=2", 16),
    "gru without projection": Case("type=GruNonlinearityComponent cell-dim=3", 12),
    "output gru": Case("type=OutputGruNonlinearityComponent cell-dim=3", 9),
    "tdnn": Case(
        "type=TdnnComponent input-dim=3 output-dim=4 time-offsets=-2,0,1", 3, range(-2, 7)
    ),
    "tdnn without bias, subsampled": Case(
        "type=TdnnComponent input-dim=3 output-dim=4 time-offsets=-1,0 use-bias=false",
        3,
        range(-1, 10),
        range(0, 10, 3),
    ),
    "narrowing tdnn": Case(
        "type=TdnnComponent input-dim=5 output-dim=3 time-offsets=-1,0,1",
        5,
        range(-1, 10),
        range(9),
    ),
    "narrowing tdnn without bias": Case(
        "type=TdnnComponent input-dim=5 output-dim=3 time-offsets=0,2 use-bias=false",
        5,
        range(12),
        range(10),
    ),
    "time-height convolution": Case(
        "type=TimeHeightConvolutionComponent num-filters-in=2 num-filters-out=3 height-in=5 "
        "height-out=5 height-offsets=-1,0,1 time-offsets=-1,0,1",
        10,
        range(-1, 5),
        range(4),
    ),
    "time-height convolution, subsampled": Case(
        "type=TimeHeightConvolutionComponent num-filters-in=2 num-filters-out=3 height-in=6 "
        "height-out=3 height-subsample-out=2 height-offsets=-1,0,1 time-offsets=-1,0,2 "
        "required-time-offsets=0",
        12,
        range(6),
        range(0, 6, 2),
    ),
    "attention": Case(
        "type=RestrictedAttentionComponent num-heads=2 key-dim=3 value-dim=2 num-left-inputs=1 "
        "num-right-inputs=2 num-left-inputs-required=0 time-stride=1",
        24,
        range(6),
        range(4),
    ),
    "attention without context": Case(
        "type=RestrictedAttentionComponent num-heads=1 key-dim=3 value-dim=2 num-left-inputs=2 "
        "num-right-inputs=1 time-stride=2 output-context=false",
        12,
        range(-4, 6),
        range(4),
    ),
    "statistics extraction": Case(
        "type=StatisticsExtractionComponent input-dim=3 input-period=1 output-period=2",
        3,
        range(6),
        range(0, 6, 2),
    ),
    "distribution": Case(
        "type=DistributeComponent input-dim=6 output-dim=3",
        6,
        range(4),
        range(4),
        "ReplaceIndex(input, x, 0)",
    ),
    "truncation": Case(
        "type=BackpropTruncationComponent dim=4 scale=0.7 clipping-threshold=1e4 "
        "zeroing-threshold=1e4",
        4,
    ),
    "composite": Case(
        "type=CompositeComponent num-components=3 max-rows-process=5 "
        "component1='type=AffineComponent input-dim=4 output-dim=5' "
        "component2='type=TanhComponent dim=5' "
        "component3='type=LinearComponent input-dim=5 output-dim=3'",
        4,
    ),
}
"""Components whose derivatives can be compared with finite differences, by name."""
