"""The objective of 'chain' models as the function that a `Trainer` maximises."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np
from nnet3_descriptors import Nnet
from nnet3_runtime_cuda.cuda.platform import Platform

from nnet3_training.chain.array_modules import ArrayModules, modules_of
from nnet3_training.chain.example_changes import NOT_COMPUTED
from nnet3_training.chain.fsts.fst import Fst
from nnet3_training.chain.objective import ChainObjective, ChainResult
from nnet3_training.chain.options import ChainOptions
from nnet3_training.chain.supervision import ChainSupervision
from nnet3_training.errors import ExampleError
from nnet3_training.evaluation import Evaluator, in_test_mode
from nnet3_training.examples import ExampleOutput, TrainingExample
from nnet3_training.objectives import Objective, ObjectiveSum

_OUTPUT = "output"
_XENT = "-xent"


class ChainTraining:
    """LF-MMI for a network, and cross-entropy at the output beside it.

    `Trainer(nnet, options, objective=ChainTraining(nnet, "den.fst", ChainOptions(...)))`

    Attributes:
        objective: The objective at the outputs of examples.
        takes_device_arrays: True: on a CUDA device, outputs and derivatives stay there.
    """

    takes_device_arrays = True

    def __init__(
        self,
        nnet: Nnet,
        den_fst: Fst | str | os.PathLike[str],
        options: ChainOptions | None = None,
    ) -> None:
        """Makes the denominator graph.

        Args:
            nnet: The network; `output` has a column for each pdf.
            den_fst: The FST of the denominator, or the file that has it (den.fst).
            options: The options of the objective; with `xent_regularize`, the network has
                `output-xent` too.

        Raises:
            ExampleError: the network lacks these outputs, or the FST does not fit it.
            FileError, ModelFileError: the FST cannot be read.
        """
        options = options or ChainOptions()
        names = {node.name for node in nnet.output_nodes}
        for name in (_OUTPUT, _OUTPUT + _XENT)[: 2 if options.xent_regularize else 1]:
            if name not in names:
                raise ExampleError(f"the network has no output '{name}', which is to be trained")
        self.objective = ChainObjective(den_fst, options, num_pdfs=nnet.node_dim(_OUTPUT))

    def __repr__(self) -> str:
        """The objective."""
        return f"<ChainTraining for {self.objective!r}>"

    @property
    def options(self) -> ChainOptions:
        """The options of the objective."""
        return self.objective.options

    def prepared(self, example: TrainingExample) -> TrainingExample:
        """The example as the network computes it.

        It has an output for cross-entropy beside each output, if that is trained. Inputs whose
        names begin with "__" are left out; as in Kaldi they are no inputs of the network.
        """
        inputs = [io for io in example.inputs if not io.name.startswith(NOT_COMPUTED)]
        if len(inputs) < len(example.inputs):
            example = attrs.evolve(example, inputs=inputs)
        if not self.options.xent_regularize:
            return example
        outputs = []
        for io in example.outputs:
            outputs.append(io)
            outputs.append(attrs.evolve(io, name=io.name + _XENT, supervision=None))
        return attrs.evolve(example, outputs=outputs)

    def __call__(
        self, outputs: Mapping[str, Any], example: TrainingExample
    ) -> dict[str, Objective]:
        """The objective at each output of an example that is prepared.

        Outputs are NumPy arrays, or CuPy arrays on a device; derivatives are on the same device.

        Raises:
            ExampleError: an output has no `ChainSupervision`, or one that does not fit.
        """
        result: dict[str, Objective] = {}
        for io in example.outputs:
            if io.supervision is None:  # cross-entropy, which comes with its output
                continue
            result |= self._at_output(io, outputs)
        return result

    def _at_output(self, io: ExampleOutput, outputs: Mapping[str, Any]) -> dict[str, Objective]:
        supervision = io.supervision
        if not isinstance(supervision, ChainSupervision):
            raise ExampleError(
                f"output '{io.name}': expected a ChainSupervision, found "
                f"{type(supervision).__name__}"
            )
        try:
            found = self.objective.compute(supervision, outputs[io.name])
        except ExampleError as error:
            raise ExampleError(f"output '{io.name}': {error}") from error
        modules = modules_of(found.derivative)
        with modules.current():
            return self._objectives_of(modules, io.name, supervision, found, outputs)

    def _objectives_of(
        self,
        modules: ArrayModules,
        name: str,
        supervision: ChainSupervision,
        found: ChainResult,
        outputs: Mapping[str, Any],
    ) -> dict[str, Objective]:
        options, weights = self.options, None
        if options.apply_deriv_weights and len(supervision.deriv_weights):
            weights = modules.put(supervision.deriv_weights)[:, None]
        derivative = found.derivative if weights is None else found.derivative * weights
        result = {
            name: Objective(
                total=found.objective,
                weight=found.weight,
                derivative=derivative,
                auxiliary=found.l2_term,
            )
        }
        if options.xent_regularize:
            posteriors = found.xent_derivative
            products = modules.arrays.einsum("ij,ij->i", outputs[name + _XENT], posteriors)
            share = posteriors if weights is None else posteriors * weights
            result[name + _XENT] = Objective(
                total=float(products.sum(dtype=np.float64)),
                weight=found.weight,
                derivative=share * np.float32(options.xent_regularize),
            )
        return result


def compute_chain_prob(
    nnet: Nnet,
    training: ChainTraining,
    examples: Iterable[TrainingExample],
    device: str | Platform = "cpu",
    *,
    batchnorm_test_mode: bool = True,
    dropout_test_mode: bool = True,
) -> dict[str, ObjectiveSum]:
    """The objective at each output, summed over examples, as nnet3-chain-compute-prob shows it.

    Args:
        nnet: The network.
        training: The objective.
        examples: Examples of one or several sequences.
        device: "cpu", "cuda", "cuda:<number>", or a platform that is open.
        batchnorm_test_mode: Whether batch-norm uses the statistics of the network; else those of
            each example, unless the network is in test mode already.
        dropout_test_mode: Whether dropout lets everything pass; else as the network says.

    Raises:
        ExampleError: the supervision does not fit the network.
        RunError, RequestError, NotComputableError: the outputs cannot be computed.
    """
    tested = in_test_mode(nnet, batchnorm=batchnorm_test_mode, dropout=dropout_test_mode)
    evaluator = Evaluator(tested, device=device, objective=training)
    for example in examples:
        evaluator.add(example)
    return evaluator.objectives
