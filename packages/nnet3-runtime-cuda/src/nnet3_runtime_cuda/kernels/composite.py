"""A sequence of simple components run as one; the backward pass runs forward again."""

from __future__ import annotations

from nnet3_descriptors.components import Component, ComponentProperties, CompositeComponent

from nnet3_runtime_cuda.kernels.base import Backpropagation, Kernel, Memo, Propagation
from nnet3_runtime_cuda.kernels.registry import kernel_class, kernel_for
from nnet3_runtime_cuda.operations import Array


@kernel_for(CompositeComponent)
class CompositeKernel(Kernel):
    """y = f_k(... f_1(x)); rows are treated in groups of at most max_rows_process.

    The backward pass repeats the forward pass, and stores the statistics of the parts on the way.
    """

    def prepare(self) -> None:
        """Makes the kernels of the parts."""
        self.parts = [
            kernel_class(part, part.type)(part, self.store.part(f"{number}."))
            for number, part in enumerate(self.component.components)
        ]

    def follow(self, component: Component) -> None:
        """Also takes over the options of the parts."""
        super().follow(component)
        for kernel, part in zip(self.parts, self.component.components, strict=True):
            kernel.follow(part)

    def with_statistics(self) -> Component:
        """The component with the statistics of its parts."""
        return self.replaced(components=tuple(kernel.with_statistics() for kernel in self.parts))

    def _groups(self, rows: int) -> list[slice]:
        size = self.component.max_rows_process
        size = size if size > 0 else rows
        return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]

    def _memo(self, kernel: Kernel) -> Memo | None:
        uses = bool(kernel.component.properties & ComponentProperties.USES_MEMO)
        return Memo() if uses else None

    def propagate(self, p: Propagation) -> None:
        """Records the forward pass."""
        for rows in self._groups(len(p.x)):
            x = p.x[rows]
            for kernel in self.parts[:-1]:
                y = p.tape.scratch(len(x), kernel.component.output_dim)
                kernel.propagate(Propagation(tape=p.tape, x=x, y=y, memo=self._memo(kernel)))
                x = y
            last = self.parts[-1]
            last.propagate(
                Propagation(tape=p.tape, x=x, y=p.y[rows], add=p.add, memo=self._memo(last))
            )

    def backprop(self, b: Backpropagation) -> None:
        """Records the forward pass again, then the backward pass."""
        for rows in self._groups(len(b.x)):
            self._record_backward(b, rows)

    def _record_backward(self, b: Backpropagation, rows: slice) -> None:
        tape, x, dy = b.tape, b.x[rows], b.dy[rows]
        values, memos = [x], []
        for kernel in self.parts:
            out, memo = tape.scratch(len(x), kernel.component.output_dim), self._memo(kernel)
            kernel.propagate(Propagation(tape=tape, x=values[-1], y=out, memo=memo))
            values.append(out)
            memos.append(memo)
        for number in reversed(range(len(self.parts))):
            kernel, memo = self.parts[number], memos[number]
            properties = kernel.component.properties
            if b.update and properties & ComponentProperties.STORES_STATS:
                kernel.store_stats(tape, values[number + 1], memo)
            dx: Array | None
            if number > 0:
                dx = tape.scratch(len(x), kernel.component.input_dim)
            else:
                dx = None if b.dx is None else b.dx[rows]
            kernel.backprop(
                Backpropagation(
                    tape=tape,
                    x=values[number],
                    y=values[number + 1],
                    dy=dy,
                    dx=dx,
                    add=b.add and number == 0,
                    memo=memo,
                    update=b.update,
                )
            )
            if dx is not None:
                dy = dx
