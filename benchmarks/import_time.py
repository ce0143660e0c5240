"""Processor time that the packages and tools need to start, in new processes.

    python benchmarks/import_time.py [repetitions] [--only PART ...]

For each: the least and the middle of the repetitions, and the middle relative to `import numpy`,
which is measured in turns with it. A package is imported, alone and with a name that it exports; a
tool prints its help, and the smallest jobs are done. Modules are compiled before, as those of an
installed wheel are. Jobs keep no computations for later runs, but those with "new" begin with an
empty cache, and those with "known" find there what an equal run has compiled.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
DIGITS = ROOT / "examples/digits"
MODEL = f"{DIGITS}/final.raw"
KALDI_DIGITS = ROOT / "tests/reference/digits"
BASE = "import numpy"

FIRST_USES = {
    "nnet3_descriptors": "read_nnet",
    "nnet3_graph": "build_computation_graph",
    "nnet3_compiler": "compile_computation",
    "nnet3_optimizer": "optimize",
    "nnet3_runtime_cuda": "NnetComputer",
    "nnet3": "load",
    "nnet3_runtime_onnx": "to_onnx",
    "nnet3_runtime_reference": "ReferenceComputer",
    "nnet3_tables": "read_table",
    "nnet3_training": "Trainer",
}
"""The name that most programs import from each package."""


CACHED = ("nnet3-compute", "nnet3-compute-looped")
"""Tools whose jobs are also done with a cache, an empty one and one that has all."""


def statements(folder: str) -> dict[str, str]:
    """The measured jobs, by the name in the table.

    Args:
        folder: Where jobs may write. The cache "new" in it is to be empty before each job.
    """
    commands = sorted(
        (entry for entry in entry_points(group="console_scripts") if _is_ours(entry)),
        key=lambda entry: entry.name,
    )
    return {
        "the interpreter": "pass",
        **{f"import {package}": f"import {package}" for package in FIRST_USES},
        **{
            f"from {package} import {name}": f"from {package} import {name}"
            for package, name in FIRST_USES.items()
        },
        **{f"{entry.name} --help": _run(entry, ["--help"]) for entry in commands},
        **{
            f"{entry.name} {job}": _run(entry, arguments)
            for entry in commands
            for job, arguments in small_jobs(f"{folder}/output.ark").get(entry.name, {}).items()
        },
        "load": f"import nnet3; nnet3.load({MODEL!r})",
        **{f"load, {cache}": _loading(f"{folder}/{cache}") for cache in ("new", "known")},
    }


def _loading(cache: str) -> str:
    """A statement that loads the model of the digits."""
    return f"import nnet3; nnet3.load({MODEL!r}, cache_dir={cache!r})"


def small_jobs(output: str) -> dict[str, dict[str, list[str]]]:
    """The arguments of small jobs, by command and by name.

    Args:
        output: Where a job may write.
    """
    raw, features = MODEL, f"ark:{DIGITS}/test.feats.ark"
    mdl, egs = f"{KALDI_DIGITS}/final.mdl", f"ark:{KALDI_DIGITS}/egs.ark"
    files = {
        "nnet3-info": [raw],
        "nnet3-copy": [raw, output],
        "nnet3-average": [raw, raw, output],
        "nnet3-init": [f"{DIGITS}/nnet.config", output],
        "nnet3-am-info": [mdl],
        "nnet3-am-copy": ["--raw=true", mdl, output],
        "nnet3-copy-egs": [egs, f"ark:{output}"],
        "nnet3-merge-egs": ["--minibatch-size=64", egs, f"ark:{output}"],
        "nnet3-shuffle-egs": [egs, f"ark:{output}"],
        "nnet3-subset-egs": ["--n=10", egs, f"ark:{output}"],
        "nnet3-show-progress": [raw, raw],
        "nnet3-compute": [raw, features, f"ark:{output}"],
        "nnet3-compute-looped": [raw, features, f"ark:{output}"],
    }
    jobs = {tool: {"on digits": arguments} for tool, arguments in files.items()}
    for tool in CACHED:
        for cache in ("new", "known"):
            option = f"--cache-dir={Path(output).parent / cache}"
            jobs[tool][f"on digits, {cache}"] = [option, *files[tool]]
    return jobs


def _is_ours(entry: EntryPoint) -> bool:
    """Whether a command is one of the packages here."""
    return entry.module.startswith(("nnet3_tools.", "nnet3_conformance."))


def _run(entry: EntryPoint, arguments: list[str]) -> str:
    """A statement that runs a command."""
    argv = [entry.name, *arguments]
    return f"import sys; sys.argv = {argv!r}; from {entry.module} import {entry.attr} as run; run()"


def seconds(statement: str, environment: dict[str, str]) -> float:
    """The processor time of a process that runs one statement."""
    with subprocess.Popen(
        [sys.executable, "-c", statement],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"'{statement}' failed with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Prints a line for each package and tool."""
    parser = argparse.ArgumentParser(description="Time imports of the packages in new processes.")
    parser.add_argument(
        "repetitions", type=int, nargs="?", default=21, help="%(default)s if left out"
    )
    parser.add_argument("--only", nargs="*", default=[""], help="what has one of these in its name")
    arguments = parser.parse_args()
    repetitions = arguments.repetitions
    print("| what | least | middle | of NumPy's |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NNET3_CACHE_DIR": ""}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = f"{folder}/compiled"
        seconds(BASE, environment)  # compiles
        for name, statement in statements(folder).items():
            if not any(part in name for part in arguments.only):
                continue
            seconds(statement, environment)
            times: dict[str, list[float]] = {BASE: [], statement: []}
            for _ in range(repetitions):
                shutil.rmtree(f"{folder}/new", ignore_errors=True)
                for each, taken in times.items():
                    taken.append(seconds(each, environment))
            middle = median(times[statement])
            print(
                f"| {name} | {min(times[statement]) * 1e3:.0f} ms | {middle * 1e3:.0f} ms "
                f"| {middle / median(times[BASE]):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
