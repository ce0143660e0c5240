"""The public names of the design exist, so that users' imports keep working."""

import ast
import functools
import importlib
import inspect
import operator
import pkgutil
import runpy
import typing
from collections.abc import Iterator
from types import ModuleType

import pytest
from reference_cases import ROOT

PUBLIC_NAMES = {
    "nnet3_descriptors": """
        Component ComponentProperties""",
    "nnet3_computation": """
        ComputationBuilder ComputationRequest IoSpecification MemoryPlan""",
    "nnet3_graph": """
        Examined NotComputableError""",
    "nnet3_compiler": """
        CompilerOptions""",
    "nnet3": """
        AudioStream ComputationRequest NnetComputer StreamState compute_context export_onnx
        parse_config read_nnet read_table write_nnet write_table""",
    "nnet3_report": """
        format_dot format_tree memory_svg network_svg report_page training_page""",
    "nnet3_conformance": """
        Case Verdict judge_class judge_program read_cases reference_cases write_case""",
    "nnet3_optimizer": """
        OptimizeOptions""",
    "nnet3_runtime_cuda": """
        Trace Tracer format_trace trace_events""",
    "nnet3_runtime_c": """
        CSource ConversionError""",
    "nnet3_runtime_onnx": """
        ExportError RunError quantized to_onnx_of_any_length""",
    "nnet3_runtime_reference": """
        Draws Formula GivenMasks formula_of""",
    "nnet3_speech": """
        FeaturePipeline HmmError IvectorExtractor ModelFolder OnlineIvectors Plda
        SpeechError WordDecoder read_symbols""",
    "nnet3_tables": """
        MatrixLookup MatrixWriter TableError VectorLookup VectorWriter read_matrices
        read_tokens""",
    "nnet3_training": """
        DenseTargets ExampleError ExampleInput ExampleOutput Objective SparsePosteriors
        TrainerOptions TrainingError TrainingExample get_examples merge_examples minibatches
        read_examples write_examples Callback Checkpoints DropoutSchedule
        LearningRateSchedule OutputObjectives""",
}
"""Public names by package, beside those of `CALLS`."""

CALLS = """
    nnet3_descriptors: parse_descriptor(text)
    nnet3_descriptors: parse_config(text, base, rng=)
    nnet3_descriptors: read_nnet(source)
    nnet3_descriptors: write_nnet(nnet, target, binary=)
    nnet3_descriptors: vectorize(nnet)
    nnet3_descriptors: unvectorize(nnet, vector)
    nnet3_descriptors: Descriptor.dependencies(self, indexes)
    nnet3_descriptors: Descriptor.is_computable(self, indexes, available)
    nnet3_descriptors: Nnet.state_dict(self)
    nnet3_descriptors: Nnet.with_state_dict(self, state)
    nnet3_descriptors: Nnet.node_dim(self, name)
    nnet3_descriptors: set_test_mode(nnet, on=)
    nnet3_graph: ComputationGraphBuilder(nnet, request)
    nnet3_graph: ComputationGraphBuilder.compute(self)
    nnet3_graph: ComputationGraphBuilder.all_outputs_are_computable(self)
    nnet3_graph: ComputationGraphBuilder.prune(self)
    nnet3_graph: build_computation_graph(nnet, request)
    nnet3_graph: ComputationGraph.counts_by_node(self, nnet)
    nnet3_graph: compute_context(nnet)
    nnet3_compiler: Compiler(nnet, request)
    nnet3_compiler: Compiler.create_computation(self, options)
    nnet3_compiler: compile_computation(nnet, request, options=)
    nnet3_compiler: compile_looped(nnet, requests, options=)
    nnet3_computation: NnetComputation.steps_by_node(self, nnet)
    nnet3_computation: format_computation(computation, nnet)
    nnet3_computation: parse_computation(text, nnet)
    nnet3_optimizer: analyze(nnet, computation)
    nnet3_optimizer: check_computation(nnet, computation, check_rewrite=)
    nnet3_optimizer: optimize(nnet, computation, options)
    nnet3_computation: peak_bytes(computation)
    nnet3_computation: plan_memory(computation)
    nnet3_computation: check_runnable(nnet, computation)
    nnet3: CachingCompiler(nnet)
    nnet3: compile(nnet, request)
    nnet3: to_onnx(nnet, computation)
    nnet3: Model.compute(self, features, output=, scores=)
    nnet3: Model.phone_posteriors(self, outputs)
    nnet3: CachingCompiler.compile(self, request)
    nnet3_optimizer: verify_equivalent(nnet, before, after)
    nnet3_runtime_cuda: NnetComputer(nnet, computation, device=)
    nnet3_runtime_cuda: NnetComputer.forward(self, inputs)
    nnet3_runtime_cuda: NnetComputer.backward(self, derivatives)
    nnet3_runtime_reference: ReferenceComputer(nnet, computation, dtype, draws=)
    nnet3_runtime_reference: ReferenceComputer.forward(self, inputs)
    nnet3_runtime_reference: ReferenceComputer.backward(self, derivatives)
    nnet3_runtime_c: to_c(nnet, computation, name=, weights_in_source=)
    nnet3_runtime_onnx: to_onnx(nnet, computation)
    nnet3_runtime_onnx: OnnxComputer(nnet, computation)
    nnet3_runtime_onnx: OnnxComputer.forward(self, inputs)
    nnet3_tables: read_table(rspecifier)
    nnet3_tables: write_table(wspecifier)
    nnet3: load(path, device=)
    nnet3: Model.compute(self, features, ivector)
    nnet3: Model.stream(self, ivector_period=, sequences=)
    nnet3: Stream.push(self, frames, ivector)
    nnet3: Stream.finish(self)
    nnet3: Stream.reset(self)
    nnet3_training: ChainOptions(leaky_hmm_coefficient=, l2_regularize=, xent_regularize=)
    nnet3_training: ChainObjective(den_fst, options, num_pdfs=)
    nnet3_training: ChainObjective.compute(self, supervision, output)
    nnet3_training: read_chain_examples(path)
    nnet3_training: read_chain_supervision(path)
    nnet3_training: Trainer(nnet, options, device=)
    nnet3_training: Trainer.train_minibatch(self, example)
    nnet3_training: Trainer.evaluate(self, example)
    nnet3_training: Trainer.set_learning_rate(self, learning_rate)
    nnet3_training: Trainer.save(self, path)
    nnet3_training: Trainer.load(path, device, objective=)
"""
"""Calls of public names with the arguments that the design gives them."""


