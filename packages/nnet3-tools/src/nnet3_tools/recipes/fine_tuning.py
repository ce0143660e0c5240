"""nnet3-chain-fine-tune: trains a trained chain model further, in a folder, and resumes runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import click
import nnet3_descriptors
import nnet3_training
from nnet3_training import egs, recipes
from nnet3_training.chain import graphs

from nnet3_tools import cli, streams
from nnet3_tools.chain.making_egs import NO_SUPERVISION
from nnet3_tools.compute import inputs
from nnet3_tools.egs import forms, making
from nnet3_tools.recipes import runs
from nnet3_tools.recordings import recordings
from nnet3_tools.training.train import read_den_fst

if TYPE_CHECKING:
    from nnet3_speech import ModelFolder, Recording


SUBSAMPLING = 3
"""The frame subsampling of chain models where their folder does not say."""


class TuningData(NamedTuple):
    """What to train on: the values of the options.

    Attributes:
        features: Table of features or recordings.
        text: File of transcripts.
        lexicon: File of pronunciations.
        silence: Name of the phone of silence; None for the usual ones.
        oov: Word that stands for words without pronunciation.
        egs: Table of examples.
        online_ivectors: Table of i-vectors; "" for none.
        online_ivector_period: Frames for each i-vector.
        tree: File of the tree.
        phones: File of the names of phones.
        den_fst: File of the denominator.
    """

    features: str | None
    text: str | None
    lexicon: str | None
    silence: str | None
    oov: str
    egs: str | None
    online_ivectors: str
    online_ivector_period: int
    tree: str | None
    phones: str | None
    den_fst: str | None

    @property
    def is_given(self) -> bool:
        """Whether there is anything to train on."""
        return bool(self.features or self.text or self.egs)

    def check(self) -> None:
        """Raises a click.UsageError if the options contradict each other."""
        names = ("features", "text", "lexicon")
        given = [f"--{name}" for name in names if getattr(self, name)]
        if self.egs and given:
            raise click.UsageError(f"expected --egs alone, got {given[0]}, too")
        if not self.egs and len(given) < len(names):
            raise click.UsageError(
                "expected --features, --text and --lexicon, or --egs; got "
                f"{' and '.join(given) or 'none of them'}"
            )


def _data_options() -> Iterator[cli.Parameter]:
    """The options of `TuningData`."""
    texts = {
        "features": (
            "RSPECIFIER",
            "Features, or WAV files (scp:wav.scp) if MODEL's folder says how to compute them.",
        ),
        "text": ("FILE", "What was said: on each line the key of an utterance and its words."),
        "lexicon": ("FILE", "Words and their phones, lexicon.txt or lexiconp.txt."),
        "silence": ("PHONE", "Phone that may be between words.  [default: SIL or sil]"),
        "oov": ("WORD", "Word of the lexicon that stands for words that it lacks."),
        "egs": ("RSPECIFIER", "Examples, as of nnet3-chain-get-egs, instead of the above."),
        "online_ivectors": ("RSPECIFIER", "I-vectors, if the model reads any."),
        "tree": ("FILE", "The model's tree.  [default: that of MODEL's folder]"),
        "phones": ("FILE", "Names of phones.  [default: phones.txt of MODEL's folder]"),
        "den_fst": (
            "FILE",
            "The model's denominator.  [default: den.fst of MODEL's folder, else made of --text]",
        ),
    }
    for name, (metavar, text) in texts.items():
        default = "" if name in ("oov", "online_ivectors") else None
        yield cli.option(f"--{name.replace('_', '-')}", default, text, metavar)
    yield cli.option("--online-ivector-period", 10, "Frames for each i-vector.", least=1)


class Origin(NamedTuple):
    """The model to begin with.

    Attributes:
        path: Its file.
        nnet: Its network.
        model: The acoustic model, if the file has one.
        folder: The folder that the file is in, if it is that of a model.
    """

    path: str
    nnet: nnet3_descriptors.Nnet
    model: nnet3_descriptors.AcousticModel | None
    folder: ModelFolder | None

    @classmethod
    def read(cls, name: str) -> Origin:
        """Reads the model that a folder has, or a file.

        Raises:
            SpeechError: The folder has none.
            ModelFileError: The file cannot be read.
        """
        from nnet3_speech import ModelFolder, SpeechError

        folder = None
        path = Path(name)
        if path.is_dir():
            folder = ModelFolder.read(path)
            name = str(folder.file("final.mdl"))
        elif path.is_file():
            try:
                folder = ModelFolder.read(path.parent)
            except SpeechError:  # a file that lies by itself: options have to name the others
                folder = None
        model = streams.read(nnet3_descriptors.read_model, name)
        if isinstance(model, nnet3_descriptors.AcousticModel):
            return cls(path=name, nnet=model.nnet, model=model, folder=folder)
        return cls(path=name, nnet=model, model=None, folder=folder)

    @property
    def reads_ivectors(self) -> bool:
        """Whether the network has a node for i-vectors."""
        return any(node.name == "ivector" for node in self.nnet.input_nodes)

    @property
    def frame_subsampling_factor(self) -> int:
        """Frames of the input for each frame of the output."""
        found = 1 if self.folder is None else self.folder.options.frame_subsampling_factor
        return found if found > 1 else SUBSAMPLING

    def file(self, given: str | None, name: str, option: str) -> str:
        """A file that an option names, or else of the model's folder.

        Raises:
            click.ClickException: There is none.
        """
        if given is not None:
            return given
        if self.folder is None or name not in self.folder.files:
            where = str(Path(self.path).parent)
            raise click.ClickException(
                f"{where} has no {name}, which fine-tuning needs; {option} can name it"
            )
        return str(self.folder.file(name))


def named_denominator(data: TuningData, origin: Origin) -> nnet3_training.Fst | None:
    """The denominator that is given, or that the model's folder has."""
    if data.den_fst is None and (origin.folder is None or "den.fst" not in origin.folder.files):
        return None
    return read_den_fst(origin.file(data.den_fst, "den.fst", "--den-fst"))


