"""What a speech model has beside its network; nnet3-speech, which reads it, is optional."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs
from nnet3_descriptors import AcousticModel, Nnet, parse_config, read_model
from nnet3_descriptors.files import read_file
from nnet3_runtime_cuda import RunError

from nnet3.errors import FROM_A_CLONE, warn

if TYPE_CHECKING:
    from nnet3_descriptors.model_files import TransitionModel
    from nnet3_speech import ModelFolder
    from nnet3_speech.hmm import PdfLabels

Phones = str | os.PathLike[str] | Mapping[int, str]
"""The path of a phones.txt, or the names of phones by their numbers."""


def read_folder(path: str | os.PathLike[str]) -> ModelFolder:
    """What a folder has.

    Raises:
        RunError: nnet3-speech is not installed.
        SpeechError: see `ModelFolder.read`.
    """
    try:
        from nnet3_speech import ModelFolder
    except ImportError as error:
        raise RunError(
            f"{os.fspath(path)} is a folder; reading models' folders and recordings needs "
            f"nnet3-speech: {FROM_A_CLONE.format('nnet3-speech')} ({error})"
        ) from error
    return ModelFolder.read(path)


def nnet_of(folder: ModelFolder) -> Nnet | AcousticModel:
    """The network of a folder, changed by the config lines of extract.config, if there are any.

    Raises:
        SpeechError: the folder has no network.
        ModelFileError, ConfigError: a file cannot be read.
    """
    model = read_model(folder.network, in_place=True)
    if "extract.config" not in folder.files:
        return model
    lines = read_file(folder.files["extract.config"]).decode("utf-8", "replace")
    if isinstance(model, AcousticModel):
        return attrs.evolve(model, nnet=parse_config(lines, base=model.nnet))
    return parse_config(lines, base=model)


def labels_of(
    transition_model: TransitionModel | None, phones: Phones | None, folder: ModelFolder | None
) -> PdfLabels:
    """The phones and HMM states of outputs; warns of names that no phone has, such as #0.

    Args:
        transition_model: That of the .mdl file, or None.
        phones: The names of phones; None for those of the folder, or else for numbers.
        folder: The folder of the model, or None.

    Raises:
        RunError: there is no transition model, or nnet3-speech is not installed.
        ModelFileError, FileError, SpeechError: a file cannot be read, or does not fit the others.
    """
    try:
        from nnet3_speech import read_symbols
        from nnet3_speech.hmm import PdfLabels, read_transitions
    except ImportError as error:
        raise RunError(
            f"labels of outputs need nnet3-speech: {FROM_A_CLONE.format('nnet3-speech')} ({error})"
        ) from error
    files = {} if folder is None else folder.files
    if transition_model is None and "final.mdl" in files:  # beside the final.raw that was loaded
        transition_model = read_transitions(files["final.mdl"]).model
    if transition_model is None:
        raise RunError(
            "the model has no transition model, which says the phones of its outputs: expected a "
            ".mdl file, or a folder with one; a .raw file has the network alone"
        )
    if phones is None:
        phones = files.get("phones.txt")
    names = phones if phones is None or isinstance(phones, Mapping) else read_symbols(phones)
    labels = PdfLabels.of(transition_model, names)
    if wrong := next((name for name in labels.phones if name.startswith("#")), None):
        warn(f"phones.txt calls a phone of the model {wrong}: it is that of another model")
    return labels
