"""Mistakes that people make, and the messages that they get.

Two tables: mistakes in Python, each with the message or its first lines, and mistakes at the
command line, each with a line that the tool prints.
"""

from __future__ import annotations

import gzip
import io
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from nnet3 import CachingCompiler, load
from nnet3_compiler import compile_computation
from nnet3_computation import (
    ComputationRequest,
    IoSpecification,
    NnetComputation,
    parse_computation,
)
from nnet3_descriptors import (
    Nnet,
    Nnet3Error,
    parse_config,
    read_acoustic_model,
    read_nnet,
    write_acoustic_model,
    write_nnet,
)
from nnet3_descriptors.editing import apply_edits
from nnet3_graph import build_computation_graph
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import NnetComputer
from nnet3_tables import read_table, write_table
from nnet3_tools import entry_points
from nnet3_training import ExampleInput, TrainingExample, write_examples
from reference_cases import ROOT

MODEL = "final.raw"

FILES = {
    "pointer.raw": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "empty.raw": b"",
    "page.raw": b"<!DOCTYPE html>\n<html>404</html>",
    "gmm.mdl": b"\0B<DIMENSION> \x04\x27\0\0\0<NUMPDFS> \x04\x01\0\0\0<DiagGMM> ",
    "gmm.txt": b"""<TransitionModel>
<Topology>
<TopologyEntry>
<ForPhones>
1
</ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 </State>
</TopologyEntry>
</Topology>
<Triples> 1
1 0 0
</Triples>
<LogProbs>
 [ 0 -0.69 -0.69 ]
</LogProbs>
</TransitionModel>\x20
<DIMENSION> 39 <NUMPDFS> 1 <DiagGMM>
""",
    "lattices": b"utterance1 \0B\xd6\xfd\xb2\x7e\x06\0\0\0vector",
    "HCLG.fst": b"\xd6\xfd\xb2\x7e\x06\0\0\0vector",
    "model.pt": b"PK\x03\x04\x14\0\0\0",
    "tree": b"\0BContextDependency \x04\x03\0\0\0",
    "nnet1": b"\0B<Nnet> <AffineTransform> ",
    "mean.vec": b"\0BFV \x04\x03\0\0\0" + bytes(12),
    "model.onnx": b"\x08\x0a\x12\x07pytorch:",
    "model.h5": b"\x89HDF\r\n\x1a\n",
    "model.pkl": b"\x80\x02}q\0.",
    "speech.wav": b"RIFF\x24\0\0\0WAVEfmt ",
    "final.config": b"# config lines\ninput-node name=input dim=40\n",
    "numbers.txt": b"utt1 1.5 2.5 3.5\n4.5 5.5 6.5\n",
    "ragged.txt": b"utt1 [\n  1 2 3\n  4 5 ]\n",
    "vectors.ark": b"utt1 \0BFV \4\3\0\0\0" + bytes(12),
    "network.xconfig": b"input dim=40 name=input\noutput-layer name=output dim=10\n",
    "misspelt.config": b"input-node name=input dim=40\noutput-node name=output input=inptu\n",
    "feats.scp": b"utt1 test.feats.ark:34\n",
    "nowhere.scp": b"utt1 nowhere.ark:5\n",
    "inside.scp": b"utt1 test.feats.ark:7\n",
    "keys.scp": b"utt1\n",
    "command.scp": b"utt1 sox speech.flac -t wav - |\n",
    "range.scp": b"utt1 test.feats.ark:34[0:999]\n",
    "options.conf": b"--frames-per-chunk=50\nuse-gpu=no\n",
    "chain.egs": b"utt1 \0B<Nnet3ChainEg> ",
}

Action = Callable[[], object]
INPUT = "input-node name=input dim=40\n"


def config(line: str) -> Action:
    """Reads a config line after that of an input node."""
    return lambda: parse_config(INPUT + line)


def edit(line: str) -> Action:
    """Edits the digits model."""
    return lambda: apply_edits(read_nnet(MODEL), line)


def request(inputs: str, outputs: str, end: int = 13) -> ComputationRequest:
    """Asks for frame 0 of an output."""
    return ComputationRequest(
        inputs=[IoSpecification.from_range(inputs, -12, end)],
        outputs=[IoSpecification.from_range(outputs, 0, 1)],
    )


def graph(inputs: str, outputs: str, end: int = 13) -> Action:
    """Builds a graph."""
    return lambda: build_computation_graph(read_nnet(MODEL), request(inputs, outputs, end))


def compute(features: object, **options: object) -> Action:
    """Computes outputs of the digits model."""
    return lambda: load(MODEL).compute(features, **options)  # type: ignore[arg-type]


def loading(**options: object) -> Action:
    """Loads the digits model."""
    return lambda: load(MODEL, **options)  # type: ignore[arg-type]


def forward(**arrays: np.ndarray) -> Action:
    """Runs a computation."""
    nnet = read_nnet(ROOT / "examples" / "digits" / MODEL)
    computation = CachingCompiler(nnet).compile(request("input", "output"))
    return lambda: NnetComputer(nnet, computation).forward(arrays)


def table(specifier: str) -> Action:
    """Reads a table."""
    return lambda: dict(read_table(specifier))


def with_ivector(**options: object) -> Action:
    """Computes outputs of a network that needs an i-vector."""
    return lambda: load(SPEAKER).compute(FRAMES, **options)  # type: ignore[arg-type]


FRAMES = np.zeros((30, 23), np.float32)
RECURRENT = parse_config(
    "input-node name=input dim=3\n"
    "component name=a type=NoOpComponent dim=3\n"
    "component-node name=a component=a input=Sum(input, Offset(a, -1))\n"
    "output-node name=output input=a\n"
)
SPEAKER = parse_config(
    "input-node name=input dim=23\n"
    "input-node name=ivector dim=100\n"
    "output-node name=output input=Append(input, ReplaceIndex(ivector, t, 0))\n"
)
BOTH = ComputationRequest(
    inputs=[IoSpecification.from_range(name, 0, 1) for name in ("input", "ivector")],
    outputs=[IoSpecification.from_range("output", 0, 1)],
)
AFFINE = "component name=a type=AffineComponent input-dim=40 output-dim=3"

