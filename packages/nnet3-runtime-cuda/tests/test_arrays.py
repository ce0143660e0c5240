"""Inputs of models: batches, lists, arrays of other libraries; and sources of models."""

import io
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from computations import bound
from nnet3 import Model, load
from nnet3_descriptors import read_model, write_nnet
from nnet3_runtime_cuda import NnetComputer
from small_networks import WITH_IVECTOR, network, stacked

CONFIG = stacked(
    4, "affine Affine input-dim=8 output-dim=3", splice="Append(Offset(input, -2), input)"
)


class Foreign:
    """An array of another library, with `__dlpack__` only."""

    def __init__(self, array: np.ndarray, error: str = "") -> None:
        self._array, self._error = array, error

    def __dlpack__(self, **options: object) -> object:
        """Shares the memory."""
        if self._error:
            raise BufferError(self._error)
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The processor."""
        return self._array.__dlpack_device__()


class Refusing:
    """A tensor that refuses to become an array, as those do that require gradients."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        """Refuses."""
        raise RuntimeError("it requires gradients")


def frames(*shape: int) -> np.ndarray:
    """Features of random numbers."""
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def computer_of(sequences: int, threads: int = 1) -> NnetComputer:
    """A computer for three frames of each sequence."""
    asked = {"sequences": sequences, "training": False}
    return bound(network(CONFIG), range(-2, 3), range(3), **asked, threads=threads)


class TestSeveralUtterances:
    """Batches and lists of utterances."""

    @pytest.mark.parametrize("threads", [1, 2])
    def test_a_batch(self, threads: int) -> None:
        """The outputs of a batch are (N, rows, columns), equal to those of single utterances."""
        model = Model(network(CONFIG), threads=threads)
        batch = frames(3, 60, 4)
        options = {"frame_subsampling_factor": 3, "frames_per_chunk": 20}

        found = model.compute(batch, **options)

        expected = [model.compute(each, **options) for each in batch]
        assert found.shape == (3, 20, 3)
        np.testing.assert_allclose(found, np.stack(expected), rtol=1e-5, atol=1e-6)
        assert model.compute(batch[:0], **options).shape == (0, 20, 3)

    def test_a_list_of_several_lengths(self) -> None:
        """The outputs of a list are a list, in the same order."""
        model = Model(network(CONFIG))
        utterances = [frames(9, 4), frames(60, 4), frames(1, 4)]

        for given in (utterances, tuple(utterances), [each.tolist() for each in utterances]):
            found = model.compute(given)

            assert isinstance(found, list)
            assert list(map(len, found)) == [9, 60, 1]
            for outputs, each in zip(found, utterances, strict=True):
                np.testing.assert_array_equal(outputs, model.compute(each))

    def test_ivectors(self) -> None:
        """Each utterance has one i-vector, or its own rows of i-vectors."""
        model = Model(network(WITH_IVECTOR))
        batch, ivectors, online = frames(3, 30, 4), frames(3, 2), frames(3, 3, 2)
        options = {"online_ivector_period": 10, "frames_per_chunk": 10}

        for given in (ivectors, list(ivectors)):
            np.testing.assert_array_equal(
                model.compute(batch, given),
                [model.compute(*each) for each in zip(batch, ivectors, strict=True)],
            )
        np.testing.assert_array_equal(
            model.compute(list(batch), online_ivectors=online, **options),
            [
                model.compute(each, online_ivectors=rows, **options)
                for each, rows in zip(batch, online, strict=True)
            ],
        )


class TestOtherArrays:
    """Arrays that are not NumPy's, and arrays that are refused."""

    def test_dlpack(self) -> None:
        """Any object with `__dlpack__` is accepted as utterance, batch, item or i-vectors."""
        model, values, ivector = Model(network(WITH_IVECTOR)), frames(2, 30, 4), frames(2)
        given, vector = Foreign(values[0]), Foreign(ivector)
        expected = model.compute(values[0], ivector)
        stream = model.stream()

        for found, limit in (
            (model.compute(given, vector), 0),
            (model.compute(Foreign(values), Foreign(np.stack([ivector, ivector])))[0], 0),
            (model.compute([given], [vector])[0], 0),
            (next(iter(model.compute_many([("a", given)], ivectors={"a": vector})))[1], 1e-5),
            (np.concatenate([stream.push(given, ivector), stream.finish()]), 1e-5),
        ):
            np.testing.assert_allclose(found, expected, rtol=0, atol=limit)

    @pytest.mark.parametrize("dtype", ["f2", "f8", ">f4", "i1", "u2", "i8"])
    def test_types_of_numbers(self, dtype: str) -> None:
        """Numbers of any type and any order in memory keep their values."""
        model, values = Model(network(CONFIG)), np.round(3 * np.abs(frames(30, 4)))
        expected = model.compute(values)

        for given in (
            values.astype(dtype),
            np.asfortranarray(values.astype(dtype)),
            np.repeat(values.astype(dtype), 2, axis=0)[::2],
            values[::-1].astype(dtype)[::-1],
        ):
            np.testing.assert_array_equal(model.compute(given), expected)

    def test_masked_arrays_are_being_imported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A model computes while another thread imports NumPy's masked arrays."""
        monkeypatch.setitem(sys.modules, "numpy.ma", ModuleType("numpy.ma"))

        assert len(Model(network(CONFIG)).compute(frames(5, 4))) == 5


class TestLoad:
    """Sources of models."""

    def test_sources(self, tmp_path: Path) -> None:
        """A model is loaded from a path, an open file, the bytes of a file, or a read object."""
        path = tmp_path / "final.raw"
        write_nnet(network(CONFIG), path)
        expected = Model(network(CONFIG)).compute(frames(30, 4))

        data = path.read_bytes()
        for source in (str(path), path, io.BytesIO(data), data, bytearray(data), read_model(path)):
            np.testing.assert_array_equal(load(source).compute(frames(30, 4)), expected)
