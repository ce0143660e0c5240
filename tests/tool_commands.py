"""A command line for each tool, and the input that they need."""

from __future__ import annotations

import shlex
from pathlib import Path

import nnet3_descriptors
import numpy as np
from nnet3_tables import read_objects, read_table, write_table
from nnet3_training.chain import read_chain_example
from nnet3_training.egs import read_example
from small_networks import stacked
from speech_folders import make_transcriber
from tool_runs import run_tool
from wav_files import wav

REFERENCE = Path(__file__).parent / "reference"
TRAINING, CHAIN, TOOLS = REFERENCE / "training", REFERENCE / "chain/digits", REFERENCE / "tools"
DIGITS = REFERENCE.parent.parent / "examples/digits"
HALF = f"--held-out-every=2 --den-fst={CHAIN}/den.fst"
TREE = f"{CHAIN}/tree {CHAIN}/0.trans_mdl"
SPEECH = REFERENCE.parents[1] / "packages/nnet3-speech/tests"
PLDA, EXTRACTOR = SPEECH / "plda/plda", SPEECH / "extractor"
IVECTORS = (
    f"--splice-config={EXTRACTOR}/splice.conf --cmvn-config={EXTRACTOR}/online_cmvn.conf "
    f"--lda-matrix={EXTRACTOR}/final.mat --global-cmvn-stats={EXTRACTOR}/global_cmvn.stats "
    f"--diag-ubm={EXTRACTOR}/final.dubm --ivector-extractor={EXTRACTOR}/final.ie"
)

COMMANDS = f"""
apply-cmvn-sliding ark:frames.INPUT ark:out
chain-est-phone-lm ark:{CHAIN}/phone_seqs.txt out
chain-get-supervision --frame-subsampling-factor=3 {TREE} ark:phones.INPUT ark:out
chain-make-den-fst {TREE} {CHAIN}/phone_lm.fst den norm
chain-make-num-fst-e2e {CHAIN}/0.trans_mdl {CHAIN}/normalization.fst ark:graphs.INPUT ark:out
compute-fbank-feats scp:wav.INPUT ark:out
compute-mfcc-feats scp:wav.INPUT ark:out
compute-vad --vad-energy-threshold=-99 ark:frames.INPUT ark:out
ivector-extract-online2 {IVECTORS} ark:utt2utt ark:feats.INPUT ark:out
ivector-mean ark:spk2utt.INPUT ark:vectors.FINE ark:out ark,t:num_utts
ivector-plda-scoring {PLDA} ark:vectors.FINE ark:vectors.FINE trials.INPUT out
nnet-get-feature-transform out lda.acc
nnet3-acc-lda-stats {DIGITS}/final.raw ark:egs.INPUT out
nnet3-am-adjust-priors {REFERENCE}/digits/final.mdl {TRAINING}/priors.vec out
nnet3-am-copy {TOOLS}/chain.mdl out
nnet3-am-info {TOOLS}/chain.mdl
nnet3-am-init {CHAIN}/0.trans_mdl {CHAIN}/initial.raw out
nnet3-am-train-transitions chain.mdl ark:alignments.INPUT out
nnet3-average {DIGITS}/final.raw {DIGITS}/final.raw out
nnet3-chain-acc-lda-stats {CHAIN}/initial.raw ark:cegs.INPUT out
nnet3-chain-add-post-to-egs {CHAIN}/initial.raw {CHAIN}/den.fst ark:cegs.INPUT ark:out
nnet3-chain-combine {CHAIN}/den.fst {CHAIN}/initial.raw ark:cegs.INPUT out
nnet3-chain-compute-post {CHAIN}/train.m0.9.raw {CHAIN}/den.fst ark:frames.INPUT ark:out
nnet3-chain-compute-prob {CHAIN}/initial.raw {CHAIN}/den.fst ark:cegs.INPUT
nnet3-chain-copy-egs --weights=ark:weights.INPUT ark:{CHAIN}/cegs8.ark ark:out
nnet3-chain-e2e-get-egs --num-frames=152,154 ark:feats.FINE ark:graphs.INPUT chain.mdl ark:out
nnet3-chain-fine-tune {HALF} --egs=ark:cegs.INPUT chain.mdl tuned.INPUT
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
nnet3-to-c --frames=6 iv.raw out
nnet3-to-onnx --frames=6 iv.raw out
nnet3-train {DIGITS}/final.raw ark:egs.INPUT out
nnet3-train-recipe --num-epochs=0.1 --nnet={DIGITS}/final.raw --egs=ark:egs.INPUT run.INPUT
nnet3-transcribe speech scp:wav.INPUT
nnet3-xvector-compute --pad-input=false --min-chunk-size=25 xv.raw ark:feats.INPUT ark:out
nnet3-xvector-compute-batched --pad-input=false --chunk-size=25 xv.raw ark:feats.INPUT ark:out
nnet3-xvector-get-egs --num-pdfs=2 ranges.INPUT ark:feats.FINE ark:out
select-voiced-frames ark:frames.INPUT ark:voiced ark:out
"""
"""A command line for each tool. INPUT is a situation, SIZE a size of minibatches for it."""

