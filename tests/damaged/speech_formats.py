"""The formats that nnet3-speech reads: recordings, options, i-vectors, PLDA models, folders."""

from __future__ import annotations

import functools
import io
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import kaldifst
import nnet3
import numpy as np
from nnet3_descriptors import parse_config, write_nnet
from nnet3_descriptors.files import read_matrix
from nnet3_speech import (
    AdaptationState,
    CmvnOptions,
    DeltaOptions,
    DiagGmm,
    FbankOptions,
    FeatureExtractor,
    FolderOptions,
    FullGmm,
    IvectorExtractionConfig,
    IvectorExtractor,
    MfccOptions,
    ModelFolder,
    OnlineCmvn,
    OnlineCmvnOptions,
    OnlineCmvnState,
    OnlineIvectorExtractor,
    Plda,
    SlidingCmvnOptions,
    SpliceOptions,
    VadOptions,
    WordDecoder,
    add_deltas,
    apply_cmvn,
    apply_sliding_cmvn,
    apply_transform,
    cmvn_stats,
    compute_vad,
    read_symbols,
    read_wav,
)
from nnet3_speech.decoding_graph import read_graph
from nnet3_speech.features import SplicedTransform, Splicer
from nnet3_speech.gmm import pruned_posteriors
from nnet3_speech.hmm import Transitions
from nnet3_speech.options import read_options
from small_graph import BOUNDARIES, MODEL, WORDS, small_graph
from small_networks import stacked
from wav_files import extension, wav

from damaged.bytes_and_words import damaged_data, write_folder
from damaged.good_files import files_made
from damaged.registered import damaged_files, damaged_format
from damaged.using import User

PACKAGE = Path(__file__).parents[2] / "packages" / "nnet3-speech" / "tests"
DIGITS = Path(__file__).parents[1] / "reference" / "chain" / "digits"

_RNG = np.random.default_rng(0)
_NOISE = 1000.0 * _RNG.standard_normal(1600).astype(np.float32)
"""A tenth of a second."""
_FRAMES = _RNG.standard_normal((60, 23)).astype(np.float32)


# ---- recordings and their features ----


@functools.cache
def _recordings() -> tuple[bytes, ...]:
    """WAV files of each coding, of some hundredths of a second."""
    samples = np.clip(_NOISE[:400], -32767, 32767)
    short, wide = samples.astype("<i2").tobytes(), (65536 * samples).astype("<i4").tobytes()
    single = (samples / 32768).astype("<f4").tobytes()
    return (
        wav(short, rate=8000),
        wav(short, channels=2, before=b"LIST\4\0\0\0INFO"),
        wav(samples.astype(np.uint8).tobytes(), bits=8, rate=11025),
        wav(wide[:1200], bits=24),
        wav(wide, bits=32, rate=44100),
        wav(single, coding=3, bits=32),
        wav(single, coding=0xFFFE, bits=32, extension=extension(3, 32)),
        wav(short, size=0xFFFFFFFF, riff_size=0xFFFFFFFF),
    )


@damaged_files("recordings", 5, _recordings, read_wav)
def _use_recording(user: User, recording: Any, folder: Path) -> None:
    options = MfccOptions(allow_downsample=True, allow_upsample=True)
    for samples in recording.samples[:2]:
        user.attempt(
            "features",
            lambda samples=samples: FeatureExtractor(options).compute(samples, recording.rate),
        )


_NUMBER = re.compile(rb"(?<==)-?\d[\d.]*")
_ODD_VALUES = (b"0", b"-1", b"1", b"2", b"3", b"7", b"100", b"4000", b"1e5", b"1000000000",
               b"2147483647", b"99999999999", b"-400", b"0.001", b"1e-30", b"1e30", b"0.5",
               b"nan", b"inf")  # fmt: skip


def _text_of(options: Any) -> bytes:
    """A config file with all options of a value."""
    lines = [
        f"--{name.replace('_', '-')}={str(value).lower() if type(value) is bool else value}"
        for name, value in attrs.asdict(options).items()
    ]
    return "\n".join(lines).encode()


