"""A component type of another package goes through all stages, as the example shows.

Each test runs in a separate process. Only the entry points of the example, or its modules, make the
type known there.
"""

import configparser
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from reference_cases import ROOT

EXAMPLE = ROOT / "examples" / "own-component"

STAGES = """
import numpy as np
from emulated_device import HostPlatform, compiler
from nnet3_compiler import compile_computation
from nnet3_computation import NnetComputation, format_computation, parse_computation
from nnet3_descriptors import Nnet, read_nnet, write_nnet
from nnet3_graph import build_computation_graph
from nnet3_optimizer import OptimizeOptions, optimize
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_onnx import OnnxComputer
from nnet3_runtime_reference import ReferenceComputer
from small_networks import network, request_for

nnet = network('''
    input-node name=input dim=3
    component name=affine type=AffineComponent input-dim=3 output-dim=4
    component-node name=affine component=affine input=input
    component name=delta type=DeltaComponent dim=4 offset=2
    component-node name=delta component=delta input=affine
    output-node name=output input=Sum(delta, Offset(affine, 1))
''')
write_nnet(nnet, "delta.raw")
assert read_nnet("delta.raw") == nnet
assert Nnet.from_bytes(nnet.to_bytes()) == nnet
assert "DeltaComponent" in nnet.info()

frames = range(-2, 10), range(8), 3
request = request_for(*frames, derivs=("input", "output"), need_model_derivative=True)
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
expected = (0.5 * (x[:, 4:] - x[:, :-4]) + x[:, 3:-1]).reshape(24, 4)
dx = np.zeros_like(x)
dy = derivs["output"].reshape(3, 8, 4)
dx[:, 4:] += 0.5 * dy
dx[:, :-4] -= 0.5 * dy
dx[:, 3:-1] += dy
expected_deriv = dx.reshape(36, 4) @ affine.linear_params
expected_gradient = dx.reshape(36, 4).T @ inputs["input"]
types, programs = (ReferenceComputer, NnetComputer), (compiled, optimized)
for computer in (
    *(computer_type(nnet, program) for computer_type in types for program in programs),
    *(NnetComputer(nnet, optimized, device) for device in devices),
):
    for found, wanted in (
        (computer.forward(inputs)["output"], expected),
        (computer.backward(derivs)["input"], expected_deriv),
        (computer.gradient.components[0].linear_params, expected_gradient),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
forward = optimize(nnet, compile_computation(nnet, request_for(*frames)))
outputs = OnnxComputer(nnet, forward).forward(inputs)
np.testing.assert_allclose(outputs["output"], expected, rtol=1e-4, atol=1e-5)
"""

TRAINED = """
import numpy as np
from nnet3_compiler import compile_computation
from nnet3_descriptors import read_nnet, unvectorize, vectorize, write_nnet
from nnet3_descriptors.components import ComponentProperties as Property
from nnet3_descriptors.components import UpdatableComponent
from nnet3_descriptors.components.declaration import component, filled, vector
from nnet3_optimizer import OptimizeOptions, optimize
from nnet3_runtime_cuda import NnetComputer
from nnet3_runtime_cuda.kernels import Kernel, kernel_for
from nnet3_runtime_reference import Formula, ReferenceComputer, formula
from small_networks import network, request_for, stacked

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

nnet = network(stacked(3, "gain Gain dim=3"))
assert vectorize(nnet).tolist() == [2.0, 2.0, 2.0]
nnet = unvectorize(nnet, np.array([1, 2, 3], np.float32))
write_nnet(nnet, "gain.raw", binary=False)
assert read_nnet("gain.raw") == nnet
request = request_for(
    range(5), range(5), 2, derivs=("input", "output"), need_model_derivative=True
)
computation = optimize(nnet, compile_computation(nnet, request), OptimizeOptions(verify=True))
x, dy = np.random.default_rng(1).standard_normal((2, 10, 3)).astype(np.float32)
for computer in (ReferenceComputer(nnet, computation), NnetComputer(nnet, computation)):
    outputs = computer.forward({"input": x})
    np.testing.assert_allclose(outputs["output"], x * [1, 2, 3], rtol=1e-5)
    found = computer.backward({"output": dy})
    np.testing.assert_allclose(found["input"], dy * [1, 2, 3], rtol=1e-5)
    np.testing.assert_allclose(vectorize(computer.gradient), (dy * x).sum(axis=0), rtol=1e-4)
"""

