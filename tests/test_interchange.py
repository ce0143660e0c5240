"""Stored values: version 1 is read for ever, and a value made for another network is refused."""

import json
from pathlib import Path

import attrs
import numpy as np
import pytest
from nnet3_compiler import (
    compile_computation,
    compile_looped,
    looped_requests,
)
from nnet3_computation import (
    CheckError,
    ComputationError,
    ComputationRequest,
    NnetComputation,
    check_runnable,
    format_computation,
    parse_computation,
)
from nnet3_computation.memory import plan_memory, with_memory_plan
from nnet3_descriptors import Nnet, parse_config
from nnet3_descriptors.editing import rename_node
from nnet3_descriptors.serialization import from_json, to_json
from nnet3_descriptors.structure import NetworkFingerprint
from nnet3_optimizer import (
    OptimizeOptions,
    check_computation,
    optimize,
)
from nnet3_runtime_cuda import NnetComputer
from small_networks import RECURRENT, request_for

FILES = Path(__file__).parent / "interchange_files"
VERSIONS = ("version-1", "version-2")
COMPUTATIONS = {"compiled": "network", "optimized": "network", "looped": "recurrent"}
"""Stored computations and the networks that they are of."""

CONFIG = """
input-node name=input dim=2
component name=affine type=AffineComponent input-dim=2 output-dim=2
component-node name=affine component=affine input=Sum(input, Offset(input, -1))
output-node name=output input=Sum(affine, {})
"""


def network(last: str = "input") -> Nnet:
    """A small network; all with the same parameters."""
    return parse_config(CONFIG.format(last), rng=np.random.default_rng(1))


def request(last: int = 4) -> ComputationRequest:
    """A request for some frames."""
    return request_for(range(-1, last), range(last))


def compiled(nnet: Nnet, wanted: ComputationRequest | None = None) -> NnetComputation:
    """The optimized computation, which users run."""
    return optimize(nnet, compile_computation(nnet, wanted or request()))


# -- golden files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_networks_and_requests_are_read_as_they_were_written(version: str) -> None:
    """Old bytes and old JSON give values whose bytes are the same."""
    folder = FILES / version
    for name, cls in (("network", Nnet), ("request", ComputationRequest)):
        data = (folder / name).read_bytes()
        value = cls.from_bytes(data)

        assert value.to_bytes() == data
        assert to_json(value) == (folder / f"{name}.json").read_text().strip()
        assert from_json((folder / f"{name}.json").read_text(), cls).to_bytes() == data


@pytest.mark.parametrize("name", COMPUTATIONS)
@pytest.mark.parametrize("version", VERSIONS)
def test_computations_are_read_from_bytes_and_from_text(version: str, name: str) -> None:
    """Both forms of an old computation are the same value, and it can be run."""
    folder = FILES / version
    nnet = Nnet.load(folder / COMPUTATIONS[name])

    computation = NnetComputation.load(folder / name)

    assert parse_computation((folder / f"{name}.txt").read_text(), nnet) == computation
    check_runnable(nnet, computation)
    known = version != "version-1"
    assert (computation.network is not None) == bool(computation.requests) == known


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_the_newest_files_are_written_as_they_are_kept(name: str) -> None:
    """A change of the written bytes has to raise the version, and to keep files of the last."""
    folder = FILES / VERSIONS[-1]
    nnet = Nnet.load(folder / COMPUTATIONS[name])
    computation = NnetComputation.load(folder / name)

    assert computation.to_bytes() == (folder / name).read_bytes()
    assert format_computation(computation, nnet) == (folder / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_version_2_says_more_of_the_same_commands(name: str) -> None:
    """Without the additions of version 2, the files of both versions hold the same computation."""
    old, new = (NnetComputation.load(FILES / version / name) for version in VERSIONS)

    assert attrs.evolve(new, network=None, requests=(), memory_plan=None) == old


def test_extras_are_skipped() -> None:
    """What stands beside the content under the key "extras" changes nothing."""
    wanted = request()
    data = wanted.to_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    inner = json.loads(header["__metadata__"]["nnet3"])
    inner["extras"] = {"written by": "a tool of tomorrow"}
    header["__metadata__"]["nnet3"] = json.dumps(inner)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)

    read = ComputationRequest.from_bytes(
        len(text).to_bytes(8, "little") + text + data[8 + length :]
    )

    assert read == wanted


