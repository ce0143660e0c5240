"""The pages that people learn from: their code runs, and their pictures show its results."""

import doctest
import importlib
import re
import runpy
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from emulated_device import HostPlatform, compiler
from kaldi_tables import write_arrays
from nnet3 import CachingCompiler
from nnet3_descriptors import ComponentProperties, component_class, read_nnet
from nnet3_descriptors.components.declaration import registry
from nnet3_tools.entry_points import MODULES, command_of
from reference_cases import ROOT
from small_networks import request_for, stacked
from speech_folders import make_transcriber, make_xvector_folder
from test_fine_tuning import write_system
from test_readmes import PACKAGES as RUN_TOGETHER
from wav_files import wav

DOCS = ROOT / "docs"
DIGITS = ROOT / "examples" / "digits"
ELSEWHERE = {"writing-a-runtime.md": "test_writing_a_runtime.py"}
"""Pages whose code another test runs."""

NOT_OURS = {
    "chain/train.py",
    "prepare.py",  # that a reader writes
    "steps/nnet3/report/generate_plots.py",
    "steps/nnet3/train_raw_dnn.py",
    "train_dnn.py",
    "train_raw_dnn.py",
}
"""Scripts that pages name: the reader's own, and those of Kaldi's recipes."""


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The code of a page: its kind, "python" or "pycon", and its text."""
    yield from re.findall(
        r"^```(python|pycon)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.M
    )


PAGES = {
    str(page.relative_to(DOCS)): page for page in sorted(DOCS.glob("**/*.md")) if [*blocks(page)]
}
"""All pages with code."""


def for_limits() -> dict[str, object]:
    """The variable `text` of the page on limits."""
    return {"text": stacked(4, "affine Affine input-dim=4 output-dim=3")}


def for_streams() -> dict[str, object]:
    """A microphone, and the frames of two calls."""
    frames = np.random.default_rng(0).standard_normal((60, 23), np.float32)
    return {
        "microphone": lambda: np.array_split(frames, 7),
        "frames_1": frames,
        "frames_7": frames[:31],
    }


def for_fine_tuning() -> dict[str, object]:
    """A 'chain' model of spoken digits with its tree and denominator, and a little speech."""
    write_system(Path())
    for name in ("final.mdl", "tree", "den.fst", "phones.txt"):
        shutil.copy(f"model/{name}", name)
    return {}


def for_vosk() -> dict[str, object]:
    """The folder of a small speech model, for recordings of 8 kHz."""
    make_transcriber(Path("vosk-model"), rate=8000)
    return {}


def for_speakers() -> dict[str, object]:
    """The folder of a network for x-vectors with its back end, recordings, and x-vectors."""
    vectors, names = make_xvector_folder(Path("xvector-model"), rate=8000)
    Path("recordings").mkdir()
    for name in ("anna-1", "anna-2", "ben-1", "ben-2", "unknown"):
        speech(Path("recordings") / f"{name}.wav")
    for name in ("speakers", "xvectors"):  # which tools of the page write
        write_arrays(f"ark:{name}.ark", {"anna": vectors[0]})
    return {
        "unknown_speakers": vectors[:50],
        "known_speakers": vectors,
        "speaker_names": names,
    }


def for_the_try() -> dict[str, object]:
    """The folder of the model that commands of the page fill."""
    Path("model").mkdir()
    return {}


def for_cuda() -> dict[str, object]:
    """A device that is emulated on the processor, and a computation with a gradient."""
    if compiler() is None:
        pytest.skip("there is no C++ compiler, which emulates a device")
    shutil.copy("final.raw", "final.mdl")
    nnet = read_nnet("final.raw")
    request = request_for(range(-12, 17), range(5), derivs=("output",), need_model_derivative=True)
    return {
        "nnet": nnet,
        "computation": CachingCompiler(nnet).compile(request),
        "device": HostPlatform(),
        "tensor": np.ones((29, 23), np.float32),
        "derivative": np.ones((5, 11), np.float32),
    }


def for_components() -> dict[str, object]:
    """The names that a module of component types imports."""
    modules = (
        "nnet3_descriptors.components.declaration.base",
        "nnet3_descriptors.components.declaration.fields",
        "nnet3_descriptors.components.declaration.properties",
        "nnet3_descriptors.components.declaration.registry",
        "nnet3_descriptors.components.index_rules.windows",
    )
    names: dict[str, object] = {"Property": ComponentProperties}
    for module in modules:
        names |= vars(importlib.import_module(module))
    # The page shows a type of this module; no other may define it.
    return names | {"__name__": "nnet3_descriptors.components.columns"}


GIVEN: dict[str, Callable[[], dict[str, object]]] = {
    "adding-a-component.md": for_components,
    "cuda.md": for_cuda,
    "fine-tuning.md": for_fine_tuning,
    "limits.md": for_limits,
    "streams.md": for_streams,
    "how-to/fine-tune.md": for_the_try,
    "how-to/pronunciation.md": for_vosk,
    "how-to/speaker-verification.md": for_speakers,
    "how-to/vosk.md": for_vosk,
}
"""What pages take for granted, made in the current folder."""

CHANGED = {"cuda.md": {'device="cuda"': "device=device", ', precision="tf32"': ""}}
"""What is changed where a page needs a device."""


PRINTED = {"how-to/from-wav-to-posteriors.md": "7\n"}
"""What the Python of a page prints that shows no output."""


def speech(path: Path) -> None:
    """Writes a second of noise with 16 bits and 8 kHz."""
    samples = 3000 * np.random.default_rng(0).standard_normal(8000)
    path.write_bytes(wav(samples.astype("<i2").tobytes(), rate=8000))


@pytest.mark.parametrize("name", [name for name in PAGES if name not in ELSEWHERE])
@pytest.mark.usefixtures("in_empty_folder")
def test_code_of_pages(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The code of a page runs from top to bottom beside the digits model, as shown."""
    shutil.copytree(DIGITS, ".", dirs_exist_ok=True)
    speech(Path("speech.wav"))
    shown_type = "SumBlockComponent"  # which a page defines once more
    monkeypatch.setitem(registry._classes, shown_type, component_class(shown_type))
    page = PAGES[name]
    names = GIVEN.get(name, dict)()

    for kind, code in blocks(page):
        for shown, instead in CHANGED.get(name, {}).items():
            code = code.replace(shown, instead)
        if kind == "python":
            exec(code, names)  # noqa: S102  the project's own pages
        else:
            examples = doctest.DocTestParser().get_doctest(code, names, page.name, str(page), 0)
            said: list[str] = []
            doctest.DocTestRunner().run(examples, out=said.append, clear_globs=False)
            assert not said, "".join(said)
            names |= examples.globs
    assert PRINTED.get(name, "") in capsys.readouterr().out