LOAD = """
from nnet3_computation import NnetComputation
print(len(NnetComputation.load("delta.computation").commands))
"""


def install(folder: Path) -> None:
    """Writes the entry points of the example, as its installation does."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = folder / f"nnet3_delta-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = configparser.ConfigParser()
    points.optionxform = str  # names keep their capitals
    points.read_dict(project["entry-points"])
    with (info / "entry_points.txt").open("w") as file:
        points.write(file)


def run(code: str, folder: Path, *paths: Path, fails: bool = False) -> str:
    """Runs code in a folder within this one, in a process with further paths for imports.

    Returns:
        What it prints, or the last line of the error with which it is to fail.
    """
    work = folder / "work"
    work.mkdir(exist_ok=True)
    helpers = ROOT / "packages", ROOT / "packages" / "nnet3-runtime-cuda" / "tests"
    search = os.pathsep.join(map(str, (*paths, *helpers, os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=work,
        env={**os.environ, "PYTHONPATH": search},
    )
    assert bool(done.returncode) == fails, done.stderr
    return done.stderr.splitlines()[-1] if fails else done.stdout


@pytest.mark.parametrize("way", ["installed", "imported"])
def test_all_stages(tmp_path: Path, way: str) -> None:
    """The type is parsed, stored, compiled, optimized, proven and run, on a device, too."""
    if way == "installed":
        install(tmp_path)
        code = "on_device = True\n" + STAGES
    else:
        code = "import nnet3_delta.formula, nnet3_delta.kernel, nnet3_delta.translation\n" + STAGES

    run(code, tmp_path, EXAMPLE / "src", tmp_path)


def test_a_type_with_parameters(tmp_path: Path) -> None:
    """Its declaration suffices to read, write and flatten parameters, and for their gradient."""
    run(TRAINED, tmp_path)


def test_a_stored_computation_first(tmp_path: Path) -> None:
    """A file with indexes of the type can be read before anything has used the type."""
    install(tmp_path)
    run(STAGES + "\noptimized.save('delta.computation')", tmp_path, EXAMPLE / "src", tmp_path)

    assert int(run(LOAD, tmp_path, EXAMPLE / "src", tmp_path)) > 0
    assert "unknown type 'DeltaPrecomputedIndexes'" in run(LOAD, tmp_path, fails=True)


def test_what_cannot_be_imported(tmp_path: Path) -> None:
    """An error names package, type and group; a type without a kernel gives an error of its own."""
    install(tmp_path)
    [points] = tmp_path.glob("*/entry_points.txt")
    points.write_text(points.read_text().replace(".kernel:DeltaKernel", ".kernels:DeltaKernel"))

    assert run(STAGES, tmp_path, EXAMPLE / "src", tmp_path, fails=True) == (
        "nnet3_descriptors.errors.Nnet3Error: 'DeltaComponent' of nnet3-delta cannot be imported "
        "from nnet3_delta.kernels:DeltaKernel (entry point of 'nnet3_runtime_cuda.kernels'): No "
        "module named 'nnet3_delta.kernels'"
    )

    code = "import nnet3_delta.formula\n" + STAGES
    assert run(code, tmp_path, EXAMPLE / "src", fails=True) == (
        "nnet3_runtime_cuda.errors.UnsupportedComponentError: component 'delta' has the type "
        "DeltaComponent, which this runtime cannot compute"
    )
