"""Statistics of activations, and self-repair by them: those of the definition.

Both leave out minibatches at random; in these tests they use all or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from computations import compiled
from nnet3_descriptors import vectorize
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.kernels import Kernel
from nnet3_runtime_reference import Draws, ReferenceComputer
from small_networks import network, stacked

TIMES = range(6)
ROWS = 2 * len(TIMES)

REPAIR = "self-repair-scale=0.01"
LSTM = (
    "LstmNonlinearity cell-dim=3 tanh-self-repair-threshold=0.3 "
    f"sigmoid-self-repair-threshold=0.1 {REPAIR}"
)
GATES = [1, 99, 1, 99, 1, 1, 1, 1, 99, 1, 99, 1, 1, 1, 99]
CLIPPED = (
    "ClipGradient dim=5 norm-based-clipping=true clipping-threshold=2 self-repair-target=0.5 "
    f"self-repair-clipped-proportion-threshold=0.1 {REPAIR}"
)
TRUNCATED = (
    "BackpropTruncation dim=5 scale=0.5 clipping-threshold=1 zeroing-threshold=1.2 "
    "zeroing-interval=3 recurrence-interval=1"
)
ATTENTION = (
    "RestrictedAttention num-heads=2 key-dim=2 value-dim=1 num-left-inputs=1 num-right-inputs=1 "
    "num-left-inputs-required=0 num-right-inputs-required=0 output-context=true"
)
COMPONENTS: dict[str, tuple[str, list[float], Sequence[float]]] = {
    "sigmoid": (f"Sigmoid dim=5 {REPAIR}", [1, 300, 5, 4, 8], [0, 0, 0, -12, 0]),
    "tanh": (f"Tanh dim=5 {REPAIR}", [1, 300, 5, 4, 8], [0, 0, 0, -12, 0]),
    "rectifier": (f"RectifiedLinear dim=5 {REPAIR}", [1, 1, 1, 5, 4], [0, 9, -9, 0, -12]),
    # On average over the blocks, units of the first column are active often enough.
    "blocks": (f"RectifiedLinear dim=4 block-dim=2 {REPAIR}", [1] * 4, [0, -9, -9, -9]),
    "softmax": ("Softmax dim=4", [1, 2, 3, 4], [0]),
    "lstm": (LSTM, GATES, [0]),
    "lstm with scales": (f"{LSTM} use-dropout=true", [*GATES, 1, 1, 1], [0]),
    "gru": (f"GruNonlinearity cell-dim=4 {REPAIR}", [*[1] * 8, 99, 1, 99, 1, *[1] * 4], [0]),
    "projected gru": (
        f"GruNonlinearity cell-dim=4 recurrent-dim=2 {REPAIR}",
        [*[1] * 6, 99, 1, 99, 1, *[1] * 6],
        [0],
    ),
    "output gru": (
        f"OutputGruNonlinearity cell-dim=4 {REPAIR}",
        [*[1] * 4, 99, 1, 99, 1, *[1] * 4],
        [0],
    ),
    "clipped rows": (CLIPPED, [1, 2, 3, 4, 5], [0]),
    "clipped elements": ("ClipGradient dim=5 clipping-threshold=0.5", [1] * 5, [0]),
    "nothing passes": ("ClipGradient dim=5 clipping-threshold=0", [1] * 5, [0]),
    "truncation": (TRUNCATED, [1] * 5, [0]),
    "attention": (ATTENTION, [2] * 16, [0]),
}
"""A component, and standard deviations and means of its input's columns; large ones saturate."""


def results(computer: NnetComputer | ReferenceComputer, x: np.ndarray) -> dict[str, Any]:
    """Derivatives and gradient of the second of two minibatches, and the statistics of both."""
    rng, found = np.random.default_rng(7), {}
    for factor in (1.0, 0.7):
        outputs = computer.forward({"input": factor * x})["output"]
        derivative = rng.standard_normal(outputs.shape)
        found["input derivative"] = computer.backward({"output": derivative})["input"]
    found["gradient"] = vectorize(computer.gradient)
    after = computer.nnet.component("c")
    statistics = {spec.name: getattr(after, spec.name) for spec in after.FIELDS}
    found |= {
        name: value
        for name, value in statistics.items()
        if name not in after.parameters and isinstance(value, np.ndarray | float)
    }
    return found


@pytest.mark.parametrize("chance", [True, False])
@pytest.mark.parametrize("name", COMPONENTS)
def test_statistics_and_repair(name: str, chance: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of saturated units are pushed back, by statistics that are those of the definition."""
    for kind in (Kernel, Draws):
        monkeypatch.setattr(kind, "chance", lambda *_: chance)
    options, deviations, means = COMPONENTS[name]
    dim, without_repair = len(deviations), options.replace(REPAIR, "self-repair-scale=0")
    nnet, unrepaired = (network(stacked(dim, f"c {each}")) for each in (options, without_repair))
    x = np.random.default_rng(3).standard_normal((ROWS, dim)) * deviations + means
    computation = compiled(nnet, TIMES)

    found, expected, without = (
        results(computer, x)
        for computer in (
            NnetComputer(DeviceNnet(nnet, trainable=True, dtype=np.float64), computation),
            ReferenceComputer(nnet, computation),
            ReferenceComputer(unrepaired, computation),
        )
    )

    assert found.keys() == expected.keys()
    for what, value in expected.items():
        np.testing.assert_allclose(found[what], value, rtol=1e-6, atol=1e-9, err_msg=what)
    is_repaired = REPAIR in options and (chance or "Lstm" in options)
    changes = np.abs(expected["input derivative"] - without["input derivative"]).max()
    assert (changes > 0.001) == is_repaired
