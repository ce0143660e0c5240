"""The first minutes on a CUDA device: tests, times, a profile and the sanitizer, by one command.

    python benchmarks/first_minutes.py first-minutes            # 390 s at most; go on with the same
    python benchmarks/first_minutes.py rehearsal --dry-run      # on the processor, small networks

The steps come in the order in which their results are wanted. Each writes its output to a file of
the folder while it runs, and a part of `report.md` when it ends, so that a machine that is taken
away leaves what was found. A step that had no time left, or was stopped by its limit, runs again
with the same command; the measurements that it has are kept (`cuda.jsonl`). The packages need not
be installed: their sources are put on the path.

The model of the time (`cuda_launches.py`) is counted by the processor meanwhile. The last step puts
it beside what was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
from networks import BENCHMARKS

ROOT = Path(__file__).parents[1]

PACKAGES_WANTED = "cupy", "numpy", "torch", "nvidia-cublas", "nvidia-cublas-cu12"

MOST_LINES = 80
"""Lines at the end of a step's output that the report has."""


@attrs.frozen
class Step:
    """A part of the work.

    Attributes:
        name: Of its file, and of its part of the report.
        command: Arguments of the process.
        seconds: On a device it is stopped after so many.
        environment: Variables that are set.
    """

    name: str
    command: tuple[str, ...]
    seconds: float
    environment: tuple[tuple[str, str], ...] = ()


def benchmark(name: str, *arguments: str) -> tuple[str, ...]:
    """The command of a program in this folder."""
    return sys.executable, str(Path(__file__).with_name(f"{name}.py")), *arguments


