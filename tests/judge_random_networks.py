"""Judges any number of random networks: see `judging`.

`python tests/judge_random_networks.py --count 100000 --first-seed 10000000 --processes 2` prints
each disagreement with the command that repeats it, and at the end their number. With
`--first-seed N --count 1` it judges one network again. With `--device cuda` it judges a CUDA
device, with `--device host` the kernels of the CUDA runtime, built for the processor, and with
`--device strict` also every access of theirs to memory. With `--precision fp32x3` the products of
these two are those of split factors.
"""

from __future__ import annotations

import functools
import sys
import traceback
from functools import partial

import package_tests  # noqa: F401  the helpers of the packages
import threadpoolctl
from emulated_device import HostPlatform
from judged_cases import case_of_seed
from judged_seeds import Judged, command_line, judge_seeds
from judging import BF16, FP32, FP64, Device, judge
from nnet3_runtime_cuda.cpu import bf16, products

HOST, STRICT = "host", "strict"
FP32X3 = "fp32x3"


@functools.cache
def opened(device: str, *, split: bool) -> Device:
    """The device of a name; "host" and "strict" are the processor in the place of a CUDA device."""
    if device in (HOST, STRICT):
        return HostPlatform(strict=device == STRICT, split=split)
    return device


def judged(seed: int, precision: str = FP32, device: str = "cpu") -> Judged:
    """The verdict on the case of a seed; any error is part of it."""
    kinds, details, is_skipped = frozenset[str](), "", False
    try:
        case = case_of_seed(seed)
        kinds, details = case.kinds | {case.form}, f"{case.options}\n{case.config}\n"
        split = precision == FP32X3  # as exact as FP32, and judged like it
        verdict = judge(case, FP32 if split else precision, opened(device, split=split))
        problem, is_skipped = verdict.problem, verdict.is_skipped
    except Exception:  # a defect, reported like the others
        problem = traceback.format_exc()
    if problem:
        problem = f"seed {seed}:\n{problem}\n{details}"
    return Judged(problem, kinds, is_skipped=is_skipped)


def main() -> int:
    """Judges the networks that the command line asks for; returns the exit status."""
    parser = command_line(__doc__)
    parser.add_argument("--precision", choices=[FP32, FP64, BF16, FP32X3], default=FP32)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:<number>, host, strict")
    arguments = parser.parse_args()
    if arguments.precision == FP32X3 and arguments.device not in (HOST, STRICT):
        parser.error("--precision=fp32x3 needs --device=host or --device=strict")
    if arguments.precision == BF16 and bf16.missing():
        print(f"bf16 needs {bf16.missing()}: nothing is judged")
        return 0
    print(f"products: {products.library_name()}; {threadpoolctl.threadpool_info()}")
    print(f"{arguments.count} networks from seed {arguments.first_seed} on", flush=True)
    judge_one = partial(judged, precision=arguments.precision, device=arguments.device)
    return judge_seeds(judge_one, arguments)


if __name__ == "__main__":
    sys.exit(main())
