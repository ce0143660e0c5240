"""Whether networks can run on a CUDA device; recipes ask with the exit status.

cuda-compiled         whether the libraries are installed, for which no device is needed
cuda-gpu-available    whether a device computes
"""

from __future__ import annotations

import platform

from nnet3_tools import cli

NOT_INSTALLED = 1


_SIZE = 100
"""Rows and columns of the matrix with which a device is tried."""


_SOFTMAX = f"""
input-node name=input dim={_SIZE}
component name=softmax type=SoftmaxComponent dim={_SIZE}
component-node name=softmax component=softmax input=input
output-node name=output input=softmax
"""


@cli.tool("cuda-compiled")
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


@cli.tool("cuda-gpu-available")
def cuda_gpu_available() -> int:
    """Find a CUDA device, and compute the softmax of a random matrix on it.

    The status is 0 if the device computes, 1 if the libraries for CUDA devices are not installed,
    and 255 if there is no device or it does not compute.
    """
    import nnet3_runtime_cuda
    from nnet3_runtime_cuda.device import check_cuda_libraries, machine_for

    cli.log(f"\n\n### IS CUDA GPU AVAILABLE? '{platform.node()}' ###")
    try:
        check_cuda_libraries()
    except nnet3_runtime_cuda.DeviceError as error:
        cli.say(f"### CUDA WAS NOT COMPILED IN! ###\n{cli.one_line(error)}")
        return NOT_INSTALLED
    try:
        machine_for("cuda")
    except nnet3_runtime_cuda.DeviceError as error:
        cli.say(cli.one_line(error))
        cli.log("...\n### WE DID NOT GET A CUDA GPU!!! ###")
        return cli.FATAL
    cli.say("### HURRAY, WE GOT A CUDA GPU FOR COMPUTATION!!! ##\n")
    cli.say("### Testing CUDA setup with a small computation")
    try:
        _compute()
    except Exception as error:  # of any library, which is what this tool looks for
        cli.say(cli.one_line(error))
        cli.log("...\n### The CUDA setup is wrong!")
        return cli.FATAL
    cli.say("### Test OK!")
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
