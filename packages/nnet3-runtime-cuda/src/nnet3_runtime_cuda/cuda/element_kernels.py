"""Kernels of element-wise operations: C++ for chains of them, with values in registers.

A chain is what one thread does for one element: consecutive operations, each of which reads what
those before it left in registers, and one store of each result that is needed elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs
import numpy as np

from nnet3_runtime_cuda.cuda.recorded import Guards, Indexed, Map, Operand, Target, View, views_of

FUNCTIONS: dict[str, Callable[..., str]] = {
    "copy": lambda a: a,
    "positive": lambda a: a,
    "negative": lambda a: f"-({a})",
    "add": lambda a, b: f"{a} + {b}",
    "subtract": lambda a, b: f"{a} - {b}",
    "multiply": lambda a, b: f"{a} * {b}",
    "divide": lambda a, b: f"{a} / {b}",
    "maximum": lambda a, b: f"larger({a}, {b})",
    "minimum": lambda a, b: f"smaller({a}, {b})",
    "greater": lambda a, b: f"{a} > {b} ? 1 : 0",
    "equal": lambda a, b: f"{a} == {b} ? 1 : 0",
    "square": lambda a: f"{a} * {a}",
    "exp": lambda a: f"exp_({a})",
    "log": lambda a: f"log_({a})",
    "tanh": lambda a: f"tanh_({a})",
    "sqrt": lambda a: f"sqrt_({a})",
    "ceil": lambda a: f"ceil_({a})",
    "rint": lambda a: f"rint_({a})",
    "bit": lambda a, b: f"{a} >> {b} & 1",
}
"""Element-wise functions in C++; most have NumPy's names."""

OWN_TYPE = frozenset({"copy", "bit"})
"""Functions that compute in the type of the operands, whatever the type of the result."""

THREADS = 256
"""Threads of a block."""

MOST_GUARDED_BLOCKS = 1024
"""The most blocks of a kernel whose work a guard can skip: starting a block takes nearly as long as
its work, so fewer blocks go through more elements each."""

INDEX_LIMIT = 1 << 31
"""The most elements that a 32-bit index can count."""

Stores = Callable[[int], bool]
"""Whether the result of operation number i of a group is needed in memory."""

Key = tuple[int, tuple[int, ...], str]


def check_size(size: int) -> None:
    """Raises a ValueError if 32-bit indexes do not reach that many elements."""
    if size >= INDEX_LIMIT:
        raise ValueError(f"expected less than 2^31 elements, found {size}")


def wider(types: list[str]) -> str:
    """The type for the arithmetic, given the types of operands and result."""
    if "double" in types:
        return "double"
    if "float" in types:
        return "float"
    return "long long" if "long long" in types else "int"


def literal(value: float, c_type: str) -> str:
    """A number in C++."""
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {value}")
    if c_type == "float":
        text = f"{np.float32(value)!r}".removeprefix("np.float32(").removesuffix(")") + "f"
    elif c_type == "double":
        text = repr(float(value))
    else:
        text = str(int(value))
    return f"({text})" if text.startswith("-") else text


def offset(strides: tuple[int, ...], indexes: tuple[str, ...]) -> str:
    """The sum of index times stride."""
    terms = [
        index if stride == 1 else f"{index} * {stride}"
        for stride, index in zip(strides, indexes, strict=True)
        if stride and index != "0"
    ]
    return " + ".join(terms) or "0"


def key_of(view: View) -> Key:
    """A key that distinguishes the elements of views in the same loop."""
    return view.address, view.strides, view.dtype


