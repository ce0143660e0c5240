"""The i-vectors of utterances, from the tables that options name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs
import nnet3_tables

from nnet3_tools.progress import LackingError

if TYPE_CHECKING:
    from nnet3_tables import FloatArray, MatrixLookup, VectorLookup


@attrs.frozen(kw_only=True)
class IvectorSource:
    """The tables of i-vectors that the options name, if any."""

    vectors: VectorLookup | None
    matrices: MatrixLookup | None
    speakers: Mapping[str, str] | None

    @classmethod
    @contextlib.contextmanager
    def open(cls, ivectors: str, online_ivectors: str, utt2spk: str) -> Iterator[IvectorSource]:
        """Opens the tables that the options name.

        Raises:
            TableError: a table cannot be read, or the command that it comes from fails.
        """
        with contextlib.ExitStack() as tables:
            yield cls(
                vectors=tables.enter_context(nnet3_tables.VectorLookup(ivectors))
                if ivectors
                else None,
                matrices=(
                    tables.enter_context(nnet3_tables.MatrixLookup(online_ivectors))
                    if online_ivectors
                    else None
                ),
                speakers=nnet3_tables.read_tokens(utt2spk) if utt2spk else None,
            )

    def of(self, utterance: str) -> tuple[FloatArray | None, FloatArray | None]:
        """The i-vector of an utterance and its online i-vectors; None for each that it lacks.

        Raises:
            LackingError: the utterance has no i-vector, or no speaker.
            TableError: the i-vector cannot be read.
        """
        if self.vectors is not None:
            key = utterance
            if self.speakers is not None:
                if utterance not in self.speakers:
                    raise LackingError("--utt2spk names no speaker for it")
                key = self.speakers[utterance]
            return _present(self.vectors.get(key), f"no i-vector for '{key}'"), None
        if self.matrices is not None:
            found = self.matrices.get(utterance)
            return None, _present(found, f"no online i-vectors for '{utterance}'")
        return None, None


def _present(array: FloatArray | None, message: str) -> FloatArray:
    if array is None:
        raise LackingError(message)
    return array
