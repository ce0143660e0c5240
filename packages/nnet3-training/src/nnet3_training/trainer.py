"""Trainer: changes the parameters of a network, minibatch by minibatch."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict

from nnet3_descriptors import Nnet
from nnet3_descriptors.editing import set_learning_rate
from nnet3_graph import ComputationRequest
from nnet3_optimizer import CachingCompiler
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cuda.platform import Platform

from nnet3_training.component_stats import zero_component_stats
from nnet3_training.examples import TrainingExample
from nnet3_training.objectives import (
    NodeObjectives,
    Objective,
    ObjectiveFunction,
    ObjectiveSum,
    PreparesExamples,
)
from nnet3_training.options import TrainerOptions
from nnet3_training.orthonormal import OrthonormalConstraints
from nnet3_training.update import LimitedChange, ParameterUpdate, limit_change

_LOGGER = logging.getLogger(__name__)


class Trainer:
    """Trains a network along the (natural) gradient, as Kaldi's nnet3-train.

    Attributes:
        options: How.
        objective: The objective function.
        num_minibatches: How many minibatches it was trained on.
        objectives: By output, the sum of the objective over all minibatches.
        num_limited: By component name, on how many minibatches its max-change was enforced.
        num_globally_limited: On how many minibatches `max_param_change` was enforced.
        num_skipped: How many changes were not made because they were not finite.
    """

    def __init__(
        self,
        nnet: Nnet,
        options: TrainerOptions | None = None,
        device: str | Platform = "cpu",
        *,
        precision: str = "fp32",
        objective: ObjectiveFunction | None = None,
    ) -> None:
        """Puts a network on a device, to be trained.

        Args:
            nnet: The network.
            options: How to train it.
            device: "cpu", "cuda", "cuda:<number>", or a platform that is open.
            precision: Of matrix products on a CUDA device: "fp32", "tf32" or "bf16".
            objective: The objective function; by default what the output nodes ask for, see
                `NodeObjectives`.

        Raises:
            DeviceError: there is no such device or precision, or what drives the device is missing.
            RunError: an environment variable that says how products are computed has no such value.
            TrainingError: the learning rate or l2 term of a component is infinite.
        """
        self.options = options or TrainerOptions()
        if self.options.learning_rate is not None:
            nnet = set_learning_rate(nnet, self.options.learning_rate)
        if self.options.zero_component_stats:
            nnet = zero_component_stats(nnet)
        self.objective = NodeObjectives(nnet) if objective is None else objective
        self.num_minibatches = 0
        self.objectives: dict[str, ObjectiveSum] = {}
        self.num_limited: Counter[str] = Counter()
        self.num_globally_limited = 0
        self.num_skipped = 0
        self._phase: dict[str, ObjectiveSum] = {}
        self._device_nnet = DeviceNnet(
            nnet,
            device=device,
            precision=precision,
            trainable=True,
            natural_gradient=self.options.natural_gradient,
            seed=self.options.seed,
        )
        self._update = ParameterUpdate(self._device_nnet, momentum=self.options.momentum)
        self._orthonormal = OrthonormalConstraints(self._device_nnet)
        self._forgetting = self._device_nnet.tape()
        self._device_nnet.record_forgetting(self._forgetting, self.options.batchnorm_stats_scale)
        self._compiler = CachingCompiler(
            nnet,
            compiler_options=self.options.compiler_options,
            optimize_options=self.options.optimize_options,
        )
        self._computers: OrderedDict[ComputationRequest, NnetComputer] = OrderedDict()

    @property
    def nnet(self) -> Nnet:
        """The network with the parameters and statistics of now."""
        return self._device_nnet.current()

    def train_minibatch(self, example: TrainingExample) -> dict[str, Objective]:
        """Makes one step.

        Args:
            example: The minibatch. The first of a shape is compiled; later ones of it are not.

        Returns:
            The objective at each output, before the step.

        Raises:
            ExampleError: the supervision does not fit the network.
            RunError: inputs, or derivatives of the objective, do not fit it, or are not finite.
            RequestError, NotComputableError, CompilationError: the outputs cannot be computed from
                the inputs.
            UnsupportedComponentError: the network holds a type that cannot be computed.
            DeviceMemoryError: the device has not the memory.
        """
        objective: object = self.objective
        if isinstance(objective, PreparesExamples):
            example = objective.prepared(example)
        computer = self._computer(example)
        objectives = self._forward_and_backward(computer, example)
        self._change(self.options.l2_regularize_factor * example.num_sequences)
        self._forgetting.run()
        self._constrain()
        self.num_minibatches += 1
        self._log_phase()
        return objectives

    def summary(self) -> str:
        """The objectives per frame, and how often changes were limited, a line each."""
        lines = [f"objective for '{name}': {total}" for name, total in self.objectives.items()]
        shares = [(f"max-change of {name}", count) for name, count in self.num_limited.items()]
        shares.append(("max_param_change", self.num_globally_limited))
        for name, count in shares:
            if count:
                lines.append(f"{name} enforced on {100.0 * count / self.num_minibatches:.4g} %")
        if self.num_skipped:
            lines.append(f"{self.num_skipped} changes left out, which were not finite")
        return "\n".join(lines)

    # ---- a step ----

    def _computer(self, example: TrainingExample) -> NnetComputer:
        request = example.request(store_component_stats=self.options.store_component_stats)
        computer = self._computers.get(request)
        if computer is None:
            computation = self._compiler.compile(request)
            if len(self._computers) >= self.options.max_computations:
                self._computers.popitem(last=False)
            computer = NnetComputer(self._device_nnet, computation)
            self._computers[request] = computer
        self._computers.move_to_end(request)
        return computer

    def _forward_and_backward(
        self, computer: NnetComputer, example: TrainingExample
    ) -> dict[str, Objective]:
        """Computes the objective, and the direction along which it grows."""
        outputs = computer.forward({io.name: io.values for io in example.inputs})
        objectives = dict(self.objective(outputs, example))
        computer.backward({name: objective.derivative for name, objective in objectives.items()})
        for name, objective in objectives.items():
            for sums in (self.objectives, self._phase):
                sums.setdefault(name, ObjectiveSum()).add(objective)
        return objectives

    def _change(self, l2_weight: float) -> None:
        """Changes the parameters, within the limits."""
        change = limit_change(
            self._update.measure(l2_weight),
            self._update.max_changes,
            self.options.max_param_change,
            scale=1.0 - self.options.momentum,
        )
        self._update.apply(change)
        self._count(change)

    def _count(self, change: LimitedChange) -> None:
        names = self._device_nnet.nnet.component_names
        if not change.is_finite:
            self.num_skipped += 1
            _LOGGER.warning("The change of the parameters is not finite: it is left out.")
            return
        self.num_limited.update(names[number] for number in change.limited)
        self.num_globally_limited += change.global_factor < 1.0

    def _constrain(self) -> None:
        """Moves matrices with an orthonormal constraint towards it, when their turn comes."""
        for number, step in self._orthonormal.tapes.items():
            if self.is_constrained(number, self.num_minibatches):
                step.run()

    def is_constrained(self, component: int, minibatch: int) -> bool:
        """Whether a component is held to its orthonormal constraint after a minibatch."""
        return (component + minibatch) % self.options.orthonormal_period == 0

    # ---- progress ----

    def _log_phase(self) -> None:
        if self.num_minibatches % self.options.print_interval:
            return
        for name, total in self._phase.items():
            _LOGGER.info("Objective for '%s' up to minibatch %d: %s",
                         name, self.num_minibatches, total)  # fmt: skip
        self._phase = {}
