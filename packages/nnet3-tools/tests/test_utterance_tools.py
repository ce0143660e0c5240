"""The tools that compute utterances: options, tables, and the effects of failures."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from nnet3 import load
from nnet3.batches import queue
from nnet3.batches.minibatches import Run
from nnet3.computer_pool import ComputerPool
from nnet3_descriptors import Nnet3Error, read_nnet, write_nnet
from nnet3_descriptors.files import Reader, read_entries
from nnet3_tables import MatrixWriter, TableWarning, VectorWriter, read_table
from nnet3_tools.compute.chunks import nnet3_compute, nnet3_compute_batch, nnet3_compute_looped
from nnet3_tools.compute.utterances import num_utterances, total_of
from nnet3_tools.compute.xvectors import nnet3_xvector_compute, nnet3_xvector_compute_batched
from nnet3_tools.egs.making import nnet3_get_egs_simple
from nnet3_tools.progress import BYTES, UTTERANCES, Progress
from small_networks import WITH_IVECTOR, network, stacked
from tool_runs import program, run_tool

CONFIG = stacked(
    4, "affine Affine input-dim=8 output-dim=3", splice="Append(input, Offset(input, 1))"
)


COMPUTING = [nnet3_compute, nnet3_compute_batch, nnet3_compute_looped]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a network and features of 12 utterances."""
    write_nnet(network(CONFIG), tmp_path / "final.raw")
    write_features(tmp_path / "feats.ark", features())
    return tmp_path


def write_network_with_ivector(folder: Path) -> None:
    """Writes a network with an i-vector as the model of a folder."""
    write_nnet(network(WITH_IVECTOR), folder / "final.raw")


def features() -> dict[str, np.ndarray]:
    """Random features of different lengths."""
    rng = np.random.default_rng(1)
    return {f"u{n:02}": rng.normal(size=(5 + 7 * n, 4)).astype(np.float32) for n in range(12)}


