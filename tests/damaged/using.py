"""Uses of networks, requests and computations that were read from damaged files.

Reading a damaged file may succeed: most damaged networks are still some network. Every use of it
must then work, or raise a `Nnet3Error`, within bounds of time and memory.
"""

from __future__ import annotations

import io
import mmap
import random
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from example_cases import noise_for
from nnet3 import CachingCompiler, Model
from nnet3_compiler import compile_computation, compile_looped, looped_requests
from nnet3_computation import (
    ComputationRequest,
    IoSpecification,
    NnetComputation,
    check_runnable,
    format_computation,
    parse_computation,
    peak_bytes,
    plan_memory,
)
from nnet3_descriptors import (
    ModelFileError,
    Nnet,
    Nnet3Error,
    node_config_lines,
    parse_config,
    read_nnet,
    set_test_mode,
    unvectorize,
    vectorize,
    write_nnet,
)
from nnet3_descriptors.editing import apply_edits, average, for_inference, scale
from nnet3_graph import build_computation_graph, compute_context
from nnet3_optimizer import analyze, check_computation, optimize, verify_equivalent
from nnet3_report import format_dot, report_page
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_onnx import to_onnx
from nnet3_training import Trainer, TrainerOptions

HANGING = 30
"""After so many times as long, a use is taken to wait for something that does not come."""
MESSAGE = 5000
"""Characters that a message may have."""
MOST_PARAMETERS = 1 << 20
"""Networks with more are not run."""
READING = 1.0
"""Processor time that reading a model file or an archive of examples may take."""
GROWTH = 64 << 20
"""Bytes of addresses that reading may take, besides four times the size of the file."""


class Watch:
    """Notes what a reader must not do: open files, run code, start processes, use the network."""

    FORBIDDEN = ("open", "exec", "compile", "import", "os.", "subprocess.", "socket.", "ctypes.",
                 "pickle.", "shutil.", "tempfile.")  # fmt: skip

    def __init__(self) -> None:
        self.events: list[str] = []
        self.on = False

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """What a process adds as a hook of audits."""
        if self.on and event.startswith(self.FORBIDDEN):
            self.events.append(f"{event} {arguments!r:.80}")


WATCH = Watch()


class TooLongError(BaseException):
    """A use takes too long."""


@attrs.define
class Report:
    """The results of uses.

    Attributes:
        uses: Number of uses that succeeded.
        refused: Number of uses that ended with a Nnet3Error.
        faults: All other ends of uses, such as too much time or memory.
    """

    uses: int = 0
    refused: int = 0
    faults: list[str] = attrs.field(factory=list)


