"""The command-line tools for models."""

import io
import os
import subprocess
import sys
import warnings
from pathlib import Path

import click
import numpy as np
import pytest
from nnet3_descriptors import (
    AcousticModel,
    Nnet,
    editing,
    parse_config,
    read_acoustic_model,
    read_nnet,
    vectorize,
    write_acoustic_model,
    write_nnet,
)
from nnet3_descriptors.model_files.transition_model import HmmState, TransitionModel
from nnet3_graph import compute_context
from nnet3_report import format_tree
from nnet3_tools.models.describing import is_coloured
from small_networks import stacked
from tool_runs import program, run_tool

CONFIG = stacked(
    3,
    "affine Affine input-dim=6 output-dim=8",
    "fixed Affine input-dim=8 output-dim=4",
    "norm BatchNorm dim=4 test-mode=true",
    splice="Append(input, Offset(input, 1))",
)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The current folder, with a config and a network."""
    monkeypatch.chdir(tmp_path)
    Path("nnet.config").write_text(CONFIG, encoding="utf-8")
    write_nnet(parse_config(CONFIG), "nnet.raw")


def run(tool: str, *arguments: str) -> tuple[str, str]:
    """Runs a tool, and gives its output and messages."""
    done = run_tool(tool, *arguments, expected=0)
    return done.stdout, done.stderr


class TestInit:
    """Tests for nnet3-init."""

    def test_makes_a_network(self) -> None:
        """The network is that of the config lines; parameters depend on the seed, any integer."""
        run("nnet3-init", "--srand=-1", "nnet.config", "new.raw")
        _, errors = run("nnet3-init", "--srand=3", "nnet.config", "new.raw")

        assert errors == "LOG (nnet3-init) Initialized raw neural net and wrote it to new.raw\n"
        assert read_nnet("new.raw") == parse_config(CONFIG, rng=np.random.default_rng(3))

    def test_adds_to_a_network(self) -> None:
        """With three files, the lines extend the network in the first."""
        Path("more.config").write_text("output-node name=output2 input=affine", encoding="utf-8")

        run("nnet3-init", "nnet.raw", "more.config", "new.raw")

        assert [node.name for node in read_nnet("new.raw").output_nodes] == ["output", "output2"]
        assert (vectorize(read_nnet("new.raw")) == vectorize(read_nnet("nnet.raw"))).all()

    def test_writes_text(self) -> None:
        """--binary=false writes text, to standard output for "-"."""
        output, _ = run("nnet3-init", "--binary=false", "nnet.config", "-")

        assert output.startswith("<Nnet3> \ninput-node name=input dim=3\n")


class TestInfo:
    """Tests for nnet3-info and nnet3-am-info."""

    def test_info(self) -> None:
        """Standard output has only the description."""
        output, errors = run("nnet3-info", "nnet.raw")

        assert errors == ""
        nnet = read_nnet("nnet.raw")
        assert output == nnet.info(compute_context(nnet))

    def test_reads_pipes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An argument can be a command whose output is read, or "-" for standard input."""
        expected, _ = run("nnet3-info", "nnet.raw")

        assert run("nnet3-info", "cat nnet.raw |") == (expected, "")
        standard_input = io.TextIOWrapper(
            io.BytesIO(Path("nnet.raw").read_bytes()), encoding="utf-8"
        )
        monkeypatch.setattr(sys, "stdin", standard_input)
        assert run("nnet3-info", "-") == (expected, "")

    def test_tree(self) -> None:
        """--tree prints layers and nodes, without colours where no terminal is."""
        output, errors = run("nnet3-info", "--tree", "nnet.raw")

        assert errors == ""
        assert output == format_tree(read_nnet("nnet.raw"))

    @pytest.mark.parametrize(
        ("environment", "is_terminal", "expected"),
        [
            ({"TERM": "xterm"}, True, True),
            ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
            ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
            ({"TERM": "dumb"}, True, False),
            ({"TERM": "xterm"}, False, False),
        ],
    )
    def test_when_there_are_colours(
        self,
        environment: dict[str, str],
        is_terminal: bool,
        expected: bool,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Colours appear on terminals that have them, unless the user refuses them."""
        for name in ("TERM", "NO_COLOR"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)

        assert is_coloured() == expected

    def test_coloured_tree(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The coloured tree without escape codes is the plain tree."""
        monkeypatch.setattr("nnet3_tools.models.describing.is_coloured", lambda: True)

        output, _ = run("nnet3-info", "--tree", "nnet.raw")

        assert "\x1b[1m" in output
        assert click.unstyle(output) == format_tree(read_nnet("nnet.raw"))

    def test_tree_of_a_narrow_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a terminal, the tree keeps to its width."""
        monkeypatch.setattr("nnet3_tools.models.describing.terminal_width", lambda: 40)

        output, _ = run("nnet3-info", "--tree", "nnet.raw")

        assert output == format_tree(read_nnet("nnet.raw"), width=40)


class TestCopy:
    """Tests for nnet3-copy."""

    def test_changes_in_order(self) -> None:
        """Learning rate and scale are applied before the edits."""
        _, errors = run(
            "nnet3-copy",
            "--learning_rate=0.5",
            "--scale=2",
            "--edits=set-learning-rate name=fixed learning-rate=0.25; rename-node old-name=norm "
            "new-name=last",
            "nnet.raw",
            "| cat > new.raw",
        )

        assert errors.splitlines()[-1] == (
            "LOG (nnet3-copy) Copied raw neural net from nnet.raw to | cat > new.raw"
        )
        old, new = read_nnet("nnet.raw"), read_nnet("new.raw")
        assert (vectorize(new) == 2 * vectorize(old)).all()
        assert new.component("affine").learning_rate == 0.5
        assert new.component("fixed").learning_rate == 0.25
        assert "last" in new.node_names

    @pytest.mark.filterwarnings("default")
    def test_warnings_of_libraries(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A warning is one line that names the tool, not a place; what overflows gives none."""

        def warn(nnet: Nnet, _: str) -> Nnet:
            np.float32(1e30) * np.float32(1e30)
            warnings.warn("half of it is missing", stacklevel=1)
            return nnet

        monkeypatch.setattr(editing, "apply_edits", warn)
        _, errors = run("nnet3-copy", "--edits=any", "nnet.raw", "new.raw")

        assert errors == (
            "WARNING (nnet3-copy) half of it is missing\n"
            "LOG (nnet3-copy) Copied raw neural net from nnet.raw to new.raw\n"
        )

    def test_what_edits_change_is_logged(self) -> None:
        """Kaldi's lines about ranks and numbers of components; a pattern of nothing is named."""
        edits = (
            "reduce-rank name=affine rank=2; apply-svd name=fixed bottleneck-dim=1;"
            "convert-to-fixed-affine name=affine; remove-output-nodes name=none"
        )
        _, errors = run("nnet3-copy", f"--edits={edits}", "nnet.raw", "new.raw")

        nnet = read_nnet("nnet.raw")
        reduced, split = (
            np.linalg.svd(nnet.component(name).linear_params, compute_uv=False)
            for name in ("affine", "fixed")
        )
        squares = split**2
        wanted = [
            "LOG For component affine singular value sum changed by reduce-rank command "
            f"{reduced[2:].sum():.6g} (from {reduced.sum():.6g} to {reduced[:2].sum():.6g})",
            "LOG Reduced rank of parameters of 1 components.",
            "LOG For component fixed singular value squared sum changed by "
            f"{squares[1:].sum():.6g} (from {squares.sum():.6g} to {squares[0]:.6g})",
            "LOG For component fixed dimension reduced from  (8,4) to [(8,1), (1,4)]",
            "LOG shrinkage ratio : 0.375",
            "LOG Decomposed 1 components with SVD dimension 1",
            "LOG Converted 1 components to FixedAffineComponent.",
            "LOG Removing 0 output nodes.",
            "WARNING Nothing is changed: no output node has a name like 'none'.",
            "LOG Copied raw neural net from nnet.raw to new.raw",
        ]
        found = [line.replace(" (nnet3-copy)", "", 1) for line in errors.splitlines()]
        assert [line for line in found if "orphan" not in line] == wanted

    def test_batchnorm_test_mode(self) -> None:
        """Copying switches batch-norm out of test mode unless that is requested."""
        run("nnet3-copy", "nnet.raw", "off.raw")
        run("nnet3-copy", "--batchnorm-test-mode", "nnet.raw", "on.raw")

        assert read_nnet("off.raw").component("norm").test_mode is False
        assert read_nnet("on.raw").component("norm").test_mode is True

    def test_prepare_for_test(self) -> None:
        """Affine components are folded; batch-norm is put into test mode and stays."""
        run("nnet3-copy", "--prepare-for-test=true", "nnet.raw", "new.raw")

        assert read_nnet("new.raw").component_names == ("norm", "affine.fixed")
        assert read_nnet("new.raw").component("norm").test_mode is True

    def test_configs(self) -> None:
        """Config lines and edit directives can come from files."""
        Path("more.config").write_text("output-node name=extra input=affine\n", encoding="utf-8")
        Path("edits.config").write_text(
            "remove-output-nodes name=output\nremove-orphans\n", encoding="utf-8"
        )

        run(
            "nnet3-copy",
            "--nnet-config=more.config",
            "--edits-config=edits.config",
            "nnet.raw",
            "n",
        )

        assert read_nnet("n").component_names == ("affine",)

    def test_help(self) -> None:
        """The help lists the options, and after them those that change nothing."""
        output, _ = run("nnet3-copy", "--help")

        assert "--edits EDITS" in output
        assert output.index("--help") < output.index("--verbose")


class TestAverage:
    """Tests for nnet3-average."""

    def test_weights(self) -> None:
        """Weights are divided by their sum, with a warning if the sum is not 1."""
        run("nnet3-copy", "--scale=3", "nnet.raw", "three.raw")

        _, errors = run("nnet3-average", "--weights=1:3", "nnet.raw", "three.raw", "new.raw")

        assert "WARNING (nnet3-average) Normalizing weights to sum to one, sum was 4" in errors
        np.testing.assert_allclose(
            vectorize(read_nnet("new.raw")), 2.5 * vectorize(read_nnet("nnet.raw")), rtol=1e-6
        )


@pytest.fixture
def model() -> AcousticModel:
    """An acoustic model that is in final.mdl."""
    return acoustic_model()


def acoustic_model() -> AcousticModel:
    """Writes an acoustic model with a wrong context to final.mdl, and returns it."""
    state = HmmState(forward_pdf_class=0, self_loop_pdf_class=0, transitions=((0, 0.5), (1, 0.5)))
    final = HmmState(forward_pdf_class=-1, self_loop_pdf_class=-1, transitions=())
    model = AcousticModel(
        transition_model=TransitionModel(
            phones=(1,),
            phone_entries=(-1, 0),
            entries=((state, final),),
            tuples=((1, 0, 0, 0),),
            log_probs=np.array([0.0, -0.5, -0.5]),
            chain=False,
        ),
        nnet=read_nnet("nnet.raw"),
        left_context=9,
        right_context=9,
        priors=np.array([0.5, 0.25, 0.125, 0.125]),
    )
    write_acoustic_model(model, "final.mdl")
    return model


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk() -> None:
    """A network that finds no room is an error that names the file."""
    done = run_tool("nnet3-copy", "nnet.raw", "/dev/full", expected=255)

    assert done.stderr == "nnet3-copy: cannot write '/dev/full': No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_log(unbuffered: str) -> None:
    """A log that cannot be written does not end the work, and is no error at the end either."""
    command = program("nnet3-average", "nnet.raw", "nnet.raw", "mean.raw")
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stderr=full, check=False, env=environment)
        assert done.returncode == 0

    assert read_nnet("mean.raw").num_parameters


