"""Reading and writing networks and acoustic models: Kaldi's .raw and .mdl files."""

from __future__ import annotations

import os
import re
from typing import Final, Self

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors import config_reader, indexes, printing, values
from nnet3_descriptors.components.declaration import base, kaldi_io, kinds
from nnet3_descriptors.errors import (
    ConfigError,
    DescriptorSyntaxError,
    ModelFileError,
    NetworkError,
)
from nnet3_descriptors.files import source
from nnet3_descriptors.files.binary_and_text import BINARY_MARK
from nnet3_descriptors.files.reader import Reader
from nnet3_descriptors.files.writer import Writer, new_writer
from nnet3_descriptors.frozen_arrays import ReadOnlyArrays
from nnet3_descriptors.model_files.transition_model import (
    TransitionModel,
    read_transition_model,
    write_transition_model,
)
from nnet3_descriptors.nnet import Nnet

_MAX_COMPONENTS: Final = 100_000
_MAX_TEXT: Final = 1 << 20
"""Most bytes of config lines, which for networks of hundreds of nodes are some ten thousand."""
_LEAST_COMPONENT: Final = len("<ComponentName> x <NoOpComponent> </NoOpComponent>")
"""Bytes that a component takes at least."""


@attrs.frozen(kw_only=True, repr=False)
class AcousticModel(ReadOnlyArrays):
    """The content of a .mdl file (Kaldi's TransitionModel and AmNnetSimple).

    Attributes:
        transition_model: Topology and transition probabilities.
        nnet: The network.
        left_context: Frames that the network needs before the first output frame.
        right_context: Frames that it needs after the last.
        priors: Prior of each output, (num_pdfs,), or empty for none.
    """

    transition_model: TransitionModel
    nnet: Nnet
    left_context: int = attrs.field(validator=indexes.check_int32)
    right_context: int = attrs.field(validator=indexes.check_int32)
    priors: NDArray[np.float32] = attrs.field(converter=kinds.read_only_float32, eq=kinds.ArrayKey)

    def __repr__(self) -> str:
        """The network and the context; `info` says more."""
        context = f"context {self.left_context} + {self.right_context} frames"
        return f"<AcousticModel: {self.nnet!r}, {context}, {self.priors.size} priors>"

    def _repr_html_(self) -> str | None:
        """The network as a drawing, and the size of the priors, for notebooks."""
        return values.shown("model_html", self)

    def with_nnet(self, nnet: Nnet, *, context: tuple[int, int]) -> Self:
        """Returns the model with another network, its context, and priors only if they fit.

        Args:
            nnet: The network.
            context: Its left and right context in frames: `nnet3_graph.compute_context(nnet)`.
        """
        fits = self.priors.size in (0, nnet.node_dim("output"))
        return attrs.evolve(
            self,
            nnet=nnet,
            left_context=context[0],
            right_context=context[1],
            priors=self.priors if fits else (),
        )

    def info(self, context: tuple[int, int] | None = None) -> str:
        """Returns the text that nnet3-am-info prints: dimensions, priors, and the network.

        Args:
            context: The context of the network; see `Nnet.info`.
        """
        input_dims = {node.name: node.dim for node in self.nnet.input_nodes}
        output_dims = {node.name: self.nnet.node_dim(node.name) for node in self.nnet.output_nodes}
        lines = [
            f"input-dim: {input_dims.get('input', -1)}",
            f"ivector-dim: {input_dims.get('ivector', -1)}",
            f"num-pdfs: {output_dims.get('output', -1)}",
            f"prior-dimension: {self.priors.size}",
        ]
        if self.priors.size > 0:
            lines += [
                f"prior-sum: {self.priors.sum():g}",
                f"prior-min: {self.priors.min():g}",
                f"prior-max: {self.priors.max():g}",
            ]
        lines.append("# Nnet info follows.")
        return "".join(f"{line}\n" for line in lines) + self.nnet.info(context)


