"""The text form, and the errors for faulty texts."""

import attrs
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from nnet3_compiler import compile_computation
from nnet3_computation import (
    MatrixDebugInfo,
    NnetComputation,
    commands,
    format_computation,
    parse_computation,
)
from nnet3_computation.text import list_commands
from nnet3_computation.text.commands import format_numbers, parse_numbers
from nnet3_descriptors import ComponentNode, Nnet, parse_config
from small_networks import computation as computation_of
from small_networks import identity, request_for

CONFIG = """\
input-node name=input dim=2
component name=affine type=LinearComponent input-dim=4 output-dim=3
component-node name=affine component=affine input=Append(Offset(input, -1), Scale(0.5, input))
output-node name=output input=affine
"""

TEXT = """\
nnet3 computation 2
need_model_derivative = false
debug_info = true
node input = 0
node affine_input = 1
node affine = 2
node output = 3
component affine = 0
m1 = 6 x 2, value of sequences 0, 1 in blocks of 3 of input: (0,-1:1)
m2 = 4 x 4, value of sequences 0, 1 in blocks of 1 of affine_input: (0,0), (0,1)
m3 = 4 x 3, value of sequences 0, 1 in blocks of 1 of affine: (0,0), (0,1)
m4 = 4 x 3, value of sequences 0, 1 in blocks of 2 of output: (0,0), (0,1)
submatrices: m1, m2, m3, m4, m2(:, 0:1), m2(:, 2:3)
i0 = 0, 3, 1, 4
i1 = 1, 4, 2, 5
i2 = 0, 2, 1, 3
steps: input 6, affine_input 4, affine 4, output 4
c0: m1 = accept input
c1: m2 = zeros
c2: m3 = zeros
c3: m4 = zeros
c4: m2(:, 0:1) += m1[i0]
c5: m2(:, 2:3) += 0.5 * m1[i1]
c6: m3 = affine.propagate(m2)
c7: m4 += m3[i2]
c8: provide output = m4
c9: segment end
c10: free m1
c11: free m2
c12: free m3
fingerprint of nodes: 4f821ce4d884f308, 6bf0ff35a86ac703, bc593c7f14872c6a, d1eb7823b35a2ed2
fingerprint of components: dc2d87aa6177418a
request: {"type": "RequestFingerprint", "inputs": [{"name": "input", "rows": 6, "has_deriv": \
false, "indexes": "cbc516d219eb0eda"}], "outputs": [{"name": "output", "rows": 4, "has_deriv": \
false, "indexes": "b823e8d586a48860"}], "need_model_derivative": false, "store_component_stats": \
false}
"""