# fmt: off
MISTAKES: dict[str, tuple[Action, str]] = {
    "a form misspelt": (
        config("output-node name=output input=Apend(input, input)"),
        "line 2, column 31: 'Apend' is no form of descriptor; the forms are Append, Sum, "
        "Failover, IfDefined, Offset, Switch, Round, ReplaceIndex, Scale, Const; did you "
        "mean 'Append'?\n"
        "    output-node name=output input=Apend(input, input)\n"
        "                                  ^^^^^",
    ),
    "a form without capitals": (
        config("output-node name=output input=append(input, input)"),
        "line 2, column 31: 'append' is no form of descriptor; the forms are Append, Sum, "
        "Failover, IfDefined, Offset, Switch, Round, ReplaceIndex, Scale, Const; did you "
        "mean 'Append'?\n"
        "    output-node name=output input=append(input, input)\n"
        "                                  ^^^^^^",
    ),
    "a node misspelt": (
        config("output-node name=output input=inptu"),
        "line 2, column 31: there is no node 'inptu'; did you mean 'input'?\n"
        "    output-node name=output input=inptu\n"
        "                                  ^^^^^",
    ),
    "a type misspelt": (
        config("component name=a type=AffineComponet input-dim=40 output-dim=3"),
        "line 2, column 23: unknown component type 'AffineComponet'; did you mean "
        "'AffineComponent'?\n"
        "    component name=a type=AffineComponet input-dim=40 output-dim=3\n"
        "                          ^^^^^^^^^^^^^^",
    ),
    "a type without its ending": (
        config("component name=a type=Affine input-dim=40 output-dim=3"),
        "line 2, column 23: unknown component type 'Affine'; did you mean 'AffineComponent'?\n"
        "    component name=a type=Affine input-dim=40 output-dim=3\n"
        "                          ^^^^^^",
    ),
    "a required key misspelt": (
        config("component name=a type=AffineComponent input-dim=40 output-dimm=3"),
        "line 2, column 52: 'output-dim' is missing; is 'output-dimm' a misspelling of it?\n"
        "    component name=a type=AffineComponent input-dim=40 output-dimm=3\n"
        "                                                       ^^^^^^^^^^^",
    ),
    "another key misspelt": (
        config(AFFINE + " learning-rte=0.1"),
        "line 2, column 65: AffineComponent has no key 'learning-rte'; did you mean "
        "'learning-rate'?\n"
        "    component name=a type=AffineComponent input-dim=40 output-dim=3 learning-rte=0.1\n"
        "                                                                    ^^^^^^^^^^^^",
    ),
    "a key forgotten": (
        config("component name=a type=AffineComponent input-dim=40"),
        "line 2, column 1: 'output-dim' is missing\n"
        "    component name=a type=AffineComponent input-dim=40\n"
        "    ^^^^^^^^^",
    ),
    "a word for a number": (
        config("component name=a type=AffineComponent input-dim=forty output-dim=3"),
        "line 2, column 49: 'input-dim' must be an integer, got 'forty'\n"
        "    component name=a type=AffineComponent input-dim=forty output-dim=3\n"
        "                                                    ^^^^^",
    ),
    "a negative dimension": (
        config("component name=a type=AffineComponent input-dim=-40 output-dim=3"),
        "line 2, column 49: 'input-dim' must be >= 1, got -40\n"
        "    component name=a type=AffineComponent input-dim=-40 output-dim=3\n"
        "                                                    ^^^",
    ),
    "a word for true or false": (
        config("component name=a type=TdnnComponent input-dim=40 output-dim=3 time-offsets=0"
            " use-bias=ja"),
        "line 2, column 87: 'use-bias' must be 'true' or 'false', got 'ja'\n"
        "    component name=a type=TdnnComponent input-dim=40 output-dim=3 time-offsets=0 "
        "use-bias=ja\n"
        "                                                                                    "
        "      ^^",
    ),
    "a component misspelt": (
        config(AFFINE.replace("=a ", "=affine ") + "\ncomponent-node name=n component=afine"
            " input=input"),
        "line 3, column 33: there is no component 'afine'; did you mean 'affine'?\n"
        "    component-node name=n component=afine input=input\n"
        "                                    ^^^^^",
    ),
    "dimensions that differ": (
        config(AFFINE.replace("40", "41") + "\ncomponent-node name=a component=a"
            " input=input\noutput-node name=output input=a"),
        "line 3, column 41: the input of node 'a' has dimension 40, but its component 'a' "
        "takes 41\n"
        "    component-node name=a component=a input=input\n"
        "                                            ^^^^^",
    ),
    "a line of no kind": (
        config("componentnode name=n component=a input=input"),
        "line 2, column 1: a line must begin with one of component, component-node, "
        "input-node, output-node, dim-range-node; did you mean 'component-node'?\n"
        "    componentnode name=n component=a input=input\n"
        "    ^^^^^^^^^^^^^",
    ),
    "a node twice": (
        config("input-node name=input dim=3"),
        "line 2, column 17: node 'input' is defined twice\n"
        "    input-node name=input dim=3\n"
        "                    ^^^^^",
    ),
    "a parenthesis too few": (
        config("output-node name=output input=Append(input, Offset(input, -1)"),
        "line 2, column 62: expected ',' or ')' in Append(), got the end\n"
        "    output-node name=output input=Append(input, Offset(input, -1)\n"
        "                                                                 ^",
    ),
    "a parenthesis too many": (
        config("output-node name=output input=Append(input, input))"),
        "line 2, column 51: expected the end of the descriptor, got ')'\n"
        "    output-node name=output input=Append(input, input))\n"
        "                                                      ^",
    ),
    "half a frame": (
        config("output-node name=output input=Offset(input, 1.5)"),
        "line 2, column 45: expected an integer in Offset(), got '1.5'\n"
        "    output-node name=output input=Offset(input, 1.5)\n"
        "                                                ^^^",
    ),
    "an offset forgotten": (
        config("output-node name=output input=Offset(input)"),
        "line 2, column 43: expected ',' and an integer in Offset(), got ')'\n"
        "    output-node name=output input=Offset(input)\n"
        "                                              ^",
    ),
    "a sum of different dimensions": (
        config("input-node name=iv dim=3\noutput-node name=output input=Sum(input, iv)"),
        "line 3, column 31: node 'output': the terms of Sum(input, iv) must have the same "
        "dimension (got 40 and 3)\n"
        "    output-node name=output input=Sum(input, iv)\n"
        "                                  ^^^^^^^^^^^^^^",
    ),
    "no output": (
        config(""),
        "the network has no output node",
    ),
    "an index that is none": (
        config("output-node name=output input=ReplaceIndex(input, y, 0)"),
        "line 2, column 51: expected 't' or 'x' in ReplaceIndex(), got 'y'\n"
        "    output-node name=output input=ReplaceIndex(input, y, 0)\n"
        "                                                      ^",
    ),
    "arguments in the wrong order": (
        config("output-node name=output input=Scale(input, 0.5)"),
        "line 2, column 37: expected a number in Scale(), got 'input'\n"
        "    output-node name=output input=Scale(input, 0.5)\n"
        "                                        ^^^^^",
    ),
    "no equals sign": (
        config("component name a type=AffineComponent"),
        "line 2, column 11: expected 'key=value'\n"
        "    component name a type=AffineComponent\n"
        "              ^^^^",
    ),
    "an objective that is none": (
        config("output-node name=output input=input objective=cross"),
        "line 2, column 47: the objective of node 'output' must be linear or quadratic (got "
        "'cross')\n"
        "    output-node name=output input=input objective=cross\n"
        "                                                  ^^^^^",
    ),
    "a quotation mark left open": (
        config("component name=a type='AffineComponent input-dim=40"),
        "line 2, column 23: the quotation mark ' is not closed\n"
        "    component name=a type='AffineComponent input-dim=40\n"
        "                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    ),
    "a name with a blank": (
        config("input-node name=my input dim=3"),
        "line 2, column 17: 'name' must begin with a letter or '_' and hold only letters, "
        "digits, '_', '-' and '.' (got 'my input')\n"
        "    input-node name=my input dim=3\n"
        "                    ^^^^^^^^",
    ),
    "no such file": (
        lambda: read_nnet("missing.raw"),
        "missing.raw: cannot be read: No such file or directory",
    ),
    "a folder": (
        lambda: read_nnet("."),
        ".: cannot be read: Is a directory",
    ),
    "a Git LFS pointer": (
        lambda: read_nnet("pointer.raw"),
        "pointer.raw, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found a Git LFS pointer; 'git lfs pull' fetches the file itself",
    ),
    "a packed model": (
        lambda: read_nnet("final.raw.gz"),
        "final.raw.gz, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found gzip data; gunzip unpacks it",
    ),
    "an empty file": (
        lambda: read_nnet("empty.raw"),
        "empty.raw, byte 0: the file is empty",
    ),
    "a web page": (
        lambda: read_nnet("page.raw"),
        "page.raw, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found a web page",
    ),
    "a GMM": (
        lambda: read_nnet("gmm.mdl"),
        "gmm.mdl, byte 0: this is no nnet3 model; expected '<Nnet3>' or '<TransitionModel>', "
        "found a GMM model",
    ),
    "a GMM in text": (
        lambda: read_nnet("gmm.txt"),
        "gmm.txt, byte 281: this is no nnet3 model; expected '<Nnet3>', found a GMM model",
    ),
    "lattices": (
        lambda: read_nnet("lattices"),
        "lattices, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found an archive of lattices or FSTs",
    ),
    "a decoding graph": (
        lambda: read_nnet("HCLG.fst"),
        "HCLG.fst, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found an FST of OpenFst",
    ),
    "a PyTorch model": (
        lambda: read_nnet("model.pt"),
        "model.pt, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found a ZIP archive, as PyTorch writes models",
    ),
    "an ONNX model": (
        lambda: read_nnet("model.onnx"),
        "model.onnx, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found an ONNX model",
    ),
    "a Keras model": (
        lambda: read_nnet("model.h5"),
        "model.h5, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found an HDF5 file, as Keras writes models",
    ),
    "a pickle": (
        lambda: read_nnet("model.pkl"),
        "model.pkl, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found a pickle, as Python programs and older PyTorch write",
    ),
    "a sound file": (
        lambda: read_nnet("speech.wav"),
        "speech.wav, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found a WAV file",
    ),
    "a tree": (
        lambda: read_nnet("tree"),
        "tree, byte 0: this is no nnet3 model; expected '<Nnet3>' or '<TransitionModel>', "
        "found a decision tree",
    ),
    "an older network": (
        lambda: read_nnet("nnet1"),
        "nnet1, byte 0: this is no nnet3 model; expected '<Nnet3>' or '<TransitionModel>', "
        "found a network of nnet1 or nnet2",
    ),
    "a vector": (
        lambda: read_nnet("mean.vec"),
        "mean.vec, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found a matrix or a vector of Kaldi",
    ),
    "features": (
        lambda: read_nnet("test.feats.ark"),
        "test.feats.ark, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found an archive: a table of several objects",
    ),
    "config lines": (
        lambda: read_nnet("final.config"),
        "final.config, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found config lines; parse_config and nnet3-init read them",
    ),
    "a serialized network": (
        lambda: read_nnet("final.nnet"),
        "final.nnet, byte 0: this is no nnet3 model; expected '<Nnet3>' or "
        "'<TransitionModel>', found a safetensors file; if nnet3-descriptors wrote it, "
        "Nnet.load reads it",
    ),
    "a model cut off": (
        lambda: read_nnet("cut.raw"),
        "cut.raw, byte 21640, in component 'tdnn2.affine': the file ends too early; expected "
        "an array of 64 by 128 numbers, of 32768 bytes, found 28347 bytes",
    ),
    "a .raw for a .mdl": (
        lambda: read_acoustic_model(MODEL),
        "final.raw, byte 2: this is a network, as in .raw files (read_nnet, nnet3-info), not "
        "an acoustic model; expected '<TransitionModel>', found '<Nnet3>'",
    ),
    "a model for a serialized network": (
        lambda: Nnet.load(MODEL),
        "not a safetensors container; it is a file of Kaldi, which read_nnet reads: Error "
        "while deserializing: header too large",
    ),
    "text for a serialized computation": (
        lambda: NnetComputation.from_bytes(b"hello"),
        "not a safetensors container: Error while deserializing: header too small",
    ),
    "an array misspelt": (
        lambda: read_nnet(MODEL).with_state_dict({"tdnn1.affine.linear_parms": FRAMES}),
        "there is no array 'tdnn1.affine.linear_parms'; did you mean "
        "'tdnn1.affine.linear_params'?",
    ),
    "an array transposed": (
        lambda: read_nnet(MODEL).with_state_dict({"tdnn1.affine.linear_params": FRAMES}),
        "'tdnn1.affine.linear_params' must have the shape (64, 69) (got (30, 23))",
    ),
    "no such node": (
        lambda: read_nnet(MODEL).node("tdnn1.reul"),
        "there is no node 'tdnn1.reul'; did you mean 'tdnn1.relu'?",
    ),
    "no such component": (
        lambda: read_nnet(MODEL).component("tdnn1.afine"),
        "there is no component 'tdnn1.afine'; did you mean 'tdnn1.affine'?",
    ),
    "an edit misspelt": (
        edit("rename-nod old-name=a new-name=b"),
        "'rename-nod' is no edit directive; those are convert-to-fixed-affine, "
        "remove-orphan-nodes, remove-orphan-components, remove-orphans, set-learning-rate, "
        "set-learning-rate-factor, rename-node, remove-output-nodes, set-dropout-proportion, "
        "apply-svd, reduce-rank; did you mean 'rename-node'?\n"
        "    rename-nod old-name=a new-name=b\n"
        "    ^^^^^^^^^^",
    ),
    "an edit without its key": (
        edit("set-learning-rate rate=1"),
        "'learning-rate' is missing\n"
        "    set-learning-rate rate=1\n"
        "    ^^^^^^^^^^^^^^^^^",
    ),
    "an input misspelt": (
        graph("inputs", "output"),
        "the network has no node 'inputs' for the input of that name; its input nodes are "
        "'input'; did you mean 'input'?",
    ),
    "an output that is none": (
        graph("input", "tdnn1.affine"),
        "output 'tdnn1.affine' is a component node of the network; only output nodes can be "
        "requested",
    ),
    "no right context": (
        graph("input", "output", end=1),
        "cannot compute 1 of 1 rows of 'output'; the first needs, one after the other:\n"
        "    'output' at (n, t, x) = (0, 0, 0)\n"
        "    'output.log-softmax' at (n, t, x) = (0, 0, 0)",
    ),
    "a vector for features": (
        compute(FRAMES[0]),
        "features for node 'input': expected a matrix (rows, 23), found shape (23,)",
    ),
    "features of another dimension": (
        compute(FRAMES[:, :13]),
        "features for node 'input': expected dimension 23, found 13",
    ),
    "features transposed": (
        compute(FRAMES.T),
        "features for node 'input': expected dimension 23, found 30",
    ),
    "no frames": (
        compute(FRAMES[:0]),
        "features for node 'input': expected at least 1 row, found 0",
    ),
    "not a number": (
        compute(FRAMES * np.nan),
        "features for node 'input': expected finite numbers, found nan in row 0, column 0 "
        "(690 such values in all)",
    ),
    "an i-vector for a network without": (
        compute(FRAMES, ivector=np.zeros(100)),
        "i-vectors were given, but the network has no input node 'ivector'",
    ),
    "priors of a .raw": (
        compute(FRAMES, use_priors=True),
        "the output has no priors; a .mdl file with priors is needed",
    ),
    "a chunk of no frames": (
        compute(FRAMES, frames_per_chunk=0),
        "'frames_per_chunk' must be an integer >= 1 (got 0)",
    ),
    "no threads": (
        loading(threads=0),
        "the number of threads must be an integer from 1 to 256, or None (got 0)",
    ),
    "no such device": (
        loading(device="gpu"),
        "unknown device 'gpu'; expected 'cpu', 'cuda' or 'cuda:<number>', as 'cuda:1'",
    ),
    "no such precision": (
        loading(precision="fp16"),
        "unknown precision 'fp16'; expected one of 'fp32', 'tf32', 'bf16'",
    ),
    "an input of another name": (
        forward(inptu=FRAMES[:25]),
        "there is no input 'inptu' in this computation; it has 'input'",
    ),
    "rows that are missing": (
        forward(input=FRAMES[:24]),
        "input 'input': expected the shape (25, 23), found (24, 23)",
    ),
    "a misspelt specifier": (
        table("arc:test.feats.ark"),
        "'arc:test.feats.ark' is no table; expected 'ark:FILE', 'scp:FILE' or the like",
    ),
    "a specifier without its kind": (
        table("test.feats.ark"),
        "'test.feats.ark' is no table; expected 'ark:FILE', 'scp:FILE' or the like; did you "
        "mean 'ark:test.feats.ark'?",
    ),
    "features in text without brackets": (
        table("ark:numbers.txt"),
        "cannot read archive 'numbers.txt', byte 5: this is no value of a table; expected a matrix "
        "or vector, which begins with '[' in text, or integers, found "
        "'1.5 2.5 3.5\\n4.5 5.5 6.5\\n'",
    ),
    "rows of different lengths": (
        table("ark:ragged.txt"),
        "cannot read archive 'ragged.txt', byte 21: the rows of a matrix differ in length; "
        "expected 3 numbers, found 2",
    ),
    "a folder for a table": (
        table("ark:."),
        "cannot read '.': Is a directory",
    ),
    "no such archive": (
        table("ark:missing.ark"),
        "cannot read 'missing.ark': there is no such file",
    ),
    "an archive for a script file": (
        table("scp:test.feats.ark"),
        "test.feats.ark, line 1: this is not UTF-8",
    ),
    "a program cut off": (
        lambda: parse_computation("nnet3 computation 1\nm1 = 8 x\n", read_nnet(MODEL)),
        "line 2, column 1: expected a line of a computation\n"
        "    m1 = 8 x\n"
        "    ^^^^^^^^",
    ),
    "an xconfig for config lines": (
        lambda: parse_config("input dim=40 name=input\noutput-layer name=output dim=10"),
        "line 1, column 1: a line must begin with one of component, component-node, input-node, "
        "output-node, dim-range-node; this is a line of an xconfig: Kaldi's "
        "steps/nnet3/xconfig_to_configs.py makes config lines of it (configs/final.config)\n"
        "    input dim=40 name=input\n"
        "    ^^^^^",
    ),
    "a path for the config lines": (
        lambda: parse_config("configs/final.config"),
        "a line must begin with one of component, component-node, input-node, output-node, "
        "dim-range-node\n"
        "    configs/final.config\n"
        "    ^^^^^^^^^^^^^^^^^^^^",
    ),
    "a comma after a name": (
        config("component name=a, type=NoOpComponent dim=40"),
        "line 2, column 16: 'name' must begin with a letter or '_' and hold only letters, "
        "digits, '_', '-' and '.' (got 'a,')\n"
        "    component name=a, type=NoOpComponent dim=40\n"
        "                   ^^",
    ),
    "underscores in a key": (
        config("component name=a type=AffineComponent input-dim=40 output_dim=3"),
        "line 2, column 52: 'output-dim' is missing; is 'output_dim' a misspelling of it?\n"
        "    component name=a type=AffineComponent input-dim=40 output_dim=3\n"
        "                                                       ^^^^^^^^^^",
    ),
    "a dimension with a point": (
        config("input-node name=ivector dim=100.0"),
        "line 2, column 29: 'dim' must be an integer, got '100.0'\n"
        "    input-node name=ivector dim=100.0\n"
        "                                ^^^^^",
    ),
    "a proportion above 1": (
        config("component name=a type=DropoutComponent dim=40 dropout-proportion=2"),
        "line 2, column 66: DropoutComponent: 'dropout-proportion' must be <= 1, got 2\n"
        "    component name=a type=DropoutComponent dim=40 dropout-proportion=2\n"
        "                                                                     ^",
    ),
    "blocks that do not divide": (
        config("component name=a type=BatchNormComponent dim=40 block-dim=7"),
        "line 2, column 59: BatchNormComponent: 'block-dim' must divide 40, got 7\n"
        "    component name=a type=BatchNormComponent dim=40 block-dim=7\n"
        "                                                              ^",
    ),
    "a matrix in a file that does not exist": (
        config("component name=a type=FixedAffineComponent matrix=exp/lda.mat"),
        "line 2, column 51: exp/lda.mat: cannot be read: No such file or directory\n"
        "    component name=a type=FixedAffineComponent matrix=exp/lda.mat\n"
        "                                                      ^^^^^^^^^^^",
    ),
    "columns beyond the last": (
        config(
            "dim-range-node name=d input-node=input dim-offset=30 dim=20\n"
            "output-node name=output input=d"
        ),
        "line 2, column 1: dim-range node 'd' takes columns 30 to 49, but 'input' has 40\n"
        "    dim-range-node name=d input-node=input dim-offset=30 dim=20\n"
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    ),
    "columns of a node that does not exist": (
        config("dim-range-node name=d input-node=inptu dim-offset=0 dim=20"),
        "line 2, column 34: there is no node 'inptu'; did you mean 'input'?\n"
        "    dim-range-node name=d input-node=inptu dim-offset=0 dim=20\n"
        "                                     ^^^^^",
    ),
    "a component without an input": (
        config("component name=a type=NoOpComponent dim=40\ncomponent-node name=a component=a"),
        "line 3, column 1: 'input' is missing\n"
        "    component-node name=a component=a\n"
        "    ^^^^^^^^^^^^^^",
    ),
    "a component twice": (
        config(
            "component name=a type=NoOpComponent dim=40\n"
            "component name=a type=NoOpComponent dim=40"
        ),
        "line 3, column 16: component 'a' is defined twice\n"
        "    component name=a type=NoOpComponent dim=40\n"
        "                   ^",
    ),
    "an LSTM that is given its input only": (
        config(
            "component name=a type=LstmNonlinearityComponent cell-dim=10\n"
            "component-node name=a component=a input=input\noutput-node name=output input=a"
        ),
        "line 3, column 41: the input of node 'a' has dimension 40, but its component 'a' takes "
        "50\n"
        "    component-node name=a component=a input=input\n"
        "                                            ^^^^^",
    ),
    "nothing to append": (
        config("output-node name=output input=Append()"),
        "line 2, column 38: expected a descriptor, got ')'\n"
        "    output-node name=output input=Append()\n"
        "                                         ^",
    ),
    "a recurrence without a beginning": (
        lambda: load(RECURRENT),
        "no output can be computed from a window of 640 frames: none of the recurrence through 'a' "
        "can be computed; IfDefined() lets a recurrence begin",
    ),
    "a network for its path": (
        lambda: write_nnet("copy.raw", read_nnet(MODEL)),
        "expected a network (Nnet) to write, found str",
    ),
    "a network for an acoustic model": (
        lambda: write_acoustic_model(read_nnet(MODEL), "copy.mdl"),
        "expected an acoustic model (AcousticModel) to write, found Nnet",
    ),
    "a suffix of ONNX for a network of Kaldi": (
        lambda: write_nnet(read_nnet(MODEL), "copy.onnx"),
        "'copy.onnx' would be a model file of Kaldi with the suffix '.onnx': nnet3-to-onnx and "
        "nnet3_runtime_onnx.to_onnx write ONNX models",
    ),
    "a suffix of gzip for a network that is not packed": (
        lambda: write_nnet(read_nnet(MODEL), "copy.raw.gz"),
        "'copy.raw.gz' would be a model file of Kaldi with the suffix '.gz': it would not be "
        "packed; give gzip.open(path, 'wb') in place of the path",
    ),
    "a file that is open for text": (
        lambda: read_nnet(io.StringIO("<Nnet3> ")),
        "<stream>: cannot be read: it is open for text; open it with mode 'rb'",
    ),
    "a node to rename that does not exist": (
        edit("rename-node old-name=tdnn9.affine new-name=b"),
        "there is no node 'tdnn9.affine'; did you mean 'tdnn4.affine'?\n"
        "    rename-node old-name=tdnn9.affine new-name=b\n"
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    ),
    "a rank of 0": (
        edit("reduce-rank name=tdnn1.affine rank=0"),
        "'rank' must be positive and an integer (got 0)\n"
        "    reduce-rank name=tdnn1.affine rank=0\n"
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    ),
    "a state dict of a wrapped module": (
        lambda: read_nnet(MODEL).with_state_dict({"module.tdnn1.affine.bias_params": FRAMES}),
        "there is no array 'module.tdnn1.affine.bias_params'; did you mean "
        "'tdnn1.affine.bias_params'?",
    ),
    "a request without inputs": (
        lambda: ComputationRequest(inputs=[], outputs=[IoSpecification.from_range("output", 0, 1)]),
        "the request has no inputs",
    ),
    "times in the wrong order": (
        lambda: IoSpecification.from_range("output", 5, 1),
        "'output': expected frames from t_start up to, but not with, t_end; found none from 5 "
        "to 1",
    ),
    "an input twice": (
        lambda: ComputationRequest(
            inputs=[IoSpecification.from_range("input", 0, 1)] * 2,
            outputs=[IoSpecification.from_range("output", 0, 1)],
        ),
        "node 'input' is listed more than once in the request",
    ),
    "a network and a request in the wrong order": (
        lambda: compile_computation(request("input", "output"), read_nnet(MODEL)),
        "expected a network (Nnet), found ComputationRequest",
    ),
    "an output's name for a request": (
        lambda: CachingCompiler(read_nnet(MODEL)).compile("output"),
        "expected a ComputationRequest, found str",
    ),
    "a network for a computation": (
        lambda: optimize(read_nnet(MODEL), read_nnet(MODEL)),
        "expected an NnetComputation to improve, found Nnet",
    ),
    "an array for the arrays of the inputs": (
        lambda: NnetComputer(SPEAKER, compile_computation(SPEAKER, BOTH)).forward(FRAMES),
        "expected a mapping from nodes to arrays as input, found ndarray",
    ),
    "a file's name for features": (
        compute("test.feats.ark"),
        "features for node 'input': expected numbers, found a recording, which only a model takes "
        "that was loaded from its folder",
    ),
    "a dictionary for features": (
        compute({"input": FRAMES}),
        "features for node 'input': expected numbers, found a dict",
    ),
    "samples for features": (
        compute(np.zeros(16000, np.int16)),
        "features for node 'input': expected a matrix (rows, 23), found shape (16000,)",
    ),
    "no i-vector for a network that needs one": (
        with_ivector(),
        "node 'ivector' expects i-vectors of dimension 100, found none",
    ),
    "an i-vector of another dimension": (
        with_ivector(ivector=np.zeros(40)),
        "i-vectors for node 'ivector': expected dimension 100, found 40",
    ),
    "several i-vectors for one": (
        with_ivector(ivector=np.zeros((3, 100))),
        "node 'ivector': expected one i-vector, found shape (3, 100); are they online_ivectors?",
    ),
    "features of one of many that are wrong": (
        lambda: list(load(MODEL).compute_many([("a", FRAMES), ("b", FRAMES[:, :13])])),
        "utterance 'b': features for node 'input': expected dimension 23, found 13",
    ),
    "a dictionary for pairs": (
        lambda: list(load(MODEL).compute_many({"a": FRAMES})),
        "item 0: expected a pair of a key and features, found str; a dict has them as its items()",
    ),
    "arrays for pairs": (
        lambda: list(load(MODEL).compute_many([FRAMES, FRAMES])),
        "item 0: expected a pair of a key and features, found ndarray",
    ),
    "a device by number": (
        loading(device=0),
        "unknown device 0; expected 'cpu', 'cuda', 'cuda:<number>', as 'cuda:1', or a platform "
        "that is open",
    ),
    "a word for the number of threads": (
        loading(threads="auto"),
        "the number of threads must be an integer from 1 to 256, or None (got 'auto')",
    ),
    "frames of another dimension for a stream": (
        lambda: load(MODEL).stream().push(FRAMES[:, :13]),
        "frames for node 'input': expected dimension 23, found 13",
    ),
    "a script file that names a missing archive": (
        table("scp:nowhere.scp"),
        "nowhere.scp, line 1: 'utt1' at nowhere.ark:5: cannot be read: No such file or directory",
    ),
    "an offset that leads nowhere": (
        table("scp:inside.scp"),
        "inside.scp, line 1: 'utt1' at test.feats.ark:7: this is no value of a table; expected a "
        "matrix or vector, which begins with '[' in text, or integers, found "
        "'-gb-x-rp_m1-s145-p45-eig'",
    ),
    "keys without places": (
        table("scp:keys.scp"),
        "keys.scp, line 1: expected a key and a file, found 'utt1'",
    ),
    "a command in a script file": (
        table("scp:command.scp"),
        "command.scp, line 1: 'utt1' is to come from a command ('sox speech.flac -t wav - |'), "
        "and data does not run commands; write it in the table's own name instead (ark:command "
        "|)",
    ),
    "rows beyond the last": (
        table("scp:range.scp"),
        "range.scp, line 1: 'utt1': expected a range like [0:9] or [0:9,0:12] within 113 x 23, "
        "found [0:999]",
    ),
    "a key with a blank": (
        lambda: write_table("ark:output.ark").write("utt 1", FRAMES),
        "expected a key without blanks, found 'utt 1'",
    ),
}

TOOL_MISTAKES: dict[str, tuple[str, str]] = {
    "the model and the features in the wrong order": (
        "nnet3-compute ark:test.feats.ark final.raw ark:output.ark",
        "nnet3-compute: 'ark:test.feats.ark' is a table; expected a file here (are the arguments "
        "in the right order?)",
    ),
    "an archive without its kind": (
        "nnet3-compute final.raw test.feats.ark ark:output.ark",
        "nnet3-compute: 'test.feats.ark' is no table; expected 'ark:FILE', 'scp:FILE' or the "
        "like; did you mean 'ark:test.feats.ark'?",
    ),
    "an empty archive": (
        "nnet3-compute final.raw ark:empty.raw ark:output.ark",
        "nnet3-compute: 'ark:empty.raw' has no utterances",
    ),
    "vectors for matrices": (
        "nnet3-compute final.raw ark:vectors.ark ark:output.ark",
        "nnet3-compute: cannot read archive 'vectors.ark', byte 7: this is no matrix; "
        "expected 'FM', 'DM', 'CM', 'CM2' or 'CM3', found 'FV', a vector",
    ),
    "an output in a folder that does not exist": (
        "nnet3-compute final.raw ark:test.feats.ark ark:nowhere/output.ark",
        "nnet3-compute: cannot write 'nowhere/output.ark': there is no folder 'nowhere'",
    ),
    "a model in a folder that does not exist": (
        "nnet3-copy final.raw nowhere/copy.raw",
        "nnet3-copy: cannot write 'nowhere/copy.raw': No such file or directory",
    ),
    "an argument too few": (
        "nnet3-compute final.raw ark:test.feats.ark",
        "Error: Missing argument 'MATRIX-WSPECIFIER'.",
    ),
    "an option misspelt": (
        "nnet3-compute --frame-per-chunk=50 final.raw ark:test.feats.ark ark:output.ark",
        "Error: No such option '--frame-per-chunk'. Did you mean '--frames-per-chunk'?",
    ),
    "a word for the number of an option": (
        "nnet3-compute --frames-per-chunk=fifty final.raw ark:test.feats.ark ark:output.ark",
        "Error: Invalid value for '--frames-per-chunk': 'fifty' is not a valid integer.",
    ),
    "a choice misspelt": (
        "nnet3-compute --use-gpu=maybe final.raw ark:test.feats.ark ark:output.ark",
        "Error: Invalid value for '--use-gpu': 'maybe' is not one of 'yes', 'no', 'optional', "
        "'wait'.",
    ),
    "a model for config lines": (
        "nnet3-init final.raw new.raw",
        "nnet3-init: final.raw: expected UTF-8 text, found other bytes",
    ),
    "a .raw for nnet3-am-info": (
        "nnet3-am-info final.raw",
        "nnet3-am-info: final.raw, byte 2: this is a network, as in .raw files (read_nnet, "
        "nnet3-info), not an acoustic model; expected '<TransitionModel>', found '<Nnet3>'",
    ),
    "no labels to train on": (
        "nnet3-train-recipe --nnet=final.raw --features=ark:test.feats.ark run",
        "Error: expected --alignments, --posteriors or --targets as the labels of a network that "
        "is no chain model (no --den-fst), got none of them",
    ),
    "an xconfig for nnet3-init": (
        "nnet3-init network.xconfig new.raw",
        "nnet3-init: network.xconfig, line 1, column 1: a line must begin with one of "
        "component, component-node, input-node, output-node, dim-range-node; this is a line of "
        "an xconfig: Kaldi's steps/nnet3/xconfig_to_configs.py makes config lines of it "
        "(configs/final.config); input dim=40 name=input",
    ),
    "a node misspelt in a file": (
        "nnet3-init misspelt.config new.raw",
        "nnet3-init: misspelt.config, line 2, column 31: there is no node 'inptu'; did you mean "
        "'input'?; output-node name=output input=inptu",
    ),
    "a file of config lines that does not exist": (
        "nnet3-init missing.config new.raw",
        "nnet3-init: cannot read 'missing.config': No such file or directory",
    ),
    "one file for two": (
        "nnet3-init final.config",
        "Error: expected two or three files, got 1",
    ),
    "a script file as an archive": (
        "nnet3-compute final.raw ark:feats.scp ark:output.ark",
        "nnet3-compute: cannot read archive 'feats.scp', byte 5: this is no matrix; expected "
        "a matrix, which begins with '[' in text, found 'test.feats.ark:34\\n'",
    ),
    "an option of another tool": (
        "nnet3-compute --word-symbol-table=words.txt final.raw scp:feats.scp ark:output.ark",
        "Error: No such option '--word-symbol-table'.",
    ),
    "a comma in a number": (
        "nnet3-compute --acoustic-scale=0,1 final.raw scp:feats.scp ark:output.ark",
        "Error: Invalid value for '--acoustic-scale': '0,1' is not a valid float.",
    ),
    "online i-vectors without their period": (
        "nnet3-compute --online-ivectors=scp:feats.scp final.raw scp:feats.scp ark:output.ark",
        "Error: --online-ivectors needs --online-ivector-period=FRAMES",
    ),
    "priors of a network": (
        "nnet3-compute --use-priors=true final.raw scp:feats.scp ark:output.ark",
        "nnet3-compute: final.raw has no priors; --use-priors needs a .mdl file that has them",
    ),
    "a line of a config file without dashes": (
        "nnet3-compute --config=options.conf final.raw scp:feats.scp ark:output.ark",
        "Error: options.conf, line 2: expected an option, --name=value, found 'use-gpu=no'",
    ),
    "a table for a model": (
        "nnet3-info scp:feats.scp",
        "nnet3-info: 'scp:feats.scp' is a table; expected a file here (are the arguments in the "
        "right order?)",
    ),
    "a command that fails": (
        "nnet3-info \"exit 3 |\"",
        "nnet3-info: the command 'exit 3' failed with status 3",
    ),
    "edits of no kind": (
        "nnet3-copy --edits=set-learning-rates final.raw new.raw",
        "nnet3-copy: 'set-learning-rates' is no edit directive; those are "
        "convert-to-fixed-affine, remove-orphan-nodes, remove-orphan-components, "
        "remove-orphans, set-learning-rate, set-learning-rate-factor, rename-node, "
        "remove-output-nodes, set-dropout-proportion, apply-svd, reduce-rank; did you mean "
        "'set-learning-rate'?; set-learning-rates",
    ),
    "a network for an acoustic model in nnet3-am-copy": (
        "nnet3-am-copy --raw=true final.raw new.raw",
        "nnet3-am-copy: final.raw, byte 2: this is a network, as in .raw files (read_nnet, "
        "nnet3-info), not an acoustic model; expected '<TransitionModel>', found '<Nnet3>'",
    ),
    "features for examples": (
        "nnet3-train final.raw ark:test.feats.ark new.raw",
        "nnet3-train: cannot read archive 'test.feats.ark', byte 36: unexpected token; expected "
        "'<Nnet3Eg>', found 'FM', a matrix, as of features",
    ),
    "examples of a chain model": (
        "nnet3-train final.raw ark:chain.egs new.raw",
        "nnet3-train: cannot read archive 'chain.egs', byte 7: unexpected token; expected "
        "'<Nnet3Eg>', found '<Nnet3ChainEg>', an example of a chain model",
    ),
    "a momentum of 2": (
        "nnet3-train --momentum=2 final.raw ark:chain.egs new.raw",
        "nnet3-train: momentum must be at least 0 and below 1 (got 2.0)",
    ),
    "a weight too few": (
        "nnet3-average --weights=0.5 final.raw final.raw new.raw",
        "Error: --weights must be 2 numbers whose sum is not 0, got '0.5'",
    ),
    "a word for the size of a minibatch": (
        "nnet3-merge-egs --minibatch-size=many ark:chain.egs ark:new.egs",
        "nnet3-merge-egs: minibatch size 'many': expected a positive number, found 'many'",
    ),
    "a class beyond the number of classes": (
        "nnet3-get-egs --num-pdfs=3 ark:test.feats.ark ark:post.txt ark:egs",
        "nnet3-get-egs: 'ark:post.txt', 'test-en-gb-x-rp_m1-s145-p45-eight': classes must be 0 to "
        "2, found 7 to 7",
    ),
    "an alignment with a class that the network lacks": (
        "nnet3-train-recipe --nnet=final.raw --features=ark:test.feats.ark "
        "--alignments=ark:ali.txt run",
        "nnet3-train-recipe: 'ark:ali.txt', 'test-en-gb-x-rp_m1-s145-p45-eight': classes must be 0 "
        "to 10, found 12 to 12",
    ),
    "a context that leaves nothing": (
        "nnet3-get-egs --num-pdfs=8 --left-context=-3 ark:test.feats.ark ark:post.txt ark:egs",
        "nnet3-get-egs: a chunk of 1 frames would have no frames of the input, with a context of "
        "-3 frames before it and 0 after it",
    ),
    "a shift beyond all times": (
        "nnet3-copy-egs --frame-shift=99999999999 ark:some.egs ark:egs",
        "nnet3-copy-egs: moved by 99999999999 frames, an example has the time 99999999999; "
        "expected -2147483648 to 2147483647",
    ),
}
"""A command line, and what its tool says."""
# fmt: on


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes files in the current folder that people take for others."""
    monkeypatch.chdir(tmp_path)
    for name in (MODEL, "test.feats.ark"):
        shutil.copy(ROOT / "examples" / "digits" / name, name)
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    key, features = next(iter(read_table("ark:test.feats.ark")))
    Path("post.txt").write_text(f"{key} {'[ 7 1 ] ' * len(features)}\n", encoding="utf-8")
    Path("ali.txt").write_text(f"{key} {'12 ' * len(features)}\n", encoding="utf-8")
    frames = ExampleInput.from_sequences("input", [features[:1]])
    write_examples([TrainingExample(key=key, inputs=[frames], outputs=[])], "some.egs")
    model = Path(MODEL).read_bytes()
    Path("final.raw.gz").write_bytes(gzip.compress(model))
    Path("cut.raw").write_bytes(model[:50000])
    read_nnet(MODEL).save("final.nnet")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_messages(mistake: str) -> None:
    """The message of a mistake begins as the table says."""
    action, message = MISTAKES[mistake]

    with pytest.raises(Nnet3Error) as caught:
        action()

    assert str(caught.value).splitlines()[:3] == message.splitlines()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("mistake", TOOL_MISTAKES)
def test_messages_of_tools(
    mistake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tool prints the message of the table, and ends with a status of Kaldi's for failures."""
    command_line, message = TOOL_MISTAKES[mistake]
    words = shlex.split(command_line)
    monkeypatch.setattr(sys, "argv", words)

    with pytest.raises(SystemExit) as ended:
        entry_points.command_of(words[0]).run()

    printed = capsys.readouterr().err
    assert ended.value.code in (1, 255)  # test_exit_status.py has which
    assert message in printed.splitlines()
    assert "Traceback" not in printed
