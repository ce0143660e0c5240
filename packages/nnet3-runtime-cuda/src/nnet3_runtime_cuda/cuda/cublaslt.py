"""Matrix products by cuBLASLt, called through ctypes.

CuPy refuses its own cuBLAS calls while a stream is being captured, and copies operands whose rows
do not follow one another. A cuBLASLt call takes its stream and its workspace as arguments, any
distance of rows, and a bias to add, so that it can be captured and copies nothing.

Matrices here lie row by row; cuBLASLt reads them column by column. So for out = a b it gets out' =
b' a', which is the same memory.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from ctypes import POINTER, byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64
from ctypes import c_void_p as pointer
from typing import Any

from nnet3_runtime_cuda.cuda.platform import Gemm, Matrix
from nnet3_runtime_cuda.errors import DeviceError

# The numbers of cublasLt.h, library_types.h and cublas_api.h, the same in CUDA 12 and 13.
COMPUTE_TYPE = {
    "fp32": 68,
    "tf32": 77,
    "bf16": 75,
    "bf16x9": 78,  # from cuBLAS 12.9 on
    "fp32x3": 68,  # for products that are not split
}
"""By precision, the rounding of the factors of a product before they are multiplied; sums are
float32. Two round nothing: by bf16x9 each factor is the sum of three of bf16, and nine products are
added; by fp32x3 of two of TF32, and three are added, where `split_products` is faster."""
R_32F = 0
FLOAT_BYTES = 4
OP_TRANSPOSE = 1
POINTERS_ON_DEVICE = 1
STATUS_SUCCESS, STATUS_NOT_SUPPORTED = 0, 15
EPILOGUE_DEFAULT, EPILOGUE_RELU, EPILOGUE_BIAS = 1, 2, 4

# cublasLtMatmulDescAttributes_t: of a product.
POINTER_MODE, TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 2, 3, 4, 7, 8

# cublasLtMatrixLayoutAttribute_t: of a matrix.
BATCH_COUNT, STRIDED_BATCH_OFFSET = 5, 6

# cublasLtMatmulPreferenceAttributes_t: of algorithms; the alignments are those of A, B, C and D.
MAX_WORKSPACE_BYTES, MIN_ALIGNMENTS = 1, (5, 6, 7, 8)

Algorithm = c_uint64 * 8
"""cublasLtMatmulAlgo_t."""


class HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (POINTER(pointer),),
    "cublasLtDestroy": (pointer,),
    "cublasLtMatmulDescCreate": (POINTER(pointer), c_int, c_int),
    "cublasLtMatmulDescDestroy": (pointer,),
    "cublasLtMatmulDescSetAttribute": (pointer, c_int, pointer, c_size_t),
    "cublasLtMatrixLayoutCreate": (POINTER(pointer), c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutDestroy": (pointer,),
    "cublasLtMatrixLayoutSetAttribute": (pointer, c_int, pointer, c_size_t),
    "cublasLtMatmulPreferenceCreate": (POINTER(pointer),),
    "cublasLtMatmulPreferenceDestroy": (pointer,),
    "cublasLtMatmulPreferenceSetAttribute": (pointer, c_int, pointer, c_size_t),
    "cublasLtMatmulAlgoGetHeuristic": (
        *[pointer] * 7,
        *(c_int, POINTER(HeuristicResult), POINTER(c_int)),
    ),
    "cublasLtMatmul": (*[pointer] * 12, *(POINTER(Algorithm), pointer, c_size_t, pointer)),
}


class CublasLtError(DeviceError):
    """A call of cuBLASLt failed.

    Attributes:
        status: A cublasStatus_t.
    """

    def __init__(self, function: str, status: int, name: str) -> None:
        super().__init__(f"{function} failed with status {status} ({name})")
        self.status = status


class Library:
    """libcublasLt: its functions by name, which raise a CublasLtError when they fail."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.cublasLtGetStatusName.argtypes = (c_int,)
        library.cublasLtGetStatusName.restype = ctypes.c_char_p
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = c_int

    def call(self, name: str, *arguments: object) -> None:
        """Calls a function.

        Raises:
            CublasLtError: its status is not CUBLAS_STATUS_SUCCESS.
        """
        status: int = getattr(self._library, name)(*arguments)
        if status != STATUS_SUCCESS:
            text: bytes = self._library.cublasLtGetStatusName(status)
            raise CublasLtError(name, status, text.decode())

    def create(self, kind: str, *arguments: object) -> Handle:
        """An object of the library: cublasLt<kind>Create."""
        handle = Handle()
        handle.library, handle.kind = self, kind
        self.call(f"cublasLt{kind}Create", byref(handle), *arguments)
        destroy = weakref.finalize(handle, self.call, f"cublasLt{kind}Destroy", handle.value)
        destroy.atexit = False  # the driver may be gone by then
        return handle


