"""Write the golden files of the newest version: python tests/interchange_files/write.py FOLDER.

Version 1 was written by the same lines, without a memory plan, by the code of that time.
"""

import sys
from pathlib import Path

import numpy as np
from nnet3_compiler import compile_computation, compile_looped, looped_requests
from nnet3_computation import (
    ComputationRequest,
    IoSpecification,
    NnetComputation,
    format_computation,
)
from nnet3_computation.memory import with_memory_plan
from nnet3_descriptors import Nnet, parse_config
from nnet3_descriptors.serialization import to_json
from nnet3_optimizer import OptimizeOptions, optimize

CONFIG = """
input-node name=input dim=5
input-node name=ivector dim=3
component name=lda type=FixedAffineComponent input-dim=13 output-dim=13
component name=affine type=NaturalGradientAffineComponent input-dim=13 output-dim=8
component name=relu type=RectifiedLinearComponent dim=8
component name=batchnorm type=BatchNormComponent dim=8
component name=tdnn type=TdnnComponent input-dim=8 output-dim=6 time-offsets=-3,0,3
component name=dropout type=GeneralDropoutComponent dim=6 dropout-proportion=0.25 time-period=4
component name=extract type=StatisticsExtractionComponent input-dim=6 input-period=3 output-period=3
component name=pool type=StatisticsPoolingComponent input-dim=13 left-context=6 right-context=3 input-period=3 num-log-count-features=1
component name=last type=AffineComponent input-dim=19 output-dim=4 learning-rate=0.0
component name=softmax type=LogSoftmaxComponent dim=4
component-node name=lda component=lda input=Append(Offset(input, -1), input, ReplaceIndex(ivector, t, 0))
component-node name=affine component=affine input=lda
component-node name=relu component=relu input=affine
component-node name=batchnorm component=batchnorm input=relu
component-node name=tdnn component=tdnn input=batchnorm
component-node name=dropout component=dropout input=tdnn
component-node name=extract component=extract input=dropout
component-node name=pool component=pool input=extract
dim-range-node name=part input-node=dropout dim-offset=1 dim=3
component-node name=last component=last input=Append(Round(pool, 3), Sum(part, Scale(0.5, Offset(part, 3))), Failover(Offset(part, -30), part))
component-node name=softmax component=softmax input=last
output-node name=output input=softmax objective=linear
output-node name=side input=IfDefined(Offset(part, -6)) objective=quadratic
"""
RECURRENT = """
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=5 output-dim=2
component name=relu type=RectifiedLinearComponent dim=2
component-node name=affine component=affine input=Append(input, IfDefined(Offset(relu, -1)))
component-node name=relu component=relu input=affine
output-node name=output input=relu
"""


def write(folder: Path, name: str, computation: NnetComputation, nnet: Nnet) -> None:
    """Write a computation as bytes and as text."""
    computation.save(folder / name)
    (folder / f"{name}.txt").write_text(format_computation(computation, nnet))


def main(folder: Path) -> None:
    """Write networks, a request and computations."""
    rng = np.random.default_rng(7)
    nnet = parse_config(CONFIG, rng=rng)
    request = ComputationRequest(
        inputs=[
            IoSpecification.from_range("input", -12, 24, n=2, has_deriv=True),
            IoSpecification.from_range("ivector", 0, 1, n=2),
        ],
        outputs=[IoSpecification.from_range("output", 3, 10, n=2, t_step=3, has_deriv=True)],
        need_model_derivative=True,
        store_component_stats=True,
    )
    nnet.save(folder / "network")
    (folder / "network.json").write_text(to_json(nnet) + "\n")
    request.save(folder / "request")
    (folder / "request.json").write_text(to_json(request) + "\n")
    compiled = compile_computation(nnet, request)
    write(folder, "compiled", compiled, nnet)
    optimized = optimize(nnet, compiled, OptimizeOptions(memory_compression_level=2))
    write(folder, "optimized", with_memory_plan(optimized), nnet)
    recurrent = parse_config(RECURRENT, rng=rng)
    recurrent.save(folder / "recurrent")
    loop = compile_looped(recurrent, looped_requests(recurrent, chunk_size=4))
    write(folder, "looped", loop, recurrent)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
