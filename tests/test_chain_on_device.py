"""The objective of chain models on arrays of CuPy, for which a stand-in is used here.

On a CUDA device the same is tested in `test_gpu.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_cases import denominator, end_to_end, supervision
from chain_reference import chain_case, check_result, parametrize_chain_cases
from emulated_device import compiler
from nnet3_descriptors import parse_config, read_nnet, vectorize
from nnet3_training import (
    ChainObjective,
    ChainOptions,
    ChainTraining,
    Trainer,
    TrainerOptions,
    compute_chain_prob,
    minibatches,
    read_chain_examples,
)
from reference_cases import CHAIN_REFERENCE
from stand_in_cupy import (
    EMPTY,
    FUNCTIONS,
    METHODS,
    HostWithArrays,
    StandIn,
    Traffic,
    asarray,
    asnumpy,
    install,
)

DIGITS = CHAIN_REFERENCE / "digits"
PDFS = 5
OPTIONS = ChainOptions(leaky_hmm_coefficient=0.1, l2_regularize=0.01, xent_regularize=0.1)
SINGLE, DOUBLE = 4, 8


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    """The stand-in in the place of CuPy."""
    return install(monkeypatch)


def test_stand_in_refuses_what_cupy_refuses(traffic: Traffic) -> None:
    """Arrays of NumPy do not mix with arrays on the device, and moves are counted."""
    here, there = np.ones(3, dtype=np.float32), asarray(np.ones(3, dtype=np.float32))
    for mix in (
        lambda: here + there,
        lambda: there + here,
        lambda: np.exp(there),
        lambda: np.asarray(there),
        lambda: there[np.array([0])],
        lambda: there.__setitem__(0, here[:1]),
    ):
        with pytest.raises(TypeError):
            mix()
    assert float((2.0 * there).sum()) == 6.0
    assert (traffic.to_device, traffic.to_host) == ([3 * SINGLE], [SINGLE])


def test_stand_in_has_nothing_of_its_own() -> None:
    """CuPy has everything that the stand-in offers (`nox -s cupy` installs CuPy)."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    sparse = pytest.importorskip("cupyx.scipy.sparse", reason="CuPy is not installed")
    assert [name for name in (*FUNCTIONS, *EMPTY) if not hasattr(cupy, name)] == []
    assert [name for name in METHODS if not hasattr(cupy.ndarray, name)] == []
    operators = {name for name in vars(StandIn) if name.startswith("__")}
    assert operators <= set(dir(cupy.ndarray)) | {"__dict__", "__weakref__"}
    assert "take(self, indices, axis=None, out=None)" in cupy.ndarray.take.__doc__
    assert hasattr(sparse.csr_matrix, "__matmul__")


def on_device(result: Any) -> tuple[np.ndarray, np.ndarray]:
    """The derivatives of a result, as arrays on the device."""
    assert isinstance(result.derivative, StandIn)
    assert isinstance(result.xent_derivative, StandIn)
    return result.derivative.held, result.xent_derivative.held


@parametrize_chain_cases
def test_reference_cases(traffic: Traffic, folder: Path) -> None:
    """Figures and derivatives are Kaldi's, within 1e-6 and 1e-5 of the largest."""
    case, chain, known, output = chain_case(folder)

    check_result(chain.compute(known, asarray(output)), case, folder, 1e-5, to_host=asnumpy)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", [supervision, end_to_end])
def test_what_is_moved(traffic: Traffic, make: Any, dtype: type) -> None:
    """A minibatch moves only the elements that the numerator reads, their posteriors, and numbers.

    The graph goes to the device with the first minibatch, and stays there.
    """
    rng = np.random.default_rng(0)
    known, graph = make(rng), denominator(rng)
    here, there = (ChainObjective(graph, OPTIONS, num_pdfs=PDFS) for _ in range(2))
    output = 20.0 * rng.standard_normal((12, PDFS)).astype(dtype)  # some are out of range
    moved = asarray(output)
    there.compute(known, moved)
    assert len(traffic.to_device) > 10
    traffic.clear()

    found, wanted = there.compute(known, moved), here.compute(known, output)

    read = len(np.flatnonzero(wanted.xent_derivative))
    places, elements = traffic.to_device
    assert places == DOUBLE * elements / output.itemsize
    assert read <= elements / output.itemsize < output.size
    assert traffic.to_host == [2 * DOUBLE, elements, 3 * DOUBLE]
    assert found.objective == pytest.approx(wanted.objective, rel=1e-6)
    assert found.l2_term == pytest.approx(wanted.l2_term, rel=1e-6)
    pairs = zip(on_device(found), (wanted.derivative, wanted.xent_derivative), strict=True)
    for mine, yours in pairs:
        assert mine.dtype == dtype
        np.testing.assert_allclose(mine, yours, rtol=1e-5, atol=1e-6)