class Handle(pointer):
    """The address of an object of the library, destroyed with the last reference to this one.

    Attributes:
        library: The library.
        kind: As the names of its functions have it: "MatmulDesc".
    """

    library: Library
    kind: str

    def set(self, attribute: int, value: Any) -> None:
        """Sets an attribute to a ctypes value, whose size must be that of the attribute."""
        name = f"cublasLt{self.kind}SetAttribute"
        self.library.call(name, self, attribute, byref(value), ctypes.sizeof(value))


class CublasLt:
    """cuBLASLt on the device that is current when it is made.

    Raises:
        CublasLtError: there is no device or no driver (CUBLAS_STATUS_NOT_INITIALIZED).
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = Library(library)
        self._context = self._library.create("")
        self._choices: dict[tuple[object, ...], HeuristicResult] = {}

    def bind(
        self, gemm: Gemm, *, precision: str = "fp32", max_workspace_bytes: int = 0, beta_at: int = 0
    ) -> tuple[int, Callable[[int, int], None]]:
        """Binds a product and chooses its algorithm, the same for products of the same form.

        Args:
            gemm: The product.
            precision: Of the factors; see `COMPUTE_TYPE`.
            max_workspace_bytes: Algorithms that need more are not chosen.
            beta_at: If alpha is on the device, the address of beta there.

        Returns:
            The bytes of workspace that it needs while it runs, and a call that queues it, of the
            addresses of the workspace and of a stream, which raises a CublasLtError if it cannot.

        Raises:
            CublasLtError: there is no algorithm for it (CUBLAS_STATUS_NOT_SUPPORTED), or the
                arguments contradict each other.
        """
        description = self._describe(gemm, precision)
        size = gemm.rows, gemm.columns
        shapes = ((gemm.inner, gemm.columns), (gemm.rows, gemm.inner), size, size)
        layouts = [
            self._layout(matrix, shape, gemm.batch)
            for matrix, shape in zip(_operands(gemm), shapes, strict=True)
        ]
        handles = (self._context, description, *layouts)
        form = _form(gemm), precision, max_workspace_bytes
        if form not in self._choices:
            self._choices[form] = self._choose(handles, gemm, max_workspace_bytes)
        choice = self._choices[form]
        if gemm.alpha_at:
            factors: list[Any] = [pointer(gemm.alpha_at), pointer(beta_at)]
        else:
            factors = [byref(c_float(gemm.alpha)), byref(c_float(gemm.beta))]
        b, a, addend, out = (
            (operand.address, layout)
            for operand, layout in zip(_operands(gemm), layouts, strict=True)
        )
        arguments = (
            *(self._context, description, factors[0], *b, *a, factors[1], *addend, *out),
            byref(choice.algorithm),
        )
        call, needed = self._library.call, choice.workspace_bytes

        def run(workspace: int, stream: int) -> None:
            call("cublasLtMatmul", *arguments, workspace, needed, stream)

        return needed, run

    def _describe(self, gemm: Gemm, precision: str) -> Handle:
        description = self._library.create("MatmulDesc", COMPUTE_TYPE[precision], R_32F)
        if gemm.b.transposed:
            description.set(TRANSA, c_int32(OP_TRANSPOSE))
        if gemm.a.transposed:
            description.set(TRANSB, c_int32(OP_TRANSPOSE))
        if gemm.alpha_at:
            description.set(POINTER_MODE, c_int32(POINTERS_ON_DEVICE))
        epilogue = (EPILOGUE_BIAS if gemm.bias else 0) | (EPILOGUE_RELU if gemm.relu else 0)
        if epilogue:
            description.set(EPILOGUE, c_uint32(epilogue))
        if gemm.bias:
            description.set(BIAS_POINTER, pointer(gemm.bias))
        return description

    def _layout(self, matrix: Matrix, shape: tuple[int, int], batch: int) -> Handle:
        rows, columns = reversed(shape) if matrix.transposed else shape
        layout = self._library.create("MatrixLayout", R_32F, columns, rows, matrix.stride)
        if batch > 1:
            layout.set(BATCH_COUNT, c_int32(batch))
            layout.set(STRIDED_BATCH_OFFSET, c_int64(matrix.batch_stride))
        return layout

    def _choose(
        self, handles: tuple[Handle, ...], gemm: Gemm, max_workspace_bytes: int
    ) -> HeuristicResult:
        """The algorithm that the library expects to be the fastest."""
        preference = self._library.create("MatmulPreference")
        preference.set(MAX_WORKSPACE_BYTES, c_uint64(max_workspace_bytes))
        for attribute, alignment in zip(MIN_ALIGNMENTS, _alignments(gemm), strict=True):
            preference.set(attribute, c_uint32(alignment))
        result, found = HeuristicResult(), c_int(0)
        name = "cublasLtMatmulAlgoGetHeuristic"
        self._library.call(name, *handles, preference, 1, byref(result), byref(found))
        if found.value < 1 or result.state != STATUS_SUCCESS:
            raise CublasLtError(name, STATUS_NOT_SUPPORTED, "no algorithm for this product")
        return result


def _operands(gemm: Gemm) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """The operands that cuBLASLt calls A, B, C and D."""
    return gemm.b, gemm.a, gemm.addend or gemm.out, gemm.out


def _alignments(gemm: Gemm) -> tuple[int, int, int, int]:
    """For each operand the largest power of two that its matrices' addresses are multiples of.

    The bias has no such attribute; algorithms may read it as they write the output.
    """
    b, a, addend, out = (_alignment(m.address, m.batch_stride) for m in _operands(gemm))
    return b, a, addend, min(out, _alignment(gemm.bias)) if gemm.bias else out


def _alignment(address: int, batch_stride: int = 0) -> int:
    """The alignment, at most the largest that the library asks for."""
    together = address | batch_stride * FLOAT_BYTES
    return min(together & -together, 256)


def _form(gemm: Gemm) -> tuple[object, ...]:
    """Everything that the choice of an algorithm may depend on."""
    operands = tuple((m.stride, m.transposed, m.batch_stride) for m in _operands(gemm))
    sizes = gemm.rows, gemm.columns, gemm.inner, gemm.batch
    in_place = gemm.addend is None or gemm.addend == gemm.out
    kind = bool(gemm.alpha_at), gemm.beta == 0.0, in_place, bool(gemm.bias), gemm.relu
    return sizes, kind, operands, _alignments(gemm)


# ---- the end of a product that cuBLASLt cannot do ----

ENDING = "add_bias_and_rectify"
"""The name of the kernel in `ending_source`."""

ENDING_THREADS = 256

_ENDING = """
extern "C" __global__ void {name}(float* out, const float* bias) {{
  const long long element = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (element >= {size}LL) return;
  const long long column = element % {columns}LL, row = element / {columns}LL;
  const long long place = row / {rows}LL * {batch_stride}LL + row % {rows}LL * {stride}LL + column;
  float value = out[place] + {bias};
  {rectify}
  out[place] = value;
}}
"""


def ending_source(gemm: Gemm) -> str:
    """A kernel `ENDING(out, bias)` that adds the bias of a product, and rectifies if it says so."""
    return _ENDING.format(
        name=ENDING,
        size=gemm.batch * gemm.rows * gemm.columns,
        rows=gemm.rows,
        columns=gemm.columns,
        stride=gemm.out.stride,
        batch_stride=gemm.out.batch_stride,
        bias="bias[column]" if gemm.bias else "0.0f",
        rectify="value = value > 0.0f ? value : 0.0f;" if gemm.relu else "",
    )


def ending_grid(gemm: Gemm) -> tuple[int, int, int]:
    """The number of blocks of `ENDING_THREADS` that cover the result."""
    return -(-gemm.batch * gemm.rows * gemm.columns // ENDING_THREADS), 1, 1
