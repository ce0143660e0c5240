"""The folder of a speech model: which files it has, where, and what its options say.

Four layouts are known: Vosk's two, Kaldi's folder for online decoding (made by
`steps/online/nnet3/prepare_online_decoding.sh`; zamia's models have its files, too), and the folder
of a training run. A file is found by its name at the places where one of them has it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType

import attrs
from nnet3_descriptors.files import parse_integer
from nnet3_descriptors.values import ReadOnlyArrays

from nnet3_speech.errors import SpeechError
from nnet3_speech.options import option, options_of, read_lines, typed

_PLACES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "final.mdl": ("network", ("am/final.mdl", "final.mdl", "model/final.mdl")),
    "final.raw": ("network", ("final.raw", "final.ext.raw")),
    "model.conf": ("options of Vosk", ("conf/model.conf",)),
    "online.conf": ("options of online decoding", ("conf/online.conf", "online.conf")),
    "frame_subsampling_factor": (
        "frame subsampling",
        ("frame_subsampling_factor", "model/frame_subsampling_factor"),
    ),
    "extract.config": ("config lines that make the x-vector the output", ("extract.config",)),
    "mfcc.conf": ("features", ("conf/mfcc.conf", "mfcc.conf", "conf/mfcc_hires.conf")),
    "fbank.conf": ("features", ("conf/fbank.conf", "fbank.conf")),
    "pitch.conf": ("pitch features", ("conf/pitch.conf", "pitch.conf")),
    "cmvn_opts": ("normalisation of features", ("cmvn_opts", "model/cmvn_opts")),
    "global_cmvn.stats": (
        "statistics of all features",
        ("am/global_cmvn.stats", "global_cmvn.stats"),
    ),
    "online_cmvn": ("features are normalised online", ("online_cmvn",)),
    "vad.conf": ("voice activity", ("conf/vad.conf", "vad.conf")),
    "ivector_extractor.conf": ("i-vectors", ("conf/ivector_extractor.conf",)),
    "final.ie": ("i-vector extractor", ("ivector/final.ie",)),
    "final.dubm": ("i-vectors: Gaussians", ("ivector/final.dubm",)),
    "final.mat": ("i-vectors: transform", ("ivector/final.mat",)),
    "ivector global_cmvn.stats": ("i-vectors: statistics", ("ivector/global_cmvn.stats",)),
    "online_cmvn.conf": ("i-vectors: normalisation", ("ivector/online_cmvn.conf",)),
    "splice.conf": ("i-vectors: splicing", ("ivector/splice.conf",)),
    "tree": ("decision tree", ("tree", "am/tree", "model/tree")),
    "den.fst": ("denominator of chain training", ("den.fst", "am/den.fst")),
    "phones.txt": ("names of phones", ("phones.txt", "graph/phones.txt", "model/phones.txt")),
    "words.txt": ("names of words", ("graph/words.txt", "words.txt", "model/graph/words.txt")),
    "word_boundary.int": (
        "places of phones in words",
        ("graph/phones/word_boundary.int", "word_boundary.int"),
    ),
    "HCLG.fst": ("graph", ("graph/HCLG.fst", "HCLG.fst", "model/graph/HCLG.fst")),
    "HCLr.fst": ("graph, first of two parts", ("graph/HCLr.fst", "HCLr.fst")),
    "Gr.fst": ("graph, second of two parts", ("graph/Gr.fst", "Gr.fst")),
    "mean.vec": ("mean of x-vectors", ("mean.vec",)),
    "transform.mat": ("transform of x-vectors", ("transform.mat",)),
    "plda": ("PLDA", ("plda",)),
}
"""For each file what it is, and its places, the first of which is named where it is missing."""

_NAMED = {
    "mfcc.conf": "mfcc_config",
    "fbank.conf": "fbank_config",
    "pitch.conf": "online_pitch_config",
    "ivector_extractor.conf": "ivector_extraction_config",
    "global_cmvn.stats": "global_cmvn_stats",
}
"""The files that `online.conf` names, and the options that name them."""

_VOSK_SUBSAMPLING = 3
"""The frame subsampling of Vosk's folders without conf/model.conf."""