def _use_features(user: User, options: MfccOptions | FbankOptions) -> None:
    user.attempt(
        "features", lambda: FeatureExtractor(options).compute(_NOISE, options.sample_frequency)
    )
    user.attempt("features at 8 kHz", lambda: FeatureExtractor(options).compute(_NOISE, 8000))


def _use_online_cmvn(user: User, options: OnlineCmvnOptions) -> None:
    state = OnlineCmvnState(of_all=cmvn_stats(_FRAMES))
    user.attempt("normalise online", lambda: OnlineCmvn(options, state).push(_FRAMES))


def _use_splicing(user: User, options: SpliceOptions) -> None:
    matrix = np.zeros((2, 45), np.float32)
    splicer = Splicer(SplicedTransform(options=options, matrix=matrix))
    user.attempt("splice", lambda: splicer.push(_NOISE[:60].reshape(12, 5), last=True))


@functools.cache
def _configs() -> tuple[tuple[type[Any], bytes, Callable[[User, Any], object]], ...]:
    """Classes of options, a config file of each, and what is done with the options."""
    resampled = {"allow_downsample": True, "allow_upsample": True}
    mfcc = MfccOptions(num_ceps=20, num_mel_bins=40, **resampled)
    of_frames: dict[type[Any], Callable[[Any, Any], object]] = {
        SlidingCmvnOptions: apply_sliding_cmvn,
        CmvnOptions: lambda frames, options: apply_cmvn(frames, cmvn_stats(frames), options),
        DeltaOptions: add_deltas,
        VadOptions: compute_vad,
    }
    return (
        (MfccOptions, _text_of(mfcc), _use_features),
        (MfccOptions, (PACKAGE / "data" / "mfcc.conf").read_bytes(), _use_features),
        (FbankOptions, _text_of(FbankOptions(use_energy=True, **resampled)), _use_features),
        (FolderOptions, _text_of(FolderOptions()), lambda user, options: None),
        (IvectorExtractionConfig, _text_of(IvectorExtractionConfig()), _use_ivector_options),
        (OnlineCmvnOptions, _text_of(OnlineCmvnOptions(skip_dims="1:3")), _use_online_cmvn),
        (SpliceOptions, _text_of(SpliceOptions()), _use_splicing),
        *(
            (
                cls,
                _text_of(cls()),
                lambda user, options, use=use: user.attempt("use", lambda: use(_FRAMES, options)),
            )
            for cls, use in of_frames.items()
        ),
    )


def _with_odd_values(rng: random.Random, data: bytes) -> bytes:
    """A config file with one or two other numbers."""
    for _ in range(rng.choice((1, 1, 2))):
        places = list(_NUMBER.finditer(data))
        if not places:
            break
        start, end = rng.choice(places).span()
        data = data[:start] + rng.choice(_ODD_VALUES) + data[end:]
    return data


@damaged_format("config files", 5)
def _config_files(user: User, seed: int, number: int, folder: Path) -> bool:
    good = _configs()
    cls, data, use = user.rng.choice(good)
    if user.rng.random() < 0.5 and _NUMBER.search(data):
        data = _with_odd_values(user.rng, data)
    else:
        data = damaged_data(user.rng, data, [each for _, each, _ in good])
    (folder / "conf").write_bytes(data)
    options = user.attempt("read", lambda: read_options(cls, folder / "conf"))
    if options is not None:
        user.attempt("repr", lambda: repr(options))
        use(user, options)
    return options is not None


_SYMBOLS = ["<eps> 0\nsil 1\na_B 2\nö 3\n#0 4\n".encode()]


@damaged_files("symbol tables", 2, lambda: _SYMBOLS, read_symbols, of_streams=False)
def _use_symbols(user: User, symbols: Any, folder: Path) -> None:
    user.attempt("repr", lambda: repr(symbols))


# ---- i-vectors ----

EXTRACTOR = PACKAGE / "extractor"


