"""to_c: a computation as C source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import attrs
import numpy as np
from nnet3_computation import (
    AcceptInput,
    Command,
    NnetComputation,
    ProvideOutput,
    check_runnable,
)
from nnet3_descriptors import Nnet
from nnet3_descriptors.files import write_atomically
from numpy.typing import NDArray

from nnet3_runtime_c.calls import ConversionError, floats
from nnet3_runtime_c.commands import Converter, c_name, in_comment, refusals

_NAME = re.compile("[a-z][a-z0-9_]{0,30}")
_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long main register restrict return short signed sizeof static struct switch "
    "typedef union unsigned void volatile while "
    # of C23 and of compilers by default, and a macro of math.h
    "alignas alignof asm bool constexpr false linux math_errhandling nullptr static_assert "
    "thread_local true typeof typeof_unqual unix"
)
"""What cannot be the name of a struct in C, and the name of the program's function."""


_Call = tuple[Mapping[str, tuple[int, int]], Mapping[str, tuple[int, int]]]
"""Rows and columns of the inputs and of the outputs of a call, by node."""


@attrs.frozen
class CSource:
    """A computation in C.

    Attributes:
        name: The prefix of all names in it.
        source: The file NAME.c.
        header: The file NAME.h, which says how to call it.
        weights: The file of weights, float32 of little-endian order; None if the source has them.
        calls: For each call the rows and columns of its inputs and of its outputs, by node.
        properties: What else the header says, by name.
    """

    name: str
    source: str
    header: str
    weights: bytes | None
    calls: Sequence[_Call] = ()
    properties: Mapping[str, str] = attrs.field(factory=dict)

    def write(
        self, folder: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None
    ) -> None:
        """Writes NAME.c and NAME.h into a folder, and weights that the source does not have.

        Args:
            folder: The folder.
            weights: The file of the weights; None for NAME.weights in the folder.

        Raises:
            FileError: a file cannot be written.
        """
        path = Path(folder, self.name)
        if self.weights is not None:
            write_atomically(weights or path.with_suffix(".weights"), [self.weights])
        write_atomically(path.with_suffix(".c"), [self.source.encode()])
        write_atomically(path.with_suffix(".h"), [self.header.encode()])


