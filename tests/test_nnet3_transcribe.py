"""nnet3-transcribe: phones and words of recordings, as the libraries find them."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nnet3
import numpy as np
import pytest
from nnet3_speech import WordDecoder, best_phones, read_wav, without_positions
from nnet3_tables import read_table
from reference_cases import ROOT
from speech_folders import make_transcriber
from tool_runs import program, run_tool
from wav_files import wav

WAV = ROOT / "packages" / "nnet3-speech" / "tests" / "data" / "k2.wav"


transcribe = functools.partial(run_tool, "nnet3-transcribe", expected=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network of random parameters, a transition model and a graph."""
    return make_transcriber(tmp_path_factory.mktemp("model") / "small")


@pytest.mark.parametrize(
    ("options", "columns"), [([], "a o"), (["--positions"], "a_B a_E o_S")], ids=["bare", "places"]
)
def test_phones(folder: Path, tmp_path: Path, options: list[str], columns: str) -> None:
    """Phones are the best of each frame; --posteriors writes the table from which they come.

    With --positions the places of phones in words are told apart.
    """
    table = f"ark:{tmp_path / 'posteriors.ark'}"

    done = transcribe(*options, f"--posteriors={table}", "--units=phones", folder, WAV)

    model = nnet3.load(folder)
    posteriors, names = model.phone_posteriors(model.compute(WAV)), model.labels.phones
    if not options:
        posteriors, names = without_positions(posteriors, names)
    expected = [
        f"k2 1 {phone.start:.2f} {phone.end - phone.start:.2f} {phone.name} {phone.probability:.2f}"
        for phone in best_phones(posteriors, names, 0.03)
    ]
    assert len(expected) > 1
    assert done.stdout.splitlines() == expected
    np.testing.assert_array_equal(dict(read_table(table))["k2"], posteriors)
    assert f"Columns of posteriors: {columns}" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_no_utf8(folder: Path, tmp_path: Path) -> None:
    """A recording is named as the system names its file."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xe9.wav")
    shutil.copy(WAV, path)
    command = program("nnet3-transcribe", "--units=phones", folder, path)

    done = subprocess.run(command, capture_output=True, check=True)

    assert done.stdout.startswith(b"\xe9 1 ")


@pytest.mark.parametrize("nbest", [1, 3])
def test_words(folder: Path, tmp_path: Path, nbest: int) -> None:
    """Words are those that the graph of the folder finds, by default; tables name recordings."""
    (tmp_path / "wav.scp").write_text(f"first {WAV}\n")

    done = transcribe(f"--nbest={nbest}", folder, f"scp:{tmp_path / 'wav.scp'}")

    model = nnet3.load(folder)
    hypotheses = WordDecoder.of(model.folder).decode(model.compute(WAV), 0.03, nbest=nbest)
    expected = [
        f"first{f'-{number}' if nbest > 1 else ''} 1 {word.start:.2f} {word.end - word.start:.2f} "
        f"{word.text}"
        for number, hypothesis in enumerate(hypotheses, 1)
        for word in hypothesis.words
    ]
    assert len(expected) > 1
    assert done.stdout.splitlines() == expected


def test_channels(folder: Path, tmp_path: Path) -> None:
    """Each channel of a recording is transcribed alone."""
    recording = read_wav(WAV)
    samples = recording.samples[0].astype("<i2")
    both = np.stack([samples, samples[::-1]], axis=1)
    (tmp_path / "both.wav").write_bytes(wav(both.tobytes(), channels=2, rate=recording.rate))

    done = transcribe(folder, tmp_path / "both.wav")
    alone = transcribe(folder, WAV)

    lines = done.stdout.splitlines()
    first = [line.replace("both ", "k2 ") for line in lines if line.split()[1] == "1"]
    assert first == alone.stdout.splitlines()
    assert {line.split()[1] for line in lines} == {"1", "2"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk(folder: Path) -> None:
    """Where nothing can be written, the tool ends at once."""
    command = program("nnet3-transcribe", folder, WAV, WAV)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)

    assert done.returncode == 255
    assert done.stderr.count(b"No space left on device") == 1


def test_recordings_that_cannot_be_read(folder: Path, tmp_path: Path) -> None:
    """A recording that cannot be read is reported, and the others are transcribed."""
    shutil.copy(WAV, tmp_path / "b.wav")

    done = transcribe(folder, tmp_path / "a.wav", tmp_path / "b.wav", expected=255)

    assert f"utterance 'a': {tmp_path / 'a.wav'}: the file cannot be read: No such" in done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()} == {"b"}
