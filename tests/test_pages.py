"""The pages: the code and commands of README and chain training run, and links lead somewhere."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kaldi_tables import assert_same_archive, read_archive, write_arrays
from nnet3_descriptors import read_nnet
from nnet3_tables import read_table
from reference_cases import CHAIN_REFERENCE, DIGITS_REFERENCE, ROOT

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


DIGITS = CHAIN_REFERENCE / "digits"
GIVEN = ("tree", "0.trans_mdl", "phones.txt", "phone_seqs.txt", "nnet.config")
FEWER = {"--minibatch-size=64": "--minibatch-size=8"}
"""What is changed for 60 utterances."""


def commands(page: str) -> list[str]:
    """The indented lines of a page; continued lines are joined."""
    blocks = re.findall(r"(?:^    .*\n)+", page, flags=re.MULTILINE)
    return [line.strip() for block in blocks for line in block.replace("\\\n", "").splitlines()]


def test_commands(tmp_path: Path) -> None:
    """From tree and alignments to a network that training has improved; each command succeeds."""
    for name in GIVEN:
        shutil.copy(DIGITS / name, tmp_path)
    shutil.copy(DIGITS / "cegs8.ark", tmp_path / "valid.cegs")
    features = dict(read_table(f"ark:{ROOT}/examples/digits/train60.feats.ark"))
    write_arrays(f"ark,scp:{tmp_path}/feats.ark,{tmp_path}/feats.scp", features)
    folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": os.pathsep.join([str(folder), os.environ["PATH"]])}
    lines = commands((ROOT / "docs" / "chain.md").read_text())
    said = {}
    for line in lines:
        for old, new in FEWER.items():
            line = line.replace(old, new)
        if line.startswith("nnet3-chain-combine"):  # of runs that the page says to make
            for name in ("2.raw", "3.raw"):
                shutil.copy(tmp_path / "1.raw", tmp_path / name)
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        said[line.split()[0]] = done.stderr

    tools = [line.split()[0] for line in lines]
    assert tools == [
        "chain-est-phone-lm",
        "chain-make-den-fst",
        "chain-get-supervision",
        "nnet3-chain-get-egs",
        "nnet3-chain-shuffle-egs",
        "nnet3-init",
        "nnet3-chain-train",
        "nnet3-chain-compute-prob",
        "nnet3-chain-combine",
    ]
    assert "for 60 utterances, errors on 0" in said["chain-get-supervision"]
    [objective] = re.findall(r"for 'output' is (\S+)", said["nnet3-chain-compute-prob"])
    assert float(objective) > -0.8
    assert read_nnet(tmp_path / "final.raw").node_dim("output") == 62
