"""The time of each kernel of a benchmark network on a CUDA device.

    python benchmarks/cuda_profile.py --network tdnnf --mode train --precision tf32

PyTorch's profiler traces all kernels of the process, this package's and cuBLASLt's; nothing else of
PyTorch is used. The steps are those of `cuda.py`, and the table is for one of them. Kernels of this
package are called `k` and twelve hexadecimal digits; `--sources` keeps their text. The names of
cuBLASLt's say how a product is computed: `sgemm` on the float32 units, `tf32` or `s1688` on tensor
cores; behind it are the tiles.

With --dry-run the network runs on the processor, untraced, to see whether everything works.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cuda_workloads import CYCLE, FIRST_STEPS, Case, nnet3_workload
from networks import BENCHMARKS

OURS = re.compile(r"k[0-9a-f]{12}$")

HEAD = (
    "| kernel | grid | block | of a step | ms of a step | us of each |\n|---|---|---|---|---|---|"
)

Event = dict[str, Any]


def kernels(trace: dict[str, Any]) -> list[Event]:
    """The events of kernels in a trace in the format of Chrome."""
    return [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]


def rows(events: Iterable[Event], steps: int, *, most: int) -> Iterator[str]:
    """The lines of the table, those that take longest first, and what they add up to."""
    durations: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for event in events:
        sizes = (" x ".join(map(str, event["args"][key])) for key in ("grid", "block"))
        durations[event["name"], *sizes].append(event["dur"])
    ordered = sorted(durations.items(), key=lambda item: -sum(item[1]))
    for (name, grid, block), each in ordered[:most]:
        total = sum(each)
        numbers = f"{len(each) / steps:g} | {total / steps / 1e3:.3f} | {total / len(each):.1f}"
        yield f"| `{name}` | {grid} | {block} | {numbers} |"
    for what, is_ours in (("kernels of this package", True), ("other kernels", False)):
        found = [
            d for (name, *_), each in ordered if bool(OURS.match(name)) == is_ours for d in each
        ]
        yield f"| all {what} | | | {len(found) / steps:g} | {sum(found) / steps / 1e3:.3f} | |"


def keep_sources(path: Path) -> None:
    """Has the source of each module that is compiled from now on appended to a file."""
    from nnet3_runtime_cuda.cuda.cupy_platform import CupyPlatform

    build = CupyPlatform.build

    def build_and_keep(self: CupyPlatform, source: str, names: Any) -> Any:
        with path.open("a", encoding="utf-8") as out:
            out.write(source)
        return build(self, source, names)

    CupyPlatform.build = build_and_keep  # type: ignore[method-assign]


def traced(case: Case) -> list[Event]:
    """The kernels of CYCLE steps."""
    from torch.profiler import ProfilerActivity, profile

    work = nnet3_workload(case)
    for _ in range(FIRST_STEPS):
        work.run()
    work.clock.wait()
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        for _ in range(CYCLE):
            work.run()
        work.clock.wait()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        trace.export_chrome_trace(str(path))
        return kernels(json.loads(path.read_text(encoding="utf-8")))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Time the kernels of a network on a CUDA device.")
    parser.add_argument("--network", choices=BENCHMARKS, default="tdnnf")
    parser.add_argument("--mode", choices=("infer", "train"), default="train")
    parser.add_argument("--n", type=int, default=64, help="sequences")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the hidden sizes")
    parser.add_argument("--most", type=int, default=60, help="lines of the table")
    parser.add_argument("--sources", type=Path, help="file to which kernels' sources are added")
    parser.add_argument("--dry-run", action="store_true", help="on the processor, to see it work")
    arguments = parser.parse_args()
    case = Case(
        network=arguments.network,
        mode=arguments.mode,
        sequences=arguments.n,
        precision=arguments.precision,
        scale=arguments.scale,
        dry_run=arguments.dry_run,
    )
    if arguments.sources:
        keep_sources(arguments.sources)
    if arguments.dry_run:
        nnet3_workload(case).run()
        print("On the processor there are no kernels to trace.")
        return
    print(HEAD)
    for row in rows(traced(case), CYCLE, most=arguments.most):
        print(row)


if __name__ == "__main__":
    main()