def test_failure(traffic: Traffic) -> None:
    """An objective that is not finite is -10 per frame, with derivatives of 0 on the device."""
    rng = np.random.default_rng(1)
    chain = ChainObjective(denominator(rng), OPTIONS, num_pdfs=PDFS)
    output = asarray(np.full((12, PDFS), np.nan, dtype=np.float32))

    result = chain.compute(supervision(rng), output)

    assert not result.is_sound
    assert result.objective == -10.0 * result.weight
    assert not any(each.any() for each in on_device(result))


CONFIG = """
input-node name=input dim=23
component name=affine type=NaturalGradientAffineComponent input-dim=23 output-dim=62
component name=xent type=NaturalGradientAffineComponent input-dim=23 output-dim=62
component name=softmax type=LogSoftmaxComponent dim=62
component-node name=affine component=affine input=input
component-node name=xent component=xent input=input
component-node name=softmax component=softmax input=xent
output-node name=output input=affine
output-node name=output-xent input=softmax
"""


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler to build kernels with")
def test_trainer(traffic: Traffic) -> None:
    """A trainer leaves outputs and derivatives on the device, and trains as on the processor.

    A minibatch moves its features and frame weights there, and the values of `test_what_is_moved`.
    """
    nnet = parse_config(CONFIG, rng=np.random.default_rng(0))
    options = TrainerOptions(learning_rate=0.001, momentum=0.5)
    examples = list(minibatches(read_chain_examples(DIGITS / "cegs8.ark"), 4))
    assert len(examples) == 2
    trainers = {}
    for name, device in (("here", "cpu"), ("there", HostWithArrays())):
        training = ChainTraining(nnet, DIGITS / "den.fst", OPTIONS)
        trainers[name] = Trainer(nnet, options, device, objective=training)
    for example in [*examples, *examples]:
        wanted = trainers["here"].train_minibatch(example)
        traffic.clear()
        found = trainers["there"].train_minibatch(example)
        for output in ("output", "output-xent"):
            # 3e-6 with OpenBLAS's kernels for AVX-512: rounding of the steps before.
            assert found[output].total == pytest.approx(wanted[output].total, rel=1e-4)
    to_device, to_host = list(traffic.to_device), list(traffic.to_host)
    before, after = vectorize(nnet), vectorize(trainers["here"].nnet)
    change = np.abs(after - before).max()
    np.testing.assert_allclose(vectorize(trainers["there"].nnet), after, atol=1e-4 * change)

    [features] = (io.values for io in example.inputs)
    rows = example.outputs[0].supervision.num_frames
    elements = to_device[2]
    assert to_device[:4] == [features.nbytes, 2 * elements, elements, SINGLE * rows]
    assert to_host[:4] == [2 * DOUBLE, elements, 3 * DOUBLE, DOUBLE]
    # The outputs would be the largest; steps along the natural gradient move smaller arrays.
    assert max(elements, *to_device[4:], *to_host[4:]) < SINGLE * rows * 62


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler to build kernels with")
def test_evaluation(traffic: Traffic) -> None:
    """An evaluation leaves outputs on the device, too, and finds Kaldi's objective."""
    nnet = read_nnet(DIGITS / "initial.raw")
    options = ChainOptions(leaky_hmm_coefficient=0.1, l2_regularize=0.00005, xent_regularize=0.1)
    training = ChainTraining(nnet, DIGITS / "den.fst", options)

    sums = compute_chain_prob(
        nnet, training, read_chain_examples(DIGITS / "cegs8.ark"), HostWithArrays()
    )

    log = (DIGITS / "prob.initial.log").read_text()
    for name, each in sums.items():
        printed = log.partition(f"log-probability for '{name}' is ")[2].split()[0]
        assert each.per_frame == pytest.approx(float(printed), rel=1e-5)
