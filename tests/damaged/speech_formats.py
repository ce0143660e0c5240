"""The formats that nnet3-speech reads: recordings, options, symbols, folders, and PLDA models."""

from __future__ import annotations

import functools
import io
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from nnet3_speech import (
    FbankOptions,
    FeatureExtractor,
    FolderOptions,
    MfccOptions,
    ModelFolder,
    Plda,
    apply_transform,
    read_symbols,
    read_wav,
)
from nnet3_speech.options import read_options
from wav_files import extension, wav

from damaged.bytes_and_words import damaged_data
from damaged.registered import damaged_format
from damaged.using import User

PACKAGE = Path(__file__).parents[2] / "packages" / "nnet3-speech" / "tests"
DIGITS = Path(__file__).parents[1] / "reference" / "chain" / "digits"

_RNG = np.random.default_rng(0)
_NOISE = 1000.0 * _RNG.standard_normal(1600).astype(np.float32)
"""A tenth of a second."""


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


@damaged_format("recordings", 5)
def _wav_files(user: User, seed: int, number: int, folder: Path) -> bool:
    good = _recordings()
    data = damaged_data(user.rng, user.rng.choice(good), good)
    (folder / "wav").write_bytes(data)
    source: Any = folder / "wav" if user.rng.random() < 0.5 else io.BytesIO(data)
    recording = user.attempt("read", lambda: read_wav(source))
    if recording is None:
        return False
    options = MfccOptions(allow_downsample=True, allow_upsample=True)
    for samples in recording.samples[:2]:
        user.attempt(
            "features",
            lambda samples=samples: FeatureExtractor(options).compute(samples, recording.rate),
        )
    return True


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


@functools.cache
def _configs() -> tuple[tuple[type[Any], bytes, Callable[[User, Any], object]], ...]:
    """Classes of options, a config file of each, and what is done with the options."""
    resampled = {"allow_downsample": True, "allow_upsample": True}
    mfcc = MfccOptions(num_ceps=20, num_mel_bins=40, **resampled)
    return (
        (
            MfccOptions,
            _text_of(mfcc),
            _use_features,
        ),
        (MfccOptions, (PACKAGE / "data" / "mfcc.conf").read_bytes(), _use_features),
        (FbankOptions, _text_of(FbankOptions(use_energy=True, **resampled)), _use_features),
        (FolderOptions, _text_of(FolderOptions()), lambda user, options: None),
    )


def _with_odd_values(rng: random.Random, data: bytes) -> bytes:
    """A config file with one or two other numbers."""
    for _ in range(rng.choice((1, 1, 2))):
        places = list(re.finditer(rb"(?<==)-?[\d.]+", data))
        start, end = rng.choice(places).span()
        data = data[:start] + rng.choice(_ODD_VALUES) + data[end:]
    return data


@damaged_format("config files", 5)
def _config_files(user: User, seed: int, number: int, folder: Path) -> bool:
    good = _configs()
    cls, data, use = user.rng.choice(good)
    if user.rng.random() < 0.5:
        data = _with_odd_values(user.rng, data)
    else:
        data = damaged_data(user.rng, data, [each for _, each, _ in good])
    (folder / "conf").write_bytes(data)
    options = user.attempt("read", lambda: read_options(cls, folder / "conf"))
    if options is not None:
        user.attempt("repr", lambda: repr(options))
        use(user, options)
    return options is not None


@damaged_format("symbol tables", 2)
def _symbol_tables(user: User, seed: int, number: int, folder: Path) -> bool:
    good = "<eps> 0\nsil 1\na_B 2\nö 3\n#0 4\n".encode()
    (folder / "phones.txt").write_bytes(damaged_data(user.rng, good, [good]))
    return user.attempt("read", lambda: read_symbols(folder / "phones.txt")) is not None


# ---- speakers ----


@functools.cache
def _pldas() -> tuple[bytes, ...]:
    plda, text = Plda.read(PACKAGE / "plda" / "plda"), io.BytesIO()
    plda.write(text, binary=False)
    return ((PACKAGE / "plda" / "plda").read_bytes(), text.getvalue())


@damaged_format("PLDA models", 4)
def _plda_models(user: User, seed: int, number: int, folder: Path) -> bool:
    data = damaged_data(user.rng, user.rng.choice(_pldas()), _pldas())
    plda = user.attempt("read", lambda: Plda.read(io.BytesIO(data)))
    if plda is None:
        return False
    assert isinstance(plda, Plda)
    vectors = np.random.default_rng(number).standard_normal((5, plda.dim))
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
    user.attempt("write", lambda: _written_again(plda, binary=user.rng.random() < 0.5))
    user.attempt("transform", lambda: apply_transform(vectors, plda.matrix))
    return True


def _written_again(plda: Plda, *, binary: bool) -> None:
    first, second = io.BytesIO(), io.BytesIO()
    plda.write(first, binary=binary)
    Plda.read(io.BytesIO(first.getvalue())).write(second, binary=binary)
    assert first.getvalue() == second.getvalue(), "what is written is not what was read"


# ---- folders ----


@functools.cache
def _vosk_folder() -> dict[str, bytes]:
    """The files of a folder, by name."""
    return {
        "am/final.mdl": b"a model",
        "conf/mfcc.conf": b"--num-ceps=40\n--num-mel-bins=40\n",
        "conf/model.conf": _text_of(FolderOptions(frame_subsampling_factor=3, acoustic_scale=0.5)),
        "graph/phones.txt": b"<eps> 0\na 1\n",
    }


@damaged_format("folders of models", 4)
def _folders(user: User, seed: int, number: int, folder: Path) -> bool:
    files = _vosk_folder()
    changed = user.rng.choice(sorted(files))
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        good = [data, *files.values()]
        data = damaged_data(user.rng, data, good) if name == changed else data
        (folder / name).write_bytes(data)
    found = user.attempt("read", lambda: ModelFolder.read(folder))
    if found is None:
        return False
    user.attempt("show", lambda: str(found))
    user.attempt("network", lambda: found.network)
    user.attempt("plda", lambda: found.file("plda"))
    return True