def to_c(
    nnet: Nnet,
    computation: NnetComputation,
    *,
    name: str = "network",
    weights_in_source: bool = True,
    int8: bool = False,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> CSource:
    """Returns the forward part of a computation as C99 source.

    The source includes `stdint.h`, `string.h` and `math.h` alone and allocates no memory: matrices
    lie in one array of the struct that the caller owns, where the memory plan puts them. So several
    instances of it can run side by side.

    Args:
        nnet: The network, in test mode.
        computation: One of its computations, optimized or not, in one segment, in several, or a
            loop. Of one for training, the forward part is taken.
        name: The prefix of all names: lower-case letters, digits and underscores, no keyword, and
            not "nnet3_..." as the functions that the source brings.
        weights_in_source: Whether the weights are an array in the source; otherwise the caller
            hands over the content of a file.
        int8: Whether the matrices of affine, linear and TDNN components become integers of 8 bits
            with a scale for each column of the output. Their other factors are rounded as well, row
            by row, when the program runs.
        properties: What else the header says, by name.

    Raises:
        ConversionError: the computation cannot be expressed; the message names each command and
            component, and why. Or the name is none.
        ComputationError: the network lacks a node or component of the computation, or this cannot
            be run.
    """
    if not _NAME.fullmatch(name):
        raise ConversionError(
            "expected a name of up to 31 lower-case letters, digits and underscores, found "
            f"{name!r}"
        )
    if name in _KEYWORDS.split():
        raise ConversionError(f"expected a name that C does not keep for itself, found {name!r}")
    if name.startswith("nnet3_"):
        raise ConversionError(f"expected a name that does not begin with nnet3_, found {name!r}")
    computation.check_network(nnet)
    check_runnable(nnet, computation)
    ranges, loop = computation.forward_segments
    segments = [[*computation.commands[each.start : each.stop]] for each in ranges]
    calls = [_call(nnet, computation, commands) for commands in segments]
    inputs, outputs = ports = _ports(calls)
    names = {*inputs, *outputs}
    if len({*map(c_name, names)}) < len(names):
        raise ConversionError(f"two of the nodes {sorted(names)} have the same name in C")
    reasons = [*refusals(nnet, [each for commands in segments for each in commands])]
    if reasons:
        raise ConversionError("the computation cannot be expressed in C: " + "; ".join(reasons))
    converter = Converter(nnet, computation, name, int8=int8)
    functions = [
        _function(f"{name}_segment{number}", name, call, [*converter.lines(commands, each.start)])
        for number, (each, commands, call) in enumerate(zip(ranges, segments, calls, strict=True))
    ]
    resources = converter.resources
    weights = resources.all_weights()
    step = f"{name}_forward" if len(segments) == 1 and loop is None else f"{name}_step"
    forward = f"void {step}({_with_self(name, *ports)})"
    array = f"{name}_weights.numbers" if int8 else f"{name}_weights"
    given = array if weights_in_source else ""
    sizes = resources.arena, len(weights)
    parts = [
        f"/* {name}: a Kaldi nnet3 network of {len(nnet.components)} components; see {name}.h */\n",
        f'#include "{name}.h"\n\n#include <math.h>\n#include <string.h>\n',
        resources.kernels(),
        *resources.tables,
        *([_weights(name, weights, int8=int8)] if weights_in_source else []),
        *functions,
        _entry_points(name, forward, calls, loop, given),
        _main(name, step, calls, ports, weights_in_source),
    ]
    return CSource(
        name=name,
        source="\n".join(parts),
        header=_header(name, forward, calls, loop, sizes, weights_in_source, properties),
        weights=None if weights_in_source else weights.astype("<f4").tobytes(),
        calls=calls,
        properties=dict(properties),
    )


def _weights(name: str, weights: NDArray[np.float32], *, int8: bool) -> str:
    """The weights as an array; with integers among them, by their bits."""
    if not int8:
        values = floats(weights.tolist()) or "    0.0f"
        return f"static const float {name}_weights[] = {{\n{values}}};\n"
    words = [f"{each:#x}u" for each in weights.view(np.uint32).tolist()] or ["0"]
    lines = [", ".join(words[at : at + 8]) for at in range(0, len(words), 8)]
    size, values = len(words), ",\n    ".join(lines)
    return (
        f"static const union {{\n    uint32_t bits[{size}];\n    float numbers[{size}];\n}} "
        f"{name}_weights = {{{{\n    {values}}}}};\n"
    )


def _call(nnet: Nnet, computation: NnetComputation, commands: Iterable[Command]) -> _Call:
    """The rows and columns of what commands take and give."""
    sizes = computation.submatrices[:, [2, 4]].tolist()
    inputs, outputs = (
        {
            nnet.nodes[each.node].name: tuple(sizes[each.matrix])
            for each in commands
            if isinstance(each, kind)
        }
        for kind in (AcceptInput, ProvideOutput)
    )
    return inputs, outputs


_Ports = tuple[list[str], list[str]]
"""Inputs and outputs."""


def _ports(calls: Sequence[_Call]) -> _Ports:
    """The inputs and outputs of all calls, each in the order of its first appearance."""
    inputs, outputs = (
        list(dict.fromkeys(name for each in sizes for name in each))
        for sizes in zip(*calls, strict=True)
    )
    return inputs, outputs


def _with_self(name: str, inputs: Iterable[str], outputs: Iterable[str]) -> str:
    """The parameters of a function: the instance, the inputs, then the outputs."""
    given = [f"const float *in_{c_name(each)}" for each in inputs]
    found = [f"float *out_{c_name(each)}" for each in outputs]
    return ", ".join([f"struct {name} *self", *given, *found])


def _arguments(first: str, inputs: Iterable[str], outputs: Iterable[str]) -> str:
    """The arguments for these parameters."""
    ports = [f"in_{c_name(each)}" for each in inputs] + [f"out_{c_name(each)}" for each in outputs]
    return ", ".join([first, *ports])


def _function(function: str, name: str, call: _Call, lines: Sequence[str]) -> str:
    """A function that runs a segment."""
    text = "\n".join(lines)
    pointers = [
        f"    {kind}float *const {letter} = self->{field};"
        for kind, letter, field in (("", "m", "arena"), ("const ", "w", "weights"))
        if re.search(rf"\b{letter}\b", re.sub(r"/\*.*?\*/", "", text))
    ]
    unused = [] if pointers else ["    (void)self;"]
    body = "\n".join([*pointers, *unused, "", *(f"    {line}" for line in lines)])
    return f"static void {function}({_with_self(name, *call)})\n{{\n{body}\n}}\n"


def _header(
    name: str,
    forward: str,
    calls: Sequence[_Call],
    loop: int | None,
    sizes: tuple[int, int],
    weights_in_source: bool,
    properties: Mapping[str, str],
) -> str:
    """The header file; `sizes` are the elements of the arena and of the weights."""
    big, (arena, weights) = name.upper(), sizes
    what = f"    const float *weights;\n    int32_t segment;\n    float arena[{big}_ARENA];"
    table = "".join(
        f"   call {number}: "
        + ", ".join(
            f"{kind} {in_comment(node)} {rows} x {columns}"
            for kind, nodes in zip(("input", "output"), call, strict=True)
            for node, (rows, columns) in nodes.items()
        )
        + "\n"
        for number, call in enumerate(calls)
    )
    table += f"   then again from call {loop or 0} on\n"
    table += "".join(
        f"   {in_comment(key)}: {in_comment(value)}\n" for key, value in properties.items()
    )
    given = "" if weights_in_source else ", const float *weights"
    taken = "" if weights_in_source else (
        f"\n   weights are the {weights} numbers of the file of weights, which have to stay."
    )  # fmt: skip
    return f"""/* {name}: a neural network, by nnet3-runtime-c.

   Matrices are float, row by row. Rows and columns:
{table}*/
#ifndef {big}_H
#define {big}_H

#include <stdint.h>

#define {big}_ARENA {max(arena, 1)}
#define {big}_WEIGHTS {weights}

#ifdef __cplusplus
extern "C" {{
#endif

/* An instance, which the caller owns; its members are not for others. */
struct {name} {{
{what}
}};

/* Begins with call 0.{taken} */
void {name}_init(struct {name} *self{given});

/* Computes the outputs of the next call. What the call does not have may be 0. */
{forward};

#ifdef __cplusplus
}}
#endif

#endif
"""


def _entry_points(
    name: str, forward: str, calls: Sequence[_Call], loop: int | None, weights: str
) -> str:
    """The functions of the header. "weights" is the array in the source, or "" if it has none."""
    given = "" if weights else ", const float *weights"
    source = weights or "weights"
    cases = "".join(
        f"    case {number}: {name}_segment{number}({_arguments('self', *call)}); break;\n"
        for number, call in enumerate(calls)
    )
    return f"""void {name}_init(struct {name} *self{given})
{{
    self->weights = {source};
    self->segment = 0;
}}

{forward}
{{
    switch (self->segment) {{
{cases}    default: break;
    }}
    self->segment = self->segment + 1 < {len(calls)} ? self->segment + 1 : {loop or 0};
}}
"""


def _cases(macro: str, ports: Sequence[Mapping[str, tuple[int, int]]]) -> str:
    """The cases of a switch that reads or writes the matrices of each call."""
    lines = []
    for number, nodes in enumerate(ports):
        calls = [f"{macro}({c_name(node)}, {rows * cols});" for node, (rows, cols) in nodes.items()]
        lines.append(f"        case {number}: {' '.join([*calls, 'break;'])}\n")
    return "".join(lines)


_READER = """
#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

/* The weights in a file, mapped into memory where that can be done; 0 if there are fewer. */
static const float *weights_of(const char *path)
{
    static float numbers[SIZE + 1];
    FILE *file;
#if defined(__unix__) || defined(__APPLE__)
    const off_t size = (off_t)sizeof(float) * SIZE;
    const int opened = open(path, O_RDONLY);
    void *mapped = MAP_FAILED;

    if (opened >= 0 && lseek(opened, 0, SEEK_END) >= size)
        mapped = mmap(0, size, PROT_READ, MAP_PRIVATE, opened, 0);
    if (opened >= 0)
        close(opened);
    if (mapped != MAP_FAILED)
        return mapped;
#endif
    file = fopen(path, "rb");
    if (!file)
        return 0;
    if (fread(numbers, sizeof *numbers, SIZE, file) != SIZE) {
        fclose(file);
        return 0;
    }
    fclose(file);
    return numbers;
}
"""
"""What reads the file of weights; SIZE is their number."""


def _main(
    name: str, step: str, calls: Sequence[_Call], ports: _Ports, weights_in_source: bool
) -> str:
    """A program that computes what comes on standard input, call after call."""
    given, found = zip(*calls, strict=True)
    buffers = [
        f"    static float {kind}_{c_name(node)}[{max(each.get(node, (0, 0))[0] for each in sizes)}"
        f" * {next(each[node][1] for each in sizes if node in each)}];"
        for kind, nodes, sizes in zip(("in", "out"), ports, (given, found), strict=True)
        for node in nodes
    ]
    reads, writes = _cases("GET", given), _cases("PUT", found)
    taken, file, unread = "", "", ""
    if not weights_in_source:
        taken = "\n    const float *weights = argc == 2 ? weights_of(argv[1]) : 0;"
        file = " WEIGHTS"
        unread = """
    if (!weights) {
        fprintf(stderr, "%s: %s cannot be read, or is too short\\n", argv[0], argv[1]);
        return 2;
    }"""
    argument = "" if weights_in_source else ", weights"
    reader = "" if weights_in_source else _READER.replace("SIZE", f"{name.upper()}_WEIGHTS")
    return f"""#ifdef NNET3_MAIN
/* Reads the inputs of a call, computes it, and writes its outputs, until there are no more. */
#include <stdio.h>

#define GET(node, size) \\
    if ((count = fread(in_##node, sizeof(float), size, stdin)) != size) \\
        goto end
#define PUT(node, size) fwrite(out_##node, sizeof(float), size, stdout)
{reader}
int main(int argc, char **argv)
{{
    static struct {name} self;
{chr(10).join(buffers)}
    size_t count = 0;
    int32_t segment;{taken}

    if (argc {"!= 2" if file else "> 1"}) {{
        fprintf(stderr, "usage: %s{file} < inputs > outputs\\n", argv[0]);
        return 2;
    }}{unread}
    {name}_init(&self{argument});
    for (;;) {{
        segment = self.segment;
        switch (segment) {{
{reads}        default: break;
        }}
        {step}({_arguments("&self", *ports)});
        switch (segment) {{
{writes}        default: break;
        }}
    }}
end:
    if (count)
        fprintf(stderr, "%s: the input ends inside of a call\\n", argv[0]);
    return count != 0 || fflush(stdout) != 0;
}}
#endif
"""