def write_features(path: Path, matrices: Mapping[str, np.ndarray]) -> None:
    """Writes an archive."""
    with MatrixWriter(f"ark:{path}") as writer:
        for key, matrix in matrices.items():
            writer.write(key, matrix)


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an archive."""
    return dict(read_table(f"ark:{path}"))


@pytest.mark.skipif(sys.platform == "win32", reason="pipes have no names")
def test_a_script_from_a_pipe(folder: Path) -> None:
    """Each line of a script that can be read only once is read."""
    with MatrixWriter(f"ark,scp:{folder}/feats.ark,{folder}/feats.scp") as writer:
        for key, matrix in features().items():
            writer.write(key, matrix)
    source, sink = os.pipe()
    os.write(sink, (folder / "feats.scp").read_bytes())
    os.close(sink)

    run_tool(
        "nnet3-compute", folder / "final.raw", f"scp:/dev/fd/{source}",
        f"ark:{folder}/output.ark", expected=0,
    )  # fmt: skip

    assert list(arrays_of(folder / "output.ark")) == list(features())


def assert_outputs(folder: Path, wanted: Callable[[np.ndarray], np.ndarray]) -> None:
    """Asserts that the output has, for each utterance in order, what is wanted for its frames."""
    found = arrays_of(folder / "output.ark")
    assert list(found) == list(features())
    for key, frames in features().items():
        np.testing.assert_allclose(found[key], wanted(frames), rtol=0, atol=1e-5)


def invoke(command: click.Command, *arguments: object) -> Result:
    """Runs a tool within this process."""
    return CliRunner().invoke(command, [str(a) for a in arguments], standalone_mode=False)


def compute(
    folder: Path,
    *options: str,
    command: click.Command = nnet3_compute,
    model: str = "final.raw",
    features: str = "feats.ark",
    output: str = "output.ark",
) -> Result:
    """Runs a tool in this process, by default nnet3-compute, on files of a folder."""
    tables = f"ark:{folder / features}", f"ark:{folder / output}"
    return invoke(command, *options, folder / model, *tables)


def test_tables_and_models_of_commands(folder: Path) -> None:
    """All utterances are written in order; the model and tables can come from commands."""
    done = invoke(
        nnet3_compute,
        "--num-threads=3",
        f"cat {folder / 'final.raw'} |",
        f"ark:cat {folder / 'feats.ark'} |",
        f"ark:| cat > {folder / 'output.ark'}",
    )

    assert done.return_value == 0
    assert "12 utterances, 522 frames" in done.stderr
    assert_outputs(folder, load(folder / "final.raw").compute)


def test_manners_of_options(folder: Path) -> None:
    """Options can have underscores, no value, or be in a config file; the command line wins.

    Kaldi's options for its compiler are accepted, and change nothing.
    """
    (folder / "compute.conf").write_text(
        "--frames-per-chunk=9  # few\n--acoustic_scale=0.5\n--computation.debug\n"
        "--optimization.optimize=false\n"
    )
    done = compute(
        folder,
        f"--config={folder / 'compute.conf'}",
        "--apply_exp",
        "--acoustic-scale=2.0",
        "--verbose=2",
        "--optimization.memory_compression_level=0",
        "--debug-computation=true",
        "--cuda-use-tensor-cores=true",
    )

    assert done.return_value == 0
    chosen = {"frames_per_chunk": 9, "apply_exp": True, "acoustic_scale": 2.0}
    assert_outputs(folder, partial(load(folder / "final.raw").compute, **chosen))


def test_values_of_a_config_file(folder: Path) -> None:
    """A value extends to the end of its line, with blanks and quotes."""
    write_network_with_ivector(folder)
    (folder / "some feats.ark").write_bytes((folder / "feats.ark").read_bytes())
    (folder / "ivectors.conf").write_text(
        f"# of speakers\n\n--ivectors=ark:{folder / 'some feats.ark'}  # matrices\n"
    )

    done = compute(folder, f"--config={folder / 'ivectors.conf'}")

    assert f"archive '{folder / 'some feats.ark'}', byte 6: this is no vector" in done.stderr


@pytest.mark.parametrize("command", COMPUTING)
def test_failures_are_counted(folder: Path, command: click.Command) -> None:
    """Each failure gives a line that names the utterance; the others are written in order."""
    wrong = {
        key: matrix[:, :3] if key in ("u02", "u05") else matrix
        for key, matrix in features().items()
    }
    write_features(folder / "wrong.ark", wrong)

    options = "--num-threads=2", "--print-args=false"
    done = compute(folder, *options, command=command, features="wrong.ark")

    assert done.return_value == 255
    lines = done.stderr.splitlines()
    assert [line for line in lines if "expected dimension 4, found 3" in line] == lines[:2]
    assert "'u02'" in lines[0]
    assert "'u05'" in lines[1]
    assert lines[2].startswith(f"LOG ({command.name}) Time taken ")
    assert "s: real-time factor assuming 100 frames/sec is " in lines[2]
    assert lines[3] == f"LOG ({command.name}) Done 10 utterances, failed for 2"
    assert re.search(r" [0-9.e-]+ seconds taken in nnet3 compilation total$", lines[4])
    assert "10 utterances, 2 failed" in lines[5]
    whole, compiling = map(float, re.findall(r"([0-9.]+) s\b", lines[5]))
    assert compiling <= whole
    assert list(arrays_of(folder / "output.ark")) == [
        k for k in features() if k not in ("u02", "u05")
    ]


@pytest.mark.skipif(os.name != "posix", reason="closes standard streams in a POSIX shell")
@pytest.mark.parametrize(
    ("tables", "closed", "status", "message"),
    [
        ("ark:feats.ark ark:output.ark", "2>&-", 0, ""),
        ("ark:feats.ark ark:-", ">&-", 255, "cannot write '-': standard output is closed"),
        ("ark:- ark:output.ark", "<&-", 255, "cannot read '-': standard input is closed"),
        ("scp:- ark:output.ark", "<&-", 255, "cannot read '-': standard input is closed"),
    ],
)
def test_closed_streams(folder: Path, tables: str, closed: str, status: int, message: str) -> None:
    """A closed standard stream is an error only if it is used."""
    shell = f"{shlex.join(program('nnet3-compute', 'final.raw'))} {tables} {closed}"

    done = subprocess.run(
        ["/bin/sh", "-c", shell], cwd=folder, capture_output=True, text=True, check=False
    )

    assert (done.returncode, message in done.stderr) == (status, True)
    if not status:
        assert list(arrays_of(folder / "output.ark")) == list(features())


@pytest.mark.skipif(os.name != "posix", reason="reads what a pipe has")
@pytest.mark.parametrize("threads", [1, 2])
def test_prompt_output(folder: Path, threads: int) -> None:
    """With the option f, each utterance is written before the next one is read."""
    arguments = f"--num-threads={threads}", folder / "final.raw", "ark:-", "ark,f:-"
    model, utterances = load(folder / "final.raw"), list(features().items())[:3]

    with subprocess.Popen(
        program("nnet3-compute", *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers = read_entries(process.stdout, "the answers", Reader.matrix)
        for key, frames in utterances:
            write_features(folder / "one.ark", {key: frames})
            process.stdin.write((folder / "one.ark").read_bytes())
            process.stdin.flush()
            answer = next(answers)
            assert answer.key == key
            np.testing.assert_array_equal(answer.value, model.compute(frames))
        process.stdin.close()

    assert process.returncode == 0


@pytest.mark.any_versions
@pytest.mark.skipif(os.name != "posix", reason="sends a signal of POSIX")
@pytest.mark.parametrize(
    ("ivectors", "features"),
    [
        ("ark:fifo", "ark:feats.ark"),
        ("ark:exec cat fifo |", "ark:feats.ark"),
        ("scp:ivectors.scp", "ark:feats.ark"),
        ("ark:ivectors.ark", "scp:feats.scp"),
    ],
)
def test_interrupted_reading(folder: Path, ivectors: str, features: str) -> None:
    """Ctrl-C ends a tool that waits for a table; its output has whole entries."""
    write_network_with_ivector(folder)
    utterances = {f"u{n}": np.full((9, 4), n, np.float32) for n in range(3)}
    vectors = {key: frames[0, :2].copy() for key, frames in utterances.items()}
    for name, writer, table in (
        ("feats", MatrixWriter, utterances),
        ("ivectors", VectorWriter, vectors),
    ):
        with writer(f"ark,scp:{folder / name}.ark,{folder / name}.scp") as writing:
            for key, array in table.items():
                writing.write(key, array)
        script = folder / f"{name}.scp"
        *lines, _ = script.read_text().splitlines()
        script.write_text("\n".join([*lines, f"u2 {folder / 'fifo'}"]))
    os.mkfifo(folder / "fifo")
    # Open for both, so that no open waits for the other side, and the data has no end.
    fifo = os.open(folder / "fifo", os.O_RDWR)
    if "fifo" in ivectors:
        whole = (folder / "ivectors.ark").read_bytes()
        os.write(fifo, whole[: whole.index(b"u2 ") + 8])
    program = "from signal import *; signal(SIGINT, default_int_handler)\n"
    program += "from nnet3_tools.entry_points import nnet3_compute; nnet3_compute()"
    arguments = f"--ivectors={ivectors}", "final.raw", features, "ark,f:-"

    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        answers = read_entries(process.stdout, "the answers", Reader.matrix)
        keys = [answer.key for answer in itertools.islice(answers, 2)]
        process.send_signal(signal.SIGINT)
        try:
            rest, said = process.communicate(timeout=60)
        finally:
            process.kill()
    os.close(fifo)

    assert (keys, rest, process.returncode) == (["u0", "u1"], b"", 130)
    assert said.decode().splitlines()[-1] == "nnet3-compute: interrupted"
    assert b"Traceback" not in said


@pytest.mark.parametrize("command", COMPUTING)
def test_profile(folder: Path, command: click.Command) -> None:
    """--profile writes a trace and tables, and the output is the same."""
    plain = compute(folder, command=command, output="plain.ark")
    profile = f"--profile={folder}/trace.json"
    result = compute(folder, profile, command=command, output="profiled.ark")

    assert plain.return_value == result.return_value == 0
    assert (folder / "plain.ark").read_bytes() == (folder / "profiled.ark").read_bytes()
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert {"affine"} <= {event["name"] for event in events if event["ph"] == "X"}
    assert "all values are finite: yes" in result.stderr
    assert "affine.propagate" in result.stderr
    assert "affine.propagate" not in plain.stderr


def test_no_frames(folder: Path) -> None:
    """Without a frame that was computed, the real-time factor is infinite, as Kaldi prints it."""
    write_features(folder / "empty.ark", {"a": np.zeros((0, 0), dtype=np.float32)})

    done = compute(folder, features="empty.ark")

    assert done.return_value == 1
    assert "s: real-time factor assuming 100 frames/sec is inf\n" in done.stderr


def test_profile_names_the_first_overflow(folder: Path) -> None:
    """If the output of an utterance overflows, the profile says where it began."""
    nnet = read_nnet(folder / "final.raw")
    state = {name: np.sign(array) * np.float32(3e38) for name, array in nnet.state_dict().items()}
    write_nnet(nnet.with_state_dict(state), folder / "large.raw")

    result = compute(folder, f"--profile={folder}/trace.json", model="large.raw")

    assert result.return_value == 255
    assert "all values are finite: no" in result.stderr
    assert "in node 'affine' at n=" in result.stderr


def test_help_names_every_option() -> None:
    """The help is complete, and shows examples."""
    for command in (*COMPUTING, nnet3_xvector_compute):
        text = invoke(command, "--help").stdout
        assert "Examples:" in text
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[0] in text
                assert parameter.help
        assert "--config" in text


def test_chunks_that_are_longer_than_the_option(folder: Path) -> None:
    """If chunks cannot have --frames-per-chunk frames, a log line says how many they have."""
    for command in nnet3_compute, nnet3_compute_looped:
        subsampled = partial(
            compute, folder, "--frame-subsampling-factor=3", command=command, output="out.ark"
        )
        rounded, exact = (subsampled(f"--frames-per-chunk={frames}") for frames in (10, 12))

        assert "Chunks have 12 frames: --frames-per-chunk=10 is no multiple" in rounded.stderr
        assert "Chunks have" not in exact.stderr


def test_options_that_do_nothing_for_xvectors(folder: Path) -> None:
    """The options for chunks, which Kaldi's tool takes without using them, change no vector."""
    ignored = ["--frames-per-chunk=7", "--extra-left-context-initial=3", "--acoustic-scale=0.1"]
    plain = compute(folder, command=nnet3_xvector_compute, output="plain.ark")
    other = compute(folder, *ignored, command=nnet3_xvector_compute, output="other.ark")

    assert plain.return_value == other.return_value == 0
    assert (folder / "plain.ark").read_bytes() == (folder / "other.ark").read_bytes()


