"""Reads damaged files, and reports faults of the readers.

Run with a seed and numbers to repeat some files, with `tests` as PYTHONPATH, as in
`python -m damaged.reading 1 300:310`, or `python -m damaged.reading 1 300:310 examples`; the report
is a line of JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import attrs
from nnet3_descriptors import AcousticModel, ModelFileError, Nnet3Error, read_nnet, write_nnet
from nnet3_descriptors.components.declaration import is_component_type

from damaged.damages import DamagedFile, damaged_file
from damaged.good_files import good_files, read

SECONDS = 1.0
"""Processor time that reading a file may take."""
MEMORY = 64 << 20
"""Bytes that it may take, besides four times the size of the file."""


class Watch:
    """Notes what a reader must not do: open files, run code, start processes, use the network."""

    _FORBIDDEN = ("open", "exec", "compile", "import", "os.", "subprocess.", "socket.", "ctypes.",
                  "pickle.", "shutil.", "tempfile.")  # fmt: skip

    def __init__(self) -> None:
        self.events: list[str] = []
        self.on = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event.startswith(self._FORBIDDEN):
            self.events.append(f"{event} {arguments!r:.80}")


@attrs.define
class Report:
    """The results of reading the files.

    Attributes:
        files: Number of files tried.
        accepted: Number of files that were still read as models.
        seconds: Largest processor time for one file.
        growth: Largest growth of the memory of the process, in bytes, beyond four times the size of
            the file.
        faults: Each fault of a reader, with the file.
    """

    files: int = 0
    accepted: int = 0
    seconds: float = 0.0
    growth: int = 0
    faults: list[str] = attrs.field(factory=list)


def read_damaged(seed: int, numbers: range, group: str = "models") -> Report:
    """Reads damaged files in this process, which must have done nothing else."""
    watch, report = Watch(), Report()
    for good in good_files(group):
        if group == "models":
            read(good.data, is_acoustic_model=good.is_acoustic_model)
        else:
            _is_accepted_example(DamagedFile(good.name, good.data, good.kind))
    is_component_type("NoSuchComponent")  # looks for installed packages, which happens only once
    start = _memory("VmHWM")
    # Allocated memory counts, even if it is not used.
    limit = _memory("VmSize") + 4 * MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number in numbers:
        file = damaged_file(seed, number, group)
        before = time.process_time()
        watch.on = True
        try:
            is_accepted = _is_accepted if group == "models" else _is_accepted_example
            report.accepted += is_accepted(file)
        except Exception:
            report.faults.append(f"{file.name}: {traceback.format_exc(limit=-4)}")
        watch.on = False
        report.files += 1
        seconds = time.process_time() - before
        report.seconds = max(report.seconds, seconds)
        if seconds > SECONDS:
            report.faults.append(f"{file.name}: took {seconds:.1f} s")
        growth = _memory("VmHWM") - start - 4 * len(file.data)
        if growth > max(report.growth, MEMORY):
            report.faults.append(f"{file.name}: memory grew by {growth >> 20} MiB")
        report.growth = max(report.growth, growth)
        report.faults += [f"{file.name}: {event}" for event in watch.events]
        watch.events.clear()
    return report


def _is_accepted(file: DamagedFile) -> bool:
    """Reads a file; its value must be equal after writing and reading it again."""
    try:
        model = read(file.data, is_acoustic_model=file.is_acoustic_model)
    except ModelFileError as error:
        _check_place(error, file)
        return False
    nnet = model.nnet if isinstance(model, AcousticModel) else model
    first, second = io.BytesIO(), io.BytesIO()
    write_nnet(nnet, first)
    write_nnet(read_nnet(io.BytesIO(first.getvalue())), second)
    assert first.getvalue() == second.getvalue(), "what is written is not what was read"
    return True


def _is_accepted_example(file: DamagedFile) -> bool:
    """Reads a file; its value must be equal after writing and reading, and allow changes."""
    from damaged.good_examples import bytes_of, changes_of, read_examples_of

    try:
        examples = read_examples_of(file.data, file.kind)
    except ModelFileError as error:
        _check_place(error, file)
        return False
    first = bytes_of(examples, file.kind)
    assert bytes_of(read_examples_of(first, file.kind), file.kind) == first, (
        "what is written is not what was read"
    )
    for example in examples:
        for change in changes_of(example, file.kind):
            with contextlib.suppress(Nnet3Error):  # it may not make sense for this example
                change()
    return True


def _check_place(error: ModelFileError, file: DamagedFile) -> None:
    """Raises AssertionError unless the error says where in the file the fault is."""
    assert error.offset is not None, f"no offset: {error}"
    assert 0 <= error.offset <= len(file.data), f"the offset is {error.offset}: {error}"


def _memory(name: str) -> int:
    """Returns an entry of the status of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) << 10


def main() -> None:
    """Takes `seed first:last [group]` from the command line and prints the report."""
    first, last = map(int, sys.argv[2].split(":"))
    report = read_damaged(int(sys.argv[1]), range(first, last), *sys.argv[3:])
    print(json.dumps(attrs.asdict(report)))


if __name__ == "__main__":
    main()