class TestAcousticModels:
    """Tests for nnet3-am-info and nnet3-am-copy."""

    def test_info(self, model: AcousticModel) -> None:
        """Dimensions and priors precede the description of the network."""
        output, _ = run("nnet3-am-info", "final.mdl")

        assert output == (
            "input-dim: 3\nivector-dim: -1\nnum-pdfs: 4\nprior-dimension: 4\nprior-sum: 1\n"
            "prior-min: 0.125\nprior-max: 0.5\n# Nnet info follows.\n"
            + model.nnet.info(compute_context(model.nnet))
        )

    def test_copy(self, model: AcousticModel) -> None:
        """Transition model and priors stay; the context is computed anew."""
        run("nnet3-am-copy", "--binary=false", "final.mdl", "text.mdl")
        run("nnet3-am-copy", "--learning-rate=0.5", "text.mdl", "new.mdl")

        new = read_acoustic_model("new.mdl")
        assert new.transition_model == model.transition_model
        assert (new.priors == model.priors).all()
        assert (new.left_context, new.right_context) == (0, 1)
        assert new.nnet.component("affine").learning_rate == 0.5

    def test_raw(self, model: AcousticModel) -> None:
        """--raw writes only the network; --set-raw-nnet replaces it."""
        run("nnet3-am-copy", "--raw", "--scale=2", "final.mdl", "new.raw")
        run("nnet3-am-copy", "--set-raw-nnet=new.raw", "final.mdl", "new.mdl")

        assert (vectorize(read_nnet("new.raw")) == 2 * vectorize(model.nnet)).all()
        assert read_acoustic_model("new.mdl").nnet == read_nnet("new.raw")

    def test_another_output(self, model: AcousticModel) -> None:
        """Priors that do not fit the output are removed, with a warning."""
        wide = CONFIG.replace("input=norm", "input=Append(norm, norm)")
        write_nnet(parse_config(wide), "wide.raw")

        _, errors = run("nnet3-am-copy", "--set-raw-nnet=wide.raw", "final.mdl", "new.mdl")

        assert "WARNING (nnet3-am-copy) Removing priors, of which there are 4" in errors
        assert read_acoustic_model("new.mdl").priors.size == 0