@pytest.mark.parametrize("command", [nnet3_compute, nnet3_compute_batch, nnet3_xvector_compute])
def test_equal_chunks_are_computed_together(
    folder: Path, command: click.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of several utterances are joined in one minibatch."""
    sizes = []
    compute_together = queue.compute_together

    def counted(pool: ComputerPool, runs: Sequence[Run], size: int) -> dict[int, Nnet3Error]:
        sizes.append(len(runs))
        return compute_together(pool, runs, size)

    monkeypatch.setattr(queue, "compute_together", counted)
    write_features(folder / "equal.ark", {f"u{n}": np.ones((9, 4), np.float32) for n in range(8)})

    done = compute(folder, command=command, features="equal.ark")

    assert (done.return_value, sizes) == (0, [8])


def test_command_line_is_echoed(folder: Path) -> None:
    """The tool first prints its command line, quoted for a shell, unless that is switched off."""
    model, tables = folder / "final.raw", [f"ark:cat {folder}/feats.ark |", f"ark:{folder}/o.ark"]

    echoed = invoke(nnet3_compute, "--acoustic_scale=0.5", model, *tables)
    silent = invoke(nnet3_compute, "--print-args=false", model, *tables)

    assert echoed.stderr.splitlines()[:2] == [
        f"nnet3-compute --acoustic_scale=0.5 {model} '{tables[0]}' {tables[1]}",
        "",
    ]
    assert silent.stderr.startswith("LOG (nnet3-compute) Time taken ")


def test_total_of_the_bar(folder: Path) -> None:
    """The total is the number of utterances of a script file, or the bytes of an archive."""
    (folder / "feats.scp").write_text(f"a {folder}/feats.ark:3\n\nb {folder}/feats.ark:9\n")

    assert num_utterances(f"scp:{folder / 'feats.scp'}") == 2
    assert num_utterances(f"ark:{folder / 'feats.ark'}") is None
    assert total_of(f"scp:{folder / 'feats.scp'}") == (2, UTTERANCES)
    assert total_of(f"ark:{folder / 'feats.ark'}") == ((folder / "feats.ark").stat().st_size, BYTES)
    assert total_of(f"ark:cat {folder / 'feats.ark'} |") == (None, UTTERANCES)
    assert num_utterances(f"scp:cat {folder / 'feats.scp'} |") is None
    assert num_utterances(f"scp:{folder / 'nowhere.scp'}") is None


@pytest.mark.parametrize("table", ["ark:feats.ark", "scp:feats.scp", "ark:cat feats.ark |"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_bar_ends_at_its_total(
    folder: Path, table: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar advances by each utterance, also by failed ones, exactly up to its total."""
    with MatrixWriter(f"ark,scp:{folder}/feats.ark,{folder}/feats.scp") as out:
        for key, matrix in features().items():
            out.write(key, matrix[:, :3] if key == "u03" else matrix)
    monkeypatch.chdir(folder)
    total, unit = total_of(table)
    advances: list[int] = []
    monkeypatch.setattr(Progress, "_go_on", lambda self, size: advances.append(size))

    done = invoke(nnet3_compute, f"--num-threads={threads}", "final.raw", table, "ark:output.ark")

    assert done.return_value == 255  # u03 has 3 columns instead of 4
    assert len(advances) == len(features())
    assert sum(advances) == (total or len(features()))
    assert unit == (BYTES if table == "ark:feats.ark" else UTTERANCES)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--minibatch-size=3", "--partial-minibatch-factor=0", "--num-threads=2"],
        ["--edge-minibatch-size=2", "--extra-left-context-initial=0", "--extra-left-context=3"],
        ["--ensure-exact-final-context=false", "--memory=1"],
        ["--ensure-exact-final-context=false"],
    ],
    ids=["as it is", "full minibatches", "edges", "little memory", "full chunks"],
)
def test_compute_batch(folder: Path, options: list[str]) -> None:
    """The outputs are those of nnet3-compute, for any minibatches."""
    common = ["--frames-per-chunk=9", *(each for each in options if each.startswith("--extra"))]

    done = compute(folder, *{*options, *common}, command=nnet3_compute_batch, output="batch.ark")
    compute(folder, *common)

    assert done.return_value == 0, done.exception
    expected, actual = arrays_of(folder / "output.ark"), arrays_of(folder / "batch.ark")
    assert list(actual) == list(expected)
    for key, outputs in expected.items():
        np.testing.assert_allclose(actual[key], outputs, rtol=0, atol=1e-5)