@functools.cache
def _ivector_files() -> dict[type[Any], tuple[bytes, ...]]:
    """Files of each kind, binary and text."""
    ubm = DiagGmm.read(EXTRACTOR / "final.dubm")
    inverse = np.stack([np.diag(each) for each in ubm.inv_vars])
    values: tuple[Any, ...] = (
        ubm,
        FullGmm(weights=ubm.weights, means_invcovars=ubm.means_invvars, inv_covars=inverse),
        IvectorExtractor.read(EXTRACTOR / "final.ie"),
        _extractor().compute(_FRAMES)[1],
    )

    def written(value: Any, *, binary: bool) -> bytes:
        return files_made(lambda folder: value.write(folder / "file", binary=binary))["file"]

    return {
        type(each): (written(each, binary=True), written(each, binary=False)) for each in values
    }


def _files_of_extractor() -> dict[str, bytes]:
    """The files of the folder of an extractor, by name."""
    names = ["final.dubm", "final.ie", "final.mat", "global_cmvn.stats", "online_cmvn.conf",
             "splice.conf"]  # fmt: skip
    return {name: (EXTRACTOR / name).read_bytes() for name in names}


@functools.cache
def _extractor() -> OnlineIvectorExtractor:
    return OnlineIvectorExtractor.of_folder(EXTRACTOR)


def _use_ivector_options(user: User, options: IvectorExtractionConfig) -> None:
    chosen = attrs.evolve(_extractor(), config=options)
    user.attempt("i-vectors", lambda: chosen.compute(_FRAMES))


@damaged_format("files of i-vectors", 8)
def _files_of_ivectors(user: User, seed: int, number: int, folder: Path) -> bool:
    kinds = _ivector_files()
    kind = user.rng.choice(list(kinds))
    others = [data for each in kinds.values() for data in each]
    data = damaged_data(user.rng, user.rng.choice(kinds[kind]), others)
    value = user.attempt("read", lambda: kind.read(io.BytesIO(data)))
    if value is None:
        return False
    user.name = kind.__name__
    user.attempt("repr", lambda: repr(value))
    binary = user.rng.random() < 0.5
    user.attempt("write", lambda: _same_again(value, folder / "file", binary=binary))
    if isinstance(value, AdaptationState):
        user.attempt("limit", lambda: value.limited(10.0, 0.1))
        user.attempt("i-vectors of a speaker", lambda: _extractor().compute(_FRAMES, value))
        return True
    frames = np.random.default_rng(number).standard_normal((7, value.dim)).astype(np.float32)
    if isinstance(value, IvectorExtractor):
        likelihoods = np.zeros((7, value.num_gaussians), np.float32)
        found = pruned_posteriors(likelihoods, 3, 0.0)
        user.attempt("i-vector", lambda: value.ivector(frames, found))
        chosen = attrs.evolve(_extractor(), extractor=value)
        if value.dim == 10 and value.num_gaussians == 16:
            user.attempt("online i-vectors", lambda: chosen.compute(_FRAMES))
        return True
    likelihoods = user.attempt("likelihoods", lambda: value.log_likelihoods(frames))
    if likelihoods is not None:
        user.attempt("posteriors", lambda: pruned_posteriors(likelihoods, 3, 0.025))
    return True


def _same_again(value: Any, path: Path, *, binary: bool) -> None:
    value.write(path, binary=binary)
    first = path.read_bytes()
    type(value).read(path).write(path, binary=binary)
    assert path.read_bytes() == first, "what is written is not what was read"


@damaged_format("folders of i-vectors", 4)
def _folders_of_ivectors(user: User, seed: int, number: int, folder: Path) -> bool:
    def damage(_: str, data: bytes) -> bytes:
        return damaged_data(user.rng, data, [data])

    write_folder(user.rng, folder, _files_of_extractor(), damage)
    extractor = user.attempt("read", lambda: OnlineIvectorExtractor.of_folder(folder))
    if extractor is None:
        return False
    frames = np.random.default_rng(number).standard_normal((60, extractor.dim)).astype(np.float32)
    user.attempt("i-vectors", lambda: extractor.compute(frames))
    return True