def read_nnet(path_or_file: source.PathOrFile) -> Nnet:
    """Reads a network from a .raw file, or the network of a .mdl file.

    The parameters are views of the file where its layout allows it, and read-only.

    Args:
        path_or_file: A path, `path:offset`, or a file that is open for reading bytes. From a file
            that can be moved, the function consumes nothing after the network; it reads a stream to
            its end.

    Raises:
        ModelFileError: the file cannot be read, or holds no network.
    """
    model = read_model(path_or_file)
    return model.nnet if isinstance(model, AcousticModel) else model


def read_model(path_or_file: source.PathOrFile, *, in_place: bool = False) -> Nnet | AcousticModel:
    """Reads a model file: the network of a .raw file, or the acoustic model of a .mdl file.

    Args:
        path_or_file: As for `read_nnet`.
        in_place: Whether large matrices are views of a binary file, and not copies. They take no
            memory once `nnet3_descriptors.files.FileMap` has given it back, but Kaldi's files do
            not align them: NumPy is slower with such arrays. Another file may take this one's name,
            but nobody may write to it: `FileMap.check_unchanged` says if somebody did.

    Raises:
        ModelFileError: the file cannot be read, or holds neither.
    """
    reader = source.open_reader(path_or_file)
    reader.in_place = in_place
    is_acoustic = _begins_with_transition_model(reader)
    model = _read_acoustic_model(reader) if is_acoustic else _read_network(reader)
    source.leave_behind(path_or_file, reader)
    return model


def read_acoustic_model(path_or_file: source.PathOrFile) -> AcousticModel:
    """Reads a .mdl file: transition model, network and priors.

    Args:
        path_or_file: As for `read_nnet`.

    Raises:
        ModelFileError: the file cannot be read, or holds no acoustic model.
    """
    reader = source.open_reader(path_or_file)
    if not _begins_with_transition_model(reader):
        reader.fail(
            "this is a network, as in .raw files (read_nnet, nnet3-info), not an acoustic model",
            expected="'<TransitionModel>'",
            found="'<Nnet3>'",
        )
    model = _read_acoustic_model(reader)
    source.leave_behind(path_or_file, reader)
    return model


def write_nnet(nnet: Nnet, path_or_file: source.PathOrFile, *, binary: bool | None = None) -> None:
    """Writes a network as a .raw file.

    A path is replaced at once when all has been written, so the network may have been read from
    it.

    Args:
        nnet: The network.
        path_or_file: A path, or a file that is open for writing bytes.
        binary: Whether the file is binary, or else text with seven digits; by default a path that
            ends in ".txt" is text, and all else binary.

    Raises:
        FileError: the file cannot be written.
        NetworkError: the path has the suffix of a format that is not Kaldi's, such as ".onnx"; or
            the text of the nodes, a descriptor or a name is too long to be read.
    """
    writer = new_writer(binary=_is_binary(path_or_file, binary))
    _write_network(writer, nnet)
    writer.store(path_or_file)


def write_acoustic_model(
    model: AcousticModel, path_or_file: source.PathOrFile, *, binary: bool | None = None
) -> None:
    """Writes a .mdl file; see `write_nnet`.

    Raises:
        FileError: the file cannot be written.
        NetworkError: as for `write_nnet`.
    """
    if not isinstance(model, AcousticModel):
        raise NetworkError(
            f"expected an acoustic model (AcousticModel) to write, found {type(model).__name__}"
        )
    writer = new_writer(binary=_is_binary(path_or_file, binary))
    write_transition_model(writer, model.transition_model)
    _write_network(writer, model.nnet)
    writer.token("<LeftContext>")
    writer.integer(model.left_context)
    writer.token("<RightContext>")
    writer.integer(model.right_context)
    writer.token("<Priors>")
    writer.vector(model.priors)
    writer.store(path_or_file)


# -- reading -----------------------------------------------------------------------------------


