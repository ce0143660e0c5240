"""The text form of a computation: complete, for people to read and for programs to read back.

    nnet3 computation 2
    need_model_derivative = true
    node input = 0
    component affine = 2
    m1 = 20 x 4, value of input: (0,-2:7), (1,-2:7)
    submatrices: m1, m2, m1(:, 0:3)
    i0 = 0:9, -1x4
    steps: input 20, affine_input 16
    c0: m1 = accept input
    c1: m2 += 0.66 * m1(0:9, :)[i0]
    fingerprint of nodes: 1f6f2b5c0a3d4e77, 90ab12cd34ef5678
    request: {"type": "RequestFingerprint", ...}

Lines are independent of each other but for their order; text from `//` on is a comment. Matrices
are m1, m2, ...; rows and columns of submatrices are inclusive ranges as in Kaldi, `:` is all of
them. Submatrices are numbered from 1 in the order of their list; where two are equal, the later
ones are written with their number, m1(0:9, :)#17. Nodes and components are written by name; the
lines at the top have their numbers, so that no network is needed to read the text. At the end come
the fingerprints, and as JSON the memory plan, where there are any. Text of version 1, which has
none of them, is read as well.
"""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_computation.text.commands import SUBMATRIX as SUBMATRIX
    from nnet3_computation.text.commands import describe_submatrix as describe_submatrix
    from nnet3_computation.text.commands import submatrix_text as submatrix_text
    from nnet3_computation.text.parser import parse_computation as parse_computation
    from nnet3_computation.text.printer import command_lines as command_lines
    from nnet3_computation.text.printer import format_computation as format_computation
    from nnet3_computation.text.printer import list_commands as list_commands
    from nnet3_computation.text.printer import program_lines as program_lines
else:
    __getattr__, __dir__ = on_first_use(__name__)