@attrs.frozen
class Launch:
    """A kernel, and the views whose addresses are its arguments.

    Attributes:
        text: The kernel, with "@" for its name.
        arguments: The views, in order.
        grid: Numbers of blocks.
        block: Numbers of threads of a block.
    """

    text: str
    arguments: tuple[View, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


class KernelText:
    """The text of a kernel while it is written, and the views for its arguments."""

    def __init__(self) -> None:
        self._arguments: list[View] = []
        self._names: dict[tuple[int, str], str] = {}
        self._lines: list[str] = []
        self._registers = 0

    def pointer(self, view: View) -> str:
        """The argument that points to the first element of a view."""
        key = view.address, view.dtype
        if key not in self._names:
            self._names[key] = f"p{len(self._arguments)}"
            self._arguments.append(view)
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

    def unravel(self, linear: str, shape: tuple[int, ...], prefix: str) -> tuple[str, ...]:
        """Adds lines for the indexes of element number `linear`, and returns their names."""
        names: list[str] = []
        rest = linear
        for k in reversed(range(len(shape))):
            if shape[k] == 1:
                names.append("0")
                continue
            names.append(f"{prefix}{k}")
            # Strides can be negative, so indexes are not unsigned.
            if math.prod(shape[:k]) == 1:
                self.line(f"const int {prefix}{k} = (int)({rest});")
            else:
                self.line(f"const int {prefix}{k} = (int)({rest} % {shape[k]}u);")
                self.line(f"const unsigned {prefix}_{k} = {rest} / {shape[k]}u;")
                rest = f"{prefix}_{k}"
        return tuple(reversed(names))

    def launch(self, grid: tuple[int, int, int], block: tuple[int, int, int]) -> Launch:
        """The launch of the finished kernel."""
        bounds = f"__launch_bounds__({math.prod(block)})"
        parameters = ", ".join(f"{v.c_type}* p{k}" for k, v in enumerate(self._arguments))
        body = "\n".join(f"  {line}" for line in self._lines)
        text = f'extern "C" __global__ void {bounds} @({parameters}) {{\n{body}\n}}\n'
        return Launch(text, tuple(self._arguments), grid, block)


class Chain:
    """Statements for one element of a loop.

    A result stays in a register for later operations on the same elements. `store_all` stores it,
    once, if it is needed elsewhere.

    Attributes:
        loaded: The views whose elements are read from memory.
    """

    def __init__(self, text: KernelText, indexes: tuple[str, ...], linear: str) -> None:
        """Starts a chain at the element with these indexes; `linear`: the number of the element."""
        self.loaded: list[View] = []
        self._text = text
        self._indexes = indexes
        self._linear = linear
        self._values: dict[Key, str] = {}
        self._views: dict[Key, View] = {}
        self._pending: dict[Key, View] = {}

    def read(self, operand: Operand, c_type: str) -> str:
        """The value of an operand, as an expression without operators."""
        if isinstance(operand, Indexed):
            return self._text.register(operand.view.c_type, self._location(operand))
        if not isinstance(operand, View):
            return literal(operand, c_type)
        key = key_of(operand)
        if key not in self._values:
            self._values[key] = self._text.register(operand.c_type, self._location(operand))
            self._views[key] = operand
            self.loaded.append(operand)
        name = self._values[key]
        return name if operand.c_type == c_type else f"({c_type}){name}"

    def bind(self, view: View, value: str) -> None:
        """Makes an expression the value of the view's element."""
        self._values[key_of(view)] = value

    def forget(self, view: View) -> None:
        """Makes later operations read the elements of overlapping views again."""
        for key, known in list(self._views.items()):
            if key not in self._pending and known.overlaps(view):
                self._values.pop(key, None)
                del self._views[key]

    @property
    def pending(self) -> list[View]:
        """The views that `store_all` will write."""
        return list(self._pending.values())

    def _location(self, target: Target) -> str:
        if isinstance(target, View):
            return self._text.element(target, self._indexes)
        indexes = list(self._indexes)
        index = self._text.element(target.table, (self._indexes[target.axis],))
        indexes[target.axis] = f"(long long){index}"
        return self._text.element(target.view, tuple(indexes))

    def run(self, operation: Map, *, store: bool) -> None:
        """Adds one operation; `store` says whether its result is needed in memory."""
        types = [view.c_type for o in operation.operands for view in views_of(o)[:1]]
        if operation.function in OWN_TYPE:
            c_type = wider(types or ["double"])
        else:
            c_type = wider([*types, operation.writes[0].c_type])
        values = [self.read(operand, c_type) for operand in operation.operands]
        if operation.function == "uniform":
            value = f"uniform({', '.join(values)}, {self._linear})"
        else:
            value = FUNCTIONS[operation.function](*values)
        self.write(operation.out, value, store=store)

    def write(self, target: Target, value: str, *, store: bool) -> None:
        """Makes an expression the value of a target."""
        if isinstance(target, Indexed):
            self._text.line(f"{self._location(target)} = {value};")
            return
        key = key_of(target)
        self._values[key] = self._text.register(target.c_type, f"({target.c_type})({value})")
        self._views[key] = target
        if store:
            self._pending[key] = target
        else:
            self._pending.pop(key, None)

    def store_all(self) -> None:
        """Stores the pending values."""
        for key, target in self._pending.items():
            self._text.line(f"{self._location(target)} = {self._values[key]};")
        self._pending.clear()


def map_kernel(parts: Sequence[tuple[Sequence[Map], Stores]]) -> Launch:
    """The kernel of one or several parts: operations of one shape.

    The parts do not access each other's memory. Each has its own blocks, so that all threads of a
    block do the same work.
    """
    text = KernelText()
    guards = parts[0][0][0].guards
    text.guard(guards)
    blocks = 0
    for operations, stores in parts:
        operations, shape = collapsed(operations)
        size = math.prod(shape)
        check_size(size)
        count = -(-size // THREADS)
        if guards:
            count = min(count, MOST_GUARDED_BLOCKS)
        text.line(f"if (blockIdx.x < {blocks + count}u) {{")
        first = f"(blockIdx.x - {blocks}u) * {THREADS}u + threadIdx.x"
        if count * THREADS < size:
            text.line(f"for (unsigned i = {first}; i < {size}u; i += {count * THREADS}u) {{")
        else:
            text.line(f"const unsigned i = {first};")
            text.line(f"if (i < {size}u) {{")
        chain = Chain(text, text.unravel("i", shape, "i"), "i")
        for number, operation in enumerate(operations):
            chain.run(operation, store=stores(number))
        chain.store_all()
        text.line("}")
        text.line("return;")
        text.line("}")
        blocks += count
    return text.launch((blocks, 1, 1), (THREADS, 1, 1))


def collapsed(operations: Sequence[Map]) -> tuple[Sequence[Map], tuple[int, ...]]:
    """The operations with neighbouring dimensions joined, where all views allow it."""
    shape = operations[0].shape
    if any(operation.is_indexed for operation in operations):
        return operations, shape
    views = [each for op in operations for each in (*op.operands, op.out) if isinstance(each, View)]
    ends = [
        k == len(shape) - 1 or any(v.strides[k] != v.strides[k + 1] * shape[k + 1] for v in views)
        for k in range(len(shape))
    ]
    if all(ends):
        return operations, shape
    sizes = [1]
    for length, is_end in zip(shape, ends, strict=True):
        sizes[-1] *= length
        if is_end:
            sizes.append(1)
    new_shape = tuple(sizes[:-1])

    def joined(view: View) -> View:
        strides = tuple(s for s, is_end in zip(view.strides, ends, strict=True) if is_end)
        return View(view.address, new_shape, strides, view.dtype)

    changed = [
        attrs.evolve(
            op,
            operands=tuple(joined(o) if isinstance(o, View) else o for o in op.operands),
            out=joined(op.out) if isinstance(op.out, View) else op.out,
            shape=new_shape,
        )
        for op in operations
    ]
    return changed, new_shape
