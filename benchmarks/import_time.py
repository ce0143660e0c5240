"""Processor time that importing the packages takes, in new processes; NumPy's share is shown too.

    python benchmarks/import_time.py [repetitions]

Modules must have been compiled (`python -m compileall`), as those of an installed wheel are.
"""

import argparse
import os
import sys

STATEMENTS = {
    "the interpreter": "pass",
    "numpy": "import numpy",
    "numpy, attrs": "import numpy, attrs",
    "nnet3_descriptors": "import nnet3_descriptors",
    "nnet3_descriptors, all component types": (
        "from nnet3_descriptors.components.declaration import registry; registry.make_all_classes()"
    ),
}


def seconds(statement: str) -> float:
    """Returns the processor time of a process that runs one statement."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    process = os.spawnve(
        os.P_NOWAIT, sys.executable, [sys.executable, "-c", statement], environment
    )
    usage = os.wait4(process, 0)[2]
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Prints the least and the middle of some repetitions."""
    parser = argparse.ArgumentParser(description="Time imports of the packages in new processes.")
    parser.add_argument(
        "repetitions", type=int, nargs="?", default=21, help="%(default)s if left out"
    )
    repetitions = parser.parse_args().repetitions
    for name, statement in STATEMENTS.items():
        times = sorted(seconds(statement) for _ in range(repetitions))
        print(f"{name:40} {times[0] * 1e3:6.1f} ms, median {times[len(times) // 2] * 1e3:6.1f} ms")


if __name__ == "__main__":
    main()