def _begins_with_transition_model(reader: Reader) -> bool:
    expected = "'<Nnet3>' or '<TransitionModel>'"
    _refuse_other_files(reader, expected)
    start = reader.position
    found = reader.token()
    if found not in ("<Nnet3>", "<TransitionModel>"):
        reader.fail(
            "this is no nnet3 model", at=start, expected=expected, found=reader.next_bytes(start)
        )
    reader.position = start
    return found == "<TransitionModel>"


def _refuse_other_files(reader: Reader, expected: str) -> None:
    """Raises a ModelFileError that says what the file is, if its next bytes tell."""
    start = reader.position
    before = max(0, start - len(BINARY_MARK))
    if bytes(reader.data[before:start]) == BINARY_MARK:
        start = before
    kind = kind_of_file(bytes(reader.data[start : start + NUM_BYTES]))
    if kind is not None:
        reader.fail("this is no nnet3 model", at=start, expected=expected, found=kind)


def _read_acoustic_model(reader: Reader) -> AcousticModel:
    transition_model = read_transition_model(reader)
    reader.skip_blanks()
    _refuse_other_files(reader, "'<Nnet3>'")
    nnet = _read_network(reader)
    reader.expect("<LeftContext>")
    left_context = reader.integer()
    reader.expect("<RightContext>")
    right_context = reader.integer()
    reader.expect("<Priors>")
    return AcousticModel(
        transition_model=transition_model,
        nnet=nnet,
        left_context=left_context,
        right_context=right_context,
        priors=reader.vector(),
    )


def _read_network(reader: Reader) -> Nnet:
    reader.expect("<Nnet3>")
    # Kaldi writes a blank before the end of the line, and an empty line behind the nodes; other
    # programs leave out the one or the other.
    if not reader.begins_line() and (rest := reader.line()):
        reader.fail("unexpected text behind '<Nnet3>'", expected="the end of the line", found=rest)
    start = reader.position
    lines = []
    while not reader.next_is(b"<NumComponents>") and (line := reader.line()):
        lines.append(line)
        if reader.position - start > _MAX_TEXT:
            reader.fail("the nodes take too much text", expected=f"at most {_MAX_TEXT} bytes")
    components = _read_components(reader)
    reader.expect("</Nnet3>")
    text = "\n".join(lines)
    with reader.checking(start):
        try:
            return config_reader.extend_network(text, components, ())
        except (ConfigError, DescriptorSyntaxError) as error:
            before = len(text[: error.span[0]].encode())
            raise ModelFileError(
                str(error), path=reader.path, offset=reader.offset_of(start + before)
            ) from error


def _read_components(reader: Reader) -> dict[str, base.Component]:
    reader.expect("<NumComponents>")
    count = reader.count("components", maximum=_MAX_COMPONENTS, least_bytes=_LEAST_COMPONENT)
    components: dict[str, base.Component] = {}
    for _ in range(count):
        reader.expect("<ComponentName>")
        start = reader.position
        name = reader.token()
        if name in components:
            reader.fail(f"there are two components '{name}'", at=start)
        reader.component = name
        components[name] = kaldi_io.read_component(reader)
        reader.component = None
    return components


# -- writing -----------------------------------------------------------------------------------


_OTHER_FORMATS = {
    ".gz": "it would not be packed; give gzip.open(path, 'wb') in place of the path",
    ".npz": "numpy.savez(path, **nnet.state_dict()) writes its arrays",
    ".onnx": "nnet3-to-onnx and nnet3_runtime_onnx.to_onnx write ONNX models",
    ".pt": "torch.save writes files of PyTorch; nnet.state_dict() has the arrays",
    ".pth": "torch.save writes files of PyTorch; nnet.state_dict() has the arrays",
    ".safetensors": "nnet.export_safetensors(path) writes its arrays",
}
"""Suffixes of files that Kaldi cannot read as models, and the functions that write such files."""


