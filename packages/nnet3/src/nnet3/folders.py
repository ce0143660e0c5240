"""The network of a speech model's folder; nnet3-speech, which reads the folder, is optional."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import attrs
from nnet3_descriptors import AcousticModel, Nnet, parse_config, read_model
from nnet3_descriptors.files import read_file
from nnet3_runtime_cuda import RunError

if TYPE_CHECKING:
    from nnet3_speech import ModelFolder


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
            f"nnet3-speech: pip install 'nnet3[speech]' ({error})"
        ) from error
    return ModelFolder.read(path)


def nnet_of(folder: ModelFolder) -> Nnet | AcousticModel:
    """The network of a folder, changed by the config lines of extract.config, if there are any.

    Raises:
        SpeechError: the folder has no network.
        ModelFileError, ConfigError: a file cannot be read.
    """
    model = read_model(folder.network)
    if "extract.config" not in folder.files:
        return model
    lines = read_file(folder.files["extract.config"]).decode("utf-8", "replace")
    if isinstance(model, AcousticModel):
        return attrs.evolve(model, nnet=parse_config(lines, base=model.nnet))
    return parse_config(lines, base=model)