@attrs.define
class User:
    """Uses damaged values, and records the results.

    Attributes:
        report: The records.
        name: Name of the value in use.
        rng: Draws requests and values.
        seconds: Processor time that a use may take.
        is_thorough: Whether to try all uses of networks, not the most usual ones only.
        is_brief: Whether what is read is only written and read again.
    """

    report: Report
    name: str
    rng: random.Random
    seconds: float
    is_thorough: bool = True
    is_brief: bool = False

    def attempt(self, what: str, use: Callable[[], Any]) -> Any:
        """Returns the result of a use; None if it is refused or fails."""
        try:
            with _limited(self.seconds):
                result = use()
        except Nnet3Error as error:
            self.report.refused += 1
            self._check_message(what, error)
            return None
        except (Exception, TooLongError):  # a MemoryError and a warning, too
            self.report.faults.append(f"{self.name}: {what}: {traceback.format_exc(limit=-6)}")
            return None
        self.report.uses += 1
        return result

    def read(self, size: int, reader: Callable[[], Any]) -> Any:
        """Returns what is read of a file of some bytes; None if it is refused or fails.

        Reading takes little time and memory, opens and runs nothing else, and an error says at
        which byte the fault is.
        """

        def read() -> Any:
            with bounded_memory(GROWTH + 4 * size), _limited(READING):
                WATCH.on = True
                try:
                    return reader()
                except ModelFileError as error:
                    if error.offset is None or not 0 <= error.offset <= size:
                        raise AssertionError(f"the offset is {error.offset}: {error}") from error
                    raise
                finally:
                    WATCH.on = False

        result = self.attempt("read", read)
        self.report.faults += [f"{self.name}: read: {event}" for event in WATCH.events]
        WATCH.events.clear()
        return result

    def _check_message(self, what: str, error: Nnet3Error) -> None:
        """Records a message that is too long, or has control characters."""
        text = str(error)
        odd = [char for char in text if not char.isprintable() and char not in "\n"]
        if odd or len(text) > MESSAGE:
            self.report.faults.append(
                f"{self.name}: {what}: message of {len(text)} characters, odd {odd[:3]}: "
                f"{text[:300]!r} {type(error).__name__}"
            )

    # ---- networks ----

    def use_nnet(self, nnet: Nnet) -> None:
        """Uses a network in every way, or in the most usual ones."""
        attempt = self.attempt
        if self.is_brief:
            attempt("write", lambda: _written(nnet, binary=True))
            return
        attempt("repr", lambda: repr(nnet))
        attempt("info", nnet.info)
        if not self.is_thorough:
            is_large = nnet.num_parameters > MOST_PARAMETERS  # as text, some take half a minute
            attempt("write", lambda: _written(nnet, binary=self.rng.random() < 0.5 or is_large))
            if not is_large:
                attempt("computation", lambda: self.compute(nnet))
            return
        attempt("format_dot", lambda: format_dot(nnet))
        attempt("num_parameters", lambda: (nnet.num_parameters, nnet.modulus))
        attempt("config lines", lambda: parse_config("\n".join(_all_but_components(nnet)), nnet))
        attempt("context", lambda: compute_context(nnet))
        attempt("vectorize", lambda: unvectorize(nnet, vectorize(nnet)))
        attempt("state_dict", lambda: nnet.with_state_dict(nnet.state_dict()))
        attempt("container", lambda: _same_bytes(nnet))
        attempt("write", lambda: _written(nnet, binary=True))
        attempt("write as text", lambda: _written(nnet, binary=False))
        attempt("average", lambda: average([nnet, nnet], [0.5, 0.5]))
        attempt("scale", lambda: scale(nnet, 0.5))
        for edit in (
            "remove-orphans", "convert-to-fixed-affine", "set-learning-rate learning-rate=0.1",
            "apply-svd name=c bottleneck-dim=1", "reduce-rank name=c rank=1",
            "set-dropout-proportion proportion=0.1", "rename-node old-name=c new-name=d",
            "remove-output-nodes name=output", "set-learning-rate-factor learning-rate-factor=2",
        ):  # fmt: skip
            attempt(edit, lambda edit=edit: apply_edits(nnet, edit))
        tested = attempt("test mode", lambda: set_test_mode(nnet))
        if tested is not None:
            attempt("inference", lambda: for_inference(tested))
        if nnet.num_parameters > MOST_PARAMETERS:
            return
        for _ in range(2):
            request = attempt("request", lambda: self._request(nnet))
            if request is not None:
                self.use_request(nnet, request)
        self._use_looped(nnet)
        self._use_model(nnet)

    def _request(self, nnet: Nnet) -> ComputationRequest:
        """A request that this network may be able to compute."""
        rng = self.rng
        try:
            left, right = compute_context(nnet)
        except Nnet3Error:
            left = right = 3
        left, right = min(left, 50), min(right, 50)
        length, n = rng.randint(1, 4), rng.randint(1, 2)
        derivs = rng.random() < 0.5

        def rows(name: str, start: int, end: int, deriv: bool) -> IoSpecification:
            return IoSpecification.from_range(name, start, end, n, has_deriv=deriv)

        return ComputationRequest(
            inputs=[
                rows(node.name, -left, length + right, derivs and rng.random() < 0.5)
                for node in nnet.input_nodes
            ],
            outputs=[rows(node.name, 0, length, derivs) for node in nnet.output_nodes],
            need_model_derivative=derivs and rng.random() < 0.8,
            store_component_stats=rng.random() < 0.5,
        )

    def compute(self, nnet: Nnet) -> None:
        """Computes a few frames."""
        request = self._request(nnet)
        computer = NnetComputer(nnet, optimize(nnet, compile_computation(nnet, request)))
        computer.forward(self._ports(computer, "forward"))

    def _use_looped(self, nnet: Nnet) -> None:
        requests = self.attempt("looped requests", lambda: looped_requests(nnet, 3))
        if requests is None:
            return
        computation = self.attempt("compile looped", lambda: compile_looped(nnet, requests))
        if computation is not None:
            self.use_computation(nnet, computation)

    def _use_model(self, nnet: Nnet) -> None:
        """Loads a network as a model, and computes and trains a little."""
        model = self.attempt("model", lambda: Model(nnet))
        if model is not None and model.left_context + model.right_context < 200:
            features = self._values(7, model.input_dim)
            ivector = self._values(1, model.ivector_dim)[0] if model.ivector_dim else None
            self.attempt("repr of a model", lambda: repr(model))
            self.attempt("compute", lambda: model.compute(features, ivector, frames_per_chunk=4))
            if not model.ivector_dim:
                self.attempt("xvector", lambda: model.xvector(features, min_chunk_size=5))
        self.attempt("training", lambda: self._train(nnet))

    def _train(self, nnet: Nnet) -> None:
        options = TrainerOptions(learning_rate=0.01, momentum=self.rng.choice((0.0, 0.5)))
        trainer = Trainer(nnet, options)
        values = np.random.default_rng(self.rng.getrandbits(32))
        trainer.train_minibatch(noise_for(nnet, self._request(nnet), values))
        trainer.summary()
        trainer.nnet.to_bytes()

    def _values(self, rows: int, cols: int) -> np.ndarray:
        rng = np.random.default_rng(self.rng.getrandbits(32))
        return rng.standard_normal((rows, cols), dtype=np.float32)

    # ---- requests ----

    def use_request(self, nnet: Nnet, request: ComputationRequest) -> None:
        """Uses a request in every way."""
        attempt = self.attempt
        if sum(len(io.indexes) for io in (*request.inputs, *request.outputs)) > 100_000:
            return
        attempt("repr of a request", lambda: repr(request))
        if not self.is_thorough:
            attempt("compile", lambda: compile_computation(nnet, request))
            return
        attempt("container of a request", lambda: _same_bytes(request))
        attempt("graph", lambda: build_computation_graph(nnet, request))
        computation = attempt("compile", lambda: compile_computation(nnet, request))
        if computation is None:
            return
        self.use_computation(nnet, computation)
        attempt("cache", lambda: CachingCompiler(nnet).compile(request))
        attempt("report", lambda: report_page("a network", nnet, request))
        attempt("onnx", lambda: self._export(nnet, request))

    def _export(self, nnet: Nnet, request: ComputationRequest) -> None:
        """Exports a request without its derivatives and statistics."""
        tested = set_test_mode(nnet)
        plain = attrs.evolve(
            request,
            inputs=[attrs.evolve(io, has_deriv=False) for io in request.inputs],
            outputs=[attrs.evolve(io, has_deriv=False) for io in request.outputs],
            need_model_derivative=False,
            store_component_stats=False,
        )
        to_onnx(tested, optimize(tested, compile_computation(tested, plain))).SerializeToString()

    # ---- computations ----

    def use_computation(
        self, nnet: Nnet, computation: NnetComputation, good: NnetComputation | None = None
    ) -> None:
        """Uses a computation in every way, or in the most usual ones."""
        attempt = self.attempt
        attempt("repr of a computation", lambda: repr(computation))
        if not self.is_thorough:
            attempt("check", lambda: check_computation(nnet, computation))
            attempt("format", lambda: format_computation(computation, nnet))
            self._run(nnet, computation)
            return
        attempt("commands", lambda: list(computation.commands))
        attempt("container of a computation", lambda: _same_bytes(computation))
        attempt("input_output_info", lambda: computation.input_output_info)
        text = attempt("format", lambda: format_computation(computation, nnet))
        if text is not None and good is None:
            attempt("parse", lambda: parse_computation(text, nnet))
        attempt("steps by node", lambda: computation.steps_by_node(nnet))
        attempt("analyze", lambda: analyze(nnet, computation))
        attempt("check", lambda: check_computation(nnet, computation))
        attempt("check rewrite", lambda: check_computation(nnet, computation, check_rewrite=True))
        attempt("check runnable", lambda: check_runnable(nnet, computation))
        attempt("peak bytes", lambda: peak_bytes(computation))
        attempt("plan memory", lambda: plan_memory(computation))
        better = attempt("optimize", lambda: optimize(nnet, computation))
        for other in (better, good):
            if other is not None:
                attempt("verify", lambda o=other: verify_equivalent(nnet, o, computation))
                attempt("verify back", lambda o=other: verify_equivalent(nnet, computation, o))
        for each in (computation, better):
            if each is not None:
                self._run(nnet, each)

    def _run(self, nnet: Nnet, computation: NnetComputation) -> None:
        computer = self.attempt("bind", lambda: NnetComputer(nnet, computation))
        if computer is None:
            return
        for _ in range(2):
            done = self.attempt(
                "forward", lambda: computer.forward(self._ports(computer, "forward"))
            )
        if done is not None and computer._program.backward is not None:
            self.attempt("backward", lambda: computer.backward(self._ports(computer, "backward")))
            if computation.need_model_derivative:
                self.attempt("gradient", lambda: computer.gradient.to_bytes())
        self.attempt("statistics", lambda: computer.nnet.to_bytes())

    def _ports(self, computer: NnetComputer, which: str) -> dict[str, np.ndarray]:
        program = computer._program
        if which == "forward":
            if not program.forward:  # the computation has no commands
                return {}
            number = computer._next
            if number == len(program.forward):
                number = program.loop_to or 0
            segment = program.forward[number]
        else:
            segment = program.backward
        return {node: self._values(*view.shape) for node, view in segment.inputs.items()}


def _all_but_components(nnet: Nnet) -> Iterator[str]:
    yield from node_config_lines(nnet)


def _same_bytes(value: Any) -> None:
    data = value.to_bytes()
    assert type(value).from_bytes(data).to_bytes() == data


def _written(nnet: Nnet, *, binary: bool) -> None:
    first, second = io.BytesIO(), io.BytesIO()
    write_nnet(nnet, first, binary=binary)
    write_nnet(read_nnet(io.BytesIO(first.getvalue())), second, binary=binary)
    assert first.getvalue() == second.getvalue(), "what is written is not what was read"


@contextmanager
def bounded_memory(size: int) -> Iterator[None]:
    """A context in which the process can take so many more bytes of addresses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * mmap.PAGESIZE
    limit = taken + size if soft == resource.RLIM_INFINITY else min(soft, taken + size)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """A context in which a TooLongError is raised after some time."""

    def end(signum: int, _: object) -> None:
        raise TooLongError("took too long" if signum == signal.SIGPROF else "hangs")

    signal.signal(signal.SIGPROF, end)
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, HANGING * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
