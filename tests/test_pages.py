"""The pages: the README's Python and its command are right, and links lead somewhere."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from kaldi_tables import assert_same_archive, read_archive
from reference_cases import DIGITS_REFERENCE, ROOT

README = (ROOT / "README.md").read_text()


def test_python_of_the_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's first Python, at most six lines, computes Kaldi's log-posteriors."""
    code, _ = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(code.splitlines()) <= 6
    monkeypatch.chdir(ROOT)
    names: dict[str, dict[str, np.ndarray]] = {}

    exec(code, names)  # noqa: S102  the project's own README

    expected = read_archive(DIGITS_REFERENCE / "test.output.ark")
    assert_same_archive(names["log_posteriors"], expected)


def test_ci_runs_the_command_of_the_readme() -> None:
    """Continuous integration and the README name the same test command."""
    command = "python3 -m pip install uv && uv run nox"

    assert command in README.splitlines()
    assert command == (ROOT / ".ci" / "run").read_text().splitlines()[-1]


def test_sessions_of_the_readme() -> None:
    """The README lists the sessions that `nox` alone runs, as nox announces them."""
    announced = []
    for node in ast.parse((ROOT / "noxfile.py").read_text()).body:
        decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
        [session] = [each for each in decorators if each.startswith("nox.session")] or [""]
        is_announced = "default=False" not in session or getattr(node, "name", "") == "wheels"
        if session and is_announced and isinstance(node, ast.FunctionDef):
            what = (ast.get_docstring(node) or "").partition("\n")[0]
            announced.append(f"nox > {node.name}: {what}")
    packages = len([*ROOT.glob("packages/*/pyproject.toml")])

    listed = re.findall(r"^nox > .*: .*\w.*$", README, flags=re.MULTILINE)

    assert [line.replace(f"{packages} x package", "package") for line in listed] == announced


def links(page: Path) -> list[str]:
    """The targets of a Markdown page's links within the project."""
    return re.findall(r"\]\(([^):]+)\)", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The names by which links point to headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("packages/*/*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_pages(page: Path) -> None:
    """The files, folders and headings that a page links to exist."""
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            text = target / "README.md" if target.is_dir() else target
            assert anchor in anchors(text), link