def denominator_of(transcripts: graphs.Transcripts, seed: int) -> nnet3_training.Fst:
    """The denominator of what was said, where the model's is lost."""
    cli.log("No den.fst is given: the denominator is made of the phones of --text")
    with cli.logged("nnet3_training.chain"):
        return transcripts.denominator(seed=seed)


def transcripts_of(data: TuningData, origin: Origin) -> graphs.Transcripts:
    """The transcripts, with the lexicon and the tree of the model."""
    from nnet3_speech import read_symbols
    from nnet3_speech.hmm import Transitions, read_tree

    if origin.model is None:
        raise click.ClickException(
            f"{origin.path}: --text needs an acoustic model (.mdl), with a transition model; found "
            "a network alone. nnet3-am-init makes one"
        )
    assert data.text is not None
    assert data.lexicon is not None
    tree = origin.file(data.tree, "tree", "--tree")  # which folders lack the most: before the rest
    symbols = read_symbols(origin.file(data.phones, "phones.txt", "--phones"))
    lexicon = graphs.read_lexicon(data.lexicon, symbols, silence=data.silence, oov=data.oov)
    return graphs.Transcripts(
        words=graphs.read_transcripts(data.text),
        lexicon=lexicon,
        tree=read_tree(tree),
        transitions=Transitions.of(origin.model.transition_model),
    )


def utterances_of(
    data: TuningData, origin: Origin, transcripts: graphs.Transcripts, step: int
) -> Iterator[egs.Utterance]:
    """The utterances that have a transcript; warns of others, and of those that are too short."""
    assert data.features is not None
    if inputs.has_recordings(data.features):
        made = _maker_of_recordings(data, origin, transcripts, step)
        return making.usable_utterances(made, recordings(data.features))
    if origin.reads_ivectors and not data.online_ivectors:
        raise click.UsageError("the model reads i-vectors: expected --online-ivectors")
    options = {
        "online_ivectors": data.online_ivectors,
        "online_ivector_period": data.online_ivector_period,
        "length_tolerance": 100,
    }
    utterance_of = making.utterance_maker(
        lambda key, num_frames: transcripts.supervision(key, num_frames, step),
        NO_SUPERVISION,
        options,
    )
    return making.usable_utterances(utterance_of, making.stored_features(data.features))


