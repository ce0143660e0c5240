"""LF-MMI, the objective of 'chain' models: numerator minus denominator, and its derivative.

`ChainObjective` is the objective at one output; `ChainTraining` the function that a `Trainer`
maximises, with cross-entropy at the output beside it.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np
from nnet3_descriptors import Nnet
from nnet3_runtime_cuda.cuda import Platform

from nnet3_training.chain.denominator import (
    OUTPUT_LIMIT,
    DenominatorGraph,
    float_array,
    modules_of,
)
from nnet3_training.chain.examples import NOT_COMPUTED
from nnet3_training.chain.fsts.fst import Fst
from nnet3_training.chain.numerator import numerator
from nnet3_training.chain.options import ChainOptions
from nnet3_training.chain.supervision import ChainSupervision
from nnet3_training.egs.examples import ExampleOutput, TrainingExample
from nnet3_training.errors import ExampleError
from nnet3_training.evaluation import Evaluator, in_test_mode
from nnet3_training.objectives import Objective, ObjectiveSum

_LOGGER = logging.getLogger(__name__)

_FAILED = -10.0
"""The objective per frame that stands for one that is not finite, as Kaldi's."""


@attrs.frozen(kw_only=True, eq=False)
class ChainResult:
    """The objective for a minibatch, and its derivatives, on the device of the output.

    Attributes:
        objective: Log-probability of the numerator minus that of the denominator, times the weight
            of the supervision, summed over frames.
        l2_term: The term of `l2_regularize`, which is not in `objective`.
        weight: Weight of the supervision times number of frames.
        derivative: (rows, pdfs), the derivative by the output of the objective, its l2 term and the
            pull back into range; None if it was not asked for.
        xent_derivative: (rows, pdfs), the posteriors of the numerator times the weight: the targets
            of the cross-entropy output. None if it was not asked for.
        is_sound: Whether the computation succeeded. If not, the objective is -10 per frame, and
            derivatives are 0.
    """

    objective: float
    l2_term: float
    weight: float
    derivative: Any
    xent_derivative: Any
    is_sound: bool


