"""Products for tests of split factors, on the processor and on a device."""

from __future__ import annotations

import math

import attrs
import numpy as np
from emulated_device import tiling_in_parts
from nnet3_runtime_cuda.cuda.platform import Gemm, Matrix, Platform
from nnet3_runtime_cuda.cuda.split_products import bind, workspace_bytes

H200 = 132, 32 << 20
"""Multiprocessors, and bytes of working memory."""


@attrs.frozen(kw_only=True)
class Product:
    """A product for a test: its sizes, and what `Gemm` can have beside.

    Attributes:
        sizes: Rows, columns, terms.
        transposed: Whether the factors lie transposed.
        gaps: Numbers between rows of the factors, the addend and the output.
        offset: Numbers before each matrix.
        scales: Alpha and beta.
        batch: Number of products.
        bias: Whether a bias is added.
        relu: Whether the result is rectified.
        alpha_there: Whether alpha is on the device.
        in_place: Whether the addend is the output.
        parts: The number of parts of the terms.
    """

    sizes: tuple[int, int, int] = (70, 50, 40)
    transposed: tuple[bool, bool] = (False, False)
    gaps: tuple[int, int, int, int] = (0, 0, 0, 0)
    offset: int = 0
    scales: tuple[float, float] = (1.0, 0.0)
    batch: int = 1
    bias: bool = False
    relu: bool = False
    alpha_there: bool = False
    in_place: bool = True
    parts: int = 1


PRODUCTS = {
    "plain": Product(),
    "second transposed": Product(transposed=(False, True)),
    "first transposed": Product(transposed=(True, False), sizes=(72, 52, 40)),
    "both transposed": Product(transposed=(True, True), sizes=(72, 50, 40)),
    "rows with odd gaps": Product(gaps=(3,) * 4, scales=(1.0, 1.0)),
    "several tiles": Product(sizes=(132, 72, 33), gaps=(4,) * 4, bias=True, relu=True),
    "wide": Product(sizes=(5, 130, 19), scales=(-0.5, 0.25), in_place=False, gaps=(1,) * 4),
    "one term": Product(sizes=(64, 128, 1), bias=True),
    "few elements": Product(sizes=(2, 3, 40)),
    "batch": Product(batch=3, alpha_there=True, transposed=(False, True), bias=True, gaps=(2,) * 4),
    "in parts": Product(parts=3, sizes=(40, 36, 90), transposed=(True, False)),
    "batch in parts": Product(
        parts=2, batch=2, sizes=(9, 7, 50), scales=(2.0, 1.0), bias=True, relu=True, in_place=False
    ),
}


def factors(product: Product, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Normally distributed factors, (batch, rows, terms) and (batch, terms, columns)."""
    rows, columns, terms = product.sizes
    a = rng.standard_normal((product.batch, rows, terms), dtype=np.float32)
    return a, rng.standard_normal((product.batch, terms, columns), dtype=np.float32)


def placed(
    product: Product, a: np.ndarray, b: np.ndarray, platform: Platform
) -> tuple[Gemm, np.ndarray]:
    """The product of factors in memory, and its values in float64, (batch, rows, columns)."""
    rng = np.random.default_rng(1)
    rows, columns, terms = product.sizes

    def upload(values: np.ndarray) -> int:
        address = platform.allocate(values.nbytes)
        platform.upload(address, values)
        return address

    def matrix(values: np.ndarray, gap: int, *, transposed: bool = False) -> Matrix:
        lying = values.transpose(0, 2, 1) if transposed else values
        batch, lines, length = lying.shape
        stride = length + gap
        memory = np.full(product.offset + batch * lines * stride, np.nan, dtype=np.float32)
        memory[product.offset :].reshape(batch, lines, stride)[..., :length] = lying
        return Matrix(
            address=upload(memory) + 4 * product.offset,
            stride=stride,
            transposed=transposed,
            batch_stride=lines * stride if batch > 1 else 0,
        )

    (alpha, beta), vector = product.scales, rng.standard_normal(columns, dtype=np.float32)
    addend = rng.standard_normal((product.batch, rows, columns), dtype=np.float32)
    start = addend if beta and product.in_place else np.full_like(addend, np.nan)
    gemm = Gemm(
        rows=rows,
        columns=columns,
        inner=terms,
        a=matrix(a, product.gaps[0], transposed=product.transposed[0]),
        b=matrix(b, product.gaps[1], transposed=product.transposed[1]),
        out=matrix(start, product.gaps[3]),
        alpha=np.nan if product.alpha_there else alpha,
        alpha_at=upload(np.array([alpha], dtype=np.float32)) if product.alpha_there else 0,
        beta=beta,
        addend=matrix(addend, product.gaps[2]) if beta and not product.in_place else None,
        bias=upload(vector) if product.bias else 0,
        relu=product.relu,
        batch=product.batch,
    )
    expected = alpha * (a.astype(np.float64) @ b.astype(np.float64))
    expected += beta * addend if beta else 0.0
    expected += vector if product.bias else 0.0
    return gemm, np.maximum(expected, 0.0) if product.relu else expected


def result(product: Product, gemm: Gemm, platform: Platform) -> np.ndarray:
    """The output, (batch, rows, columns)."""
    shape = (product.batch, gemm.rows, gemm.out.stride)
    memory = np.zeros(product.offset + math.prod(shape), dtype=np.float32)
    platform.download(gemm.out.address - 4 * product.offset, memory)
    before, found = memory[: product.offset], memory[product.offset :].reshape(shape)
    assert np.isnan(before).all()
    assert np.isnan(found[..., gemm.columns :]).all(), "gaps stay unchanged"
    return found[..., : gemm.columns]


def run(
    product: Product, a: np.ndarray, b: np.ndarray, platform: Platform
) -> tuple[np.ndarray, np.ndarray]:
    """The output of the kernels and of float64, (batch, rows, columns)."""
    gemm, expected = placed(product, a, b, platform)
    plan = tiling_in_parts(gemm, product.parts)
    assert plan.parts == product.parts
    workspace = platform.allocate(max(workspace_bytes(gemm, plan), 4))
    bind(gemm, plan, platform.build, platform.launch, lambda: workspace)()
    return result(product, gemm, platform), expected


def off(found: np.ndarray, expected: np.ndarray) -> float:
    """The root of the mean square of the differences, relative to that of what is expected."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
