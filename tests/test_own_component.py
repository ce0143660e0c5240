"""A component type of another package goes through all stages, as the example shows.

Each test runs in a separate process. Only the entry points of the example, or its modules, make the
type known there.
"""

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
from reference_cases import ROOT

EXAMPLE = ROOT / "examples" / "own-component"

STAGES = """
import attrs
import numpy as np
from emulated_device import HostPlatform, compiler
from nnet3_computation import NnetComputation, format_computation
from nnet3_compiler import compile_computation
from nnet3_computation import parse_computation
from nnet3_descriptors import Nnet, parse_config, read_nnet, write_nnet
from nnet3_computation import ComputationRequest
from nnet3_computation import IoSpecification
from nnet3_graph import build_computation_graph
from nnet3_optimizer import OptimizeOptions, optimize
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_onnx import OnnxComputer
from nnet3_runtime_reference import ReferenceComputer

nnet = parse_config('''
    input-node name=input dim=3
    component name=affine type=AffineComponent input-dim=3 output-dim=4
    component-node name=affine component=affine input=input
    component name=delta type=DeltaComponent dim=4 offset=2
    component-node name=delta component=delta input=affine
    output-node name=output input=Sum(delta, Offset(affine, 1))
''', rng=np.random.default_rng(0))
write_nnet(nnet, "delta.raw")
assert read_nnet("delta.raw") == nnet
assert Nnet.from_bytes(nnet.to_bytes()) == nnet
assert "DeltaComponent" in nnet.info()

request = ComputationRequest(
    inputs=[IoSpecification.from_range("input", -2, 10, 3, has_deriv=True)],
    outputs=[IoSpecification.from_range("output", 0, 8, 3, has_deriv=True)],
    need_model_derivative=True,
)
graph = build_computation_graph(nnet, request)
assert graph.counts_by_node()["affine"] == 36
kind = type(nnet.components[1])
closed_form, kind.closed_form = kind.closed_form, lambda self: None
asked = build_computation_graph(Nnet.from_bytes(nnet.to_bytes()), request)  # about each row
kind.closed_form = closed_form
assert graph == asked
compiled = compile_computation(nnet, request)
optimized = optimize(nnet, compiled, OptimizeOptions(verify=True))
assert len(optimized.commands) < len(compiled.commands)
assert parse_computation(format_computation(optimized, nnet), nnet) == optimized
assert NnetComputation.from_bytes(optimized.to_bytes()) == optimized

devices = [HostPlatform()] if "on_device" in globals() and compiler() is not None else []
rng = np.random.default_rng(1)
inputs = {"input": rng.standard_normal((36, 3)).astype(np.float32)}
derivs = {"output": rng.standard_normal((24, 4)).astype(np.float32)}
affine = nnet.components[0]
x = inputs["input"].reshape(3, 12, 3) @ affine.linear_params.T + affine.bias_params
expected = 0.5 * (x[:, 4:] - x[:, :-4]) + x[:, 3:-1]
dx = np.zeros_like(x)
dy = derivs["output"].reshape(3, 8, 4)
dx[:, 4:] += 0.5 * dy
dx[:, :-4] -= 0.5 * dy
dx[:, 3:-1] += dy
expected_deriv = dx.reshape(36, 4) @ affine.linear_params
expected_gradient = dx.reshape(36, 4).T @ inputs["input"]
gradients = []
for computer in (
    ReferenceComputer(nnet, compiled),
    ReferenceComputer(nnet, optimized),
    NnetComputer(nnet, compiled),
    NnetComputer(nnet, optimized),
    *(NnetComputer(nnet, optimized, device) for device in devices),
):
    outputs = computer.forward(inputs)
    np.testing.assert_allclose(outputs["output"], expected.reshape(24, 4), rtol=1e-4, atol=1e-5)
    found = computer.backward(derivs)
    np.testing.assert_allclose(found["input"], expected_deriv, rtol=1e-4, atol=1e-5)
    gradients.append(computer.gradient.components[0].linear_params)
for gradient in gradients:
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-5)
forward = attrs.evolve(
    request,
    inputs=[attrs.evolve(io, has_deriv=False) for io in request.inputs],
    outputs=[attrs.evolve(io, has_deriv=False) for io in request.outputs],
    need_model_derivative=False,
)
outputs = OnnxComputer(nnet, optimize(nnet, compile_computation(nnet, forward))).forward(inputs)
np.testing.assert_allclose(outputs["output"], expected.reshape(24, 4), rtol=1e-4, atol=1e-5)
print("all stages")
"""

