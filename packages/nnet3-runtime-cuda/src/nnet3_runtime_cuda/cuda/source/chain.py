"""Consecutive element-wise operations on the same elements, with values in registers."""

from __future__ import annotations

from collections.abc import Callable

from nnet3_runtime_cuda.cuda.recorded.device_views import View
from nnet3_runtime_cuda.cuda.recorded.recorded_operations import (
    Guards,
    Indexed,
    Map,
    Operand,
    Target,
)
from nnet3_runtime_cuda.cuda.source.expressions import FUNCTIONS, OWN_TYPE, literal, offset, wider

INDEX_LIMIT = 1 << 31
"""The most elements that a 32-bit index can count."""


def check_size(size: int) -> None:
    """Raises a ValueError if 32-bit indexes do not reach that many elements."""
    if size >= INDEX_LIMIT:
        raise ValueError(f"expected less than 2^31 elements, found {size}")


Key = tuple[int, tuple[int, ...], str]


class KernelText:
    """The text of a kernel while it is written, and the views for its arguments.

    Attributes:
        arguments: For each argument, the view whose address it takes.
    """

    def __init__(self) -> None:
        self.arguments: list[View] = []
        self._names: dict[tuple[int, str], str] = {}
        self._lines: list[str] = []
        self._registers = 0

    def pointer(self, view: View) -> str:
        """The argument that points to the first element of a view."""
        key = view.address, view.dtype
        if key not in self._names:
            self._names[key] = f"p{len(self.arguments)}"
            self.arguments.append(view)
        return self._names[key]

    def element(self, view: View, indexes: tuple[str, ...]) -> str:
        """An element of a view."""
        if view.span >= INDEX_LIMIT:
            indexes = tuple(f"(long long){index}" for index in indexes)
        return f"{self.pointer(view)}[{offset(view.strides, indexes)}]"

    def line(self, text: str) -> None:
        """Adds a line."""
        self._lines.append(text)

    def register(self, c_type: str, value: str, *, constant: bool = True) -> str:
        """Adds a line that defines a register with a value, and returns its name."""
        name = f"v{self._registers}"
        self._registers += 1
        self.line(f"{'const ' if constant else ''}{c_type} {name} = {value};")
        return name

    def guard(self, guards: Guards) -> None:
        """Adds lines that end the kernel unless all guards are set."""
        for view in guards:
            self.line(f"if (!{self.pointer(view)}[0]) return;")

    def source(self, name: str, threads: int) -> str:
        """The kernel as CUDA C++."""
        parameters = ", ".join(f"{v.c_type}* p{k}" for k, v in enumerate(self.arguments))
        body = "\n".join(f"  {line}" for line in self._lines)
        return (
            f'extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters}) {{\n'
            f"{body}\n}}\n"
        )


class Chain:
    """Statements for one element of a loop.

    A result stays in a register for later operations on the same elements. `store_all` stores it,
    once, if it is needed elsewhere.

    Attributes:
        loaded: The views whose elements are read from memory.
    """

    def __init__(self, text: KernelText, indexes: tuple[str, ...], linear: str) -> None:
        """Starts a chain at the element with these indexes; `linear`: the number of the element."""
        self.text = text
        self.indexes = indexes
        self._linear = linear
        self.loaded: list[View] = []
        self._values: dict[Key, tuple[str, str]] = {}
        self._views: dict[Key, View] = {}
        self._pending: dict[Key, Target] = {}

    def read(self, operand: Operand, c_type: str) -> str:
        """The value of an operand, as an expression without operators."""
        if isinstance(operand, Indexed):
            return self.text.register(operand.view.c_type, self._location(operand))
        if not isinstance(operand, View):
            return literal(operand, c_type)
        key = key_of(operand)
        if key not in self._values:
            value = self.text.register(operand.c_type, self._location(operand))
            self._values[key] = value, operand.c_type
            self._views[key] = operand
            self.loaded.append(operand)
        name, own_type = self._values[key]
        return name if own_type == c_type else f"({c_type}){name}"

    def bind(self, view: View, value: str) -> None:
        """Makes an expression the value of the view's element."""
        self._values[key_of(view)] = value, view.c_type

    def forget(self, view: View) -> None:
        """Makes later operations read the elements of overlapping views again."""
        for key, known in list(self._views.items()):
            if key not in self._pending and known.overlaps(view):
                self._values.pop(key, None)
                del self._views[key]

    @property
    def pending(self) -> list[View]:
        """The views that `store_all` will write."""
        return [t.view if isinstance(t, Indexed) else t for t in self._pending.values()]

    def _location(self, target: Target) -> str:
        if isinstance(target, View):
            return self.text.element(target, self.indexes)
        indexes = list(self.indexes)
        index = self.text.element(target.table, (self.indexes[target.axis],))
        indexes[target.axis] = f"(long long){index}"
        return self.text.element(target.view, tuple(indexes))

    def run(self, operation: Map, *, store: bool) -> None:
        """Adds one operation; `store` says whether its result is needed in memory."""
        out = operation.out.view if isinstance(operation.out, Indexed) else operation.out
        types = [_c_type(operand) for operand in operation.operands if not _is_number(operand)]
        c_type = wider(
            [*types, out.c_type] if operation.function not in OWN_TYPE else types or ["double"]
        )
        values = [self.read(operand, c_type) for operand in operation.operands]
        if operation.function == "uniform":
            value = f"uniform({', '.join(values)}, {self._linear})"
        else:
            value = FUNCTIONS[operation.function](*values)
        self.write(operation.out, value, store=store)

    def write(self, target: Target, value: str, *, store: bool) -> None:
        """Makes an expression the value of a target."""
        if isinstance(target, Indexed):
            self.text.line(f"{self._location(target)} = {value};")
            return
        key = key_of(target)
        name = self.text.register(target.c_type, f"({target.c_type})({value})")
        self._values[key] = name, target.c_type
        self._views[key] = target
        if store:
            self._pending[key] = target
        else:
            self._pending.pop(key, None)

    def store_all(self) -> None:
        """Stores the pending values."""
        for key, target in self._pending.items():
            self.text.line(f"{self._location(target)} = {self._values[key][0]};")
        self._pending.clear()


def key_of(view: View) -> Key:
    """A key that distinguishes the elements of views in the same loop."""
    return view.address, view.strides, view.dtype


def _c_type(operand: Operand) -> str:
    assert not isinstance(operand, float)
    return operand.view.c_type if isinstance(operand, Indexed) else operand.c_type


def _is_number(operand: Operand) -> bool:
    return not isinstance(operand, View | Indexed)


Stores = Callable[[int], bool]
"""Whether the result of operation number i of a group is needed in memory."""
