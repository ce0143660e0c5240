"""All formats that the packages read: a damaged file of each, reading it, and uses of the value.

`FORMATS` has a function for each format, see `damaged.registered`; those of nnet3-speech are in
`damaged.speech_formats`, and sizes of networks in `damaged.sizes`.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from chain_cases import denominator, supervision
from nnet3 import CachingCompiler
from nnet3_compiler import compile_computation
from nnet3_computation import ComputationRequest, NnetComputation, parse_computation
from nnet3_conformance import read_cases, reference_cases, write_case
from nnet3_descriptors import (
    AcousticModel,
    Nnet,
    parse_config,
    parse_descriptor,
    write_nnet,
)
from nnet3_descriptors.editing import apply_edits
from nnet3_descriptors.files import (
    BinaryWriter,
    SparseMatrix,
    compressed,
    read_matrix,
    read_vector,
)
from nnet3_descriptors.indexes import make_indexes
from nnet3_report.pages import training_page
from nnet3_speech.hmm import (
    ContextDependency,
    Transitions,
    read_transitions,
    read_tree,
)
from nnet3_tables import (
    MatrixLookup,
    VectorLookup,
    files_of,
    read_matrices,
    read_table,
    read_tokens,
)
from nnet3_tools.entry_points import command_of
from nnet3_training import (
    ChainObjective,
    ChainSupervision,
    DenominatorGraph,
    Fst,
    Trainer,
    TrainerOptions,
    Utterance,
    posteriors,
    read_fst,
    write_fst,
)
from nnet3_training.chain import read_supervision, supervision_bytes
from nnet3_training.chain.graphs import (
    ProtoSupervision,
    SupervisionOptions,
    estimate_phone_lm,
    make_normalization_fst,
    read_phone_lattice,
    read_phones,
    supervision_of,
)
from nnet3_training.chain.graphs import read_alignment as read_phone_alignment
from nnet3_training.egs import read_alignment, read_posterior
from nnet3_training.hmm import initial_transition_model, read_hmm_topology
from nnet3_training.options import _UNKNOWN, Checkpoint, _digest, _with_digest
from nnet3_training.recipes import RecipeOptions, TrainingRun, train_recipe
from small_networks import network, stacked

from damaged import sizes, speech_formats  # noqa: F401  (they register their formats)
from damaged.bytes_and_words import damaged_data, damaged_words, write_folder
from damaged.containers import (
    CONTAINER_DAMAGES,
    EXAMPLES,
    damaged_text,
    odd_json,
    written,
)
from damaged.damages import damaged_file
from damaged.fields import changed_fields
from damaged.good_examples import bytes_of, changes_of, nnet3_examples, read_examples_of
from damaged.good_files import files_made, read_model
from damaged.registered import FORMATS, damaged_archives, damaged_files, damaged_format
from damaged.using import User

__all__ = ["FORMATS"]

REFERENCE = Path(__file__).parents[1] / "reference" / "chain"
PLDA = Path(__file__).parents[2] / "packages" / "nnet3-speech" / "tests" / "plda"

# ---- networks, requests and computations ----


@damaged_format("model files", 20)
def _model_files(user: User, seed: int, number: int, folder: Path) -> bool:
    file = damaged_file(seed, number)
    user.name = file.name
    model = user.read(len(file.data), lambda: read_model(file.data, file.kind))
    if isinstance(model, AcousticModel):
        user.attempt("transitions", lambda: Transitions.of(model.transition_model))
        model = model.nnet
    if model is not None:
        user.use_nnet(model)
    return model is not None


@damaged_format("containers and texts", 20)
def _containers_and_texts(user: User, seed: int, number: int, folder: Path) -> bool:
    _make_all_texts()
    text = damaged_text(seed, number)
    user.name = text.name
    nnet, data = text.example.nnet, text.data
    good = functools.partial(_compiled, text.example)
    readers: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
        "nnet": (lambda: Nnet.from_bytes(data), user.use_nnet),
        "request": (
            lambda: ComputationRequest.from_bytes(data),
            lambda value: user.use_request(nnet, value),
        ),
        "computation": (
            lambda: NnetComputation.from_bytes(data),
            lambda value: user.use_computation(nnet, value, good()),
        ),
        "config": (lambda: parse_config(data), user.use_nnet),
        "program": (
            lambda: parse_computation(data, nnet),
            lambda value: user.use_computation(nnet, value, good()),
        ),
    }
    read_it, use = readers[text.kind]
    value = user.attempt("read", read_it)
    if value is not None:
        use(value)
    return value is not None


@functools.cache
def _make_all_texts() -> None:
    """Makes the good texts now: a process that was forked would make them for itself alone."""
    for number in range(EXAMPLES):
        written(number)


@functools.cache
def _compiled(example: Any) -> NnetComputation:
    return compile_computation(example.nnet, example.request)


@damaged_format("fields of components", 2)
def _fields(user: User, seed: int, number: int, folder: Path) -> bool:
    changed = changed_fields(seed, number)
    user.name = changed.name
    nnet = user.attempt("make", changed.nnet)
    if nnet is not None:
        user.use_nnet(nnet)
    return nnet is not None


_DESCRIPTORS = (
    "Append(Offset(input, -1), input, Offset(input, 2), ReplaceIndex(ivector, t, 0))",
    "Sum(Scale(0.5, a), IfDefined(Offset(b, -3)), Const(1.5, 4))",
    "Failover(Offset(a, 2, 1), Switch(a, Round(b, 3), Offset(c, 7)))",
)


@damaged_format("descriptors", 3)
def _descriptors(user: User, seed: int, number: int, folder: Path) -> bool:
    text = damaged_words(user.rng, user.rng.choice(_DESCRIPTORS))
    descriptor = user.attempt("read", lambda: parse_descriptor(text))
    if descriptor is not None:
        again = user.attempt("read again", lambda: parse_descriptor(str(descriptor)))
        assert again == descriptor
        rows = make_indexes(0, np.arange(-3, 4))
        user.attempt("modulus", lambda: descriptor.modulus)
        user.attempt("dependencies", lambda: descriptor.dependencies(rows))
    return descriptor is not None


_EDITS = (
    "set-learning-rate name=a learning-rate=0.1",
    "set-dropout-proportion name=d proportion=0.1",
    "apply-svd name=a bottleneck-dim=2",
    "reduce-rank name=b rank=1",
    "rename-node old-name=a new-name=e",
    "remove-output-nodes name=output-2",
    "remove-orphans",
    "set-learning-rate-factor name=* learning-rate-factor=2",
    "convert-to-fixed-affine name=b",
)


@damaged_format("edits", 2)
def _edits(user: User, seed: int, number: int, folder: Path) -> bool:
    lines = "".join(f"{line}\n" for line in user.rng.sample(_EDITS, user.rng.randint(1, 3)))
    edited = user.attempt(
        "read", lambda: apply_edits(_edited_network(), damaged_words(user.rng, lines))
    )
    if edited is not None:
        user.use_nnet(edited)
    return edited is not None


# ---- tables ----

_RNG = np.random.default_rng(0)
_FRAMES = _RNG.standard_normal((9, 4), dtype=np.float32)
_ELEMENTS = np.array([0, 1, 3]), np.array([6, 0, 4]), np.float32([1, 0.5, -2])
_ROWS = "".join("  " + " ".join(f"{value:g}" for value in row) + "\n" for row in _FRAMES.tolist())


def _number(value: int) -> bytes:
    return b"\4" + value.to_bytes(4, "little", signed=True)


def _packed_matrix(token: bytes) -> bytes:
    matrix = compressed.compress(_FRAMES)
    if token == b"CM":
        return b"CM " + matrix.body
    width = 2 if token == b"CM2" else 1
    header = np.float32([-3.0, 6.0]).tobytes() + np.int32([9, 4]).tobytes()
    return token + b" " + header + bytes(range(36 * width))


@functools.cache
def _matrices() -> tuple[bytes, ...]:
    """Matrices and vectors as they stand in archives, behind their keys."""
    shape = _number(9) + _number(4)
    binary = [
        b"FM " + shape + _FRAMES.tobytes(),
        b"DM " + shape + _FRAMES.astype(np.float64).tobytes(),
        b"FV " + _number(36) + _FRAMES.tobytes(),
        b"DV " + _number(36) + _FRAMES.astype(np.float64).tobytes(),
        *map(_packed_matrix, (b"CM", b"CM2", b"CM3")),
    ]
    for matrix in (SparseMatrix(7, *_ELEMENTS), SparseMatrix(40_000_000, *_ELEMENTS)):
        writer = BinaryWriter()
        matrix.write(writer)
        binary.append(b"".join(writer.chunks))
    binary.append(_number(3) + _number(5) + _number(-2) + _number(7))
    text = [f" [\n{_ROWS}]\n", " [ 1 2.5 -3e-4 inf ]\n", " [ ]\n", "3 -2 5\n",
            "rows=2 dim=3 [ 0 1.5 2 2 ] dim=3 [ 1 1 ]\n"]  # fmt: skip
    return (*(b"\0B" + each for each in binary), *(each.encode() for each in text))


@functools.cache
def _archives() -> tuple[bytes, ...]:
    single = [b"a " + each for each in _matrices()]
    return (*single, b"".join(b"%d " % n + each for n, each in enumerate(_matrices())))


def _use_matrices(user: User, rspecifier: str, keys: str = "a0") -> bool:
    found = user.attempt("read", lambda: list(read_table(rspecifier)))
    for _, value in found or ():
        user.attempt("as an array", lambda value=value: np.asarray(value).shape)
    user.attempt("read matrices", lambda: [get().shape for _, get in read_matrices(rspecifier)])
    user.attempt("files", lambda: files_of(rspecifier))
    options = user.rng.choice(("", ",s", ",cs,s", ",o", ",p"))
    kind, _, rest = rspecifier.partition(":")

    def look_up(lookup: type[MatrixLookup] | type[VectorLookup]) -> None:
        with lookup(f"{kind}{options}:{rest}") as table:
            for key in keys:
                table.get(key)

    user.attempt("look up matrices", lambda: look_up(MatrixLookup))
    user.attempt("look up vectors", lambda: look_up(VectorLookup))
    return found is not None


@damaged_format("archives of matrices", 8)
def _archives_of_matrices(user: User, seed: int, number: int, folder: Path) -> bool:
    good = _archives()
    (folder / "ark").write_bytes(damaged_data(user.rng, user.rng.choice(good), good))
    return _use_matrices(user, f"ark:{folder}/ark")


@damaged_format("packed archives", 4)
def _packed_archives(user: User, seed: int, number: int, folder: Path) -> bool:
    good, rng = _archives(), user.rng
    data = rng.choice(good)
    way = rng.randrange(3)
    if way == 0:
        data = gzip.compress(damaged_data(rng, data, good), 1)
    elif way == 1:
        packed = gzip.compress(data, 1)
        data = damaged_data(rng, packed, [packed])
    else:  # much from little
        many = 1 << (26 if rng.random() < 0.03 else rng.choice((10, 14, 18)))
        piece = rng.choice((b"a", b"\0", b"a ", b"1 ", b"[ ", b"\n"))
        data = gzip.compress(data[: rng.randrange(len(data))] + piece * (many // len(piece)), 1)
    (folder / "ark.gz").write_bytes(data)
    return _use_matrices(user, f"ark:{folder}/ark.gz")


@damaged_format("script files", 4)
def _script_files(user: User, seed: int, number: int, folder: Path) -> bool:
    (folder / "ark").write_bytes(b"".join(b"%d " % n + each for n, each in enumerate(_matrices())))
    (folder / "mat").write_bytes(_matrices()[0])
    lines = [f"a {folder}/mat", f"b {folder}/mat[0:3]", f"c {folder}/mat[2:8,1:2]",
             f"0 {folder}/ark:2", f"d {folder}/mat[:,0:1]"]  # fmt: skip
    good = "\n".join(user.rng.sample(lines, user.rng.randint(1, 5))).encode()
    (folder / "scp").write_bytes(damaged_data(user.rng, good, [good]))
    return _use_matrices(user, f"scp:{folder}/scp", "abcd0")


_WORDS = [b"utt1 spk1\nutt2 spk1\nutt3 spk2\n"]


@damaged_files(
    "tables of words", 2, lambda: _WORDS, lambda path: read_tokens(f"ark:{path}"), of_streams=False
)
def _use_words(user: User, words: Any, folder: Path) -> None:
    user.attempt("repr", lambda: repr(words))


@damaged_format("matrix and vector files", 3)
def _matrix_files(user: User, seed: int, number: int, folder: Path) -> bool:
    good = _matrices()
    data = damaged_data(user.rng, user.rng.choice(good), good)
    found = [
        user.attempt("read", lambda reader=reader: reader(io.BytesIO(data)))
        for reader in (read_matrix, read_vector)
    ]
    return any(each is not None for each in found)


# ---- data for training ----


@damaged_format("examples", 10)
def _examples(user: User, seed: int, number: int, folder: Path) -> bool:
    file = damaged_file(seed, number, "examples")
    user.name = file.name
    examples = user.read(len(file.data), lambda: read_examples_of(file.data, file.kind))
    if examples is None:
        return False
    first = user.attempt("write", lambda: bytes_of(examples, file.kind))
    if first is not None:
        again = user.attempt(
            "write again", lambda: bytes_of(read_examples_of(first, file.kind), file.kind)
        )
        assert first == again
    for example in examples:
        for place, change in enumerate(changes_of(example, file.kind)):
            user.attempt(f"change {place}", change)
    return True


def _counted(*values: int) -> bytes:
    return b"\0B" + _number(len(values)) + b"".join(map(_number, values))


_POSTERIORS = (
    b"[ 0 1 ] [ 1 0.5 2 0.5 ] [ ]\n",
    b"\0B" + _number(2) + 2 * (_number(1) + _number(3) + b"\4" + np.float32(0.5).tobytes()),
)
_ALIGNMENTS = (b"0 0 1 2 2\n", b"\0B\4" + (3).to_bytes(4, "little") + np.int32([0, 1, 2]).tobytes())
_PHONES = (b"1 2 3 1\n", _counted(1, 2, 3))
_PHONE_ALIGNMENTS = (
    b"1 3 ; 2 6 ; 3 3 ; 1 4\n",
    b"\0B" + _number(2) + _number(1) + _number(5) + _number(2) + _number(7),
)


@damaged_archives("posteriors", 2, lambda: _POSTERIORS, read_posterior)
def _use_posterior(user: User, posterior: Any, folder: Path) -> None:
    user.attempt("labels", lambda: posteriors(posterior, 3))


@damaged_archives("alignments", 2, lambda: _ALIGNMENTS, read_alignment)
def _use_alignment(user: User, alignment: Any, folder: Path) -> None:
    user.attempt("labels", lambda: posteriors([[(int(label), 1.0)] for label in alignment], 3))


@damaged_archives("phones", 2, lambda: _PHONES, read_phones)
def _use_phones(user: User, phones: Any, folder: Path) -> None:
    user.attempt("phone LM", lambda: estimate_phone_lm([phones, phones]))


@functools.cache
def _hmm() -> tuple[ContextDependency, Transitions]:
    folder = REFERENCE / "digits"
    return read_tree(folder / "tree"), read_transitions(folder / "0.trans_mdl")


def _supervise(user: User, make: Callable[[SupervisionOptions], ProtoSupervision]) -> None:
    """Makes the supervision of an utterance, and an FST of it."""
    proto = user.attempt("phones", lambda: make(SupervisionOptions(frame_subsampling_factor=3)))
    if proto is not None:
        user.attempt("supervision", lambda: supervision_of(proto, *_hmm()))


@damaged_archives("alignments of phones", 2, lambda: _PHONE_ALIGNMENTS, read_phone_alignment)
def _use_phone_alignment(user: User, alignment: Any, folder: Path) -> None:
    _supervise(user, lambda options: ProtoSupervision.from_alignment(alignment, options))


@functools.cache
def _lattices() -> tuple[bytes, ...]:
    text = (REFERENCE / "lattices" / "lattices.txt").read_bytes()
    binary = (REFERENCE / "lattices" / "lattices.ark").read_bytes()
    first = binary.index(b"\xd6\xfd\xb2\x7e")
    second = binary.index(b"\xd6\xfd\xb2\x7e", first + 1)
    behind_key = text.split(b"\n\n")[0].partition(b"\n")[2]
    return (b"\n" + behind_key + b"\n\n", binary[first : binary.rindex(b"lattice", first, second)])


@damaged_archives("lattices", 3, _lattices, read_phone_lattice)
def _use_lattice(user: User, lattice: Any, folder: Path) -> None:
    _supervise(user, lambda options: ProtoSupervision.from_lattice(lattice, options))


@functools.cache
def _fsts() -> tuple[bytes, ...]:
    folder = REFERENCE / "digits"
    found = [folder / "phone_lm.fst", folder / "den.fst", REFERENCE / "random" / "17" / "den.fst"]
    text = b"0 1 1 1 0.5\n0 2 2 2\n1 2 3 3 0.25\n2 0.125\n"
    return (*(each.read_bytes() for each in found), text)


@damaged_files("FSTs", 4, _fsts, read_fst)
def _use_fst(user: User, fst: Fst, folder: Path) -> None:
    user.attempt("repr", lambda: repr(fst))
    user.attempt("write", lambda: _written_again(fst, folder / "fst"))
    graph = user.attempt("denominator", lambda: DenominatorGraph(fst, 60))
    if graph is not None:
        user.attempt("normalization", lambda: make_normalization_fst(fst, 60))


def _written_again(fst: Fst, path: Path) -> None:
    write_fst(fst, path)
    assert read_fst(path).equals(fst)


@functools.cache
def _supervisions() -> tuple[bytes, ...]:
    rng = np.random.default_rng(0)
    found = [supervision(rng, sequences=1), supervision(rng, sequences=2)]
    return tuple(
        supervision_bytes(each, binary=binary) for each in found for binary in (True, False)
    )


@functools.cache
def _objective() -> ChainObjective:
    return ChainObjective(denominator(np.random.default_rng(0)), num_pdfs=5)


@damaged_archives("supervisions", 4, _supervisions, read_supervision)
def _use_supervision(user: User, known: ChainSupervision, folder: Path) -> None:
    user.attempt("write", lambda: supervision_bytes(known))
    rows = known.num_sequences * known.frames_per_sequence
    if rows < 10_000:
        zeros = np.zeros((rows, 5), dtype=np.float32)
        user.attempt("objective", lambda: _objective().compute(known, zeros))


@functools.cache
def _trees() -> tuple[bytes, ...]:
    text = (
        b"ContextDependency 2 1 ToPdf TE 1 3 ( NULL CE 0 SE 0 [ 1 2 ] { CE 1 CE 2 } ) "
        b"EndContextDependency "
    )
    return ((REFERENCE / "digits" / "tree").read_bytes(), text)


@damaged_files("trees", 3, _trees, read_tree)
def _use_tree(user: User, tree: ContextDependency, folder: Path) -> None:
    user.attempt("repr", lambda: repr(tree))
    for phone in (0, 1, 5):
        user.attempt("pdfs", lambda phone=phone: tree.pdfs(phone, 0))
        user.attempt("pdf", lambda phone=phone: tree.pdf((phone,) * tree.context_width, 0))
    topology = read_hmm_topology(REFERENCE / "digits" / "topo")
    user.attempt("transitions", lambda: initial_transition_model(tree, topology))


@damaged_format("topologies", 2)
def _topologies(user: User, seed: int, number: int, folder: Path) -> bool:
    good = [(REFERENCE / "digits" / "topo").read_bytes(), _transition_models()[0]]
    data = damaged_data(user.rng, good[0], good)
    topology = user.attempt("read", lambda: read_hmm_topology(io.BytesIO(data)))
    if topology is not None:
        tree, _ = _hmm()
        model = user.attempt("transitions", lambda: initial_transition_model(tree, topology))
        if model is not None:
            user.attempt("numbers", lambda: Transitions.of(model))
    return topology is not None


@functools.cache
def _transition_models() -> tuple[bytes, ...]:
    found = (REFERENCE / "digits" / "0.trans_mdl", REFERENCE / "random" / "17" / "transition.mdl")
    return tuple(each.read_bytes() for each in found)


@damaged_files("transition models", 3, _transition_models, read_transitions)
def _use_transitions(user: User, transitions: Transitions, folder: Path) -> None:
    user.attempt("repr", lambda: repr(transitions)[:100])
    user.attempt("pdfs", lambda: (transitions.num_ids, transitions.num_pdfs))


# ---- what runs leave behind ----


def _config(input_dim: int = 4, output_dim: int = 3) -> str:
    affine = "NaturalGradientAffine input-dim"
    return stacked(
        input_dim,
        f"a {affine}={2 * input_dim} output-dim=6 max-change=0.3",
        "r RectifiedLinear dim=6",
        "n BatchNorm dim=6",
        "d Dropout dim=6 dropout-proportion=0.1",
        f"b {affine}=6 output-dim={output_dim}",
        f"s LogSoftmax dim={output_dim}",
        splice="Append(Offset(input, -1), input)",
    )


@functools.cache
def _small_network(input_dim: int = 4, output_dim: int = 3) -> Nnet:
    return network(_config(input_dim, output_dim))


@functools.cache
def _edited_network() -> Nnet:
    return parse_config(_config() + "output-node name=output-2 input=r\n")


def _utterances() -> list[Utterance]:
    labels = posteriors([[(n % 3, 1.0)] for n in range(30)], 3)
    frames = _RNG.standard_normal((30, 4), dtype=np.float32)
    return [Utterance(key=f"u{n}", features=frames + n, supervision=labels) for n in range(12)]


@functools.cache
def _run() -> dict[str, bytes]:
    """The JSON files of a run, by name."""
    options = RecipeOptions(
        num_epochs=2, minibatch_size="1:4", frames_per_example=(10,), frames_per_archive=150,
        held_out_every=5, diagnostic_examples=4, dropout_schedule="0,0.2",
    )  # fmt: skip
    made = files_made(lambda folder: train_recipe(folder, _small_network(), _utterances(), options))
    return {name: data for name, data in made.items() if name.endswith(".json")}


@damaged_format("files of a training run", 5)
def _runs(user: User, seed: int, number: int, folder: Path) -> bool:
    rng = user.rng
    damage = _damaged_json if rng.random() < 0.6 else damaged_data
    write_folder(rng, folder, _run(), lambda _, data: damage(rng, data, [data]))
    run = user.attempt("read", lambda: TrainingRun.read(folder))
    if run is not None:
        user.attempt("repr", lambda: repr(run))
        user.attempt("html", run._repr_html_)
        user.attempt("report", lambda: training_page("run", run))
        user.attempt("frames", lambda: run.num_frames)
    return run is not None


def _damaged_json(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    content = odd_json(rng, json.loads(data), rng.choice((1, 1, 2)))
    depth = rng.choice((10, 500, 900, 1000, 100_000)) if rng.random() < 0.02 else 0
    text = json.dumps(content)
    at = text.find(": ", rng.randrange(len(text)))
    return (text[:at] + "[" * depth + text[at:] if depth else text).encode()


@functools.cache
def _checkpoint() -> bytes:
    trainer = Trainer(_small_network(6, 5), TrainerOptions(learning_rate=0.01, momentum=0.5))
    trainer.train_minibatch(nnet3_examples()["full"][0])
    return files_made(lambda folder: trainer.save(folder / "checkpoint"))["checkpoint"]


@damaged_format("checkpoints", 3)
def _checkpoints(user: User, seed: int, number: int, folder: Path) -> bool:
    rng = user.rng
    data = rng.choice(CONTAINER_DAMAGES)(rng, _checkpoint())
    if rng.random() < 0.9:  # so that the digest does not refuse it
        digest = Checkpoint.from_bytes(_checkpoint()).digest
        data = _with_digest(data, _UNKNOWN, instead_of=digest)
        data = _with_digest(data, _digest(data), instead_of=_UNKNOWN)
    (folder / "checkpoint").write_bytes(data)
    trainer = user.attempt("read", lambda: Trainer.load(folder / "checkpoint"))
    if trainer is not None:
        user.attempt("step", lambda: trainer.train_minibatch(nnet3_examples()["full"][0]))
        user.attempt("summary", trainer.summary)
        user.attempt("save", lambda: trainer.save(folder / "other"))
        user.attempt("network", lambda: trainer.nnet.info())
    return trainer is not None


@functools.cache
def _cache() -> bytes:
    example = written(0)[0]
    compiler = CachingCompiler(example.nnet)
    compiler.compile(example.request)
    return files_made(lambda folder: compiler.save(folder / "cache"))["cache"]


@damaged_format("caches of computations", 3)
def _caches(user: User, seed: int, number: int, folder: Path) -> bool:
    example = written(0)[0]
    (folder / "cache").write_bytes(user.rng.choice(CONTAINER_DAMAGES)(user.rng, _cache()))
    compiler = CachingCompiler(example.nnet)

    def load() -> bool:
        compiler.load(folder / "cache")
        return True

    if user.attempt("read", load) is None:
        return False
    computation = user.attempt("compile", lambda: compiler.compile(example.request))
    if computation is not None:
        user.use_computation(example.nnet, computation)
    return True


@functools.cache
def _case() -> dict[str, bytes]:
    """The files of a case, by name."""
    case = next(reference_cases(REFERENCE.parent, only="component/affine-l2"))
    return files_made(lambda folder: write_case(folder, case))


@damaged_format("cases of nnet3-conformance", 2)
def _cases(user: User, seed: int, number: int, folder: Path) -> bool:
    def damage(name: str, data: bytes) -> bytes:
        change = _damaged_json if name.endswith(".json") else damaged_data
        return change(user.rng, data, [data])

    write_folder(user.rng, folder, _case(), damage)
    return user.attempt("read", lambda: list(read_cases(folder))) is not None


# ---- tools ----

_COMMANDS = {
    "nnet3-info": ("model files", ["{file}"]),
    "nnet3-copy": ("model files", ["--binary=false", "{file}", "{folder}/out"]),
    "nnet3-am-info": ("model files", ["{file}"]),
    "nnet3-am-copy": ("model files", ["--raw=true", "{file}", "{folder}/out"]),
    "nnet3-copy-egs": ("examples", ["--frame=random", "ark:{file}", "ark:{folder}/out"]),
    "nnet3-merge-egs": ("examples", ["ark:{file}", "ark,t:{folder}/out"]),
    "nnet3-chain-copy-egs": ("examples", ["ark:{file}", "ark,t:{folder}/out"]),
    "nnet3-chain-merge-egs": ("examples", ["ark:{file}", "ark:{folder}/out"]),
    "nnet3-train": ("examples", ["{folder}/raw", "ark:{file}", "{folder}/out"]),
    "nnet3-compute-prob": ("examples", ["{folder}/raw", "ark:{file}"]),
    "nnet3-acc-lda-stats": (
        "examples",
        ["{folder}/raw", "ark:{file}", "{folder}/out"],
    ),
    "nnet-get-feature-transform": ("statistics", ["{folder}/out", "{file}"]),
    "nnet3-init": ("config lines", ["{file}", "{folder}/out"]),
    "nnet3-compute": ("tables", ["{folder}/raw", "ark:{file}", "ark,t:{folder}/out"]),
    "nnet3-compute-batch": ("tables", ["{folder}/raw", "ark:{file}", "ark:{folder}/out"]),
    "ivector-mean": ("tables", ["ark:{file}", "{folder}/out"]),
    "ivector-plda-scoring": (
        "PLDA models",
        ["{file}", f"ark:{PLDA}/vec.txt", f"ark:{PLDA}/vec.txt", f"{PLDA}/trials", "{folder}/out"],
    ),
    "chain-make-den-fst": (
        "FSTs",
        [f"{REFERENCE}/digits/tree", f"{REFERENCE}/digits/0.trans_mdl", "{file}", "{folder}/out",
         "{folder}/out2"],
    ),
}  # fmt: skip


_GIVEN: dict[str, Callable[[], Sequence[bytes]]] = {
    "statistics": lambda: [(REFERENCE.parent / "training" / "lda.acc").read_bytes()],
    "tables": _archives,
    "PLDA models": lambda: [(PLDA / "plda").read_bytes()],
    "FSTs": _fsts,
}
"""Good files of further kinds that tools read."""


@damaged_format("files given to tools", 4)
def _files_given_to_tools(user: User, seed: int, number: int, folder: Path) -> bool:
    name = user.rng.choice(sorted(_COMMANDS))
    what, arguments = _COMMANDS[name]
    if what in ("model files", "examples"):
        data = damaged_file(seed, number, "models" if what == "model files" else what).data
    elif what == "config lines":
        data = damaged_words(user.rng, _config()).encode("utf-8", "replace")
    else:
        good = _GIVEN[what]()
        data = damaged_data(user.rng, user.rng.choice(good), good)
    (folder / "file").write_bytes(data)
    dims = (6, 5) if what == "examples" else (4, 3)
    write_nnet(_small_network(*dims), folder / "raw")
    user.name = f"{name} {' '.join(arguments)}"
    command = command_of(name)
    given = [each.format(file=folder / "file", folder=folder) for each in arguments]
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace")

    def run() -> int:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            try:
                command.main(given, prog_name=name)
            except SystemExit as end:
                return int(end.code or 0)
        return 0

    status = user.attempt("run", run)
    output.flush()
    said = output.buffer.getvalue().decode(errors="replace")  # type: ignore[attr-defined]
    assert status in (None, 0, 1, 255), (status, said[-500:])
    for fault in ("Traceback", "MemoryError", "llocate", "Warning:"):
        assert fault not in said, said[-2000:]
    return status == 0
