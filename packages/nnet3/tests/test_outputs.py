"""Outputs other than 'output', scores made of outputs, and options by name."""

from __future__ import annotations

import numpy as np
import small_networks
from model_cases import assert_same, frames
from nnet3 import Model, load
from nnet3_descriptors import Nnet
from small_networks import stacked

TWO_OUTPUTS = stacked(
    4,
    "bottleneck Linear input-dim=8 output-dim=2",
    "relu RectifiedLinear dim=2",
    "chain Affine input-dim=4 output-dim=3 input=Append(relu, Offset(relu, 3))",
    "xent Affine input-dim=2 output-dim=3 input=relu",
    "log-softmax LogSoftmax dim=3",
    splice="Append(Offset(input, -1), input)",
).replace("name=output ", "name=output-xent ")
TWO_OUTPUTS += "dim-range-node name=half input-node=relu dim-offset=1 dim=1\n"
TWO_OUTPUTS += "output-node name=output input=chain\n"

POOLING = stacked(
    4,
    "extract StatisticsExtraction input-dim=4",
    "pool StatisticsPooling input-dim=9 left-context=0 right-context=10000 output-stddevs=true",
    "embedding Linear input-dim=8 output-dim=3",
    "scores Linear input-dim=3 output-dim=5",
)


def network(config: str = TWO_OUTPUTS) -> Nnet:
    """A network with random parameters."""
    return small_networks.network(config, seed=3)


def bottleneck_of(model: Model, x: np.ndarray) -> np.ndarray:
    """The values of the node 'bottleneck', by its formula."""
    before = np.concatenate([x[:1], x[:-1]])
    return np.hstack([before, x]) @ model.nnet.component("bottleneck").params.T


def log_softmax(rows: np.ndarray) -> np.ndarray:
    """The log-softmax of rows, in double precision."""
    rows = rows.astype(np.float64)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def test_nodes_as_outputs() -> None:
    """Each kind of node can be the output, and has its own values."""
    model = Model(network())
    bottleneck = bottleneck_of(model, frames(70))
    relu = np.maximum(bottleneck, 0.0)
    xent = model.nnet.component("xent")
    expected = {
        "bottleneck": bottleneck,
        "relu": relu,
        "half": relu[:, 1:],
        "output-xent": log_softmax(relu @ xent.linear_params.T + xent.bias_params),
    }

    for name, values in expected.items():
        found = model.compute(frames(70), output=name)
        assert_same(found, values, 1e-4)
    np.testing.assert_array_equal(
        model.compute(frames(70), output="output"), model.compute(frames(70))
    )


def test_options_of_other_outputs() -> None:
    """Chunks, several utterances, streams and threads are as for the output itself."""
    model = load(network(), threads=2)
    wanted = model.compute(frames(70), output="relu")
    options = {"output": "relu", "frame_subsampling_factor": 3}
    [(key, many)] = model.compute_many([("a", frames(70))], **options)
    stream = model.stream(**options)

    assert_same(model.compute(frames(70), frames_per_chunk=12, **options), wanted[::3])
    assert_same(many, wanted[::3])
    assert_same(np.concatenate([stream.push(frames(70)), stream.finish()]), wanted[::3])
    assert key == "a"
    assert len(model.compute([frames(70), frames(5)], **options)) == 2
    assert model.compile_seconds > model._of_output("output-xent").compile_seconds == 0.0


def test_the_output_of_a_model() -> None:
    """A model may be made for another output; it has that output's dimension and context."""
    model = load(network(), output="bottleneck")

    assert (model.output, model.output_dim) == ("bottleneck", 2)
    assert (model.left_context, model.right_context) == (1, 0)
    assert_same(model.compute(frames(70)), bottleneck_of(model, frames(70)), 1e-4)
    np.testing.assert_array_equal(
        model.compute(frames(70), output="output"), Model(network()).compute(frames(70))
    )


def test_a_network_without_the_usual_output() -> None:
    """It can be computed if its output is named."""
    without = network(TWO_OUTPUTS.replace("output-node name=output input=chain", ""))

    assert Model(without, output="output-xent").compute(frames(70)).shape == (70, 3)


def test_priors_of_other_outputs() -> None:
    """Another output node of as many columns has the same priors."""
    given = np.array([0.5, 0.3, 0.2], np.float32)
    priors = given.copy()
    models = [Model(network(), priors=given), Model(network(), priors=given, output="chain")]
    xent = models[0].compute(frames(70), output="output-xent")
    given[...] = 0.1

    for model in models:
        np.testing.assert_allclose(
            model.compute(frames(70), output="output-xent", use_priors=True),
            xent - np.log(priors),
            rtol=1e-5,
        )


# ---- scores ----


def test_scores() -> None:
    """The log-softmax comes first, then priors, scale and exponential; large scores do no harm."""
    priors = np.array([0.5, 0.3, 0.2])
    model = Model(network(), priors=priors)
    raw = model.compute(frames(70))
    expected = log_softmax(raw)
    options = {"use_priors": True, "acoustic_scale": 0.5, "apply_exp": True}

    np.testing.assert_array_equal(model.compute(frames(70), scores="raw"), raw)
    assert_same(model.compute(frames(70), scores="log-softmax"), expected, 1e-4)
    stream = model.stream(scores="log-softmax", **options)
    streamed = np.concatenate([stream.push(frames(70)), stream.finish()])
    for found in (model.compute(frames(70), scores="log-softmax", **options), streamed):
        np.testing.assert_allclose(found, np.exp(0.5 * (expected - np.log(priors))), rtol=1e-4)
    large = model.compute(1e6 * frames(70), scores="log-softmax")
    np.testing.assert_allclose(np.exp(large.astype(float)).sum(axis=1), 1.0, rtol=1e-5)


def test_scores_of_log_posteriors() -> None:
    """Log-posteriors are their own log-softmax."""
    model = Model(network(), output="output-xent")

    np.testing.assert_allclose(
        model.compute(frames(70), scores="log-softmax"), model.compute(frames(70)), atol=1e-6
    )


# ---- networks that pool over whole utterances ----


def test_pooling_over_an_utterance() -> None:
    """An utterance that is pooled as a whole, in one chunk, has the vector of `xvector`."""
    model = Model(network(POOLING))

    assert model.pooling == "pool"
    assert Model(network()).pooling is None
    assert_same(
        model.compute(frames(70), frames_per_chunk=70)[0],
        model.xvector(frames(70), min_chunk_size=1),
        1e-4,
    )


def test_xvectors_of_another_layer() -> None:
    """The embedding layer can be named, as extract.config does."""
    model = Model(network(POOLING))
    vector = model.xvector(frames(120), output="embedding")

    mean, deviation = frames(120).mean(axis=0), frames(120).std(axis=0)
    expected = model.nnet.component("embedding").params @ np.hstack([mean, deviation])
    np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=1e-4)
    assert model._of_output("embedding").pooling == "pool"
