"""The page of examples/digits/web recognises digits in a browser, as Kaldi does.

npm installs ONNX Runtime Web, and a headless Chromium loads the page. Node.js runs the features of
the page alone, and the network as C with them.
"""

import functools
import html
import http.server
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import threading
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import nnet3
import numpy as np
import pytest
from nnet3_speech import FbankOptions, FeatureExtractor
from nnet3_tables import read_table
from other_processes import printed_by
from reference_cases import ROOT
from wav_files import wav

DIGITS = ROOT / "examples" / "digits"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)

NODE = shutil.which("node")

SOUNDS = sorted((DIGITS / "wav").glob("*.wav"))

needs_node = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")


needs_browser = pytest.mark.skipif(
    CHROMIUM is None or shutil.which("npm") is None, reason="Chromium or npm is not installed"
)


def from_node(code: str, *arguments: str | Path) -> object:
    """What a script prints as JSON that has the functions of fbank.js."""
    module = (DIGITS / "web" / "fbank.js").as_uri()
    script = f"import {{ fbank, wavRate, withoutMean }} from '{module}';\n{code}"
    command = [NODE, "--input-type=module", "--eval", script, "--", *arguments]
    return json.loads(printed_by(command))


READ = """
import { readFileSync } from "node:fs";
const bytes = new Uint8Array(readFileSync(process.argv.at(-1)));
"""


@attrs.frozen
class Site:
    """A page that is served, and the folder with its files."""

    address: str
    folder: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The page, as build.py makes it."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, DIGITS / "web" / "build.py", folder], check=True)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Site(f"http://127.0.0.1:{server.server_port}/index.html", folder)
        server.shutdown()


def page(address: str, folder: Path) -> str:
    """The page's HTML after all computations."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
    command = [CHROMIUM, *options, "--virtual-time-budget=60000", "--dump-dom", address]
    for _ in range(5):  # virtual time does not wait for the thread that decodes a sound
        shown = printed_by(command)
        if '<span id="word">…</span>' not in shown:
            break
    return shown


@needs_node
def test_features_are_kaldis(tmp_path: Path) -> None:
    """Without dither, features of the page are those of nnet3-speech; a mean is subtracted."""
    rng = np.random.default_rng(0)
    samples = np.concatenate([np.zeros(900), 3000 * rng.standard_normal(7000)]).astype(np.int16)
    samples.tofile(tmp_path / "samples")
    options = FbankOptions(num_mel_bins=23, dither=0.0)
    expected = FeatureExtractor(options).compute(samples.astype(np.float32), 16000)

    code = READ + "const samples = Array.from(new Int16Array(bytes.buffer), (x) => x / 32768);"
    code += "const f = fbank(samples, 0); console.log(JSON.stringify([f, withoutMean(f)]));"
    features, centred = map(np.array, from_node(code, tmp_path / "samples"))

    np.testing.assert_allclose(features, expected, rtol=0, atol=5e-4)
    np.testing.assert_allclose(centred, expected - expected.mean(axis=0), rtol=0, atol=5e-4)


@needs_node
def test_dither_is_kaldis_noise_and_the_same_each_time(tmp_path: Path) -> None:
    """Features of silence are those of noise of 20, and repeat."""
    code = "const [a, b] = [0, 0].map(() => fbank(new Array(48000).fill(0)));"
    code += "console.log(JSON.stringify([a, b]));"
    first, second = map(np.array, from_node(code))
    silence = np.zeros(48000, np.float32)
    expected = FeatureExtractor(FbankOptions(num_mel_bins=23, dither=20.0)).compute(silence, 16000)

    assert (first == second).all()
    np.testing.assert_allclose(first.mean(axis=0), expected.mean(axis=0), atol=0.3)
    np.testing.assert_allclose(first.std(axis=0), expected.std(axis=0), atol=0.2)


@pytest.fixture(scope="module")
def wasm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., object]:
    """What a script prints that has `compute` of the page with C, and the utterances."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, DIGITS / "web" / "build.py", folder, "--wasm"], check=True)
    (folder / "package.json").write_text('{"type": "module"}')
    assert (folder / "digits.wasm").stat().st_size < 250_000
    code = (
        f"import {{ load }} from '{(folder / 'network.js').as_uri()}';"
        + READ
        + """
        globalThis.fetch = async () => new Response(readFileSync(process.argv.at(-2)));
        const { about, utterances } = JSON.parse(readFileSync(process.argv.at(-3)));
        const compute = await load(about);
    """
    )
    files = folder / "utterances.json", folder / "digits.wasm"
    return lambda then, path=folder / "index.html": from_node(code + then, *files, path)


