"""Writing and reading cases; the judge passes right results and names wrong ones."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import attrs
import numpy as np
import pytest
import safetensors.numpy
from click.testing import CliRunner
from nnet3_computation import NnetComputation
from nnet3_conformance import (
    Case,
    judge_class,
    judge_program,
    read_cases,
    reference_cases,
    write_case,
)
from nnet3_conformance.command import cli
from nnet3_descriptors import Nnet, parse_config, write_nnet
from small_networks import stacked

SCALES = np.array([2.0, -3.0], np.float32)


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """A folder with one reference: a network that multiplies each column by a number."""
    folder = tmp_path / "reference" / "component" / "scale"
    folder.mkdir(parents=True)
    scaling = parse_config(stacked(2, "scale FixedScale dim=2"))
    nnet = scaling.with_state_dict({"scale.scales": SCALES})
    write_nnet(nnet, folder / "nnet.raw")
    rows = [[0, t, 0] for t in range(3)]
    case = {
        "about": "scales",
        "test_mode": False,
        "request": {
            "inputs": [{"name": "input", "indexes": rows, "has_deriv": True}],
            "outputs": [{"name": "output", "indexes": rows, "has_deriv": True}],
            "need_model_derivative": False,
            "store_component_stats": False,
        },
    }
    (folder / "case.json").write_text(json.dumps(case))
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    arrays = {"input/input": x, "output/output": SCALES * x}
    arrays |= {"output_deriv/output": x, "input_deriv/input": SCALES * x}
    np.savez(folder / "arrays.npz", **arrays)
    return tmp_path / "reference"


@pytest.fixture
def cases(reference: Path, tmp_path: Path) -> Path:
    """The folder of cases made from the reference."""
    for case in reference_cases(reference):
        write_case(tmp_path / "cases", case)
    return tmp_path / "cases"


class Scaling:
    """A runtime for networks that only scale."""

    factor = 1.0

    def __init__(self, nnet: Nnet, computation: NnetComputation) -> None:
        self.scales = self.factor * nnet.state_dict()["scale.scales"]

    def forward(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The columns, scaled."""
        return {"output": self.scales * inputs["input"]}

    def backward(self, derivatives: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The derivatives, scaled."""
        return {"input": self.scales * derivatives["output"]}


def test_a_right_runtime_passes(cases: Path) -> None:
    """Both programs pass, forward and backward."""
    verdicts = list(judge_class(read_cases(cases), Scaling))

    assert [(each.program, each.outcome) for each in verdicts] == [
        ("compiled", "passed"),
        ("optimized", "passed"),
    ]
    assert verdicts[0].differences == {"output": 0.0, "input_deriv": 0.0}


def test_a_wrong_runtime_fails(cases: Path) -> None:
    """The verdict says which results differ, and by how much."""

    class Wrong(Scaling):
        factor = 1.01

    verdict, _ = judge_class(read_cases(cases), Wrong)

    assert str(verdict) == (
        "failed        component/scale compiled: output output: differs by 1.0e-02, more than "
        "0.0001; input_deriv input: differs by 1.0e-02, more than 0.001"
    )


def test_missing_and_misshapen_outputs_fail(cases: Path) -> None:
    """Missing and wrong results are named with what was expected; NaN counts as a difference."""

    class Unreadable:
        def __array__(self, *_: object, **__: object) -> np.ndarray:
            raise KeyError("no values")

    class Missing(Scaling):
        result: dict[str, np.ndarray]

        def forward(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return self.result

    for result, message in (
        ({}, "output: expected output, found none"),
        ({"output": np.zeros((2, 2))}, r"output output: expected shape \(3, 2\), found \(2, 2\)"),
        ({"output": np.full((3, 2), np.nan)}, "output output: differs by nan"),
        ({"output": np.ones((3, 2), complex)}, "output output: expected real numbers, found comp"),
        ({"output": Unreadable()}, "output output: 'no values'"),
        ({"output": [[1.0], [2.0, 3.0]]}, "output output: setting an array element"),
        (None, "output: expected a mapping from nodes to arrays, found NoneType"),
    ):
        Missing.result = result
        verdict, _ = judge_class(read_cases(cases), Missing)
        assert verdict.outcome == "failed"
        assert re.match(message, verdict.message), verdict.message


def test_what_is_not_supported_is_no_failure(cases: Path) -> None:
    """An error of a given type means that the runtime does not support the case."""

    class Picky(Scaling):
        def __init__(self, nnet: Nnet, computation: NnetComputation) -> None:
            raise NotImplementedError("no scales here")

    verdict, _ = judge_class(read_cases(cases), Picky, unsupported=[NotImplementedError])

    assert (verdict.outcome, verdict.message) == ("not supported", "no scales here")


@pytest.mark.parametrize("method", ["__init__", "forward", "backward"])
def test_an_error_is_a_failure(cases: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any error of a class fails the case, and the next case is judged."""

    def fail(*_: object) -> None:
        raise IndexError("row 7")

    class Broken(Scaling):
        pass

    monkeypatch.setattr(Broken, method, fail)

    verdicts = list(judge_class(read_cases(cases), Broken))

    assert [(each.outcome, each.message) for each in verdicts] == [
        ("failed", "IndexError('row 7')")
    ] * 2


def test_no_gradient(cases: Path) -> None:
    """A class may have a backward pass without a gradient."""
    [case] = read_cases(cases)
    request = attrs.evolve(case.request, need_model_derivative=True)

    verdict, _ = judge_class([attrs.evolve(case, request=request)], Scaling)

    assert (verdict.outcome, [*verdict.differences]) == ("passed", ["output", "input_deriv"])


PROGRAM = """
import sys
from pathlib import Path
import safetensors.numpy
from nnet3_descriptors import Nnet

folder, program, found = sys.argv[1:]
nnet = Nnet.load(Path(folder, "network"))
given = safetensors.numpy.load(Path(folder, "given").read_bytes())
if program == "optimized":
    print("only what was compiled", file=sys.stderr)
    sys.exit(3)
output = nnet.state_dict()["scale.scales"] * given["input/input"]
Path(found).write_bytes(safetensors.numpy.save({"output/output": output}))
"""


def test_programs_are_judged_by_files(cases: Path, tmp_path: Path) -> None:
    """A program that runs forward passes is judged; status 3 is a refusal, any other a failure."""
    script = tmp_path / "runtime.py"
    script.write_text(PROGRAM)

    passed, refused = judge_program(read_cases(cases), [sys.executable, str(script)])
    failed, _ = judge_program(read_cases(cases), [sys.executable, "-c", "exit('broken')"])
    silent, _ = judge_program(read_cases(cases), [sys.executable, "-c", ""])

    assert (passed.outcome, passed.differences) == ("passed", {"output": 0.0})
    assert (refused.outcome, refused.message) == ("not supported", "only what was compiled")
    assert (failed.outcome, failed.message) == ("failed", "ended with status 1: broken")
    assert silent.outcome == "failed"
    assert silent.message.startswith("the results cannot be read: ")


def test_a_case_comes_back(reference: Path, cases: Path) -> None:
    """Cases are read as they were written."""
    [written], [read] = reference_cases(reference), read_cases(cases)

    assert isinstance(read, Case)
    assert (read.entry, read.request) == (written.entry, written.request)
    assert read.programs == written.programs
    assert safetensors.numpy.save(read.given) == safetensors.numpy.save(written.given)


def test_the_command_makes_and_judges(reference: Path, tmp_path: Path) -> None:
    """The command's last line counts the verdicts."""
    folder = str(tmp_path / "made")
    runner = CliRunner()

    made = runner.invoke(cli, ["make", folder, "--references", str(reference)])
    judged = runner.invoke(cli, ["judge", folder, "--program", "false", "--quiet"])
    both = runner.invoke(cli, ["judge", folder])

    assert made.output == f"1 cases in {folder}\n"
    assert judged.exit_code == 1
    assert judged.output.splitlines()[-1] == "2 failed"
    assert "give one of --class and --program" in both.output


def test_a_module_that_changes_the_folder(
    cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder from which a module was imported is no longer searched, wherever that leads."""
    (tmp_path / "away").mkdir()
    (tmp_path / "mover.py").write_text("import os\nos.chdir('away')\nclass R: pass\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)

    judged = CliRunner().invoke(cli, ["judge", str(cases), "--class", "mover:R", "--quiet"])

    assert judged.output.splitlines()[-1] == "2 failed"
    assert sys.path == before


def test_the_package_brings_its_cases(tmp_path: Path) -> None:
    """The command makes all 89 cases from what is installed, without the repository."""
    folder = tmp_path / "made"

    made = CliRunner().invoke(cli, ["make", str(folder)])

    assert made.output == f"89 cases in {folder}\n"
    kinds = Counter(each.entry.name.partition("/")[0] for each in read_cases(folder))
    assert kinds == {"component": 59, "network": 30}
