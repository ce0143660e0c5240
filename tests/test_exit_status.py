"""The exit status of every tool in every situation: that of Kaldi's tool of this name.

Kaldi's tools return 0 if they could do something, 1 if nothing succeeded or if the number of
arguments is wrong, and 255 (-1) after an exception; where Kaldi aborts, the tools here return 255.
`nnet3-chain-fine-tune`, `-compute-looped`, `-report`, `-to-onnx` and `-train-recipe` are no tools
of Kaldi's, and keep to the same rules.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import nnet3_descriptors
import numpy as np
import pytest
from nnet3_tables import read_table, write_table
from nnet3_tools import entry_points
from tool_runs import module_of, run_tool

REFERENCE = Path(__file__).parent / "reference"
TRAINING, CHAIN, TOOLS = REFERENCE / "training", REFERENCE / "chain/digits", REFERENCE / "tools"
DIGITS = REFERENCE.parent.parent / "examples/digits"
TREE = f"{CHAIN}/tree {CHAIN}/0.trans_mdl"

STATUSES = """
TOOL                         FINE  SOME  NONE
chain-est-phone-lm              0     -     -
chain-get-supervision           0     0     1
chain-make-den-fst              0     -     -
chain-make-num-fst-e2e          0     0     0
nnet3-acc-lda-stats             0     -   255
nnet3-am-adjust-priors          0     -     -
nnet3-am-copy                   0     -     -
nnet3-am-info                   0     -     -
nnet3-am-init                   0     -     -
nnet3-am-train-transitions      0     -   255
nnet3-average                   0     -     -
nnet3-chain-add-post-to-egs     0     -     1
nnet3-chain-combine             0     -   255
nnet3-chain-compute-post        0     0     1
nnet3-chain-compute-prob        0     -     1
nnet3-chain-copy-egs            0     0     1
nnet3-chain-e2e-get-egs         0     0     0
nnet3-chain-fine-tune           0     -   255
nnet3-chain-get-egs             0     0     1
nnet3-chain-merge-egs           0     0     1
nnet3-chain-normalize-egs       0     -     1
nnet3-chain-shuffle-egs         0     -     1
nnet3-chain-subset-egs          0     -     1
nnet3-chain-train               0     -     1
nnet3-combine                   0     -   255
nnet3-compute                   0     0     1
nnet3-compute-batch             0     0     1
nnet3-compute-from-egs          0     -     0
nnet3-compute-looped            0     0     1
nnet3-compute-prob              0     -     1
nnet3-copy                      0     -     -
nnet3-copy-egs                  0     0     1
nnet3-egs-augment-image         0     -     1
nnet3-get-egs                   0     0     1
nnet3-get-egs-dense-targets     0     0     1
nnet3-get-egs-simple            0     0     1
nnet3-info                      0     -     -
nnet3-init                      0     -     -
nnet3-merge-egs                 0     0     1
nnet3-report                    0     -     -
nnet3-show-progress             0     -   255
nnet3-shuffle-egs               0     -     1
nnet3-subset-egs                0     -     1
nnet3-to-onnx                   0     -     -
nnet3-train                     0     -     1
nnet3-train-recipe              0     -   255
nnet3-xvector-compute           0     0     1
nnet3-xvector-compute-batched   0     0     1
nnet3-xvector-get-egs           0     0     1
"""
"""FINE: all input is good. SOME: some of it fails. NONE: all of it fails, or there is none."""

COMMANDS = f"""
chain-est-phone-lm ark:{CHAIN}/phone_seqs.txt out
chain-get-supervision --frame-subsampling-factor=3 {TREE} ark:phones.INPUT ark:out
chain-make-den-fst {TREE} {CHAIN}/phone_lm.fst den norm
chain-make-num-fst-e2e {CHAIN}/0.trans_mdl {CHAIN}/normalization.fst ark:graphs.INPUT ark:out
nnet3-acc-lda-stats {DIGITS}/final.raw ark:egs.INPUT out
nnet3-am-adjust-priors {REFERENCE}/digits/final.mdl {TRAINING}/priors.vec out
nnet3-am-copy {TOOLS}/chain.mdl out
nnet3-am-info {TOOLS}/chain.mdl
nnet3-am-init {CHAIN}/0.trans_mdl {CHAIN}/initial.raw out
nnet3-am-train-transitions chain.mdl ark:alignments.INPUT out
nnet3-average {DIGITS}/final.raw {DIGITS}/final.raw out
nnet3-chain-add-post-to-egs {CHAIN}/initial.raw {CHAIN}/den.fst ark:cegs.INPUT ark:out
nnet3-chain-combine {CHAIN}/den.fst {CHAIN}/initial.raw ark:cegs.INPUT out
nnet3-chain-compute-post {CHAIN}/train.m0.9.raw {CHAIN}/den.fst ark:frames.INPUT ark:out
nnet3-chain-compute-prob {CHAIN}/initial.raw {CHAIN}/den.fst ark:cegs.INPUT
nnet3-chain-copy-egs --weights=ark:weights.INPUT ark:{CHAIN}/cegs8.ark ark:out
nnet3-chain-e2e-get-egs --num-frames=152,154 ark:feats.FINE ark:graphs.INPUT chain.mdl ark:out
nnet3-chain-fine-tune --epochs=1 chain.mdl {CHAIN}/den.fst ark:cegs.INPUT out
nnet3-chain-get-egs --num-frames=30 --frame-subsampling-factor=3 ark:feats.INPUT ark:sup ark:out
nnet3-chain-merge-egs --minibatch-size=SIZE ark:{CHAIN}/cegs8.ark ark:out
nnet3-chain-normalize-egs {CHAIN}/normalization.fst ark:cegs.INPUT ark:out
nnet3-chain-shuffle-egs ark:cegs.INPUT ark:out
nnet3-chain-subset-egs ark:cegs.INPUT ark:out
nnet3-chain-train {CHAIN}/initial.raw {CHAIN}/den.fst ark:cegs.INPUT out
nnet3-combine {DIGITS}/final.raw ark:egs.INPUT out
nnet3-compute --ivectors=ark:ivectors.INPUT iv.raw ark:feats.FINE ark:out
nnet3-compute-batch --ivectors=ark:ivectors.INPUT iv.raw ark:feats.FINE ark:out
nnet3-compute-from-egs {DIGITS}/final.raw ark:egs.INPUT ark:out
nnet3-compute-looped --ivectors=ark:ivectors.INPUT iv.raw ark:feats.FINE ark:out
nnet3-compute-prob {DIGITS}/final.raw ark:egs.INPUT
nnet3-copy {DIGITS}/final.raw out
nnet3-copy-egs --weights=ark:weights.INPUT ark:{TRAINING}/subset.ark ark:out
nnet3-egs-augment-image --horizontal-flip-prob=0.5 ark:egs.INPUT ark:out
nnet3-get-egs --num-pdfs=11 --num-frames=8 ark:feats.INPUT ark:post ark:out
nnet3-get-egs-dense-targets --num-frames=8 ark:feats.INPUT ark:feats.FINE ark:out
nnet3-get-egs-simple input=ark:feats.INPUT output=ark:feats.FINE ark:out
nnet3-info {DIGITS}/final.raw
nnet3-init iv.config out
nnet3-merge-egs --minibatch-size=SIZE ark:{TRAINING}/subset.ark ark:out
nnet3-report --time=false {DIGITS}/final.raw out
nnet3-show-progress {DIGITS}/final.raw {DIGITS}/final.raw ark:egs.INPUT
nnet3-shuffle-egs ark:egs.INPUT ark:out
nnet3-subset-egs ark:egs.INPUT ark:out
nnet3-to-onnx --frames=6 iv.raw out
nnet3-train {DIGITS}/final.raw ark:egs.INPUT out
nnet3-train-recipe --num-epochs=0.1 --nnet={DIGITS}/final.raw --egs=ark:egs.INPUT run.INPUT
nnet3-xvector-compute --pad-input=false --min-chunk-size=25 xv.raw ark:feats.INPUT ark:out
nnet3-xvector-compute-batched --pad-input=false --chunk-size=25 xv.raw ark:feats.INPUT ark:out
nnet3-xvector-get-egs --num-pdfs=2 ranges.INPUT ark:feats.FINE ark:out
"""
"""A command line for each tool. INPUT is a situation, SIZE a size of minibatches for it."""

ANY_NUMBER = {
    "nnet3-average",
    "nnet3-chain-combine",
    "nnet3-chain-copy-egs",
    "nnet3-combine",
    "nnet3-copy-egs",
    "nnet3-get-egs-simple",
    "nnet3-xvector-get-egs",
}
"""The tools that take any number of arguments from a certain one on."""

SIZES = {"FINE": "4", "SOME": "5", "NONE": "1000"}

HEADER, *ROWS = [line.split() for line in STATUSES.split("\n") if line]
CASES = [
    (tool, situation, int(status))
    for tool, *statuses in ROWS
    for situation, status in zip(HEADER[1:], statuses, strict=True)
    if status != "-"
]
LINES = {line.split()[0]: line for line in COMMANDS.split("\n") if line}


def status_of(tool: str, *arguments: str) -> tuple[int, str]:
    """The exit status of a tool, and what it writes to standard error."""
    done = run_tool(module_of(tool), *arguments)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the input of the commands."""
    path = tmp_path_factory.mktemp("tools")
    names = "egs cegs weights alignments ranges phones ivectors feats frames graphs"
    for name in names.split():
        (path / f"{name}.NONE").touch()
    (path / "egs.FINE").write_bytes((TRAINING / "subset.ark").read_bytes())
    (path / "cegs.FINE").write_bytes((CHAIN / "cegs8.ark").read_bytes())
    (path / "sup").write_bytes((CHAIN / "sup.ark").read_bytes())

    features = dict(list(read_table(f"ark:{DIGITS / 'train60.feats.ark'}"))[:2])
    one, two = features
    small = {  # utterances without labels, or without frames
        "small": np.zeros((20, 23), dtype=np.float32),
        "empty": np.zeros((0, 23), dtype=np.float32),
    }
    for name, entries in (("FINE", features), ("SOME", features | small), ("NONE", small)):
        with write_table(f"ark:{path}/feats.{name}") as table:
            for key, value in entries.items():
                table.write(key, value)
    for name in ("FINE", "SOME"):
        (path / f"frames.{name}").write_bytes((path / f"feats.{name}").read_bytes())
    graph = "\n0 1 2 0\n1 1 1 0\n1\n\n"
    (path / "graphs.FINE").write_text(f"{one} {graph}")
    (path / "graphs.SOME").write_text(f"{one} {graph}{two} \n0 1 0 7\n1\n\n")
    with write_table(f"ark:{path}/ivectors.FINE") as table:
        table.write(one, np.zeros(2, dtype=np.float32))
        table.write(two, np.zeros(2, dtype=np.float32))
    with write_table(f"ark:{path}/ivectors.SOME") as table:
        table.write(two, np.zeros(2, dtype=np.float32))

    labels = (f"{key} {'[ 1 1.0 ] ' * len(value)}" for key, value in features.items())
    (path / "post").write_text("".join(f"{line}\n" for line in [*labels, "empty [ 1 1.0 ]"]))
    lines = [f"{key} 0 0 0 20 {number}\n" for number, key in enumerate(features)]
    (path / "ranges.FINE").write_text("".join(lines))
    (path / "ranges.SOME").write_text(lines[0])
    (path / "alignments.FINE").write_text("a 1 1 1\n")

    lines = (CHAIN / "phones.txt").read_text().splitlines(keepends=True)[:3]
    impossible = "a 1 1 ; 2 1 ; 3 1 ; 1 1\nb 1 1 ; 2 1 ; 3 1 ; 1 1\n"
    (path / "phones.FINE").write_text("".join(lines))
    (path / "phones.SOME").write_text("".join(lines) + impossible)
    (path / "phones.NONE").write_text(lines[0] + impossible)
    keys = [key for name in ("egs", "cegs") for key in keys_of(path / f"{name}.FINE")]
    (path / "weights.FINE").write_text("".join(f"{key} 0.5\n" for key in keys))
    (path / "weights.SOME").write_text("".join(f"{key} 0.5\n" for key in keys[::2]))

    (path / "iv.config").write_text(
        "input-node name=input dim=23\n"
        "input-node name=ivector dim=2\n"
        "component name=a type=AffineComponent input-dim=25 output-dim=4\n"
        "component-node name=a component=a input=Append(input, ReplaceIndex(ivector, t, 0))\n"
        "output-node name=output input=a\n"
    )
    pooled = (
        "input-node name=input dim=23\n"
        "component name=e type=StatisticsExtractionComponent input-dim=23\n"
        "component-node name=e component=e input=input\n"
        "component name=p type=StatisticsPoolingComponent input-dim=47 left-context=0 "
        "right-context=10000\n"
        "component-node name=p component=p input=e\n"
        "output-node name=output input=p\n"
    )
    for name, text in (("iv", (path / "iv.config").read_text()), ("xv", pooled)):
        nnet3_descriptors.write_nnet(nnet3_descriptors.parse_config(text), path / f"{name}.raw")
    arguments = [f"{CHAIN}/0.trans_mdl", f"{CHAIN}/initial.raw", f"{path}/chain.mdl"]
    assert status_of("nnet3-am-init", *arguments)[0] == 0
    return path