SIZES = {"FINE": "4", "SOME": "5", "NONE": "1000"}
"""By situation, the size of minibatches."""

LINES = {line.split()[0]: line for line in COMMANDS.split("\n") if line}
"""The command lines by tool."""


def command_line(tool: str, situation: str = "FINE") -> str:
    """The command line of a tool in a situation; FINE is one in which all input is good."""
    return LINES[tool].replace("INPUT", situation).replace("SIZE", SIZES[situation])


def write_inputs(path: Path) -> None:
    """Writes the input of the commands to a folder."""
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

    with write_table(f"ark:{path}/voiced") as table:
        for key, value in features.items():
            table.write(key, np.ones(len(value), dtype=np.float32))
    for name, rate in (("good", 16000), ("slow", 8000)):
        (path / f"{name}.wav").write_bytes(wav(bytes(2000), rate=rate))
    good, slow = (f"{name} {path}/{name}.wav\n" for name in ("good", "slow"))
    for name, lines in (("FINE", good), ("SOME", slow + good), ("NONE", slow)):
        (path / f"wav.{name}").write_text(lines)

    (path / "utt2utt").write_text("".join(f"{key} {key}\n" for key in [*features, "empty"]))
    make_transcriber(path / "speech")

    vectors = [f"{key} [ {'1.5 ' * 12}]\n" for key in ("a", "b")]
    (path / "vectors.FINE").write_text("".join(vectors))
    for name, keys in (("FINE", "b"), ("SOME", "b c"), ("NONE", "c")):
        (path / f"spk2utt.{name}").write_text(f"spk {keys}\n")
        (path / f"trials.{name}").write_text("".join(f"a {key}\n" for key in keys.split()))

    (path / "iv.config").write_text(
        "input-node name=input dim=23\n"
        "input-node name=ivector dim=2\n"
        "component name=a type=AffineComponent input-dim=25 output-dim=4\n"
        "component-node name=a component=a input=Append(input, ReplaceIndex(ivector, t, 0))\n"
        "output-node name=output input=a\n"
    )
    pooled = stacked(
        23,
        "e StatisticsExtraction input-dim=23",
        "p StatisticsPooling input-dim=47 left-context=0 right-context=10000",
    )
    for name, text in (("iv", (path / "iv.config").read_text()), ("xv", pooled)):
        nnet3_descriptors.write_nnet(nnet3_descriptors.parse_config(text), path / f"{name}.raw")
    arguments = [f"{CHAIN}/0.trans_mdl", f"{CHAIN}/initial.raw", f"{path}/chain.mdl"]
    assert run_tool("nnet3-am-init", *arguments).returncode == 0
    arguments = [f"{DIGITS}/final.raw", f"ark:{path}/egs.FINE", f"{path}/lda.acc"]
    assert run_tool("nnet3-acc-lda-stats", *arguments).returncode == 0


def run_line(line: str) -> tuple[int, str]:
    """Runs a command line; returns its status and what it says, which is no traceback."""
    done = run_tool(*shlex.split(line))
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    return done.returncode, done.stderr


def keys_of(archive: Path) -> list[str]:
    """The keys of examples in a binary archive."""
    decode = read_chain_example if archive.name.startswith("c") else read_example
    return [entry.key for entry in read_objects(f"ark:{archive}", decode)]