# -- fingerprints ----------------------------------------------------------------------------------


def test_names_and_parameters_do_not_count() -> None:
    """A computation runs with a network that differs in nothing else."""
    nnet = network()
    renamed = rename_node(nnet, "affine", "other")
    zeroed = nnet.with_state_dict(
        {name: np.zeros_like(array) for name, array in nnet.state_dict().items()}
    )
    computation = compiled(nnet)

    for each in (renamed, zeroed):
        assert NetworkFingerprint.of(each) == computation.network
        check_runnable(each, computation)


def test_passes_keep_what_a_computation_was_made_for() -> None:
    """Optimized, proven and in a loop, it has the fingerprints of network and requests."""
    nnet = parse_config(RECURRENT)
    chunks = looped_requests(nnet, chunk_size=3)
    options = OptimizeOptions(verify=True)
    loop = compile_looped(nnet, chunks, optimize=lambda each: optimize(nnet, each, options))

    assert loop.network == NetworkFingerprint.of(nnet)
    loop.check_request(*chunks)
    with pytest.raises(ComputationError, match="another request: segment 0: input 'input'"):
        loop.check_request(*looped_requests(nnet, chunk_size=4))


# -- memory plans ----------------------------------------------------------------------------------


def test_a_memory_plan_travels_with_its_computation() -> None:
    """It comes back from bytes and text, and outputs are the same with it."""
    nnet = network()
    computation = with_memory_plan(compiled(nnet))
    inputs = {"input": np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)}

    for read in (
        NnetComputation.from_bytes(computation.to_bytes()),
        parse_computation(format_computation(computation, nnet), nnet),
    ):
        assert read == computation
        assert read.memory_plan == plan_memory(computation)
        with_plan = NnetComputer(nnet, read).forward(inputs)["output"]
        np.testing.assert_array_equal(
            with_plan, NnetComputer(nnet, compiled(nnet)).forward(inputs)["output"]
        )
    assert optimize(nnet, computation).memory_plan is None


def test_a_runtime_uses_the_plan_that_it_is_given() -> None:
    """The arena has the size of the plan, and a larger one if the plan says so."""
    nnet = network()
    plain = compiled(nnet)
    plan = plan_memory(plain)
    roomy = attrs.evolve(plan, arena_bytes=plan.arena_bytes + 4096)

    sizes = [
        NnetComputer(nnet, attrs.evolve(plain, memory_plan=each)).memory_bytes
        for each in (None, plan, roomy)
    ]

    assert sizes[0] == sizes[1] == sizes[2] - 4096


def test_a_memory_plan_that_does_not_fit_is_refused() -> None:
    """Overlapping, missing and outlying matrices are named."""
    nnet = network()
    computation = with_memory_plan(compile_computation(nnet, request()))
    plan = computation.memory_plan
    assert plan is not None
    zeros = np.where(plan.offsets < 0, plan.offsets, 0)
    far = np.where(plan.offsets < 0, plan.offsets, plan.arena_bytes)
    for offsets, message in (
        (zeros, r"memory plan: c\d+: matrices \d+ and \d+ overlap in the memory plan"),
        (np.full_like(plan.offsets, -1), r"offsets\[\d+\] = -1 of the memory plan is no place"),
        (far, r"offsets\[\d+\] = \d+ of the memory plan is no place for \d+ bytes in an arena of"),
    ):
        other = attrs.evolve(computation, memory_plan=attrs.evolve(plan, offsets=offsets))
        for check in (check_runnable, check_computation):
            with pytest.raises(CheckError, match=message):
                check(nnet, other)
        with pytest.raises(CheckError, match=message):
            NnetComputer(nnet, other)


def test_the_values_have_public_fields_only() -> None:
    """`attrs.asdict` of network, request and computation gives what their READMEs describe."""
    nnet, wanted = network(), request()
    read = NnetComputation.load(FILES / VERSIONS[-1] / "optimized")

    for value in (nnet, wanted, compiled(nnet), with_memory_plan(compiled(nnet)), read):
        pending: list[object] = [attrs.asdict(value)]
        while pending:
            part = pending.pop()
            if isinstance(part, dict):
                assert not [name for name in part if str(name).startswith("_")], type(value)
                pending += part.values()
            elif isinstance(part, list | tuple):
                pending += part