_IGNORED = frozenset(
    {
        *("beam-delta", "determinize-lattice", "hash-ratio", "prune-interval"),
        *("memory-pool-tokens-block-size", "memory-pool-links-block-size"),
        *("delta", "max-mem", "minimize", "phone-determinize", "word-determinize"),
        *("chunk-length", "do-endpointing", "num-threads-startup", "online", "word-symbol-table"),
        *("debug-computation", "print-args", "verbose"),
    }
)
_IGNORED_GROUPS = ("endpoint.", "ivector-silence-weighting.", "optimization.", "computation.")
"""Options of online decoding that change neither features nor outputs of the network here."""


@attrs.frozen(kw_only=True, field_transformer=typed)
class FolderOptions:
    """The options of online decoding, from `model.conf` or `online.conf`.

    Attributes:
        feature_type: "mfcc", "fbank" or "plp".
        mfcc_config: Path of the options of MFCC; "" for none, as for the other paths.
        fbank_config: Path of the options of filter banks.
        plp_config: Path of the options of PLP.
        cmvn_config: Path of the options of the online normalisation of the network's features.
        global_cmvn_stats: Path of the statistics for it.
        add_pitch: Whether the network reads pitch features, too.
        online_pitch_config: Path of their options.
        ivector_extraction_config: Path of the options of i-vectors.
        frame_subsampling_factor: Frames for each row of output.
        acoustic_scale: Multiplies the outputs; 1 where the folder does not say.
        frames_per_chunk: Frames that a stream computes at a time.
        extra_left_context_initial: Frames of context beyond the need of the network at the start.
        beam: Decoding: the largest difference to the best path.
        max_active: Decoding: the most states at a time.
        min_active: Decoding: the least states at a time.
        lattice_beam: Decoding: the largest difference of paths in the lattice.

    Raises:
        SpeechError: a number is out of range.
    """

    feature_type: str = "mfcc"
    mfcc_config: str = ""
    fbank_config: str = ""
    plp_config: str = ""
    cmvn_config: str = ""
    global_cmvn_stats: str = ""
    add_pitch: bool = False
    online_pitch_config: str = ""
    ivector_extraction_config: str = ""
    frame_subsampling_factor: int = option(1, least=1)
    acoustic_scale: float = 1.0
    frames_per_chunk: int = option(20, least=1)
    extra_left_context_initial: int = option(0, least=0)
    beam: float = 16.0
    max_active: int = option(2**31 - 1, least=2)
    min_active: int = option(200, least=0)
    lattice_beam: float = 10.0


def _read_only(files: Mapping[str, Path]) -> Mapping[str, Path]:
    return MappingProxyType(dict(files))