@damaged_files(
    "CMVN statistics", 2, lambda: [(EXTRACTOR / "global_cmvn.stats").read_bytes()], read_matrix
)
def _use_cmvn_statistics(user: User, stats: Any, folder: Path) -> None:
    for options in (CmvnOptions(), CmvnOptions(norm_vars=True)):
        user.attempt("normalise", lambda options=options: apply_cmvn(_FRAMES, stats, options))
    of_all = np.asarray(stats, np.float64)
    state = user.attempt("state", lambda: OnlineCmvnState(of_all=of_all))
    if state is not None:
        for online in (OnlineCmvnOptions(), OnlineCmvnOptions(norm_vars=True)):
            user.attempt("online", lambda online=online: OnlineCmvn(online, state).push(_FRAMES))


# ---- speakers ----


@functools.cache
def _pldas() -> tuple[bytes, ...]:
    plda, text = Plda.read(PACKAGE / "plda" / "plda"), io.BytesIO()
    plda.write(text, binary=False)
    return ((PACKAGE / "plda" / "plda").read_bytes(), text.getvalue())


@damaged_files("PLDA models", 4, _pldas, Plda.read)
def _use_plda(user: User, plda: Plda, folder: Path) -> None:
    vectors = np.random.default_rng(user.rng.getrandbits(32)).standard_normal((5, plda.dim))
    user.attempt("repr", lambda: repr(plda))
    user.attempt("score", lambda: plda.score(vectors, vectors[::-1], num_utts=np.arange(1, 6)))
    user.attempt("simple", lambda: plda.transform(vectors, simple_length_normalization=True))
    user.attempt("as it is", lambda: plda.score(vectors, vectors[0], normalize_length=False))
    for what, change in (
        ("smooth", lambda: plda.smoothed(0.1)),
        ("adapt", lambda: plda.adapted(vectors)),
    ):
        changed = user.attempt(what, change)
        if changed is not None:
            user.attempt(f"score by {what}", lambda changed=changed: changed.score(*vectors[:2]))
    binary = user.rng.random() < 0.5
    user.attempt("write", lambda: _same_again(plda, folder / "file", binary=binary))
    user.attempt("transform", lambda: apply_transform(vectors, plda.matrix))


# ---- graphs ----

_LABELS = (0, -1, 1, 3, 4, 5, 6, 7, 1 << 20, 2**31 - 1, -(2**31))


@functools.cache
def _graphs() -> tuple[bytes, ...]:
    """Decoding graphs of both types."""
    kinds = kaldifst.StdVectorFst(small_graph()), kaldifst.StdConstFst(small_graph())
    return tuple(
        files_made(lambda folder, graph=graph: graph.write(f"{folder}/graph"))["graph"]
        for graph in kinds
    )


