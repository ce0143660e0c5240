"""How values appear to people: a short repr, and in a notebook a table or a picture."""

from __future__ import annotations

import importlib
import inspect

import numpy as np
import pytest
from nnet3 import CachingCompiler, load
from nnet3_compiler import Compiler, compile_computation
from nnet3_computation import (
    ComputationBuilder,
    ComputationRequest,
    NnetComputation,
)
from nnet3_descriptors import read_model, read_nnet, set_test_mode
from nnet3_graph import (
    ComputationGraphBuilder,
    build_computation_graph,
    compute_context,
)
from nnet3_optimizer import analyze, optimize
from nnet3_runtime_cuda import DeviceNnet, NnetComputer, Tracer
from nnet3_runtime_onnx import OnnxComputer
from nnet3_runtime_reference import ReferenceComputer
from nnet3_tables import MatrixLookup
from nnet3_training import (
    DenseTargets,
    DropoutSchedule,
    Evaluator,
    ExampleInput,
    ExampleOutput,
    Trainer,
    TrainingExample,
)
from page_elements import Elements
from reference_cases import REFERENCE, ROOT
from small_networks import request_for

FRAMES = 40
MODEL = ROOT / "examples" / "digits" / "final.raw"


@pytest.fixture(scope="module")
def shown() -> dict[str, object]:
    """A value of each kind that people print."""
    nnet = read_nnet(MODEL)
    left, right = compute_context(nnet)
    request = request_for(range(-left, FRAMES + right), range(FRAMES))
    tested, trainer, evaluator = set_test_mode(nnet), Trainer(nnet), Evaluator(nnet)
    trainer.train_minibatch(example(request, 11))
    evaluator.add(example(request, 11))
    computation = optimize(tested, compile_computation(tested, request))
    return {
        "network": nnet,
        "acoustic model": read_model(REFERENCE / "digits" / "final.mdl"),
        "component": nnet.components[0],
        "compilation": Compiler(nnet, request),
        "builder": ComputationBuilder(computation),
        "graph builder": ComputationGraphBuilder(nnet, request),
        "reference computer": ReferenceComputer(tested, computation),
        "ONNX computer": OnnxComputer(tested, computation),
        "device network": DeviceNnet(nnet),
        "tracer": Tracer(),
        "evaluator": evaluator,
        "dropout": DropoutSchedule("0,0.3,0", 100),
        "matrices": MatrixLookup(f"ark:{MODEL.parent / 'test.feats.ark'}"),
        "request": request,
        "graph": build_computation_graph(nnet, request),
        "computation": computation,
        "commands": computation.commands,
        "analysis": analyze(tested, computation),
        "compiler": CachingCompiler(nnet),
        "computer": NnetComputer(tested, computation),
        "model": load(MODEL),
        "trainer": trainer,
        "example": example(request, 11),
    }


def example(request: ComputationRequest, dim: int) -> TrainingExample:
    """An example of noise."""
    [given], [wanted] = request.inputs, request.outputs
    rng = np.random.default_rng(0)
    values = rng.standard_normal((len(given.indexes), 23), np.float32)
    targets = np.eye(dim, dtype=np.float32)[rng.integers(0, dim, len(wanted.indexes))]
    known = DenseTargets(values=targets)
    return TrainingExample(
        inputs=[ExampleInput(name="input", indexes=given.indexes, values=values)],
        outputs=[ExampleOutput(name="output", indexes=wanted.indexes, supervision=known)],
    )


def test_reprs_are_short(shown: dict[str, object]) -> None:
    """The repr of a value is one line that describes it, without an address in memory."""
    for what, value in shown.items():
        text = repr(value)
        assert len(text) < 400, what
        assert "\n" not in text, what
        assert " at 0x" not in text, what


PACKAGES = [path.name for path in sorted(ROOT.glob("packages/*/src/nnet3*")) if path.is_dir()]


@pytest.mark.parametrize("package", PACKAGES)
def test_public_classes_have_reprs(package: str) -> None:
    """No public class shows an address in memory: each has a repr of its own."""
    module = importlib.import_module(package)
    exported = (getattr(module, name) for name in getattr(module, "__all__", ()))

    assert [
        each.__name__
        for each in exported
        if inspect.isclass(each)
        and each.__repr__ is object.__repr__
        and not getattr(each, "_is_protocol", False)
    ] == []


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("network", "<svg"),
        ("acoustic model", "<p>acoustic model with "),
        ("request", f">{FRAMES + 24}</td>"),
        ("graph", ">tdnn1.affine</td>"),
        ("computation", ">given</td>"),
        ("trainer", ">output</td>"),
    ],
)
def test_notebooks(shown: dict[str, object], what: str, said: str) -> None:
    """The representation for notebooks is well-formed HTML or SVG."""
    page = shown[what]._repr_html_()  # type: ignore[attr-defined]
    elements = Elements()
    elements.feed(page)

    assert elements.open == []
    assert said in page


def test_print(shown: dict[str, object]) -> None:
    """A computation is printed command by command."""
    computation = shown["computation"]
    assert isinstance(computation, NnetComputation)

    assert str(computation).count("\nc") == len(computation.commands)
