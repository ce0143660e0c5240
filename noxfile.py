"""What the project checks, against the wheels that users would install: `uv run nox`.

Each package is tested with nothing installed but its wheel, what the wheel declares to need, and
the test tools: an import that is not declared fails here and not at a user.
"""

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2026.2.9"  # earlier versions don't know how uv clears an environment
nox.options.default_venv_backend = "uv"

WORKSPACE = nox.project.load_toml("pyproject.toml")
PROJECTS = {
    path.parent.name: nox.project.load_toml(path)["project"]
    for path in sorted(Path("packages").glob("*/pyproject.toml"))
}
WHEELS = Path(".nox/wheels").absolute()
OLDEST_PYTHON = WORKSPACE["project"]["requires-python"].removeprefix(">=")


def needs_package(requirement: str, package: str) -> bool:
    """Whether a requirement such as "nnet3-graph>=0.1,<0.2" is one for this package."""
    return requirement.partition(">")[0] == package


def wheels_of(*packages: str) -> list[str]:
    """The built wheels of these packages and of those of the workspace that they declare."""
    needed = set(packages)
    for package in packages:
        for requirement in PROJECTS[package]["dependencies"]:
            needed |= {name for name in PROJECTS if needs_package(requirement, name)}
    return [
        str(wheel)
        for name in sorted(needed)
        for wheel in WHEELS.glob(f"{name.replace('-', '_')}-*.whl")
    ]


def outside_dependencies() -> list[str]:
    """The dependencies that the packages declare, other than each other."""
    declared = set().union(*(project["dependencies"] for project in PROJECTS.values()))
    return sorted(
        requirement
        for requirement in declared
        if not any(needs_package(requirement, name) for name in PROJECTS)
    )


@nox.session(venv_backend="none", default=False)
def wheels(session: nox.Session) -> None:
    """Build the wheels of all packages."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    session.run("uv", "build", "--all-packages", "--wheel", "--out-dir", str(WHEELS))


@nox.session(requires=["wheels"])
@nox.parametrize("package", [nox.param(name, id=name) for name in PROJECTS])
def package(session: nox.Session, package: str) -> None:
    """Run the tests of one package with only its wheel and its declared dependencies."""
    session.install(*wheels_of(package), "--group", "test")
    session.run("pytest", f"packages/{package}/tests", *session.posargs)


@nox.session(requires=["wheels"])
def integration(session: nox.Session) -> None:
    """Run the tests across packages: reference cases, separate processes, tools, examples."""
    session.install(*wheels_of(*PROJECTS), "--group", "test")
    session.run("pytest", "tests", *session.posargs)


@nox.session(python=OLDEST_PYTHON, requires=["wheels"])
def lowest(session: nox.Session) -> None:
    """Run the packages' tests with the oldest dependencies that they declare to work with."""
    session.install(
        "--resolution=lowest-direct",
        *outside_dependencies(),
        *wheels_of(*PROJECTS),
        "--group",
        "test",
    )
    session.run("pytest", "packages", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    session.install("--group", "lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def typing(session: nox.Session) -> None:
    """Check the types of the packages, strictly."""
    session.install(*outside_dependencies(), "--group", "lint")
    session.run("mypy", *(f"packages/{name}/src" for name in PROJECTS))


@nox.session(requires=["wheels"])
def gpu(session: nox.Session) -> None:
    """Run the tests that need a CUDA device."""
    if shutil.which("nvidia-smi") is None:
        session.skip("there is no CUDA device here (no nvidia-smi)")
    session.install(*wheels_of(*PROJECTS), "cupy-cuda12x", "--group", "test")
    session.run("pytest", "-m", "gpu", *session.posargs)