def _maker_of_recordings(
    data: TuningData, origin: Origin, transcripts: graphs.Transcripts, step: int
) -> Callable[[str, Any], egs.Utterance]:
    """Returns a function that makes the utterance of a recording."""
    from nnet3_runtime_cuda import RunError
    from nnet3_speech import FeaturePipeline, SpeechError

    if data.online_ivectors:
        raise click.UsageError("--online-ivectors are for features; recordings have their own")
    if origin.folder is None:
        raise click.ClickException(
            f"{origin.path}: recordings need a model in its folder, with the options of its "
            "features (conf/mfcc.conf)"
        )
    pipeline = FeaturePipeline.of(origin.folder)

    def made(key: str, read: Callable[[], Recording]) -> egs.Utterance:
        try:
            found = pipeline.compute(*inputs.samples_of(read))
        except (SpeechError, RunError) as error:
            raise nnet3_training.ExampleError(f"utterance '{key}': {error}") from error
        if origin.reads_ivectors and found.online_ivectors is None:
            raise click.ClickException(
                f"{origin.path}: the model reads i-vectors, which its folder does not give; give "
                "features and --online-ivectors"
            )
        return egs.Utterance(
            key=key,
            features=found.features,
            supervision=transcripts.supervision(key, len(found.features), step),
            ivectors=found.online_ivectors,
            ivector_period=max(found.ivector_period, 1),
        )

    return made


@cli.tool(
    "nnet3-chain-fine-tune",
    "MODEL DIR",
    *_data_options(),
    cli.option(
        "--freeze",
        None,
        "Components that do not change, such as 'tdnnf1*'; may be given several times.",
        "PATTERN",
        multiple=True,
    ),
    *runs.recipe_options(
        {**recipes.FINE_TUNING, "frame_subsampling_factor": SUBSAMPLING},
        "frames_per_example",
        "dropout_schedule",
    ),
    *runs.RUN_OPTIONS,
)
def nnet3_chain_fine_tune(
    model_in: str, folder: str, freeze: tuple[str, ...], **options: Any
) -> None:
    """Train the chain model MODEL for a few epochs in the folder DIR, or continue the run there.

    MODEL is a .mdl file or a folder that has final.mdl. The training data are --features, --text
    and --lexicon; no alignments are needed. Or they are --egs; then MODEL may be a .raw file. To
    continue, give the same again, or MODEL and DIR alone once the examples are made. Until the
    first iteration begins, what you give replaces what you gave before. The result is
    DIR/final.mdl, or final.raw if MODEL is a .raw file. It differs from MODEL in its parameters
    only, and is the same to the last bit, however often the run was interrupted.
    """
    path = Path(folder)
    data = TuningData(**{name: options.pop(name) for name in TuningData._fields})
    around = {name: options.pop(name) for name in runs.RUN_NAMES}
    given = {name: value for name, value in options.items() if value is not None}
    if freeze:
        given["freeze"] = freeze
    if path.exists() and not path.is_dir():
        raise click.UsageError(f"expected a folder for the run, found the file '{folder}'")
    has_run, has_examples = (path / "recipe.json").exists(), (path / "archives").is_dir()
    if not (has_run and has_examples) or data.is_given:
        data.check()
    origin = Origin.read(model_in)
    is_new = not has_run or (data.is_given and not recipes.TrainingRun.read(path).has_begun)
    usual = None
    if is_new:
        step = 1 if data.egs else origin.frame_subsampling_factor
        usual = recipes.fine_tuning_options(origin.nnet, frame_subsampling_factor=step)
    wanted = runs.wanted_options(path, usual, given)
    used = wanted or recipes.TrainingRun.read(path).options
    utterances: Iterator[recipes.TrainingData] | None = None
    den_fst = named_denominator(data, origin)
    if data.egs:
        utterances = (entry.value for entry in forms.CHAIN.entries(data.egs))
    elif data.is_given and (is_new or not has_examples):
        transcripts = transcripts_of(data, origin)
        if den_fst is None:
            den_fst = denominator_of(transcripts, used.seed)
        utterances = utterances_of(data, origin, transcripts, used.frame_subsampling_factor)
    with cli.logged("nnet3_training.chain"):
        run = runs.run_recipe(
            path, origin.nnet, utterances, wanted, den_fst, has_data=data.is_given, **around
        )
    result = path / "final.mdl"
    if origin.model is not None and not _is_model(result):
        tuned = attrs.evolve(origin.model, nnet=run.nnet)
        nnet3_descriptors.write_acoustic_model(tuned, result)
        cli.log(f"Wrote model to {result}")


def _is_model(path: Path) -> bool:
    """Whether a file is a model, such as the result of a run, which may have been changed since."""
    try:
        nnet3_descriptors.read_acoustic_model(path)
    except nnet3_descriptors.Nnet3Error:
        return False
    return True