@damaged_format("decoding graphs", 3)
def _decoding_graphs(user: User, seed: int, number: int, folder: Path) -> bool:
    data = user.rng.choice(_graphs())
    if user.rng.random() < 0.5:
        start = 4 * user.rng.randrange(len(data) // 4) + len(data) % 4  # of a label, state or cost
        data = data[:start] + struct.pack("<i", user.rng.choice(_LABELS)) + data[start + 4 :]
    else:
        data = damaged_data(user.rng, data, _graphs())
    (folder / "HCLG.fst").write_bytes(data)
    graph = user.attempt("read", lambda: read_graph(folder / "HCLG.fst", 6))
    if graph is None:
        return False
    decoder = WordDecoder(graph, WORDS, Transitions.of(MODEL), boundaries=BOUNDARIES)
    scores = np.random.default_rng(number).standard_normal((9, 6)).astype(np.float32)
    for nbest in (1, 3):
        user.attempt("decode", lambda nbest=nbest: decoder.decode(scores, 0.03, nbest=nbest))
    return True


# ---- folders ----

_NETWORK = """
input-node name=input dim={dim}
{ivector}
component name=a type=AffineComponent input-dim={columns} output-dim=3
component-node name=a component=a input=Append(Offset(input, -1), input{read})
output-node name=output input=a
"""
_POOLING = stacked(
    5,
    "e StatisticsExtraction input-dim=5",
    "p StatisticsPooling input-dim=11 left-context=0 right-context=10000",
    "s Affine input-dim=10 output-dim=9",
)
_MFCC = b"--num-ceps=5\n--num-mel-bins=10\n--use-energy=true\n"


def _network(config: str) -> bytes:
    target = io.BytesIO()
    write_nnet(parse_config(config, rng=np.random.default_rng(0)), target)
    return target.getvalue()


@functools.cache
def _model_folders() -> tuple[dict[str, bytes], ...]:
    """The files of folders of three layouts, by name: Vosk's, Kaldi's online one, x-vectors."""
    plain = _NETWORK.format(dim=5, ivector="", columns=10, read="")
    ivector = _NETWORK.format(
        dim=23, ivector="input-node name=ivector dim=8", columns=54,
        read=", ReplaceIndex(ivector, t, 0)",
    )  # fmt: skip
    options = IvectorExtractionConfig(
        lda_matrix="/home/u/ivector/final.mat",
        global_cmvn_stats="/home/u/ivector/global_cmvn.stats",
        cmvn_config="/home/u/ivector/online_cmvn.conf",
        splice_config="/home/u/ivector/splice.conf",
        diag_ubm="/home/u/ivector/final.dubm",
        ivector_extractor="/home/u/ivector/final.ie",
    )
    return (
        {
            "am/final.mdl": _network(plain),
            "conf/mfcc.conf": _MFCC,
            "conf/model.conf": _text_of(FolderOptions(frame_subsampling_factor=3)),
            "graph/phones.txt": b"<eps> 0\na 1\n",
        },
        {
            "final.mdl": _network(ivector),
            "conf/mfcc.conf": b"--num-ceps=23\n",
            "conf/online.conf": b"--feature-type=mfcc\n--mfcc-config=/home/u/conf/mfcc.conf\n"
            b"--ivector-extraction-config=/home/u/conf/ivector_extractor.conf\n",
            "conf/ivector_extractor.conf": _text_of(options),
            "frame_subsampling_factor": b"3\n",
            **{f"ivector/{name}": data for name, data in _files_of_extractor().items()},
        },
        {
            "final.raw": _network(_POOLING),
            "extract.config": b"output-node name=output input=p\n",
            "conf/mfcc.conf": _MFCC,
            "conf/vad.conf": b"--vad-energy-threshold=5\n--vad-energy-mean-scale=0.5\n",
            "cmvn_opts": b"--norm-means=true --norm-vars=false\n",
        },
    )


@damaged_format("folders of models", 8)
def _folders(user: User, seed: int, number: int, folder: Path) -> bool:
    layout = user.rng.randrange(3)
    files = _model_folders()[layout]

    def damage(name: str, data: bytes) -> bytes:
        user.name = f"{name} of layout {layout}"
        is_text = name.endswith((".conf", ".config"))
        if is_text and _NUMBER.search(data) and number % 2:
            return _with_odd_values(user.rng, data)
        return damaged_data(user.rng, data, [data, *files.values()])

    write_folder(user.rng, folder, files, damage)
    found = user.attempt("read", lambda: ModelFolder.read(folder))
    if found is None:
        return False
    user.attempt("show", lambda: str(found))
    user.attempt("plda", lambda: found.file("plda"))
    model = user.attempt("load", lambda: nnet3.load(folder))
    if model is not None:
        noise = (_NOISE, 16000)
        user.attempt("show the model", lambda: str(model))
        user.attempt("features", lambda: model.features(noise))
        user.attempt("compute", lambda: model.compute(noise))
        user.attempt("x-vector", lambda: model.xvector(noise, min_chunk_size=5))
        user.attempt("labels", lambda: model.labels)
    return model is not None
