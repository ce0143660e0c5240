"""Training along the natural gradient ends at Kaldi's parameters."""

import numpy as np
from nnet3_descriptors import Nnet, read_nnet, set_test_mode, vectorize
from nnet3_optimizer import CachingCompiler
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from reference_cases import ReferenceCase, assert_close, computation_request, parametrize_cases


def network(case: ReferenceCase) -> Nnet:
    """The network in the mode in which the case runs."""
    nnet = read_nnet(case.network_path)
    return set_test_mode(nnet) if case.test_mode else nnet


def has_parameters_to_train(case: ReferenceCase) -> bool:
    """Whether training changes anything: derivatives of the model are wanted, and it has some."""
    return case.request.need_model_derivative and "gradient" in case.arrays


def scaled(arrays: dict[str, np.ndarray], factor: float) -> dict[str, np.ndarray]:
    """All arrays times a factor."""
    return {name: array * np.float32(factor) for name, array in arrays.items()}


@parametrize_cases(only=has_parameters_to_train)
def test_four_steps(case: ReferenceCase) -> None:
    """Four steps along the natural gradient end at Kaldi's parameters, within 1e-3."""
    device = DeviceNnet(network(case), trainable=True, natural_gradient=True)
    computation = CachingCompiler(device.nnet).compile(computation_request(case))
    computer = NnetComputer(device, computation)

    for step in range(4):
        computer.forward(scaled(case.node_arrays("input"), 1.0 + 0.1 * step))
        computer.backward(scaled(case.node_arrays("output_deriv"), 1.0 - 0.05 * step))
        device.take_step()

    trained = {"params_after4": vectorize(device.current())}
    assert_close(trained, {"params_after4": case.arrays["params_after4"]}, 1e-3)
    assert not np.array_equal(vectorize(device.nnet), trained["params_after4"])