def test_xvector_compute(folder: Path) -> None:
    """Each utterance has one vector."""
    options = "--min-chunk-size=10", "--chunk-size=30", "--num-threads=2"
    done = compute(folder, *options, command=nnet3_xvector_compute)

    assert done.return_value == 0
    short = [line for line in done.stderr.splitlines() if "Chunk size of 30 is greater" in line]
    assert len(short) == sum(len(frames) < 30 for frames in features().values()) > 0
    assert short[0].endswith("number of rows in utterance: u00, using chunk size of 5")
    model = load(folder / "final.raw")
    assert_outputs(folder, partial(model.xvector, chunk_size=30, min_chunk_size=10))


@pytest.mark.parametrize(("chunk_size", "status"), [(30, 0), (60, 1)])
def test_short_utterances_of_even_chunks(folder: Path, chunk_size: int, status: int) -> None:
    """Without padding, utterances shorter than a chunk are named; half may fail, as in Kaldi."""
    options = "--pad-input=false", f"--chunk-size={chunk_size}"
    done = compute(folder, *options, command=nnet3_xvector_compute_batched)

    long = [key for key, frames in features().items() if len(frames) >= chunk_size]
    assert done.return_value == status
    assert list(arrays_of(folder / "output.ark")) == long
    least = f"fewer than the least of {chunk_size}"
    assert f"'u00': the utterance has 5 frames, {least}" in done.stderr
    assert f"Read 12 utterances, wrote {len(long)} xvectors." in done.stderr


