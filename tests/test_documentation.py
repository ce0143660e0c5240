"""The pages that people learn from: their code runs, and their pictures show what it computes."""

import doctest
import importlib.util
import re
import shutil
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from reference_cases import ROOT

DOCS = ROOT / "docs"
PAGES = [
    *(DOCS / f"{name}.md" for name in ("start", "stages", "coming-from")),
    *sorted(DOCS.glob("how-to/*.md")),
]


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The code of a page: its kind, "python" or "pycon", and its text."""
    yield from re.findall(r"^```(python|pycon)\n(.*?)^```", page.read_text(), re.DOTALL | re.M)


def speech(path: Path) -> None:
    """Writes a second of noise with 16 bits and 8 kHz."""
    samples = 3000 * np.random.default_rng(0).standard_normal(8000)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(samples.astype(np.int16).tobytes())


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if list(blocks(page))],
    ids=lambda page: str(page.relative_to(DOCS)),
)
def test_code_of_pages(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of a page runs from top to bottom beside the digits model, as shown."""
    for file in (ROOT / "examples" / "digits").iterdir():
        shutil.copy(file, tmp_path)
    speech(tmp_path / "speech.wav")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}

    for kind, code in blocks(page):
        if kind == "python":
            exec(code, names)  # noqa: S102  the project's own pages
        else:
            examples = doctest.DocTestParser().get_doctest(code, names, page.name, str(page), 0)
            said: list[str] = []
            doctest.DocTestRunner().run(examples, out=said.append, clear_globs=False)
            assert not said, "".join(said)
            names |= examples.globs


def test_pictures() -> None:
    """The pictures are those that their program draws now."""
    place = importlib.util.spec_from_file_location("draw", DOCS / "pictures" / "draw.py")
    assert place is not None
    assert place.loader is not None
    draw = importlib.util.module_from_spec(place)
    place.loader.exec_module(draw)

    for name, picture in draw.pictures().items():
        assert (DOCS / "pictures" / name).read_text() == picture, name