@pytest.mark.parametrize("call", [line.strip() for line in CALLS.strip().splitlines()])
def test_public_names_are_called_so(call: str) -> None:
    """Public names are exported, and accept the arguments in the design."""
    module, _, rest = call.partition(": ")
    names, _, arguments = rest.removesuffix(")").partition("(")
    words = arguments.split(", ")
    positional = [word for word in words if not word.endswith("=")]
    keywords = {word.removesuffix("="): None for word in words if word.endswith("=")}

    package = importlib.import_module(module)
    called = operator.attrgetter(names)(package)

    assert names.partition(".")[0] in package.__all__
    inspect.signature(called).bind(*positional, **keywords)


@pytest.mark.parametrize("module", PUBLIC_NAMES)
def test_public_names(module: str) -> None:
    """A package lists its public names in __all__; all exist, and the design's are among them."""
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


@pytest.mark.parametrize(
    "module",
    [
        "nnet3",
        "nnet3_compiler",
        "nnet3_graph",
        "nnet3_optimizer",
        "nnet3_report",
        "nnet3_runtime_c",
        "nnet3_runtime_onnx",
        "nnet3_runtime_reference",
        "nnet3_speech",
        "nnet3_tables",
        "nnet3_training",
    ],
)
def test_public_names_stand_in_the_readme(module: str) -> None:
    """The README names all exports of the package; that of nnet3_speech within longer texts."""
    readme = ROOT / "packages" / module.replace("_", "-") / "README.md"
    text = readme.read_text(encoding="utf-8")
    before = "" if module == "nnet3_speech" else "`"
    exported = importlib.import_module(module).__all__

    assert [name for name in exported if f"{before}{name}" not in text] == []


@functools.cache
def tree_of(module: ModuleType) -> ast.Module:
    """The source of a module, parsed."""
    return ast.parse(inspect.getsource(module))


@functools.cache
def named(name: str, module: ModuleType) -> object:
    """What a name means in a module, whose imports for type checkers count."""
    if hasattr(module, name):
        return getattr(module, name)
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return getattr(importlib.import_module(node.module), alias.name)
    return None


def classes_in(annotation: object) -> Iterator[type]:
    """The classes of this project that a type is made of."""
    for part in (annotation, *typing.get_args(annotation)):
        if inspect.isclass(part) and not typing.get_args(part):
            if part.__module__.startswith("nnet3_"):
                yield part
        elif part is not annotation:
            yield from classes_in(part)


def annotations_of(value: object) -> Iterator[tuple[str, ast.expr | None, ModuleType]]:
    """The annotations of a function, or of the public fields and methods of a class."""
    for part in value.__mro__ if inspect.isclass(value) else (inspect.unwrap(value),):
        if not part.__module__.startswith("nnet3_"):
            continue
        module = importlib.import_module(part.__module__)
        body = tree_of(module).body
        pending = [each for each in body if getattr(each, "name", "") == part.__name__]
        while pending:
            match pending.pop():
                case ast.ClassDef(body=body):
                    pending += body
                case ast.FunctionDef(name=name, args=args, returns=returns):
                    if not name.startswith("_"):
                        every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
                        for each in (returns, *(argument.annotation for argument in every)):
                            yield name, each, module
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                    if not name.startswith("_"):
                        yield name, annotation, module


def types_of(value: object) -> Iterator[tuple[str, type]]:
    """The classes that the annotations of a public name are made of, and where they stand."""
    for member, annotation, module in annotations_of(value):
        pending = [annotation] if annotation is not None else []
        for node in (inner for each in pending for inner in ast.walk(each)):
            match node:
                case ast.Constant(value=str(text)):
                    pending.append(ast.parse(text, mode="eval"))
                case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                    found = getattr(named(name, module), attribute, None)
                    yield from ((member, each) for each in classes_in(found))
                case ast.Name(id=name):
                    yield from ((member, each) for each in classes_in(named(name, module)))


def test_public_names_use_exported_types() -> None:
    """A type that a public field, argument or result names is in the __all__ of a package."""
    packages = [importlib.import_module(name) for name in (*PUBLIC_NAMES, "nnet3_tools")]
    found = [
        importlib.import_module(each.name)
        for package in packages
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if each.ispkg
    ]
    reference = runpy.run_path(str(ROOT / "docs" / "check_reference.py"))
    names = reference["exported"]
    exported = {
        id(getattr(module, name)) for module in (*packages, *found) for name in names(module)
    }
    missing = {
        f"{exporter}.{name}.{member}: {each.__module__}.{each.__qualname__}"
        for exporter in reference["exporters"]()
        for name in names(importlib.import_module(exporter))
        if inspect.isclass(value := getattr(importlib.import_module(exporter), name))
        or inspect.isroutine(value)
        for member, each in types_of(value)
        if id(each) not in exported
    }

    assert sorted(missing) == []