@pytest.mark.parametrize("options", [[], ["--num-threads=2"]])
def test_keys_that_a_terminal_would_obey(folder: Path, options: list[str]) -> None:
    """Characters of keys that would change a terminal are escaped in all messages."""
    key = "\x1b]0;title\x07"
    write_features(folder / "named.ark", {key: np.zeros((5, 3), np.float32)})
    (folder / "damaged.ark").write_bytes(key.encode() + b" \0BFM \4")
    (folder / "cut.ark").write_bytes(b"a  [ 1 2 3 4 ]\n" + key.encode() + b"  [ 1 2\n x y ]\n")
    named, cut = f"ark:{folder}/named.ark", f"ark,p:{folder}/cut.ark"

    model, output = f"{folder}/final.raw", f"ark:{folder}/output.ark"

    runs = [compute(folder, *options, features=name) for name in ("named.ark", "damaged.ark")]
    with pytest.warns(TableWarning) as warned:
        runs.append(invoke(nnet3_compute, *options, model, cut, output))
    tables = f"input={named}", f"output=ark:{folder}/feats.ark", f"ark:{folder}/egs"
    runs.append(invoke(nnet3_get_egs_simple, *tables))

    said = [f"{done.stderr}{done.exception}" for done in runs]
    said += [str(each.message) for each in warned]
    assert not any("\x1b" in text or "\x07" in text for text in said)
    assert "utterance '\\x1b]0;title\\x07': " in said[0]
    assert "Could not find input for key \\x1b]0;title\\x07" in said[3]