class TestFormat:
    """The text of a small computation."""

    def test_small_computation(self) -> None:
        """The text shows names, rows and lists without the network."""
        nnet = parse_config(CONFIG)
        computation = compile_computation(nnet, request_for(range(-1, 2), range(2), 2))

        assert format_computation(computation, nnet) == TEXT
        assert parse_computation(TEXT, nnet) == computation

    def test_every_command_has_its_text(self) -> None:
        """Each kind of command is written as declared, and read back."""
        program = [
            commands.AllocMatrixUndefined(matrix=1),
            commands.SwapMatrix(destination=2, source=1),
            commands.CompressMatrix(matrix=1, compression_type=2, truncate=0, alpha=10.0),
            commands.DecompressMatrix(matrix=1),
            commands.StoreStats(component=7, output=2, memo=3),
            commands.Backprop(component=7, output_deriv=2, input_deriv=1, input_value=1, memo=3),
            commands.BackpropNoModelUpdate(component=7, output_deriv=2, output_value=1),
            commands.SetConst(output=3, alpha=-1e6),
            commands.MatrixCopy(output=2, input=1),
            commands.CopyRows(output=2, input=1, indexes=0, alpha=1e-5),
            commands.CopyRowsMulti(output=2, indexes_multi=0),
            commands.CopyToRowsMulti(input=2, indexes_multi=0),
            commands.AddToRowsMulti(input=2, indexes_multi=0, alpha=1e30),
            commands.AddRowRanges(output=2, input=1, indexes_ranges=0),
            commands.NoOperation(),
            commands.NoOperationLabel(),
            commands.GotoLabel(label=15),
        ]
        computation = computation_of(
            [(4, 3), (4, 3)],
            program,
            parts=[(1, 1, 2, 0, 3)],
            indexes=[[0, 1, 2, 3]],
            indexes_multi=[[[1, 0], [1, 1], [-1, -1], [3, 1]]],
            indexes_ranges=[[[0, 2], [2, 4], [4, 6], [-1, -1]]],
        )
        text = format_computation(computation)

        assert [line.split(": ", 1)[1] for line in text.splitlines()[-17:]] == [
            "m1 = undefined",
            "m2 = take m1",
            "compress m1 (type 2, truncate 0, range 10.0)",
            "decompress m1",
            "component7.store_stats(m2, memo 3)",
            "m1 = component7.backprop(m2, input m1, memo 3)",
            "- = component7.backprop_no_update(m2, output m1)",
            "m1(1:2, :) = constant -1000000.0",
            "m2 = m1",
            "m2 = 1e-05 * m1[i0]",
            "m2 = rows(j0)",
            "rows(j0) = m2",
            "rows(j0) += 1e+30 * m2",
            "m2 += sums(m1[r0])",
            "nothing",
            "label",
            "goto c15",
        ]
        assert "j0 = m1[0, 1], -, m1(1:2, :)[1]" in text
        assert "r0 = 0..2 + 2 x 3, -" in text
        assert parse_computation(text) == computation

    def test_rows_of_several_nodes(self) -> None:
        """A matrix that passes have merged is described node by node."""
        rows = [[1, 0, 0, 0], [1, 0, 1, 0], [4, 0, 1, 2], [1, 0, 5, 0]]
        infos = [MatrixDebugInfo(pattern=()), MatrixDebugInfo(pattern=rows, is_deriv=True)]
        computation = NnetComputation(matrices=[[0, 0], [4, 3]], matrix_debug_info=infos)
        text = format_computation(computation)

        assert "m1 = 4 x 3, deriv of node1: (0,0), (0,1); node4: (0,1,2); node1: (0,5)" in text
        assert parse_computation(text) == computation

    def test_equal_submatrices_keep_their_numbers(self) -> None:
        """A submatrix that equals an earlier one is written with its number."""
        adds = [commands.MatrixAdd(output=2, input=3)]
        computation = computation_of([(4, 3)], adds, parts=[(1, 0, 2, 0, 3)] * 2)
        text = format_computation(computation)

        assert "c0: m1(0:1, :) += m1(0:1, :)#3" in text
        assert parse_computation(text) == computation


class TestListing:
    """Commands in messages."""

    def test_neighbours_of_a_command(self) -> None:
        """The lines of up to three commands before and after are those of the whole text."""
        nnet = parse_config(CONFIG)
        computation = parse_computation(TEXT, nnet)
        lines = [line for line in TEXT.splitlines() if line.startswith("c") and line[1].isdigit()]

        for at, line in enumerate(lines):
            shown = list_commands(computation, nnet, at).splitlines()

            assert f"  > {line}" == shown[min(at, 3)]
            assert [each[4:] for each in shown] == lines[max(at - 3, 0) : at + 4]

    def test_a_network_that_lacks_a_node(self) -> None:
        """For a network without the command's names, the command is shown with numbers."""
        shown = list_commands(parse_computation(TEXT), identity(2), 6).splitlines()

        assert shown[3] == "  > c6: m3 = component0.propagate(m2)"


@given(st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 5), max_size=20))
def test_lists_of_numbers(numbers: list[int]) -> None:
    """Lists of numbers are written with runs and read back."""
    array = np.array(numbers, np.int32)

    assert np.array_equal(parse_numbers(format_numbers(array)), array)


def test_comments_and_empty_lines() -> None:
    """Text after // is ignored."""
    text = TEXT.replace("c1:", "\n  // zeroing\nc1:")

    assert parse_computation(text + "// the end") == parse_computation(TEXT)


def test_a_component_named_like_what_is_missing() -> None:
    """A component named "-" is read back; a missing operand is written so, too."""
    nnet = parse_config(CONFIG)
    nodes = tuple(
        attrs.evolve(node, component="-") if isinstance(node, ComponentNode) else node
        for node in nnet.nodes
    )
    nnet = Nnet(component_names=("-",), components=nnet.components, nodes=nodes)
    computation = compile_computation(nnet, request_for(range(-1, 1), range(1)))

    assert parse_computation(format_computation(computation, nnet), nnet) == computation