TRAINED = """
import numpy as np
from nnet3_compiler import compile_computation
from nnet3_descriptors import parse_config, read_nnet, unvectorize, vectorize, write_nnet
from nnet3_descriptors.components import ComponentProperties as Property
from nnet3_descriptors.components import UpdatableComponent
from nnet3_descriptors.components.declaration import component, filled, vector
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_optimizer import OptimizeOptions, optimize
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_cuda.kernels import Kernel, kernel_for
from nnet3_runtime_reference import Formula, ReferenceComputer, formula

@component
class GainComponent(UpdatableComponent):
    PROPERTIES = Property.SIMPLE | Property.UPDATABLE | Property.BACKPROP_NEEDS_INPUT
    gains: np.ndarray = vector(parameter=True)

    @property
    def input_dim(self):
        return self.gains.size

    output_dim = input_dim

    @classmethod
    def initial_fields(cls, config, rng):
        return {"gains": filled(config.integer("dim", minimum=1), 2.0)}

@formula(GainComponent)
class Gain(Formula):
    def forward(self, call):
        return call.x * call.parameter("gains")

    def backward(self, call):
        return call.dy * call.parameter("gains")

    def gradient(self, call):
        return {"gains": (call.dy * call.x).sum(axis=0)}

@kernel_for(GainComponent)
class GainKernel(Kernel):
    def propagate(self, p):
        p.tape.multiply(p.x, self.store.parameters["gains"], p.y)

    def backprop(self, b):
        if b.update:
            total = b.tape.scratch(1, b.x.shape[1])
            b.tape.column_sum_of_products(b.dy, b.x, total)
            gains = self.store.directions["gains"]
            b.tape.add(gains, total[0], gains)
        if b.dx is not None:
            b.tape.multiply(b.dy, self.store.parameters["gains"], b.dx)

nnet = parse_config('''
    input-node name=input dim=3
    component name=gain type=GainComponent dim=3
    component-node name=gain component=gain input=input
    output-node name=output input=gain objective=quadratic
''')
assert vectorize(nnet).tolist() == [2.0, 2.0, 2.0]
nnet = unvectorize(nnet, np.array([1, 2, 3], np.float32))
write_nnet(nnet, "gain.raw", binary=False)
assert read_nnet("gain.raw") == nnet
request = ComputationRequest(
    inputs=[IoSpecification.from_range("input", 0, 5, 2, has_deriv=True)],
    outputs=[IoSpecification.from_range("output", 0, 5, 2, has_deriv=True)],
    need_model_derivative=True,
)
computation = optimize(nnet, compile_computation(nnet, request), OptimizeOptions(verify=True))
x, dy = np.random.default_rng(1).standard_normal((2, 10, 3)).astype(np.float32)
for computer in (ReferenceComputer(nnet, computation), NnetComputer(nnet, computation)):
    outputs = computer.forward({"input": x})
    np.testing.assert_allclose(outputs["output"], x * [1, 2, 3], rtol=1e-5)
    found = computer.backward({"output": dy})
    np.testing.assert_allclose(found["input"], dy * [1, 2, 3], rtol=1e-5)
    np.testing.assert_allclose(vectorize(computer.gradient), (dy * x).sum(axis=0), rtol=1e-4)
print("all stages")
"""

LOAD = """
from nnet3_computation import NnetComputation
print(len(NnetComputation.load("delta.computation").commands))
"""


def install(folder: Path, changes: dict[str, str] | None = None) -> None:
    """Writes the entry points of the example, as its installation does."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = folder / f"nnet3_delta-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items()), ""]
    text = "\n".join(lines)
    for old, new in (changes or {}).items():
        text = text.replace(old, new)
    (info / "entry_points.txt").write_text(text)


def run(code: str, folder: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Runs code in a folder within this one, in a process with further paths for imports."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    helpers = ROOT / "packages" / "nnet3-runtime-cuda" / "tests"
    search = os.pathsep.join(map(str, (*paths, helpers, os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        cwd=work,
        env={**os.environ, "PYTHONPATH": search},
    )


@pytest.mark.parametrize("way", ["installed", "imported"])
def test_all_stages(tmp_path: Path, way: str) -> None:
    """The type is parsed, stored, compiled, optimized, proven and run, on a device, too."""
    if way == "installed":
        install(tmp_path)
        code = "on_device = True\n" + STAGES
    else:
        code = "import nnet3_delta.formula, nnet3_delta.kernel, nnet3_delta.translation\n" + STAGES

    done = run(code, tmp_path, EXAMPLE / "src", tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "all stages\n"


def test_a_type_with_parameters(tmp_path: Path) -> None:
    """Its declaration suffices to read, write and flatten parameters, and for their gradient."""
    done = run(TRAINED, tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "all stages\n"


def test_a_stored_computation_first(tmp_path: Path) -> None:
    """A file with indexes of the type can be read before anything has used the type."""
    install(tmp_path)
    code = STAGES + "\noptimized.save('delta.computation')"
    assert run(code, tmp_path, EXAMPLE / "src", tmp_path).returncode == 0

    done = run(LOAD, tmp_path, EXAMPLE / "src", tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0

    without = run(LOAD, tmp_path)
    assert "unknown type 'DeltaPrecomputedIndexes'" in without.stderr


def test_what_cannot_be_imported(tmp_path: Path) -> None:
    """An error names package, type and group; a type without a kernel gives an error of its own."""
    install(tmp_path, {"nnet3_delta.kernel:DeltaKernel": "nnet3_delta.kernels:DeltaKernel"})

    done = run(STAGES, tmp_path, EXAMPLE / "src", tmp_path)

    assert done.stderr.splitlines()[-1] == (
        "nnet3_descriptors.errors.Nnet3Error: 'DeltaComponent' of nnet3-delta cannot be imported "
        "from nnet3_delta.kernels:DeltaKernel (entry point of 'nnet3_runtime_cuda.kernels'): No "
        "module named 'nnet3_delta.kernels'"
    )

    code = "import nnet3_delta.formula\n" + STAGES
    done = run(code, tmp_path, EXAMPLE / "src")
    assert done.stderr.splitlines()[-1] == (
        "nnet3_runtime_cuda.errors.UnsupportedComponentError: component 'delta' has the type "
        "DeltaComponent, which this runtime cannot compute"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "NoOpComponent",
            "__main__ defines the component type 'NoOpComponent', which "
            "nnet3_descriptors.components.elementwise has",
        ),
        ("Delta", "the name of a component type must end with 'Component' (got 'Delta')"),
    ],
)
def test_names_of_types(tmp_path: Path, name: str, message: str) -> None:
    """A type must have a new name, which ends in "Component"."""
    code = f"""
        from nnet3_descriptors.components import Component
        from nnet3_descriptors.components.declaration import component, integer

        @component
        class {name}(Component):
            dim: int = integer()
    """

    done = run(code, tmp_path)

    assert done.stderr.splitlines()[-1] == f"nnet3_descriptors.errors.NetworkError: {message}"