def commands(page: Path) -> Iterator[list[str]]:
    """The words of the commands of nnet3-tools that a page shows in lines of their own."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(
        r"^(?:    )?(?:uv run )?((?:nnet3|chain|ivector)-[a-z-]+ .*)$", text, re.M
    ):
        if line.split()[0] in MODULES:
            yield shlex.split(line, comments=True)


SHOWN = [
    (page, words)
    for page in (ROOT / "README.md", *sorted(DOCS.glob("**/*.md")))
    for words in commands(page)
]


@pytest.mark.parametrize(
    ("page", "words"), SHOWN, ids=[f"{page.name}-{words[0]}" for page, words in SHOWN]
)
def test_commands_of_pages(page: Path, words: list[str]) -> None:
    """A command that a page shows has options and arguments that the tool takes."""
    name, *arguments = words

    command_of(name).make_context(name, arguments)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_code_that_runs_elsewhere(name: str) -> None:
    """The test that is named for a page reads that page."""
    assert f'"{name}"' in (ROOT / "tests" / ELSEWHERE[name]).read_text()


@pytest.mark.parametrize(
    "package", sorted(path.parts[-2] for path in ROOT.glob("packages/*/pyproject.toml"))
)
def test_readmes_are_run(package: str) -> None:
    """A package whose README has code has a test that runs it, or has no code."""
    readme = ROOT / "packages" / package / "README.md"
    test = readme.parent / "tests" / "test_readme.py"

    if [*blocks(readme)] and package.removeprefix("nnet3-") not in RUN_TOGETHER:
        assert "README.md" in test.read_text()


def test_modules_that_pages_name_exist() -> None:
    """Pages name no module that is gone or has moved."""
    places = (each for each in ROOT.iterdir() if each.is_dir() and each.name[0] != ".")
    modules = [f"/{each.as_posix()}" for place in places for each in place.rglob("*.py")]
    pages = [*ROOT.glob("*.md"), *DOCS.glob("**/*.md"), *ROOT.glob("packages/*/README.md")]
    named = {
        name
        for page in pages
        for name in re.findall(r"`((?:[\w-]+/)*\w+\.py)`", page.read_text(encoding="utf-8"))
    }
    gone = {name for name in named if not any(each.endswith(f"/{name}") for each in modules)}

    assert gone == NOT_OURS


@pytest.mark.parametrize("program", ["draw", "draw_onnx"])
def test_pictures(program: str) -> None:
    """The pictures are the ones that their program draws now."""
    drawn = runpy.run_path(str(DOCS / "pictures" / f"{program}.py"))["pictures"]()

    for name, picture in drawn.items():
        assert (DOCS / "pictures" / name).read_text() == picture, name
