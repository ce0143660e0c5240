"""The cases: a folder for each, with the operands of a runtime and the expected results.

A folder has cases.json, `{"format": "nnet3.conformance", "version": 1, "cases": [...]}`. Each case
has a `name` (its folder), `about`, `backward` and `tolerances`. In the folder of each case are:

    network        the network, in the mode in which it runs (`Nnet.save`)
    request        the request (`ComputationRequest.save`)
    compiled       the computation as compiled (`NnetComputation.save`)
    optimized      the computation after all passes
    given          safetensors: "input/NODE", and for a backward pass "output_deriv/NODE"
    expected       safetensors: "output/NODE", "input_deriv/NODE", "gradient/COMPONENT.FIELD"

Tensors are float32, one row for each row of the request. Differences are relative to the largest
value of a tensor, or to `SMALLEST_SCALE` if that is larger.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import cattrs
import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
from nnet3_computation import ComputationRequest, NnetComputation
from nnet3_descriptors import Nnet, Nnet3Error
from nnet3_descriptors.files import write_atomically

FORMAT: Final = "nnet3.conformance"
VERSION: Final = 1
"""The version of the format; a change that older judges would misread raises it."""

LISTING: Final = "cases.json"
PROGRAMS: Final = ("compiled", "optimized")
SMALLEST_SCALE: Final = 1e-3

Arrays = dict[str, npt.NDArray[np.float32]]


class ConformanceError(Nnet3Error):
    """A folder of cases, a reference or a runtime cannot be used."""


@attrs.frozen(kw_only=True)
class Entry:
    """A case as the listing describes it.

    Attributes:
        name: The folder of the case.
        about: The purpose of the case.
        backward: Whether the case has a backward pass.
        tolerances: For "output", "input_deriv" and "gradient", the largest difference allowed,
            relative to the largest value of the tensor.
    """

    name: str
    about: str
    backward: bool
    tolerances: dict[str, float]


@attrs.frozen(kw_only=True, eq=False)
class Case:
    """A network and a request, with the expected results.

    Attributes:
        entry: The entry of the listing: name, purpose and tolerances.
        nnet: The network.
        request: The request.
        programs: The computations, by "compiled" and "optimized".
        given: The operands of a runtime, by their names in the file.
        expected: The expected results, by their names in the file.
        folder: The folder of the files; None before they are written.
    """

    entry: Entry
    nnet: Nnet
    request: ComputationRequest
    programs: Mapping[str, NnetComputation]
    given: Arrays
    expected: Arrays
    folder: Path | None = None

    def part(self, arrays: Mapping[str, Any], role: str) -> dict[str, Any]:
        """Returns the arrays of a role, such as "input", by their names without the role."""
        prefix = f"{role}/"
        return {
            name.removeprefix(prefix): array
            for name, array in arrays.items()
            if name.startswith(prefix)
        }


def write_case(folder: Path, case: Case) -> None:
    """Writes the files of a case, and adds it to the listing of the folder.

    Args:
        folder: The folder of all cases; it is made if missing.
        case: The case.

    Raises:
        FileError: A file cannot be written.
        ConformanceError: The folder has a listing of another format or version.
    """
    own = folder / case.entry.name
    own.mkdir(parents=True, exist_ok=True)
    case.nnet.save(own / "network")
    case.request.save(own / "request")
    for name, computation in case.programs.items():
        computation.save(own / name)
    for name, arrays in (("given", case.given), ("expected", case.expected)):
        write_atomically(own / name, [safetensors.numpy.save(_single(arrays))])
    entries = [*read_entries(folder)] if (folder / LISTING).exists() else []
    entries = [entry for entry in entries if entry.name != case.entry.name] + [case.entry]
    listing = {
        "format": FORMAT,
        "version": VERSION,
        "cases": [attrs.asdict(entry) for entry in sorted(entries, key=lambda each: each.name)],
    }
    text = json.dumps(listing, indent=1) + "\n"
    write_atomically(folder / LISTING, [text.encode()])


def _single(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    return {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}


def read_entries(folder: Path) -> tuple[Entry, ...]:
    """Returns the entries of a folder's listing.

    Raises:
        ConformanceError: There is no listing, or it has another format or version.
    """
    path = folder / LISTING
    try:
        listing = json.loads(path.read_text(encoding="utf-8"))
        found = listing["format"], listing["version"]
        if found != (FORMAT, VERSION):
            raise ConformanceError(
                f"{path}: expected version {VERSION} of '{FORMAT}', found {found[1]!r:.80} of "
                f"{found[0]!r:.80}"
            )
        # Without details it stops at the first error; those of thousands would take all memory.
        converter = cattrs.Converter(detailed_validation=False)
        return tuple(converter.structure(listing["cases"], list[Entry]))
    except ConformanceError:
        raise
    except (
        OSError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
        ValueError,
    ) as error:  # fmt: skip
        raise ConformanceError(f"{path}: no list of cases: {error}") from error


def read_cases(folder: Path, only: str = "") -> Iterator[Case]:
    """Yields the cases of a folder whose names contain a text.

    Args:
        folder: The folder of all cases.
        only: The text.

    Raises:
        ConformanceError: There are no such cases, or the listing or arrays cannot be read.
        Nnet3Error: A network, request or computation cannot be read.
    """
    entries = [entry for entry in read_entries(folder) if only in entry.name]
    if not entries:
        raise ConformanceError(f"{folder}: no case has '{only}' in its name")
    for entry in entries:
        own = folder / entry.name
        yield Case(
            entry=entry,
            nnet=Nnet.load(own / "network"),
            request=ComputationRequest.load(own / "request"),
            programs={name: NnetComputation.load(own / name) for name in PROGRAMS},
            given=read_arrays(own / "given"),
            expected=read_arrays(own / "expected"),
            folder=own,
        )


def read_arrays(path: Path) -> Arrays:
    """Returns the tensors of a safetensors file.

    Raises:
        ConformanceError: The file cannot be read.
    """
    try:
        return dict(safetensors.numpy.load(path.read_bytes()))
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise ConformanceError(f"{path}: no file of tensors: {error}") from error
