"""Kernels are found by the type of a component, and imported when a network needs them."""

import importlib
import subprocess
import sys
from pathlib import Path

from nnet3_runtime_cuda import kernels
from nnet3_runtime_cuda.kernels import registry

FOLDER = Path(kernels.__file__).parent


def test_every_kernel_is_in_the_table() -> None:
    """The table names each module that registers kernels, with the component types of these."""
    for file in FOLDER.rglob("*.py"):
        parts = file.relative_to(FOLDER).with_suffix("").parts
        importlib.import_module(".".join([kernels.__name__, *parts]).removesuffix(".__init__"))
    registered: dict[str, list[str]] = {}
    for component, kernel in registry._kernels.items():
        module = kernel.__module__.removeprefix(f"{kernels.__name__}.")
        registered.setdefault(module, []).append(component.type)

    assert {module: sorted(types) for module, types in registered.items()} == {
        module: sorted(types) for module, types in registry.MODULES.items()
    }


def test_a_kernel_is_imported_when_it_is_needed() -> None:
    """Asking for a kernel imports its module, and not those of other types."""
    text = """
import sys
from nnet3_descriptors.components import PnormComponent
from nnet3_runtime_cuda.kernels import kernel_class

component = PnormComponent(input_dim=4, output_dim=2)
assert "nnet3_runtime_cuda.kernels.fixed_maps" not in sys.modules
print(kernel_class(component).__name__, "nnet3_runtime_cuda.kernels.lstm" in sys.modules)
"""

    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["PnormKernel", "False"]