def steps(folder: Path, *, dry_run: bool) -> Iterator[Step]:
    """All steps that take the device, those that are wanted most first."""
    rehearsed = ("--dry-run", "--scale=0.0625") if dry_run else ()
    many = ("--n=2", "--network=xvector") if dry_run else ("--n=64",)

    def times(name: str, seconds: float, *arguments: str) -> Step:
        out = f"--out={folder / 'cuda.jsonl'}"
        return Step(name, benchmark("cuda", *rehearsed, *arguments, out), seconds)

    def profile(precision: str) -> Step:
        arguments = f"--precision={precision}", f"--sources={folder / 'kernels.cu'}"
        command = benchmark("cuda_profile", *rehearsed, *(many if dry_run else ()), *arguments)
        return Step(f"profile-tdnnf-train-{precision}", command, 45)

    def tests(*options: str) -> tuple[str, ...]:
        always = "-m", "pytest", str(ROOT / "tests/test_gpu.py"), "-q", "-p", "no:benchmark"
        return sys.executable, *always, *options

    some = ("-k", "affine") if dry_run else (f"--numprocesses={min(os.cpu_count() or 1, 13)}",)
    on_host = (("NNET3_GPU_TESTS", "host"),) if dry_run else ()
    yield Step("tests", tests("-rfE", *some), 90, on_host)
    yield times("times", 60, *many)
    split = "--network=xvector" if dry_run else "--network=tdnnf", "--precision=fp32x3"
    yield times("times-split-products", 30, "--n=2" if dry_run else "--n=64", *split)
    yield times("times-one-stream", 40, *many, "--mode=train", "--one-stream")
    yield times("times-plain-gradient", 40, *many, "--mode=train", "--no-natural-gradient")
    yield profile("fp32")
    yield profile("tf32")
    yield profile("fp32x3")
    yield times("times-tensor-cores", 60, *many, "--precision=tf32", "--precision=bf16")
    peers = "--runner=graph", "--runner=eager"
    yield times("times-pytorch", 70, *many, *peers)
    sanitizer = shutil.which("compute-sanitizer", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")
    if sanitizer and not dry_run:
        chosen = "test_training_steps and (lstmp or tdnnf or affine) or split_products and parts"
        watched = sanitizer, "--target-processes=all", "--error-exitcode=1"
        for tool in ("memcheck", "initcheck", "racecheck", "synccheck"):
            command = *watched, f"--tool={tool}", *tests("-k", chosen)
            yield Step(f"sanitize-{tool}", command, 100, (("NNET3_GPU_ALLOCATOR", "cuda"),))
    if not dry_run:
        yield times("times-sizes", 150, "--n=8", "--n=1", "--n=128")
        precisions = "--precision=tf32", "--precision=bf16"
        yield times("times-pytorch-tensor-cores", 100, *many, "--runner=graph", *precisions)
        yield times("times-pytorch-sizes", 150, "--n=8", "--n=1", "--n=128", "--runner=graph")
        yield times("times-pytorch-compiled", 300, *many, "--runner=compile")


# ---- running ----


def environment(step: Step | None = None) -> dict[str, str]:
    """The environment of a process: with the sources of all packages."""
    sources = map(str, sorted(ROOT.glob("packages/*/src")))
    path = os.pathsep.join([*sources, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, **dict(step.environment if step else ())}


def run(step: Step, folder: Path, seconds: float) -> str:
    """Runs a step for so many seconds at most; returns how it ended."""
    path, begin = folder / f"{step.name}.txt", time.monotonic()
    with path.open("w") as out:
        process = subprocess.Popen(
            step.command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(step),
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            status = f"status {process.wait(seconds)}"
        except subprocess.TimeoutExpired:
            # With all that it has started, which would go on using the device.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = "stopped"
    return f"{status} after {time.monotonic() - begin:.0f} s"


def report(folder: Path, title: str, text: str) -> None:
    """Adds a part to the report, and has it on the disk."""
    with (folder / "report.md").open("a") as out:
        out.write(f"## {title}\n\n{text}\n\n")
        out.flush()
        os.fsync(out.fileno())
    print(title, flush=True)


def last_lines(path: Path) -> str:
    """The end of a step's output: a table as it is, other text indented."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-MOST_LINES:]
    return "\n".join(line if line.startswith("|") else f"    {line}" for line in lines)


def machine() -> str:
    """The device, its driver, and the versions of what computes."""
    found = shutil.which("nvidia-smi")
    query = "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv"
    device = (
        subprocess.run([found, *query], capture_output=True, text=True, check=False)
        if found
        else None
    )
    code = (
        "import importlib.metadata as m\n"
        "for d in sorted(m.distributions(), key=lambda d: d.name or ''):\n"
        f"    if (d.name or '').startswith({PACKAGES_WANTED!r}): print(d.name, d.version)"
    )
    versions = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    lines = [time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), f"Python {sys.version.split()[0]}"]
    lines += device.stdout.splitlines() if device else ["no nvidia-smi"]
    return "\n".join(f"    {line}" for line in [*lines, *versions.stdout.splitlines()])


# ---- the model beside the measurements ----


def start_model(folder: Path, *, dry_run: bool) -> list[subprocess.Popen[bytes]]:
    """Has the model counted for each network that has no file yet."""
    processes = []
    for name in ("xvector",) if dry_run else BENCHMARKS:
        path = folder / f"model-{name}.txt"
        if path.exists() and "model / measured" in path.read_text():
            continue
        sizes = ("--n=1",) if dry_run else ("--n=64", "--n=8", "--n=1")
        command = benchmark("cuda_launches", f"--network={name}", *sizes)
        with path.open("w") as out:
            processes.append(subprocess.Popen(command, stdout=out, env=environment(), cwd=ROOT))
    return processes


def measured(folder: Path, precision: str) -> dict[tuple[str, int, str], float]:
    """Milliseconds of this package in a precision, by network, sequences, and the model's way.

    The model has one stream, so measurements with one stream stand for those with branches.
    """
    found = {}
    path = folder / "cuda.jsonl"
    for text in path.read_text().splitlines() if path.exists() else ():
        entry = json.loads(text)
        case, line = entry["case"], entry.get("line")
        if line and case["runner"] == "nnet3" and case["precision"] == precision:
            way = "inference" if case["mode"] == "infer" else "training"
            plain = way == "training" and not case["natural_gradient"]
            key = case["network"], case["sequences"], way + (", plain" if plain else "")
            if case["one_stream"] or key not in found:
                found[key] = line["milliseconds"]
    return found


def beside(folder: Path) -> str:
    """The model's times and those of this folder, as a table."""
    times, split, lines = measured(folder, "fp32"), measured(folder, "fp32x3"), []
    row = re.compile(
        r"\| ([\w-]+), ([\w, ]+) \| (\d+) \|(?:[^|]*\|){5} ([\d.]+) \| *([\d.]*) \|"
        r"[^|]*\| ([\d.]+) \|"
    )
    for path in sorted(folder.glob("model-*.txt")):
        for name, way, n, modelled, before, by_split in row.findall(path.read_text()):
            key = name, int(n), way
            cells = [f"{name}, {way}", n, modelled, before]
            for found, expected in ((times.get(key), modelled), (split.get(key), by_split)):
                ratio = f"{float(expected) / found:.2f}" if found else ""
                cells += [f"{found:.2f}" if found else "", ratio]
            cells.insert(-2, by_split)
            lines.append(f"| {' | '.join(cells)} |")
    head = (
        *("network", "n", "model, ms", "on 2026-11-27, ms", "now, ms", "model / now"),
        *("model, fp32x3, ms", "now, fp32x3, ms", "model / now"),
    )
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines])


def main() -> None:
    """Runs the steps that have not ended yet."""
    parser = argparse.ArgumentParser(description="What the first minutes on a CUDA device show.")
    parser.add_argument("folder", type=Path, help="for the report and the files of the steps")
    parser.add_argument("--seconds", type=float, default=390.0, help="for all of it")
    parser.add_argument("--dry-run", action="store_true", help="on the processor, to see it work")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    folder: Path = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ended.txt"
    ended = set(path.read_text().split()) if path.exists() else set()
    report(folder, "Machine", machine())
    counting = start_model(folder, dry_run=arguments.dry_run)
    for step in steps(folder, dry_run=arguments.dry_run):
        left = end - time.monotonic() - 5
        if step.name in ended or left < 10:
            continue
        how = run(step, folder, left if arguments.dry_run else min(left, step.seconds))
        report(folder, f"{step.name}: {how}", last_lines(folder / f"{step.name}.txt"))
        if not how.startswith("stopped"):
            with path.open("a") as out:
                out.write(f"{step.name}\n")
    for process in counting:
        try:
            process.wait(max(end - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            process.terminate()
    report(folder, "The model beside the measurements", beside(folder))


if __name__ == "__main__":
    main()