@attrs.frozen(kw_only=True)
class ModelFolder(ReadOnlyArrays):
    """What the folder of a speech model has.

    `print(folder)` lists it. Files are read when they are needed, except for the options of online
    decoding; `file` then says what is missing.

    Attributes:
        path: The folder.
        files: The paths of the files found, by name: "final.mdl", "mfcc.conf", "HCLG.fst", ... A
            file that `online.conf` names elsewhere in the folder is there by its usual name.
        options: The options of online decoding; the defaults where the folder has none.
        is_vosk: Whether the folder has a layout of Vosk.
    """

    path: Path
    files: Mapping[str, Path] = attrs.field(converter=_read_only)
    options: FolderOptions
    is_vosk: bool = False

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ModelFolder:
        """Looks at a folder.

        Args:
            path: A folder of one of the layouts that this module describes.

        Raises:
            SpeechError: it is no folder, or has no file of a model; or its options cannot be read.
        """
        folder = Path(path)
        if not folder.is_dir():
            raise SpeechError(f"{folder}: expected the folder of a model, found no folder")
        found = dict(_found(folder))
        if not found:
            raise SpeechError(
                f"{folder}: expected the folder of a model, with am/final.mdl, final.mdl, "
                "final.raw or other files of Kaldi, found none of them"
            )
        source = found.get("model.conf") or found.get("online.conf")
        texts = {
            name: text
            for name, text in ({} if source is None else read_lines(source)).items()
            if not name.startswith(_IGNORED_GROUPS)
        }
        at_root = found.get("final.mdl") == folder / "final.mdl"
        is_vosk = "model.conf" in found or (
            source is None and at_root and found.get("mfcc.conf") == folder / "mfcc.conf"
        )
        if "frame-subsampling-factor" not in texts:
            if "frame_subsampling_factor" in found:
                texts["frame-subsampling-factor"] = _factor(found["frame_subsampling_factor"])
            elif is_vosk and source is None:
                texts["frame-subsampling-factor"] = str(_VOSK_SUBSAMPLING)
        options = options_of(FolderOptions, texts, os.fspath(source or folder), _IGNORED)
        for name, field in _NAMED.items():
            text = getattr(options, field)
            if text and (place := inside(folder, text)) is not None:
                found[name] = place
        return cls(path=folder, files=found, options=options, is_vosk=is_vosk)

    @property
    def network(self) -> Path:
        """The file of the network.

        Raises:
            SpeechError: there is none.
        """
        return self.file("final.raw" if "final.raw" in self.files else "final.mdl")

    def file(self, name: str) -> Path:
        """The path of a file.

        Args:
            name: Its name, such as "mfcc.conf"; see `files`.

        Raises:
            SpeechError: the folder has none; the message says where one was expected.
        """
        if text := getattr(self.options, _NAMED.get(name, ""), ""):
            field = _NAMED[name].replace("_", "-")
            return self.named(text, f"conf/online.conf: --{field}")
        if name not in self.files:
            first, *others = _PLACES[name][1]
            others += ["conf/fbank.conf"] * (name == "mfcc.conf")
            beside = f" (nor {' or '.join(others)})" if others else ""
            raise SpeechError(f"{self.path} has no {first}{beside}")
        return self.files[name]

    def named(self, text: str, source: str) -> Path:
        """The file that a config file of the folder names.

        Config files have the paths of the machine on which they were made. So the last parts of a
        path count, as many as lead to a file in the folder; then the path itself.

        Args:
            text: The path.
            source: What names it, for errors, such as "conf/online.conf: --mfcc-config".

        Raises:
            SpeechError: there is no such file.
        """
        place = inside(self.path, text)
        if place is None and not os.path.isfile(text):
            ending = "/".join(PurePosixPath(text).parts[-2:])
            raise SpeechError(f"{self.path} has no {ending}, which {source} names as {text!r}")
        return place or Path(text)

    def __str__(self) -> str:
        """The options, and a line for each file that was found."""
        options = self.options
        lines = [
            f"{self.path}: frame subsampling {options.frame_subsampling_factor}, acoustic scale "
            f"{options.acoustic_scale:g}"
        ]
        places = {name: self._shown(path) for name, path in self.files.items()}
        width = max(map(len, places.values()))
        lines += [f"  {place:{width}}  {_PLACES[name][0]}" for name, place in places.items()]
        return "\n".join(lines)

    def _shown(self, path: Path) -> str:
        is_inside = path.is_relative_to(self.path)
        return path.relative_to(self.path).as_posix() if is_inside else os.fspath(path)


def inside(folder: Path, text: str) -> Path | None:
    """The file in a folder that the last parts of a path lead to, as many as possible, or None."""
    parts = [part for part in PurePosixPath(text).parts if not part.startswith("/")]
    for begin in range(len(parts)):
        place = folder.joinpath(*parts[begin:])
        if ".." not in parts[begin:] and os.path.isfile(place):
            return place
    return None


def _found(folder: Path) -> Iterator[tuple[str, Path]]:
    """The name and path of each file of a model that is in a folder."""
    for name, (_, places) in _PLACES.items():
        for place in places:
            if os.path.isfile(folder / place):
                yield name, folder / place
                break


def _factor(path: Path) -> str:
    """The text of a file with one integer."""
    try:
        text = path.read_bytes()[:100].decode("ascii").strip()
        parse_integer(text)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "expected an integer"
        raise SpeechError(f"{path}: the file cannot be read: {reason}") from error
    return text
