"""Errors of matrix products on tensor cores, by emulation of their roundings on the processor.

    python benchmarks/split_products.py

Factors are normally distributed. Each way rounds or splits them as tensor cores do; products of a
block of terms are exact, and the sum of each block is added to the result in float32. Those of
fp32x3 are rounded toward zero, as tensor cores do it, and as the runtime's kernel leaves 16 terms
at a time to them; "unguarded" leaves them all terms. Errors are root mean squares, relative to that
of the result in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

TERMS = 32, 320, 1536, 6016, 13000
SIZE = 64
BITS = {"tf32": 10, "bf16": 7}

Floats = npt.NDArray[np.float32]


def rounded(x: Floats, bits: int) -> Floats:
    """The nearest numbers with so many bits of fraction, of two the even one."""
    drop = 23 - bits
    words = x.view(np.uint32).astype(np.uint64)
    words += (1 << (drop - 1)) - 1 + (words >> drop & 1)
    return (words >> drop << drop).astype(np.uint32).view(np.float32)


def parts(x: Floats, bits: int, count: int) -> list[Floats]:
    """Numbers with so many bits of fraction whose sum is nearly x, the largest first."""
    found = []
    for _ in range(count):
        found.append(rounded(x, bits))
        x = x - found[-1]
    return found


def summed(pairs: list[tuple[Floats, Floats]], block: int) -> Floats:
    """The sum of products, block by block of their terms."""
    (first, second), *_ = pairs
    out = np.zeros((len(first), second.shape[1]), np.float32)
    for start in range(0, first.shape[1], block):
        for a, b in pairs:
            terms = slice(start, start + block)
            exact = a[:, terms].astype(np.float64) @ b[terms].astype(np.float64)
            out += exact.astype(np.float32)
    return out


def toward_zero(x: npt.NDArray[np.float64]) -> Floats:
    """The nearest number that is not larger."""
    nearest = x.astype(np.float32)
    return np.where(np.abs(nearest) > np.abs(x), np.nextafter(nearest, np.float32(0)), nearest)


def split_sum(a: Floats, b: Floats, *, guarded: bool) -> Floats:
    """The sum of three products of factors cut in two, for 16 terms after another.

    Args:
        a: (rows, terms).
        b: (terms, columns).
        guarded: Whether tensor cores begin with zero each time.
    """

    def cut(x: Floats) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        big = (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return big.astype(np.float64), rounded(x - big, BITS["tf32"]).astype(np.float64)

    (a0, a1), (b0, b1) = cut(a), cut(b)
    out = np.zeros((len(a), b.shape[1]), np.float32)
    for start in range(0, a.shape[1], 16):
        total = np.zeros_like(out) if guarded else out
        blocks = range(start, min(start + 16, a.shape[1]), 8)
        for (x, y), k in itertools.product([(a1, b0), (a0, b1), (a0, b0)], blocks):
            total = toward_zero(x[:, k : k + 8] @ y[k : k + 8] + total)
        out = out + total if guarded else total
    return out


def products(a: Floats, b: Floats) -> Iterator[tuple[str, Floats]]:
    """The product in each way; small products of parts are added first."""
    yield "fp32", summed([(a, b)], 1)
    (a0, a1, a2), (b0, b1, b2) = (parts(x, BITS["bf16"], 3) for x in (a, b))
    small = [(a2, b2), (a2, b1), (a1, b2), (a2, b0), (a1, b1), (a0, b2)]
    yield "bf16x9", summed([*small, (a1, b0), (a0, b1), (a0, b0)], 16)
    yield "fp32x3", split_sum(a, b, guarded=True)
    yield "unguarded", split_sum(a, b, guarded=False)
    for name, bits in BITS.items():
        yield name, summed([(rounded(a, bits), rounded(b, bits))], 8)


def main() -> None:
    """Prints a row for each number of terms."""
    rng = np.random.default_rng(0)
    for terms in TERMS:
        a = rng.standard_normal((SIZE, terms), dtype=np.float32)
        b = rng.standard_normal((terms, SIZE), dtype=np.float32)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        errors = {name: np.linalg.norm(out - exact) for name, out in products(a, b)}
        scale = np.linalg.norm(exact)
        if terms == TERMS[0]:
            print(f"| terms | {' | '.join(errors)} |\n{'|---' * (len(errors) + 1)}|")
        cells = (f"{error / scale:.1e}" for error in errors.values())
        print(f"| {terms:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