CACHED_JOB = """
import sys
from nnet3_tools.entry_points import nnet3_compute as run
try:
    run()
except SystemExit as end:
    assert not end.code
stages = ("nnet3_graph", "nnet3_compiler", "nnet3_optimizer")
print(any(name.partition(".")[0] in stages for name in sys.modules))
"""
"""Runs nnet3-compute, and prints whether it imported a stage of compiling."""


def test_a_run_with_known_computations_compiles_nothing(folder: Path) -> None:
    """--cache-dir says where they are, and with nothing after the "=" there are none."""
    environment = {**os.environ, "NNET3_CACHE_DIR": str(folder / "elsewhere")}
    model, features = str(folder / "final.raw"), f"ark:{folder / 'feats.ark'}"
    cache = folder / "cache"
    outputs = []
    for option, imports in ((cache, "True"), (cache, "False"), ("", "True")):
        output = folder / "out.ark"
        arguments = [f"--cache-dir={option}", model, features, f"ark:{output}"]
        command = [sys.executable, "-c", CACHED_JOB, *arguments]
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert found.stdout.strip() == imports
        outputs.append(output.read_bytes())
    assert outputs[0] == outputs[1] == outputs[2]
    assert [*cache.iterdir()]
    assert not (folder / "elsewhere").exists()


def test_the_choice_of_a_cache_ends_with_the_tool(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever calls a tool within a process keeps the cache that it had."""
    for before in ("", "/before", None):
        if before is None:
            monkeypatch.delenv("NNET3_CACHE_DIR")
        else:
            monkeypatch.setenv("NNET3_CACHE_DIR", before)
        assert compute(folder, f"--cache-dir={folder / 'cache'}").return_value == 0
        assert os.environ.get("NNET3_CACHE_DIR") == before
    assert [*(folder / "cache").iterdir()]
