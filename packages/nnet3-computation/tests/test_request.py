"""Requests: valid and invalid values, equality, hashing and the serialized form."""

import copy
import hashlib
import os
import pickle
import subprocess
import sys

import attrs
import numpy as np
import pytest
from nnet3_computation import ComputationRequest, IoSpecification, RequestError, RequestFingerprint


def specification(**changes):
    """A valid specification, with some fields changed."""
    fields = {"name": "input", "indexes": [[0, 0, 0], [0, 1, 0]]}
    return IoSpecification(**(fields | changes))


class TestIoSpecification:
    """The rows of one input or output."""

    def test_copies_and_freezes_indexes(self):
        """Later changes of the caller's array do not reach the specification."""
        mine = np.array([[0, 0, 0], [0, 1, 0]], dtype=np.int32)
        kept = specification(indexes=mine)
        mine[0, 1] = 7

        assert kept.indexes[:, 1].tolist() == [0, 1]
        with pytest.raises(ValueError, match="read-only"):
            kept.indexes[0, 0] = 1

    def test_copies_read_only_arrays(self):
        """A read-only array is copied as well: its owner can still change it."""
        mine = np.array([[0, 0, 0], [0, 1, 0]], dtype=np.int32)
        view = mine[:]
        mine.flags.writeable = False
        kept = specification(indexes=mine)
        view[0, 1] = 7

        assert kept == specification()

    def test_is_equal_in_another_process(self):
        """A pickle finds its equals in a process with other hashes, and stays read-only."""
        program = (
            "import pickle, sys\n"
            "from nnet3_computation import IoSpecification\n"
            "made = IoSpecification(name='input', indexes=[[0, 0, 0], [0, 1, 0]])\n"
            "sys.stdout.buffer.write(pickle.dumps(made))"
        )
        other = {**os.environ, "PYTHONHASHSEED": "7"}
        written = subprocess.run(
            [sys.executable, "-c", program], env=other, capture_output=True, check=True
        ).stdout

        for arrived in (pickle.loads(written), copy.deepcopy(specification())):  # noqa: S301
            assert arrived == specification()
            assert hash(arrived) == hash(specification())
            assert not arrived.indexes.flags.writeable

    def test_from_range_gives_rows_sequence_by_sequence(self):
        """Rows of one sequence are consecutive, with x = 0."""
        made = IoSpecification.from_range("output", 0, 4, 2, t_step=3, has_deriv=True)

        assert made.indexes.tolist() == [[0, 0, 0], [0, 3, 0], [1, 0, 0], [1, 3, 0]]
        assert made.has_deriv

    def test_equal_by_content(self):
        """Equal content gives equality and one hash; another order of rows does not."""
        assert specification() == specification()
        assert hash(specification()) == hash(specification())
        assert specification() != specification(indexes=[[0, 1, 0], [0, 0, 0]])
        assert specification() != specification(has_deriv=True)

    def test_from_range_up_to_the_last_frame(self):
        """The range can end with the largest possible time; NumPy's integers are accepted."""
        made = IoSpecification.from_range("input", np.int64(2**31 - 2), 2**31)

        assert made.indexes[:, 1].tolist() == [2**31 - 2, 2**31 - 1]

    def test_from_range_of_small_numpy_integers(self):
        """The number of rows need not fit into the integer type of the arguments."""
        made = IoSpecification.from_range("input", np.int8(-3), np.int8(97), np.int8(5))

        assert len(made.indexes) == 500
        with pytest.raises(RequestError, match="the rows of 'input': 214748364700 is above"):
            IoSpecification.from_range("input", 0, 100, np.int32(2**31 - 1))


def request(**changes):
    """A valid request, with some fields changed."""
    fields = {
        "inputs": [specification()],
        "outputs": [specification(name="output", has_deriv=True)],
        "need_model_derivative": True,
    }
    return ComputationRequest(**(fields | changes))


class TestComputationRequest:
    """Inputs, outputs and derivatives together."""

    def test_hashes_by_content(self):
        """Requests work as keys: equal content finds the entry, any difference does not."""
        cache = {request(): "found"}

        assert cache.get(request()) == "found"
        assert cache.get(request(need_model_derivative=False)) is None
        assert cache.get(request(store_component_stats=True)) is None

    def test_needs_derivatives(self):
        """A request has a backward part if it asks for a derivative of the model or an input."""
        assert request().needs_derivatives
        assert not request(need_model_derivative=False).needs_derivatives
        assert request(
            need_model_derivative=False, inputs=[specification(has_deriv=True)]
        ).needs_derivatives

    def test_serialized_form_is_inverse(self):
        """Equal requests give equal bytes, which give an equal request again."""
        data = request().to_bytes()

        assert request() == ComputationRequest.from_bytes(data)
        assert data == request().to_bytes()

    def test_saves_and_loads(self, tmp_path):
        """A saved file loads to an equal request."""
        request().save(tmp_path / "request")

        assert request() == ComputationRequest.load(tmp_path / "request")


class TestRequestFingerprint:
    """Fingerprints distinguish requests; they compute digests on first use."""

    def test_digest(self):
        """A digest is the beginning of the SHA-256 of the indexes, row by row."""
        (found,) = RequestFingerprint.of(request()).inputs
        data = np.array([[0, 0, 0], [0, 1, 0]], dtype="<i4").tobytes()

        assert found.indexes == hashlib.sha256(data).hexdigest()[:16]
        with pytest.raises(AttributeError, match="'IoFingerprint' has no attribute 'index'"):
            _ = found.index

    @pytest.mark.parametrize("is_digested", [False, True])
    def test_difference(self, is_digested):
        """Differences are the same for indexes and digests, on either side."""
        mine = RequestFingerprint.of(request())
        same = RequestFingerprint.of(ComputationRequest.from_bytes(request().to_bytes()))
        other = RequestFingerprint.of(request(inputs=[specification(indexes=[[0, 1, 0]] * 1)]))
        moved = RequestFingerprint.of(
            request(inputs=[specification(indexes=[[0, 1, 0], [0, 2, 0]])])
        )
        if is_digested:  # like a stored fingerprint
            (io,) = mine.inputs
            mine = attrs.evolve(mine, inputs=[attrs.evolve(io, indexes=io.indexes)])

        assert mine.difference(same) is None
        assert mine.difference(moved) == "input 'input': its rows have other indexes (n, t, x)"
        assert "number of rows 2, this request has 1" in mine.difference(other)

    def test_equal(self):
        """Equal requests have equal fingerprints with equal hashes and reprs, also when copied."""
        mine, same = RequestFingerprint.of(request()), RequestFingerprint.of(request())

        assert mine == same == copy.deepcopy(same)
        assert hash(mine) == hash(same)
        assert repr(mine.inputs[0].indexes) in repr(mine)
