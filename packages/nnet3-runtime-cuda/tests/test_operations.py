"""The tape's operations compared with definitions: any layout, length, type, number of threads."""

import ast
import inspect
from pathlib import Path

import nnet3_runtime_cuda
import numpy as np
import pytest
from nnet3_runtime_cuda.cpu import recorder
from nnet3_runtime_cuda.cpu.recorder import Recorder
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cpu.threads import Workers
from operation_cases import CASES, WIDE, Result, Trial
from operation_places import SEED, TRIALS, Draw

ELSEWHERE = {
    "precondition": "test_natural_gradient.py",
    "project": "test_natural_gradient.py",
    "scaled_product": "test_natural_gradient.py",
    "side": "test_natural_gradient.py",
    "update_estimates": "test_natural_gradient.py",
    "range_sum": "only tapes of devices have it; the sums are those of record_moments",
}
"""Operations whose tests are elsewhere."""

OTHERS = {"record_moments", "record_row_range_sums"}
"""Cases of functions that are not methods of a tape."""

NOT_ARITHMETIC = {
    *("record", "take", "run", "empty", "scratch", "lend", "persistent", "begin_command"),
    *("passing", "independent", "shared", "rows_per_sum", "row_blocks", "note"),
    *("threads", "scratch_bytes", "is_empty", "cache_scale"),
    *("gains_by_stacks", "preconditions_rows"),
    *("uses_tiles", "gains_by_panels", "gains_by_transposing"),
}
"""Methods that record calls, give memory, or divide work among threads."""

RECORDERS = {
    "cpu/bf16.py": "test_bf16.py",
    "cpu/natural_gradient.py": "test_natural_gradient.py",
    "cpu/recorder.py": "here",
    "cpu/tape.py": "here",
}
"""The modules that record calls of functions, and the tests of these calls."""

NAMES = list({case: name for name, case in CASES.items()}.values())
"""Operations, one for each case."""

SCRATCH = 1 << 16

BLOCKS = {name: getattr(recorder, name) for name in ("BLOCK_ELEMENTS", "SUM_ELEMENTS")}
FEW_ELEMENTS = 128
"""Elements of a block of rows in half of the trials, which then have several blocks."""


@pytest.fixture(scope="module")
def workers() -> dict[int, Workers]:
    """Workers, by their number of threads."""
    return {threads: Workers(threads) for threads in range(2, 6)}


def test_every_operation_has_a_case() -> None:
    """Every public method of a tape has a case, or is listed here as something else."""
    public = {
        name
        for kind in (NumpyTape, Recorder)
        for name, _ in inspect.getmembers(kind)
        if not name.startswith("_")
    }

    assert public == (CASES.keys() - OTHERS) | ELSEWHERE.keys() | NOT_ARITHMETIC


def test_no_other_module_records_calls() -> None:
    """Only modules whose tests are known record calls of functions on a tape."""
    package = Path(nnet3_runtime_cuda.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "record"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("self", "tape")
    }

    assert found == RECORDERS.keys()


def check(trial: Trial, draw: Draw, tape: NumpyTape) -> None:
    """Runs a trial, compares its results, and checks that it wrote nothing else."""
    before = [place.memory.copy() for place in draw.places]
    # Memory that no operation has written yet is full of NaN.
    tape.scratch(SCRATCH, dtype=np.uint8).fill(255)
    tape.begin_command()
    trial.record(tape)
    tape.run()

    with np.errstate(all="ignore"):
        for result in trial.results:
            compare(result)
    written = {id(result.place.memory): result.place.positions for result in trial.results}
    for place, memory in zip(draw.places, before, strict=True):
        after = place.memory.copy()
        positions = written.get(id(place.memory), [])
        after[positions] = memory[positions]
        assert after.tobytes() == memory.tobytes(), "other elements than those of the output"


def compare(result: Result) -> None:
    """Asserts that an output has the expected values."""
    found, wanted = result.place.values, result.values
    is_right = found == wanted
    if found.dtype.kind == "f":
        is_right |= np.abs(found - wanted.astype(WIDE)) <= result.errors
        is_right |= np.isnan(found) & np.isnan(wanted)
    for place in np.argwhere(~is_right)[:1]:
        at = tuple(place)
        raise AssertionError(f"element {at}: expected {wanted[at]}, found {found[at]}")


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_values(
    name: str, is_shared: bool, workers: dict[int, Workers], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each operation gives the results of its definition, and writes nothing else.

    Two to five threads do so, too, even for fewer rows than threads.
    """
    monkeypatch.setattr(recorder, "FEWEST_SHARED", 0)
    for number in range(TRIALS):
        draw = Draw(name, number)
        with np.errstate(all="ignore"):
            trial = CASES[name](draw)
        for limit, usual in BLOCKS.items():
            is_small = draw.chance(0.5)
            monkeypatch.setattr(recorder, limit, FEW_ELEMENTS if is_small else usual)
        threads = draw.random.randint(2, 5) if is_shared else 1
        try:
            check(trial, draw, NumpyTape(dtype=draw.tape_dtype, workers=workers.get(threads)))
        except Exception as error:
            error.add_note(f"trial {number} with OPERATION_SEED={SEED}, {threads} threads")
            for place in draw.places:
                error.add_note(f"{place.dtype} {place.shape} at bytes {place.array.strides}")
            raise
