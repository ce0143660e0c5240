"""Whether networks can run on a CUDA device; recipes ask with the exit status.

cuda-compiled         whether the libraries are installed, for which no device is needed
cuda-gpu-available    whether a device computes
"""

from __future__ import annotations

import platform

import click

from nnet3_tools.kaldi_command import FATAL, KaldiCommand, log, one_line, run_tool, say

COMPILED, AVAILABLE = "cuda-compiled", "cuda-gpu-available"
NOT_INSTALLED = 1

_SIZE = 100
"""Rows and columns of the matrix with which a device is tried."""

_SOFTMAX = f"""
input-node name=input dim={_SIZE}
component name=softmax type=SoftmaxComponent dim={_SIZE}
component-node name=softmax component=softmax input=input
output-node name=output input=softmax
"""


@click.command(cls=KaldiCommand)
def cuda_compiled() -> int:
    """End with status 0 if the libraries for CUDA devices are installed, else with 1.

    They are CuPy and cuBLASLt. The computer needs no device; cuda-gpu-available looks for one.
    """
    import nnet3_runtime_cuda
    from nnet3_runtime_cuda.device import check_cuda_libraries

    try:
        check_cuda_libraries()
    except nnet3_runtime_cuda.DeviceError:
        return NOT_INSTALLED
    return 0


@click.command(cls=KaldiCommand)
def cuda_gpu_available() -> int:
    """Find a CUDA device, and compute the softmax of a random matrix on it.

    The status is 0 if the device computes, 1 if the libraries for CUDA devices are not installed,
    and 255 if there is no device or it does not compute.
    """
    import nnet3_runtime_cuda
    from nnet3_runtime_cuda.device import check_cuda_libraries, machine_for

    log(AVAILABLE, f"\n\n### IS CUDA GPU AVAILABLE? '{platform.node()}' ###")
    try:
        check_cuda_libraries()
    except nnet3_runtime_cuda.DeviceError as error:
        say(f"### CUDA WAS NOT COMPILED IN! ###\n{one_line(error)}")
        return NOT_INSTALLED
    try:
        machine_for("cuda")
    except nnet3_runtime_cuda.DeviceError as error:
        say(one_line(error))
        log(AVAILABLE, "...\n### WE DID NOT GET A CUDA GPU!!! ###")
        return FATAL
    say("### HURRAY, WE GOT A CUDA GPU FOR COMPUTATION!!! ##\n")
    say("### Testing CUDA setup with a small computation")
    try:
        _compute()
    except Exception as error:  # of any library, which is what this tool looks for
        say(one_line(error))
        log(AVAILABLE, "...\n### The CUDA setup is wrong!")
        return FATAL
    say("### Test OK!")
    return 0


def _compute() -> None:
    """Computes the softmax of a random matrix on a device and on the processor.

    Raises:
        DeviceError: they differ.
        Exception: the device cannot compute.
    """
    import nnet3
    import nnet3_runtime_cuda
    import numpy as np
    from nnet3_descriptors import parse_config

    nnet = parse_config(_SOFTMAX)
    values = np.random.default_rng().normal(size=(_SIZE, _SIZE)).astype(np.float32)
    found, wanted = (nnet3.load(nnet, device=device).compute(values) for device in ("cuda", "cpu"))
    difference = float(np.abs(found - wanted).max())
    if not difference < 1e-4:
        raise nnet3_runtime_cuda.DeviceError(
            f"the softmax differs from the processor's by {difference:g}"
        )


COMMANDS = {COMPILED: cuda_compiled, AVAILABLE: cuda_gpu_available}


def main(tool: str) -> None:
    """The entry point of the tools."""
    run_tool(COMMANDS[tool], tool)
