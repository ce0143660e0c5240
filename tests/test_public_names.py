"""Imports of users keep working: the public names of the design are there."""

import importlib
import inspect

import pytest

PUBLIC_NAMES = {
    "nnet3_descriptors": """
        Component ComponentProperties Descriptor Nnet parse_config parse_descriptor read_nnet
        set_test_mode unvectorize vectorize write_nnet""",
    "nnet3_graph": """
        ComputationGraph ComputationGraphBuilder ComputationRequest IoSpecification
        NotComputableError build_computation_graph compute_context""",
    "nnet3_compiler": """
        Compiler CompilerOptions NnetComputation compile_computation format_computation
        parse_computation""",
    "nnet3_optimizer": """
        CachingCompiler OptimizeOptions analyze check_computation optimize peak_bytes""",
    "nnet3_runtime_cuda": """
        Model NnetComputer Trainer load""",
}


@pytest.mark.parametrize("module", PUBLIC_NAMES)
def test_public_names(module: str) -> None:
    """A package lists its public names in __all__, all of them exist, the design's among them."""
    package = importlib.import_module(module)

    assert set(PUBLIC_NAMES[module].split()) <= set(package.__all__)
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


@pytest.mark.parametrize("module", PUBLIC_NAMES)
def test_public_names_are_described(module: str) -> None:
    """Every public class and function has a docstring."""
    package = importlib.import_module(module)

    assert [
        name
        for name in package.__all__
        if (inspect.isclass(value := getattr(package, name)) or inspect.isfunction(value))
        and not inspect.getdoc(value)
    ] == []