class ChainObjective:
    """LF-MMI with a denominator graph; see Povey et al., Interspeech 2016.

    The denominator is computed on the device of the outputs, with CuPy on a CUDA device. The
    numerator is computed on the processor: its paths read few elements of the output.

    Attributes:
        graph: The denominator.
        options: The options.
        num_failed: Number of minibatches whose objective could not be computed.
    """

    def __init__(
        self,
        den_fst: Fst | str | os.PathLike[str],
        options: ChainOptions | None = None,
        *,
        num_pdfs: int,
    ) -> None:
        """Makes the denominator graph.

        Args:
            den_fst: The FST of the denominator, or the file that has it (den.fst).
            options: The options of the objective.
            num_pdfs: The dimension of the output.

        Raises:
            ExampleError: the FST has a label that is not a pdf, or is not an HMM; or the options or
                the number of pdfs are of another kind.
            FileError, ModelFileError: it cannot be read.
        """
        chosen: object = ChainOptions() if options is None else options
        if not isinstance(chosen, ChainOptions):
            raise ExampleError(f"expected ChainOptions, found {type(chosen).__name__}")
        self.options = chosen
        self.graph = DenominatorGraph(den_fst, num_pdfs)
        self.num_failed = 0

    def __repr__(self) -> str:
        """The denominator, and the sequences that failed."""
        return f"<ChainObjective with {self.graph!r}: {self.num_failed} sequences failed>"

    def compute(
        self, supervision: ChainSupervision, output: Any, *, derivative: bool = True
    ) -> ChainResult:
        """The objective for a minibatch.

        Args:
            supervision: The correct paths of the sequences.
            output: (frames * sequences, pdfs), all sequences of the first frame, then all of the
                second, and so on: a NumPy array, or an array on a CUDA device (CuPy's, or one with
                `__cuda_array_interface__`). Derivatives will be on the same device. float64 outputs
                are computed in double precision, all others in single precision.
            derivative: Whether derivatives are wanted.

        Raises:
            ExampleError: the output is not an array of real numbers, or is masked; the supervision
                is of another kind or shape, or its paths are of another length.
        """
        options, values = self.options, self._checked(supervision, output)
        modules = modules_of(values)
        xp, leaky = modules.arrays, options.leaky_hmm_coefficient
        with modules.current():
            den = self.graph.forward_backward(
                values, supervision.num_sequences, leaky, derivative=derivative
            )
            log_prob, posteriors = numerator(supervision, values, derivative=derivative)
            total = supervision.weight * (log_prob - den.log_prob)
            if not (den.is_sound and math.isfinite(total)):
                return self._failed(supervision, values, total, derivative=derivative)
            scale = supervision.weight * options.l2_regularize
            squares, highest, lowest = modules.numbers(
                [xp.vdot(values, values), values.max(), values.min()]
            )
            if not math.isfinite(highest - lowest):  # where the denominator cut them off
                return self._failed(supervision, values, total, derivative=derivative)
            result = den.derivative
            if result is not None:
                if supervision.weight != 1.0:
                    posteriors *= supervision.weight
                    result *= supervision.weight
                xp.subtract(posteriors, result, result)
                if scale:
                    result -= values * values.dtype.type(scale)
                factor = options.out_of_range_regularize
                if factor and max(highest, -lowest) > OUTPUT_LIMIT:  # pull such outputs back
                    beyond = values - xp.clip(values, -OUTPUT_LIMIT, OUTPUT_LIMIT)
                    result -= beyond * values.dtype.type(factor)
        return ChainResult(
            objective=total,
            l2_term=-0.5 * scale * squares if scale else 0.0,
            weight=supervision.total_weight,
            derivative=result,
            xent_derivative=posteriors,
            is_sound=True,
        )

    def _checked(self, supervision: object, output: Any) -> Any:
        if not isinstance(supervision, ChainSupervision):
            kind = type(supervision).__name__
            raise ExampleError(f"expected a ChainSupervision, found {kind}")
        values = float_array(output)
        expected = (
            supervision.num_sequences * supervision.frames_per_sequence,
            self.graph.num_pdfs,
        )
        if values.shape != expected:
            raise ExampleError(f"expected outputs of the shape {expected}, found {values.shape}")
        if supervision.label_dim != self.graph.num_pdfs:
            raise ExampleError(
                f"the output of the network has {self.graph.num_pdfs} columns, but the supervision "
                f"{supervision.label_dim} pdfs; expected a column for each pdf"
            )
        return values

    def _failed(
        self, supervision: ChainSupervision, output: Any, total: float, *, derivative: bool
    ) -> ChainResult:
        self.num_failed += 1
        zeros_like = modules_of(output).arrays.zeros_like
        _LOGGER.warning(
            "The objective of a minibatch is %g, its posteriors do not sum to one, or an output is "
            "not finite: it counts as %g per frame, and its derivative as 0.", total, _FAILED
        )  # fmt: skip
        return ChainResult(
            objective=_FAILED * supervision.total_weight,
            l2_term=0.0,
            weight=supervision.total_weight,
            derivative=zeros_like(output) if derivative else None,
            xent_derivative=zeros_like(output) if derivative else None,
            is_sound=False,
        )


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
        self, nnet: Nnet, den_fst: Fst | str | os.PathLike[str], options: ChainOptions | None = None
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
            if io.supervision is not None:  # else cross-entropy, which comes with its output
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
        options, modules, weights = self.options, modules_of(found.derivative), None
        with modules.current():
            if options.apply_deriv_weights and len(supervision.deriv_weights):
                weights = modules.put(supervision.deriv_weights)[:, None]
            result = {
                io.name: Objective(
                    total=found.objective,
                    weight=found.weight,
                    derivative=found.derivative if weights is None else found.derivative * weights,
                    auxiliary=found.l2_term,
                )
            }
            if options.xent_regularize:
                xent, posteriors = io.name + _XENT, found.xent_derivative
                products = modules.arrays.einsum("ij,ij->i", outputs[xent], posteriors)
                share = posteriors if weights is None else posteriors * weights
                result[xent] = Objective(
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