@needs_node
def test_c_recognises_digits(wasm: Callable[..., object]) -> None:
    """The page with C has the log-posteriors of the runtime."""
    found = wasm("console.log(JSON.stringify(utterances.map((each) => compute(each.features))));")

    model = nnet3.load(DIGITS / "final.raw")
    for (_, features), actual in zip(
        read_table(f"ark:{DIGITS / 'test.feats.ark'}"), found, strict=True
    ):
        np.testing.assert_allclose(actual, model.compute(features), rtol=0, atol=2e-3)


@needs_node
@pytest.mark.parametrize("sound", SOUNDS, ids=lambda path: path.stem)
def test_c_recognises_sounds(wasm: Callable[..., object], tmp_path: Path, sound: Path) -> None:
    """The word of a recording is right."""
    with wave.open(str(sound)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16) / 32768
        times = np.arange(0, len(samples), file.getframerate() / 16000)
    np.interp(times, np.arange(len(samples)), samples).astype(np.float32).tofile(tmp_path / "16")

    code = "const samples = Array.from(new Float32Array(bytes.buffer));"
    code += "console.log(JSON.stringify(compute(withoutMean(fbank(samples)))));"
    found = np.sum(wasm(code, tmp_path / "16"), axis=0)

    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    assert words[found[1:].argmax()] == sound.stem


@needs_node
def test_rates_of_files(tmp_path: Path) -> None:
    """The page finds the rate in the header of a WAV file, and nothing in other files."""
    path = tmp_path / "sound"
    code = READ + "console.log(JSON.stringify(wavRate(bytes.buffer) ?? null));"
    for rate in (8000, 44100):
        path.write_bytes(wav(bytes(400), channels=2, rate=rate))
        assert from_node(code, path) == rate
    for damaged in (b"", b"RIFF", path.read_bytes()[:24], b"ID3" + bytes(90)):
        path.write_bytes(damaged)
        assert from_node(code, path) is None


@needs_browser
@pytest.mark.parametrize("sound", SOUNDS, ids=lambda path: path.stem)
def test_a_browser_recognises_sound_files(site: Site, tmp_path: Path, sound: Path) -> None:
    """The word of a recording of 22,050 samples a second is right."""
    shutil.copy(sound, site.folder)

    shown = page(f"{site.address}?sound={sound.name}", tmp_path)

    assert re.search(rf'<span id="word" class="own">{sound.stem}</span>', shown), shown


@needs_browser
@pytest.mark.parametrize(
    ("rate", "samples", "message"),
    [
        (None, 5000, "wrong.wav is no sound file that this browser can read"),
        (8000, 8000, "wrong.wav has 8000 samples a second; the network wants 16000 or more"),
        (16000, 300, "300 samples are too few: one frame has 400"),
        (0, 0, "there is no file nothing.wav"),
    ],
)
def test_wrong_sound_files(
    site: Site, tmp_path: Path, rate: int | None, samples: int, message: str
) -> None:
    """The page says what is wrong with a file."""
    name = "wrong.wav" if samples else "nothing.wav"
    if rate is None:
        (site.folder / name).write_bytes(bytes(samples))
    elif rate:
        (site.folder / name).write_bytes(wav(bytes(2 * samples), rate=rate))

    shown = page(f"{site.address}?sound={name}", tmp_path)

    assert f'<span id="word" class="wrong">error: {message}</span>' in shown


@needs_browser
@pytest.mark.parametrize("number", [0, 17, 39])
def test_a_browser_recognises_digits(site: Site, tmp_path: Path, number: int) -> None:
    """The recognised word is right, and the log-posteriors are those of the runtime."""
    key, features = list(read_table(f"ark:{DIGITS / 'test.feats.ark'}"))[number]
    expected = nnet3.load(DIGITS / "final.raw").compute(features)

    shown = page(f"{site.address}?utterance={key}", tmp_path)

    found = re.search(r'<span id="word" class="right">(\w+)</span>', shown)
    assert found is not None, shown
    assert found[1] == key.rpartition("-")[2]
    posteriors = re.search(r'data-posteriors="([^"]+)"', shown)
    assert posteriors is not None
    actual = json.loads(html.unescape(posteriors[1]))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-3)  # features have four decimals


@needs_browser
def test_an_error_is_shown(site: Site, tmp_path: Path) -> None:
    """The page shows errors."""
    shown = page(f"{site.address}?utterance=nobody", tmp_path)

    assert re.search(r'<span id="word" class="wrong">error: [^<]*nobody', shown), shown
