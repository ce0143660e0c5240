"""What has to hold before a package is released, and what would be uploaded.

`uv run nox -s release -- nnet3-graph` runs this in an environment of its own. It lists all that is
missing, and builds the wheel and the source archive if nothing is. It uploads nothing.
"""

from __future__ import annotations

import argparse
import email
import email.message
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parent
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_SECTION = re.compile(r"^## (\S+) \((.+)\)$", re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_CLASSIFIERS = ("Typing :: Typed", "Programming Language :: Python :: 3")


@attrs.frozen
class Package:
    """A package of the workspace.

    Attributes:
        folder: Where its pyproject.toml is.
    """

    folder: Path

    @cached_property
    def project(self) -> dict[str, Any]:
        """The table `project` of its pyproject.toml."""
        with (self.folder / "pyproject.toml").open("rb") as file:
            project: dict[str, Any] = tomllib.load(file)["project"]
        return project

    @property
    def name(self) -> str:
        """Its name, as in nnet3-graph, which is its folder's."""
        return self.folder.name

    @property
    def module(self) -> str:
        """What is imported, as in nnet3_graph."""
        return self.name.replace("-", "_")

    @cached_property
    def version(self) -> str:
        """Its version, "" if it has none."""
        init = self.folder / "src" / self.module / "__init__.py"
        found = _VERSION.search(init.read_text(encoding="utf-8"))
        return found[1] if found else ""

    @property
    def tag(self) -> str:
        """The tag of the commit that is released."""
        return f"{self.name}-{self.version}"

    @property
    def siblings(self) -> dict[str, Requirement]:
        """What it needs of the workspace, by name."""
        extras = self.project.get("optional-dependencies", {}).values()
        optional = (line for lines in extras for line in lines)
        needed = map(Requirement, [*self.project.get("dependencies", ()), *optional])
        return {each.name: each for each in needed if (self.folder.parent / each.name).is_dir()}


def git(folder: Path, *arguments: str, may_fail: bool = False) -> str:
    """What a command of git prints; "" if it fails and may."""
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=not may_fail)
    return done.stdout.strip() if done.returncode == 0 else ""


def missing_in_sources(package: Package) -> Iterator[str]:
    """What is missing in the files of a package, a line each."""
    try:
        if str(Version(package.version)) != package.version:
            yield f"version {package.version} is not in its normal form {Version(package.version)}"
    except InvalidVersion:
        yield f"src/{package.module}/__init__.py: {package.version!r} is no version"
    section = _SECTION.search((package.folder / "CHANGELOG.md").read_text(encoding="utf-8"))
    if section is None or section[1] != package.version:
        found = section[0] if section else "none"
        yield f"CHANGELOG.md: expected a first section '## {package.version} (DATE)', found {found}"
    elif not _DATE.fullmatch(section[2]):
        yield f"CHANGELOG.md: section {package.version} is '{section[2]}', expected the date"
    if package.project["name"] != package.name:
        name = package.project["name"]
        yield f"pyproject.toml: project.name is {name}, the folder's name {package.name}"
    for field in ("description", "readme", "license", "authors", "requires-python", "keywords"):
        if not package.project.get(field):
            yield f"pyproject.toml: project.{field} is missing"
    if "Source" not in package.project.get("urls", {}):
        yield "pyproject.toml: project.urls has no Source, where the repository is published"
    for classifier in _CLASSIFIERS:
        if classifier not in package.project.get("classifiers", ()):
            yield f"pyproject.toml: the classifier '{classifier}' is missing"
    for name, needed in package.siblings.items():
        version = Package(package.folder.parent / name).version
        if version not in needed.specifier:
            yield f"pyproject.toml: {needed} leaves out version {version} of today"
        if not any(one.operator == ">=" for one in needed.specifier):
            yield f"pyproject.toml: {needed} has no lower bound"


def missing_in_history(package: Package) -> Iterator[str]:
    """What git has against a release: changes that are not committed, a tag that is taken."""
    changed = git(package.folder, "status", "--porcelain", "--", ".")
    if changed:
        yield f"git: {len(changed.splitlines())} files of the package are not committed"
    commit = f"{package.tag}^{{commit}}"
    tagged = git(package.folder, "rev-parse", "--verify", "--quiet", commit, may_fail=True)
    if not tagged:
        yield f"git: the tag {package.tag} is missing (git tag {package.tag})"
    elif tagged != git(package.folder, "rev-parse", "HEAD"):
        yield f"git: the tag {package.tag} is at another commit, {tagged[:12]}: raise the version"


def metadata_of_wheel(wheel: Path) -> email.message.Message:
    """The metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def missing_in_archives(package: Package, wheel: Path, source: Path) -> Iterator[str]:
    """What is missing in the built archives, or in them for no reason."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    metadata = metadata_of_wheel(wheel)
    if (metadata["Name"], metadata["Version"]) != (package.name, package.version):
        yield f"{wheel.name}: its metadata is of {metadata['Name']} {metadata['Version']}"
    for wanted in (f"{package.module}/__init__.py", f"{package.module}/py.typed"):
        if wanted not in names:
            yield f"{wheel.name}: {wanted} is missing"
    if not any(name.endswith("/licenses/LICENSE") for name in names):
        yield f"{wheel.name}: the text of the licence is missing"
    own = package.module, f"{package.module}-{package.version}.dist-info"
    for name in names:
        if name.partition("/")[0] not in own:
            yield f"{wheel.name}: {name} is not of the package"
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    for wanted in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO"):
        if wanted not in inside:
            yield f"{source.name}: {wanted} is missing"


def build(package: Package, folder: Path) -> tuple[Path, Path]:
    """Builds the source archive, and the wheel from it; returns the wheel and the archive."""
    shutil.rmtree(folder, ignore_errors=True)
    command = ["uv", "build", "--quiet", f"--package={package.name}", f"--out-dir={folder}"]
    subprocess.run(command, cwd=ROOT, check=True)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def main(arguments: list[str] | None = None) -> int:
    """Checks a package, and builds what would be uploaded; returns the exit status."""
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("package", help="the name of a package, such as nnet3-graph")
    parser.add_argument("--draft", action="store_true", help="build although something is missing")
    options = parser.parse_args(arguments)
    folder = ROOT / "packages" / options.package
    if not (folder / "pyproject.toml").is_file():
        names = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
        parser.error(f"there is no package '{options.package}'; there are {', '.join(names)}")
    package = Package(folder)
    missing = [*missing_in_sources(package), *missing_in_history(package)]
    for line in missing:
        print(f"{package.name}: {line}", file=sys.stderr)
    if missing and not options.draft:
        return 1
    wheel, source = build(package, ROOT / ".nox" / "to_upload" / package.name)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", wheel, source], check=True)
    wrong = list(missing_in_archives(package, wheel, source))
    for line in wrong:
        print(f"{package.name}: {line}", file=sys.stderr)
    if not wrong:
        print(f"{package.name} {package.version}: {wheel.name}, {source.name} in {wheel.parent}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
