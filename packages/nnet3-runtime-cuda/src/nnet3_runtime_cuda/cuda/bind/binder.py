"""A program on a device: its kernels in one module, bound to memory, and the work of the host."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import attrs
import numpy as np
from nnet3_computation.computation import NnetComputation

from nnet3_runtime_cuda.cuda.fuse.launch_list import WORKSPACE_AT, DeviceCall, LaunchList, matrix
from nnet3_runtime_cuda.cuda.memory.program_memory import ProgramMemory
from nnet3_runtime_cuda.cuda.platform.platform import Call, Gemm, Platform
from nnet3_runtime_cuda.cuda.record.estimate_schedule import Flags
from nnet3_runtime_cuda.cuda.record.host_values import HostSteps
from nnet3_runtime_cuda.cuda.recorded.device_views import View
from nnet3_runtime_cuda.cuda.recorded.recorded_operations import Product
from nnet3_runtime_cuda.cuda.source.maps import Launch
from nnet3_runtime_cuda.cuda.source.prelude import PRELUDE


@attrs.frozen
class Module:
    """The source of all kernels of a program, each once.

    Attributes:
        source: CUDA C++.
        names: For each text of a kernel its name.
    """

    source: str
    names: dict[str, str]

    @classmethod
    def of(cls, lists: Sequence[LaunchList]) -> Module:
        """The module of the kernels of some segments."""
        names: dict[str, str] = {}
        texts = [PRELUDE]
        for each in lists:
            for call in each.calls:
                if isinstance(call, Launch) and call.text not in names:
                    name = "k" + hashlib.sha256(call.text.encode()).hexdigest()[:12]
                    names[call.text] = name
                    texts.append(call.text.replace("@", name))
        return cls("\n".join(texts), names)


class DeviceSegment:
    """A segment that is ready to run.

    Attributes:
        launches: The launches and products that are bound.
        calls: The bound call of each of them.
    """

    def __init__(
        self, platform: Platform, host: HostSteps, launches: LaunchList, calls: Sequence[Call]
    ) -> None:
        """Makes a segment of launches and their bound calls."""
        self.launches = launches
        self.calls = tuple(calls)
        self._platform = platform
        self._host = host
        self._replays: dict[bytes, Call] = {}

    @property
    def num_calls(self) -> int:
        """The largest number of launches and products that it runs."""
        return len(self.calls)

    def run(self) -> None:
        """Runs it; the device may still be at work when this returns."""
        decisions = self._host.run()
        key = decisions.tobytes()
        replay = self._replays.get(key)
        if replay is None:
            replay = self._replays[key] = self._capture(decisions)
        replay()

    def _capture(self, decisions: Flags) -> Call:
        """The calls that run after these decisions, as one."""
        chosen = [
            call
            for call, number in zip(self.calls, self.launches.decisions, strict=True)
            if number < 0 or decisions[number]
        ]
        return self._platform.capture(chosen) if chosen else lambda: None


class Binder:
    """Binds launches and products to addresses on a platform."""

    def __init__(
        self,
        memory: ProgramMemory,
        lists: Sequence[LaunchList],
        computation: NnetComputation | None,
    ) -> None:
        """Takes the memory, and compiles the kernels."""
        self._memory = memory
        self._platform: Platform = memory.platform
        self.module = Module.of(lists)
        names = tuple(self.module.names.values())
        size = max((each.workspace for each in lists), default=0)
        workspace = memory.reserve((size,), np.uint8)
        memory.commit(computation)
        self._kernels = self._platform.build(self.module.source, names) if names else {}
        self._workspace = self._memory.address(workspace.__array_interface__["data"][0])
        self._for_products = self._platform.workspace()

    def segment(self, launches: LaunchList, host: HostSteps) -> DeviceSegment:
        """A segment bound to memory."""
        calls = tuple(self._bind(call) for call in launches.calls)
        return DeviceSegment(self._platform, host, launches, calls)

    def _bind(self, call: DeviceCall) -> Call:
        if isinstance(call, Launch):
            kernel = self._kernels[self.module.names[call.text]]
            arguments = [self._address(view) for view in call.arguments]
            return self._platform.launch(kernel, call.grid, call.block, arguments)
        return self._platform.gemm(gemm_of(call, self._memory.address), self._for_products)

    def _address(self, view: View) -> int:
        if view.address == WORKSPACE_AT:
            return self._workspace
        return self._memory.address(view.address)


def gemm_of(product: Product, address: Callable[[int], int]) -> Gemm:
    """A product as the platform takes it; of a transposed output, the transposed product."""
    out = matrix(product.out, address)
    if out.transposed:
        assert product.bias is None, "bias is along the rows of the output"
        flipped = attrs.evolve(
            product,
            a=_flipped(product.b),
            b=_flipped(product.a),
            out=_flipped(product.out),
            addend=None if product.addend is None else _flipped(product.addend),
        )
        return gemm_of(flipped, address)
    same = product.addend is not None and product.addend == product.out
    return Gemm(
        rows=product.out.shape[0],
        columns=product.out.shape[1],
        inner=product.a.shape[1],
        a=matrix(product.a, address),
        b=matrix(product.b, address),
        out=out,
        alpha=product.alpha,
        alpha_at=0 if product.alpha_at is None else address(product.alpha_at.address),
        beta=0.0 if product.addend is None else 1.0,
        addend=None if product.addend is None or same else matrix(product.addend, address),
        bias=0 if product.bias is None else address(product.bias.address),
        relu=product.relu,
    )


def _flipped(view: View) -> View:
    return View(view.address, view.shape[::-1], view.strides[::-1], view.dtype)
