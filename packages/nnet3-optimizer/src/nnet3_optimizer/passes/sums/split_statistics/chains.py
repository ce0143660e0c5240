"""An extraction of statistics and the pooling that it feeds, forward and perhaps backward."""

from __future__ import annotations

from typing import Any

import attrs
from nnet3_computation.analysis import Uses
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    Backprop,
    BackpropNoModelUpdate,
    MatrixCopy,
    Propagate,
    operands_of,
)

from nnet3_optimizer.draft import Draft

_OUTPUT, _INPUT = FIRST_OPERAND_COLUMN, FIRST_OPERAND_COLUMN + 1
_BACKWARD = (Backprop.OPCODE, BackpropNoModelUpdate.OPCODE)


@attrs.frozen(kw_only=True)
class StatisticsChain:
    """An extraction and a pooling; commands are given by their operands, see `operands_of`.

    Attributes:
        extract, pool: The Propagate commands.
        extract_at, pool_at: Their positions.
        extract_back, pool_back: The Backprop commands, None without derivative.
        extract_back_at, pool_back_at: Their positions.
        copies: The positions of the copies between them.
    """

    extract: Any
    pool: Any
    extract_at: int
    pool_at: int
    extract_back: Any = None
    pool_back: Any = None
    extract_back_at: int = 0
    pool_back_at: int = 0
    copies: tuple[int, ...] = ()

    @property
    def commands(self) -> list[int]:
        """The positions of all of its commands."""
        backward = [] if self.pool_back is None else [self.pool_back_at, self.extract_back_at]
        return [self.extract_at, self.pool_at, *self.copies, *backward]

    @property
    def between(self) -> list[int]:
        """The submatrices that only its commands use: statistics and their derivatives."""
        forward = [self.extract.output, self.pool.input]
        if self.pool_back is None:
            return forward
        return [*forward, self.pool_back.input_deriv, self.extract_back.output_deriv]


class Finder:
    """Finds chains that satisfy rule 1 of `split_statistics`."""

    def __init__(self, draft: Draft, uses: Uses) -> None:
        self.draft = draft
        self.uses = uses

    def chain(self, pool_at: int) -> StatisticsChain | None:
        """Returns the chain that ends with a pooling, or None."""
        pool = operands_of(self.draft.row(pool_at))
        copies: list[int] = []
        given = self.uses.matrix_of(pool.input)
        made = self.uses.users_of(given, writing=True)
        readers = {*self.uses.users_of(given, writing=False)}
        if len(made) == 1 and self.draft.copies_whole(made[0], MatrixCopy.OPCODE):
            copies.append(made[0])
            given = self.uses.matrix_of(self.draft.row(made[0])[_INPUT])
            made = self.uses.users_of(given, writing=True)
            readers.update(self.uses.users_of(given, writing=False))
        if len(made) != 1 or self.draft.row(made[0])[OPCODE_COLUMN] != Propagate.OPCODE:
            return None
        extract = operands_of(self.draft.row(made[0]))
        component = self.draft.nnet.components[extract.component]
        whole = (pool.input, pool.output, extract.input, extract.output)
        if component.type != "StatisticsExtractionComponent" or not self._are_whole(*whole):
            return None
        if not self._is_written_once(pool.output, pool_at):
            return None
        forward = StatisticsChain(
            extract=extract,
            pool=pool,
            extract_at=made[0],
            pool_at=pool_at,
            copies=tuple(copies),
        )
        backward = readers.difference([pool_at, *copies])
        if not backward:
            return forward
        return self._with_backward(forward, *backward) if len(backward) == 1 else None

    def _with_backward(self, chain: StatisticsChain, pool_back_at: int) -> StatisticsChain | None:
        """Adds the backward commands; None if rule 1 fails."""
        row = self.draft.row(pool_back_at)
        if row[OPCODE_COLUMN] not in _BACKWARD or row[_OUTPUT] != chain.pool.component:
            return None
        pool_back = operands_of(row)
        deriv, copies = self.uses.matrix_of(pool_back.input_deriv), list(chain.copies)
        used = self.uses.users_of(deriv, writing=False)
        if not deriv or not self._is_written_once(pool_back.input_deriv, pool_back_at):
            return None
        if len(used) == 1 and self.draft.copies_whole(used[0], MatrixCopy.OPCODE):
            copies.append(used[0])
            copied = self.draft.row(used[0])[_OUTPUT]
            if not self._is_written_once(copied, used[0]):
                return None
            used = self.uses.users_of(self.uses.matrix_of(copied), writing=False)
        if len(used) != 1 or self.draft.row(used[0])[OPCODE_COLUMN] not in _BACKWARD:
            return None
        extract_back = operands_of(self.draft.row(used[0]))
        fits = (
            extract_back.component == chain.extract.component
            and extract_back.input_deriv > 0
            and pool_back.precomputed_indexes == chain.pool.precomputed_indexes
            and extract_back.precomputed_indexes == chain.extract.precomputed_indexes
            and self._are_whole(pool_back.output_deriv, pool_back.input_deriv)
            and self._are_whole(extract_back.output_deriv, extract_back.input_deriv)
            and self._are_whole(*filter(None, (pool_back.input_value, pool_back.output_value)))
            and self.uses.matrix_of(extract_back.input_value)
            in (0, self.uses.matrix_of(chain.extract.input))
            and self.uses.is_unchanged(chain.extract.input, chain.extract_at, used[0])
            and self._is_written_once(extract_back.input_deriv, used[0])
        )
        if not fits:
            return None
        return attrs.evolve(
            chain,
            pool_back=pool_back,
            extract_back=extract_back,
            pool_back_at=pool_back_at,
            extract_back_at=used[0],
            copies=tuple(copies),
        )

    def _are_whole(self, *submatrices: int) -> bool:
        return self.draft.layout.are_whole(*submatrices)

    def _is_written_once(self, submatrix: int, command: int) -> bool:
        return self.uses.users_of(self.uses.matrix_of(submatrix), writing=True) == [command]
