"""The findings of `nox -s release` on packages."""

import io
import runpy
import subprocess
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from reference_cases import ROOT

release = SimpleNamespace(**runpy.run_path(str(ROOT / "release.py")))

PROJECT = """
[project]
name = "nnet3-sample"
description = "A sample."
readme = "README.md"
license = "Apache-2.0"
authors = [{ name = "Somebody" }]
requires-python = ">=3.11"
keywords = ["nnet3"]
classifiers = ["Programming Language :: Python :: 3", "Typing :: Typed"]
dependencies = ["numpy>=2.0", "nnet3-below>=0.1,<0.2"]
urls = { Source = "https://example.org/nnet3" }
"""


@pytest.fixture
def package(tmp_path: Path) -> Any:
    """A package that is ready for release, and a package that it needs, in a repository."""
    for name, version in (("nnet3-below", "0.1.3"), ("nnet3-sample", "1.2.0")):
        module = tmp_path / name / "src" / name.replace("-", "_")
        module.mkdir(parents=True)
        (module / "__init__.py").write_text(f'"""A package."""\n\n__version__ = "{version}"\n')
    folder = tmp_path / "nnet3-sample"
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (2026-11-23)\n\n- News.\n")
    for command in (
        ("init", "--quiet"),
        ("config", "user.name", "Somebody"),
        ("config", "user.email", "somebody@example.org"),
        ("add", "."),
        ("commit", "--quiet", "--message=All"),
        ("tag", "nnet3-sample-1.2.0"),
    ):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    return release.Package(folder)


def test_nothing_is_missing(package: Any) -> None:
    """A package that is ready for release has no findings."""
    assert list(release.missing_in_sources(package)) == []
    assert list(release.missing_in_history(package)) == []


LOG, TOML, INIT = "CHANGELOG.md", "pyproject.toml", "src/nnet3_sample/__init__.py"
NEEDED = "nnet3-below>=0.1,<0.2"
TODAY = "## 1.1.0 (2026-11-23)"
DEFECTS = (
    (LOG, "(2026-11-23)", "(unreleased)", ": section 1.2.0 is 'unreleased', expected the date"),
    (LOG, "1.2.0", "1.1.0", f": expected a first section '## 1.2.0 (DATE)', found {TODAY}"),
    (INIT, '"1.2.0"', '"new"', ": 'new' is no version"),
    (INIT, '"1.2.0"', '"1.2.0-rc1"', "version 1.2.0-rc1 is not in its normal form 1.2.0rc1"),
    (TOML, "urls =", "no =", ": project.urls has no Source, where the repository is published"),
    (TOML, "authors", "writers", ": project.authors is missing"),
    (TOML, ', "Typing :: Typed"', "", ": the classifier 'Typing :: Typed' is missing"),
    (TOML, NEEDED, "nnet3-below>=0.2", ": nnet3-below>=0.2 leaves out version 0.1.3 of today"),
    (TOML, NEEDED, "nnet3-below<0.2", ": nnet3-below<0.2 has no lower bound"),
)
"""A file, a text in it and another in its place, and what is said; with `:` first, of the file."""


@pytest.mark.parametrize(("file", "old", "new", "said"), DEFECTS)
def test_what_is_missing_in_sources(package: Any, file: str, old: str, new: str, said: str) -> None:
    """Each defect of a package is named."""
    path = package.folder / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))

    line = f"{file}{said}" if said.startswith(":") else said
    assert line in list(release.missing_in_sources(release.Package(package.folder)))


def test_what_git_has_against_a_release(package: Any) -> None:
    """Uncommitted files, a version without its tag, and a tag on another commit are named."""
    git = ["git", "-C", package.folder]
    (package.folder / "README.md").write_text("A sample.\n")
    changed = list(release.missing_in_history(package))
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message=More"], check=True)
    moved = list(release.missing_in_history(package))
    subprocess.run([*git, "tag", "--delete", package.tag], check=True, stdout=subprocess.DEVNULL)
    untagged = list(release.missing_in_history(package))

    assert changed == ["git: 1 files of the package are not committed"]
    ((line,), (other,)) = moved, untagged
    assert line.startswith("git: the tag nnet3-sample-1.2.0 is at another commit, ")
    assert other == "git: the tag nnet3-sample-1.2.0 is missing (git tag nnet3-sample-1.2.0)"


def archives(folder: Path, in_wheel: dict[str, str], in_source: list[str]) -> tuple[Path, Path]:
    """A wheel and a source archive with these files."""
    wheel, source = folder / "sample.whl", folder / "sample.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in in_wheel.items():
            archive.writestr(name, text)
    with tarfile.open(source, "w:gz") as tar:
        for name in in_source:
            tar.addfile(tarfile.TarInfo(f"nnet3_sample-1.2.0/{name}"), io.BytesIO())
    return wheel, source


INFO = "nnet3_sample-1.2.0.dist-info"
IN_WHEEL = {
    "nnet3_sample/__init__.py": "",
    "nnet3_sample/py.typed": "",
    f"{INFO}/METADATA": "Name: nnet3-sample\nVersion: 1.2.0\n",
    f"{INFO}/licenses/LICENSE": "",
}
IN_SOURCE = ["pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO"]


WRONG = {
    "": [],
    "nnet3_sample/py.typed": ["sample.whl: nnet3_sample/py.typed is missing"],
    f"{INFO}/licenses/LICENSE": ["sample.whl: the text of the licence is missing"],
    "tests/test_sample.py": ["sample.whl: tests/test_sample.py is not of the package"],
    "CHANGELOG.md": ["sample.tar.gz: CHANGELOG.md is missing"],
}
"""A file that is missing, or that is there but should not, and what is said."""


@pytest.mark.parametrize(("name", "lines"), WRONG.items())
def test_what_is_wrong_with_archives(
    package: Any, tmp_path: Path, name: str, lines: list[str]
) -> None:
    """Missing and superfluous files of an archive are named; there are none as it is built."""
    wheel = {file: text for file, text in IN_WHEEL.items() if file != name}
    if name.startswith("tests/"):
        wheel[name] = ""
    source = [file for file in IN_SOURCE if file != name]

    assert list(release.missing_in_archives(package, *archives(tmp_path, wheel, source))) == lines


def test_every_package_lacks_only_what_comes_with_its_release() -> None:
    """All packages are ready for release once there are a date, a tag and an address."""
    waiting = ("CHANGELOG.md: section", "pyproject.toml: project.urls has no Source")
    for path in sorted(ROOT.glob("packages/*/pyproject.toml")):
        package = release.Package(path.parent)
        assert not [
            line for line in release.missing_in_sources(package) if not line.startswith(waiting)
        ], package.name


def test_each_package_has_the_licence() -> None:
    """Each licence is a copy: archives with a link out of their folder can't be unpacked."""
    text = (ROOT / "LICENSE").read_bytes()
    for path in sorted(ROOT.glob("packages/*/LICENSE")):
        assert not path.is_symlink(), path
        assert path.read_bytes() == text, path


def test_an_unknown_package(capsys: pytest.CaptureFixture[str]) -> None:
    """An error for an unknown package lists the packages."""
    with pytest.raises(SystemExit):
        release.main(["nnet3-grahp"])

    assert "no package 'nnet3-grahp'; there are nnet3, nnet3-compiler, " in capsys.readouterr().err