def _is_binary(path_or_file: source.PathOrFile, binary: bool | None) -> bool:
    """Whether to write a file in binary; refuses paths that look like files of other formats."""
    if not isinstance(path_or_file, str | os.PathLike):
        return binary is not False
    suffix = os.path.splitext(os.fsdecode(path_or_file))[1].lower()
    if suffix in _OTHER_FORMATS:
        raise NetworkError(
            f"'{os.fsdecode(path_or_file)}' would be a model file of Kaldi with the suffix "
            f"'{suffix}': {_OTHER_FORMATS[suffix]}"
        )
    return suffix != ".txt" if binary is None else binary


def _write_network(writer: Writer, nnet: Nnet) -> None:
    if not isinstance(nnet, Nnet):
        raise NetworkError(f"expected a network (Nnet) to write, found {type(nnet).__name__}")
    writer.token("<Nnet3>")
    text = "".join(f"{line}\n" for line in printing.node_config_lines(nnet))
    if len(text) > _MAX_TEXT:
        raise NetworkError(
            f"the nodes take {len(text)} bytes of text, and a model file has at most {_MAX_TEXT}"
        )
    writer.raw(f"\n{text}\n".encode())
    writer.token("<NumComponents>")
    writer.integer(len(nnet.components))
    writer.newline()
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        writer.token("<ComponentName>")
        writer.token(name)
        kaldi_io.write_component(writer, component)
        writer.newline()
    writer.token("</Nnet3>")


NUM_BYTES: Final = 512
"""The number of first bytes that decide."""

_KINDS: Final = tuple(
    (re.compile(pattern, re.DOTALL), kind)
    for pattern, kind in (
        (rb"version https://git-lfs", "a Git LFS pointer; 'git lfs pull' fetches the file itself"),
        (rb"\x1f\x8b", "gzip data; gunzip unpacks it"),
        (rb"BZh", "bzip2 data; bunzip2 unpacks it"),
        (rb"\xfd7zXZ", "xz data; unxz unpacks it"),
        (rb"PK\x03\x04", "a ZIP archive, as PyTorch writes models"),
        (rb"\x80[\x02-\x05]", "a pickle, as Python programs and older PyTorch write"),
        (rb"\x89HDF", "an HDF5 file, as Keras writes models"),
        (rb".{4}TFL3", "a TensorFlow Lite model"),
        (rb"\x08[\x01-\x1f][\x12\x1a\x22\x2a\x32\x3a\x42]", "an ONNX model"),
        (rb"\x93NUMPY", "an array of NumPy"),
        (rb"RIFF.{4}WAVE", "a WAV file"),
        (rb"\s*<(!DOCTYPE|html|\?xml)", "a web page"),
        (rb"\xd6\xfd\xb2\x7e", "an FST of OpenFst"),
        (rb"(\x00B)?<(DIMENSION|DiagGMM|FullGMM)>", "a GMM model"),
        (rb"(\x00B)?<(Nnet|Nproto)> ", "a network of nnet1 or nnet2"),
        (rb"(\x00B)?<Nnet3Eg>", "an example for training"),
        (rb"(\x00B)?ContextDependency ", "a decision tree"),
        (rb"\x00B([FDC]M|CM2|CM3|[FD]V) ", "a matrix or a vector of Kaldi"),
        (rb"\S{1,400} \x00B\xd6\xfd\xb2\x7e", "an archive of lattices or FSTs"),
        (rb"\S{1,400} \x00B", "an archive: a table of several objects"),
        (rb"\S{1,400}  ?\[", "an archive: a table of several objects"),
        (
            rb"\s*(#[^\n]*\n\s*)*(component|component-node|input-node|output-node|dim-range-node) ",
            "config lines; parse_config and nnet3-init read them",
        ),
        (rb".{7}\x00\{", "a safetensors file; if nnet3-descriptors wrote it, Nnet.load reads it"),
    )
)


def kind_of_file(first_bytes: bytes) -> str | None:
    """Returns the kind of a file; None if its first bytes do not show it."""
    return next((kind for pattern, kind in _KINDS if pattern.match(first_bytes)), None)