def keys_of(archive: Path) -> list[str]:
    """The keys of examples in a binary archive."""
    from nnet3_tables import read_objects
    from nnet3_training.chain import read_chain_example
    from nnet3_training.egs import read_example

    decode = read_chain_example if archive.name.startswith("c") else read_example
    return [entry.key for entry in read_objects(f"ark:{archive}", decode)]


def test_every_tool_is_here() -> None:
    """The table and the commands have each tool once."""
    names = {name.replace("_", "-") for name in vars(entry_points)}
    tools = {name for name in names if name.startswith(("nnet3-", "chain-"))}

    assert [tool for tool, *_ in ROWS] == sorted(tools) == list(LINES)


@pytest.mark.parametrize(("tool", "situation", "status"), CASES)
def test_status(
    tool: str, situation: str, status: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool ends with Kaldi's status if all, some or none of its input is good."""
    monkeypatch.chdir(folder)
    line = LINES[tool].replace("INPUT", situation).replace("SIZE", SIZES[situation])
    Path("out").unlink(missing_ok=True)

    found, said = status_of(tool, *shlex.split(line)[1:])

    assert found == status, said
    if status == 1 and tool.endswith("-egs"):
        assert not Path("out").exists()  # an archive of no example is of no use


@pytest.mark.parametrize("tool", LINES)
def test_status_after_an_error(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its input, and with an option that does not exist, a tool ends with status 255.

    With too few or too many arguments it shows its usage, and ends with status 1.
    """
    monkeypatch.chdir(tmp_path)
    _, *arguments = shlex.split(LINES[tool].replace("INPUT", "FINE").replace("SIZE", "4"))
    nowhere = [
        argument if argument.startswith("-") else f"ark:{name}" if ":" in argument else name
        for number, argument in enumerate(arguments)
        for name in [f"nowhere/{number}"]
    ]

    assert status_of(tool, *nowhere)[0] == 255
    assert status_of(tool, "--no-such-option", *arguments)[0] == 255
    options = [argument for argument in arguments if argument.startswith("--")]
    wrong = [[], options] if tool in ANY_NUMBER else [[], options, [*options, *["a"] * 6]]
    for given in wrong:
        found, said = status_of(tool, *given)
        assert found == 1, said
        assert "Usage: " in said
