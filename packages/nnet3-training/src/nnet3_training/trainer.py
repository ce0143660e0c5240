"""Trainer: changes the parameters of a network, minibatch by minibatch."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Self

import attrs
from nnet3 import CachingCompiler
from nnet3_descriptors import Nnet, SerializationError, editing, set_test_mode, values
from nnet3_descriptors.structure import NetworkFingerprint
from nnet3_runtime_cuda import DeviceNnet, NnetComputer, TrainingError, cuda
from nnet3_runtime_cuda.device import PostponedSignals

from nnet3_training.egs.examples import TrainingExample
from nnet3_training.evaluation import (
    Evaluation,
    Evaluator,
    LatestComputers,
    check_nnet,
    zero_component_stats,
)
from nnet3_training.objectives import (
    GivenObjective,
    Objective,
    ObjectiveSum,
    as_objective_function,
    objectives_at,
    prepared,
    takes_device_arrays,
)
from nnet3_training.options import Checkpoint, Progress, TrainerOptions
from nnet3_training.parameter_update import (
    LimitedChange,
    ParameterUpdate,
    limit_change,
    orthonormal_steps,
)

if TYPE_CHECKING:
    from nnet3_runtime_cuda import Tracer

_LOGGER = logging.getLogger(__name__)


class Callback:
    """Functions that a `Trainer` calls around its minibatches. Derive from this class."""

    def __repr__(self) -> str:
        """The class."""
        return f"<{type(self).__name__}>"

    def before_minibatch(self, trainer: Trainer) -> None:
        """Is called before each minibatch; `trainer.num_minibatches` is its number, from 0."""

    def after_minibatch(self, trainer: Trainer, objectives: Mapping[str, Objective]) -> None:
        """Is called after each minibatch, with the objective at each output before the step."""


class Trainer(values.NotCopied):
    """Trains a network along the (natural) gradient, as Kaldi's nnet3-train.

    Attributes:
        options: The options.
        objective: The objective function.
        callbacks: Called before and after each minibatch.
        num_minibatches: Number of minibatches so far.
        objectives: By output, the sum of the objective over all minibatches.
        num_limited: By component name, the number of minibatches on which its max-change was
            enforced.
        num_globally_limited: Number of minibatches on which `max_param_change` was enforced.
        num_updates: Number of changes of the parameters; a minibatch with backstitch has two.
        num_skipped: Number of changes that were not finite and so not made.
        last_change: The limits of the last change; None before the first change.
    """

    _instead = "save it and load the file"

    def __init__(
        self,
        nnet: Nnet,
        options: TrainerOptions | None = None,
        device: str | cuda.Platform = "cpu",
        *,
        precision: str = "fp32",
        objective: GivenObjective | None = None,
        callbacks: Iterable[Callback] = (),
        trace: Tracer | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Puts a network on a device for training.

        Args:
            nnet: The network.
            options: The options of training.
            device: "cpu", "cuda", "cuda:<number>", or a platform that is open.
            precision: Precision of matrix products on a CUDA device: "fp32", "tf32" or "bf16".
            objective: The objective to maximise: a function of all outputs and the example; or a
                name, "linear", "quadratic" or "cross-entropy"; or by output a name or a function of
                arrays, see `OutputObjectives`. By default the objectives of the output nodes.
            callbacks: Called before and after each minibatch, in this order.
            trace: Records the time and the written values of each command, on the processor; see
                `Tracer`. Objectives and changes of parameters are not commands.
            cache_dir: The folder with computations of earlier processes, "" for none; None for what
                the environment variable NNET3_CACHE_DIR says, or else a folder among the caches of
                the user.

        Raises:
            DeviceError: there is no such device or precision, or the driver or a library is
                missing.
            RunError: an environment variable that says how products are computed has no such value;
                or `trace` is not a `Tracer`, or was asked for on a device.
            TrainingError: the learning rate or l2 term of a component is infinite; or `nnet` is no
                `Nnet`, `options` are no `TrainerOptions`, or a callback is no `Callback`.
            ExampleError: there is no objective of that name, or no output; or `objective` is
                neither a function nor names.
            OptionError: the folder of the cache is no path.
        """
        options = TrainerOptions() if options is None else options
        check_nnet(nnet)
        if not isinstance(options, TrainerOptions):
            raise TrainingError(f"expected TrainerOptions, found {type(options).__name__}")
        if options.learning_rate is not None:
            nnet = editing.set_learning_rate(nnet, options.learning_rate)
        if options.zero_component_stats:
            nnet = zero_component_stats(nnet)
        self.options = options
        self._cache_dir = cache_dir
        self._given_objective = objective
        self.objective = as_objective_function(objective, nnet)
        self.callbacks = tuple(callbacks)
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise TrainingError(f"expected a Callback, found {type(callback).__name__}")
        self.num_minibatches = 0
        self.objectives: dict[str, ObjectiveSum] = {}
        self.num_limited: Counter[str] = Counter()
        self.num_globally_limited = 0
        self.num_updates = 0
        self.last_change: LimitedChange | None = None
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
        if trace is not None:
            self._device_nnet.check_traceable(trace)
        self._update = ParameterUpdate(self._device_nnet, momentum=self.options.momentum)
        self._savepoint = self._device_nnet.savepoint()
        self._undo: Callable[[], object] | None = None  # of a step that has not ended
        self._step_lock = threading.Lock()
        self._orthonormal = orthonormal_steps(self._device_nnet)
        self._forgetting = self._device_nnet.tape()
        self._device_nnet.record_forgetting(self._forgetting, self.options.batchnorm_stats_scale)
        self._compiler = self._compiler_of(nnet)
        self._computers = LatestComputers(
            self._device_nnet, self.options.max_computations, trace=trace
        )

    @property
    def compile_seconds(self) -> dict[str, float]:
        """The time of each stage of compiling so far; see `CachingCompiler.seconds`."""
        return dict(self._compiler.seconds)

    def _compiler_of(self, nnet: Nnet) -> CachingCompiler:
        return CachingCompiler(
            nnet,
            compiler_options=self.options.compiler_options,
            optimize_options=self.options.optimize_options,
            cache_dir=self._cache_dir,
        )

    def __repr__(self) -> str:
        """The network, the number of minibatches so far, and the objectives."""
        totals = "".join(
            f", {total.per_frame:.6g} at '{name}'" for name, total in self.objectives.items()
        )
        return f"<Trainer of {self.nnet_as_given!r}: {self.num_minibatches} minibatches{totals}>"

    def _repr_html_(self) -> str | None:
        """The objectives, and how often changes were limited: what notebooks show."""
        return values.shown("trainer_html", self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint, from which `load` continues as if training had never stopped.

        It holds the network with its current parameters, statistics and options, the options of the
        trainer, momentum, the estimates of the natural gradient, the state of random numbers, and
        counts. It does not hold `last_change`, callbacks, and objective functions.

        Args:
            path: The file, which is replaced at once or not at all.

        Raises:
            FileError: it cannot be written.
            TrainingError: the trainer is making a step; see `train_minibatch`.
        """
        self._checkpoint().save(path)

    def _checkpoint(self) -> Checkpoint:
        self._settle()
        given = self._given_objective
        return Checkpoint(
            nnet=self.nnet,
            options=self.options,
            has_own_objective=given is not None,
            objective_name=given if isinstance(given, str) else None,
            running_sum=self._update.running_sum,
            sum_rates=self._update.sum_rates,
            state=self._device_nnet.training_state,
            progress=Progress(
                num_minibatches=self.num_minibatches,
                num_updates=self.num_updates,
                num_skipped=self.num_skipped,
                num_globally_limited=self.num_globally_limited,
                num_limited=dict(self.num_limited),
                objectives=self.objectives,
                phase=self._phase,
            ),
        )

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        device: str | cuda.Platform = "cpu",
        *,
        precision: str = "fp32",
        objective: GivenObjective | None = None,
        callbacks: Iterable[Callback] = (),
        trace: Tracer | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Continues from a checkpoint.

        With the same minibatches the parameters become those of a run that was not interrupted, bit
        by bit, on the same kind of processor and with the same libraries and numbers of threads.

        Args:
            path: A file that `save` has written.
            device: As for a new trainer; it may be another than before.
            precision: As for a new trainer.
            objective: The objective that the old trainer was given; not needed for a single name,
                which is in the checkpoint.
            callbacks: As for a new trainer; they are not in the checkpoint.
            trace: As for a new trainer; it is not in the checkpoint.
            cache_dir: As for a new trainer; it is not in the checkpoint.

        Raises:
            FileError: the file cannot be read; if it does not exist, the error is a
                FileNotFoundError.
            SerializationError: it is not a checkpoint, or damaged.
            TrainingError: the run had its own objective function, and none is given; or it had
                none, or one of another name, and one is given.
            DeviceError, RunError: as for a new trainer.
        """
        try:
            checkpoint = Checkpoint.load(path)
            if objective is None:
                objective = checkpoint.objective_name
            if checkpoint.has_own_objective != (objective is not None):
                had, given = ("one", "none") if objective is None else ("none", "one")
                raise TrainingError(
                    f"'{os.fspath(path)}': the run had {had} of the objective functions that are "
                    f"given to a Trainer, and {given} is given now"
                )
            given_name = objective if isinstance(objective, str) else None
            if given_name != checkpoint.objective_name:
                raise TrainingError(
                    f"'{os.fspath(path)}': the objective of the run was "
                    f"{_described(checkpoint.objective_name)}, and now it is "
                    f"{_described(given_name)}"
                )
            options = checkpoint.options
            trainer = cls(
                checkpoint.nnet,
                attrs.evolve(options, learning_rate=None, zero_component_stats=False),  # as it was
                device,
                precision=precision,
                objective=objective,
                callbacks=callbacks,
                trace=trace,
                cache_dir=cache_dir,
            )
            trainer.options = options
            trainer._device_nnet.resume(checkpoint.state)
            trainer._update.resume(checkpoint.running_sum, checkpoint.sum_rates)
        except SerializationError as error:
            raise SerializationError(f"'{os.fspath(path)}' is no checkpoint: {error}") from error
        progress = checkpoint.progress
        trainer.num_minibatches = progress.num_minibatches
        trainer.num_updates = progress.num_updates
        trainer.num_skipped = progress.num_skipped
        trainer.num_globally_limited = progress.num_globally_limited
        trainer.num_limited = Counter(progress.num_limited)
        trainer.objectives, trainer._phase = progress.objectives, progress.phase
        return trainer

    @property
    def nnet(self) -> Nnet:
        """The network with its current parameters and statistics."""
        if not self._step_lock.locked():  # an objective may look at it
            self._settle()
        return self._device_nnet.current()

    @property
    def nnet_as_given(self) -> Nnet:
        """The network with its current options and its initial parameters.

        After `load` these are the parameters of the checkpoint.
        """
        return self._device_nnet.nnet

    def set_learning_rate(self, learning_rate: float) -> None:
        """Sets the rates of all components; each is multiplied by its learning_rate_factor.

        Nothing else changes: estimates, random numbers and momentum stay. As in Kaldi, momentum
        sums changes of parameters, so changes from old gradients keep the old rate. (A component
        whose rate becomes 0 forgets its momentum, and no longer changes, except towards an
        orthonormal constraint, which has no rate.)

        Raises:
            NetworkError: the rate is negative or not finite.
            TrainingError: the trainer is making a step; see `train_minibatch`.
        """
        nnet = editing.set_learning_rate(self._device_nnet.nnet, learning_rate)
        with PostponedSignals():
            self._change_options(nnet)
            self._update.set_rates(nnet)

    def set_dropout(self, proportion: float, pattern: str = "*") -> None:
        """Sets the proportion of dropout.

        Nothing else changes: momentum, estimates and random numbers stay. The trainer compiles
        programs for minibatches anew.

        Args:
            proportion: From 0 to 1.
            pattern: The names of the components; "*" stands for any characters.

        Raises:
            NetworkError: the proportion is not from 0 to 1.
            TrainingError: the trainer is making a step; see `train_minibatch`.
        """
        nnet = editing.set_dropout_proportion(self._device_nnet.nnet, proportion, pattern)
        with PostponedSignals():
            self._change_options(nnet)
            self._computers.clear()

    def _change_options(self, nnet: Nnet) -> None:
        """Takes over options of components; compiles anew if they decide what programs do.

        A program for a component whose rate is 0 computes no gradient of it.
        """
        self._settle()
        self._device_nnet.change_options(nnet)
        if NetworkFingerprint.of(nnet) != NetworkFingerprint.of(self._compiler.nnet):
            self._compiler = self._compiler_of(nnet)
            self._computers.clear()

    def evaluate(
        self, example: TrainingExample, *, test_mode: bool = True
    ) -> dict[str, Evaluation]:
        """The objective and the accuracy at each output, without a step.

        Args:
            example: A minibatch.
            test_mode: Whether batch-norm computes with its statistics, and nothing is dropped.

        Raises:
            ExampleError, RunError, RequestError, NotComputableError: as for `train_minibatch`.
        """
        nnet = set_test_mode(self.nnet) if test_mode else self.nnet
        evaluator = Evaluator(nnet, objective=self._given_objective, cache_dir=self._cache_dir)
        return evaluator.add(example)

    def train_minibatch(self, example: TrainingExample) -> dict[str, Objective]:
        """Makes one step, or none if there is an error.

        After an error everything is as before: parameters, statistics, momentum, estimates, random
        numbers and counts. Only an error while parameters change, as when a device is lost, leaves
        a trainer that refuses all work. Ctrl-C, like other signals, interrupts the objective
        and callbacks; during the rest of the step it waits for its end.

        During a step, that is in the objective, in another thread and in a handler of a signal, a
        trainer is neither saved nor trained nor changed: let the handler set a flag that you read
        between minibatches. An error of a callback's `after_minibatch` comes after the step, which
        stays.

        Args:
            example: The minibatch. Only the first minibatch of each shape is compiled.

        Returns:
            The objective at each output, before the step.

        Raises:
            ExampleError: this is no example, the supervision does not fit the network, or the
                objective function gives something else than objectives.
            RunError: inputs, or derivatives of the objective, do not fit it, or are not finite.
            TrainingError: the objective is not finite: training has diverged. Or an error broke off
                an earlier step while parameters changed. Or this trainer is making a step.
            RequestError, NotComputableError, CompilationError: the outputs cannot be computed from
                the inputs.
            UnsupportedComponentError: the network holds a type that cannot be computed.
            DeviceMemoryError: the device lacks memory.
        """
        for callback in self.callbacks:
            callback.before_minibatch(self)
        example = prepared(self.objective, example)
        self._settle()
        computer = self._computer(example)
        with PostponedSignals() as signals:
            while not self._step_lock.acquire(blocking=False):
                self._settle()
            try:
                make = self._backstitch if self._is_backstitch() else self._step
                objectives, phase = make(computer, example, signals)
            finally:
                self._step_lock.release()
        for name, total in phase.items():
            _LOGGER.info("Objective for '%s' up to minibatch %d: %s",
                         name, self.num_minibatches, total)  # fmt: skip
        for callback in self.callbacks:
            callback.after_minibatch(self, objectives)
        return objectives

    def _step(
        self, computer: NnetComputer, example: TrainingExample, signals: PostponedSignals
    ) -> tuple[dict[str, Objective], dict[str, ObjectiveSum]]:
        """Makes a step; returns the objectives before it, and a phase that ends with it."""
        self._undo = self._savepoint.take(self._update.measured)
        objectives = self._forward_and_backward(computer, example, signals)
        change = self._limited_change(self.options.l2_regularize_factor * example.num_sequences)
        # A copy of the parameters would take as long as their change.
        self._undo = self._refuse
        self._update.apply(change)
        self._forgetting.run()
        self._constrain()
        return objectives, self._count_step(objectives, [change])

    def _settle(self) -> None:
        """Undoes a step that did not come to its end.

        The next use of the trainer does this; if it is interrupted, the use after it does it again.

        Raises:
            TrainingError: the trainer is making a step.
        """
        if self._step_lock.locked():
            raise TrainingError(
                "a trainer cannot be saved, changed or trained while it makes a step: do it "
                "between minibatches; a handler of a signal can set a flag for this"
            )
        if self._undo is not None:
            self._undo()
            self._undo = None

    def _refuse(self) -> None:
        raise TrainingError(
            f"minibatch {self.num_minibatches}: an error broke off the step while parameters and "
            "counts changed, so that some are new and some old: go on from a checkpoint"
        )

    def _is_backstitch(self) -> bool:
        options = self.options
        interval = options.backstitch_training_interval
        is_due = self.num_minibatches % interval == options.backstitch_phase % interval
        return bool(options.backstitch_training_scale) and is_due

    def _backstitch(
        self, computer: NnetComputer, example: TrainingExample, signals: PostponedSignals
    ) -> tuple[dict[str, Objective], dict[str, ObjectiveSum]]:
        """Makes a step back and a longer one ahead; returns as `_step`.

        The objectives between the two have names that end with "_backstitch". The step back leaves
        the natural gradient as it is, and both have the same random numbers for masks.
        """
        scale = self.options.backstitch_training_scale
        state = self._device_nnet.random_state
        self._undo = self._savepoint.take([self._update.parameters])
        self._device_nnet.freeze_natural_gradient(True)
        try:
            objectives = self._forward_and_backward(computer, example, signals)
        finally:
            self._device_nnet.freeze_natural_gradient(False)
        back = self._limited_change(0.0, scale=-scale, limit_scale=scale)
        self._update.apply(back)
        self._constrain()
        self._device_nnet.random_state = state
        between = self._forward_and_backward(computer, example, signals)
        objectives |= {f"{name}_backstitch": each for name, each in between.items()}
        l2_weight = self.options.l2_regularize_factor * example.num_sequences / (1.0 + scale)
        ahead = self._limited_change(l2_weight, scale=1.0 + scale, limit_scale=1.0 + scale)
        self._update.apply(ahead)
        self._forgetting.run()
        return objectives, self._count_step(objectives, [back, ahead])

    def summary(self) -> str:
        """The objectives per frame, and how often changes were limited, a line each."""
        lines = [f"objective for '{name}': {total}" for name, total in self.objectives.items()]
        shares = [(f"max-change of {name}", count) for name, count in self.num_limited.items()]
        shares.append(("max_param_change", self.num_globally_limited))
        for name, count in shares:
            if count:
                lines.append(f"{name} enforced on {100.0 * count / self.num_updates:.4g} %")
        if self.num_skipped:
            lines.append(f"{self.num_skipped} changes left out, which were not finite")
        return "\n".join(lines)

    # ---- a step ----

    def _computer(self, example: TrainingExample) -> NnetComputer:
        request = example.request(store_component_stats=self.options.store_component_stats)
        return self._computers.of(request, self._compiler.compile)

    def _forward_and_backward(
        self, computer: NnetComputer, example: TrainingExample, signals: PostponedSignals
    ) -> dict[str, Objective]:
        """Computes the objective, and the direction along which it grows."""
        outputs = computer.forward(
            {io.name: io.values for io in example.inputs},
            on_device=takes_device_arrays(self.objective),
        )
        with signals.heard():
            objectives = objectives_at(self.objective, outputs, example)
        for name, objective in objectives.items():
            if not math.isfinite(objective.total):
                raise TrainingError(self._diverged(name, objective))
        computer.backward({name: objective.derivative for name, objective in objectives.items()})
        return objectives

    def _diverged(self, name: str, objective: Objective) -> str:
        """The error for an objective that is not finite."""
        before = self.objectives.get(name)
        if before is None:
            return (
                f"minibatch {self.num_minibatches}: the objective of '{name}' is {objective.total} "
                "before any step: the network, the example or the objective has NaN or infinity"
            )
        rates = [group.rate for group in self._update.current_groups]
        limited = f"{self.num_globally_limited} of {self.num_updates} changes were limited"
        return (
            f"minibatch {self.num_minibatches}: the objective of '{name}' is {objective.total}, "
            f"after {before.per_frame:.6g} per frame on average: training has diverged, or the "
            f"example has NaN or infinity. The learning rate is {max(rates, default=0.0):g}, and "
            f"{limited} by max_param_change {self.options.max_param_change:g}; lower ones may help"
        )

    def _limited_change(
        self, l2_weight: float, *, scale: float | None = None, limit_scale: float = 1.0
    ) -> LimitedChange:
        """The change of the parameters that the last backward pass proposes, within the limits.

        Args:
            l2_weight: See `ParameterUpdate.measure`.
            scale: Factor of the change; by default 1 - momentum.
            limit_scale: Factor of the limits.
        """
        limits = {c: limit * limit_scale for c, limit in self._update.max_changes.items()}
        return limit_change(
            self._update.measure(l2_weight),
            limits,
            self.options.max_param_change * limit_scale,
            scale=1.0 - self.options.momentum if scale is None else scale,
        )

    def _count_step(
        self, objectives: Mapping[str, Objective], changes: Iterable[LimitedChange]
    ) -> dict[str, ObjectiveSum]:
        """Counts a step, which is then done; returns the objectives of a phase that ends."""
        self._undo = self._refuse
        for change in changes:
            self._count(change)
        for name, objective in objectives.items():
            for sums in (self.objectives, self._phase):
                sums.setdefault(name, ObjectiveSum()).add(objective)
        self.num_minibatches += 1
        ended: dict[str, ObjectiveSum] = {}
        if self.num_minibatches % self.options.print_interval == 0:
            ended, self._phase = self._phase, ended
        self._undo = None
        return ended

    def _count(self, change: LimitedChange) -> None:
        names = self._device_nnet.nnet.component_names
        self.num_updates += 1
        self.last_change = change
        if not change.is_finite:
            self.num_skipped += 1
            _LOGGER.warning("The change of the parameters is not finite: it is left out.")
            return
        self.num_limited.update(names[number] for number in change.limited)
        self.num_globally_limited += change.global_factor < 1.0

    def _constrain(self) -> None:
        """Moves matrices with an orthonormal constraint towards it, if a step is due."""
        for number, step in self._orthonormal.items():
            if self.is_constrained(number, self.num_minibatches):
                step.run()

    def is_constrained(self, component: int, minibatch: int) -> bool:
        """Whether a step towards a component's orthonormal constraint follows a minibatch."""
        return (component + minibatch) % self.options.orthonormal_period == 0


def _described(objective_name: str | None) -> str:
    return "given by functions" if objective_name is None else f"'{objective_name}'"
