"""A command line for each tool, its exit statuses, and the input that they need.

Commands and statuses stand in tool_commands.txt.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import nnet3_descriptors
import numpy as np
from kaldi_tables import write_arrays
from nnet3_tables import read_objects, read_table
from nnet3_training.chain import read_chain_example
from nnet3_training.egs import read_example
from small_networks import WITH_IVECTOR, stacked
from speech_folders import make_transcriber
from tool_runs import run_tool
from wav_files import wav

REFERENCE = Path(__file__).parent / "reference"
TRAINING, CHAIN, TOOLS = REFERENCE / "training", REFERENCE / "chain/digits", REFERENCE / "tools"
DIGITS = REFERENCE.parent.parent / "examples/digits"
SPEECH = REFERENCE.parents[1] / "packages/nnet3-speech/tests"
EXTRACTOR = SPEECH / "extractor"
PLACES = {
    "CHAIN": CHAIN,
    "DIGITS": DIGITS,
    "HALF": f"--held-out-every=2 --den-fst={CHAIN}/den.fst",
    "IVECTORS": (
        f"--splice-config={EXTRACTOR}/splice.conf --cmvn-config={EXTRACTOR}/online_cmvn.conf "
        f"--lda-matrix={EXTRACTOR}/final.mat --global-cmvn-stats={EXTRACTOR}/global_cmvn.stats "
        f"--diag-ubm={EXTRACTOR}/final.dubm --ivector-extractor={EXTRACTOR}/final.ie"
    ),
    "PLDA": SPEECH / "plda/plda",
    "REFERENCE": REFERENCE,
    "TOOLS": TOOLS,
    "TRAINING": TRAINING,
    "TREE": f"{CHAIN}/tree {CHAIN}/0.trans_mdl",
}
"""What names in braces stand for in tool_commands.txt."""

SIZES = {"FINE": "4", "SOME": "5", "NONE": "1000"}
"""By situation, the size of minibatches."""

HEADER, *ROWS = Path(__file__).with_suffix(".txt").read_text("utf-8").format(**PLACES).splitlines()
_FIELDS = [row.split(maxsplit=3) for row in ROWS]

LINES = {line.split()[0]: line for *_, line in _FIELDS}
"""The command lines by tool. INPUT is a situation, SIZE a size of minibatches for it."""

STATUSES = [
    (line.split()[0], situation, int(status))
    for *statuses, line in _FIELDS
    for situation, status in zip(HEADER.split(), statuses, strict=False)
    if status != "-"
]
"""Tools, situations and exit statuses: if all input is good, if some of it fails, and if all of it
fails or there is none."""


def command_line(tool: str, situation: str = "FINE") -> str:
    """The command line of a tool in a situation; FINE is one in which all input is good."""
    return LINES[tool].replace("INPUT", situation).replace("SIZE", SIZES[situation])


def write_inputs(path: Path) -> None:
    """Writes the input of the commands to a folder."""
    names = "egs cegs weights alignments ranges phones ivectors feats frames graphs"
    for name in names.split():
        (path / f"{name}.NONE").touch()
    shutil.copy(TRAINING / "subset.ark", path / "egs.FINE")
    shutil.copy(CHAIN / "cegs8.ark", path / "cegs.FINE")
    shutil.copy(CHAIN / "sup.ark", path / "sup")

    features = dict(list(read_table(f"ark:{DIGITS / 'train60.feats.ark'}"))[:2])
    one, two = features
    small = {  # utterances without labels, or without frames
        "small": np.zeros((20, 23), dtype=np.float32),
        "empty": np.zeros((0, 23), dtype=np.float32),
    }
    for name, entries in (("FINE", features), ("SOME", features | small), ("NONE", small)):
        write_arrays(f"ark:{path}/feats.{name}", entries)
    for name in ("FINE", "SOME"):
        shutil.copy(path / f"feats.{name}", path / f"frames.{name}")
    graph = "\n0 1 2 0\n1 1 1 0\n1\n\n"
    (path / "graphs.FINE").write_text(f"{one} {graph}")
    (path / "graphs.SOME").write_text(f"{one} {graph}{two} \n0 1 0 7\n1\n\n")
    for name, keys in (("FINE", (one, two)), ("SOME", (two,))):
        write_arrays(f"ark:{path}/ivectors.{name}", dict.fromkeys(keys, np.zeros(2, np.float32)))

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

    voiced = {key: np.ones(len(value), np.float32) for key, value in features.items()}
    write_arrays(f"ark:{path}/voiced", voiced)
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

    of_ivectors = WITH_IVECTOR.replace("dim=4", "dim=23").replace("input-dim=6", "input-dim=25")
    (path / "iv.config").write_text(of_ivectors)
    pooled = stacked(
        23,
        "e StatisticsExtraction input-dim=23",
        "p StatisticsPooling input-dim=47 left-context=0 right-context=10000",
    )
    for name, text in (("iv", of_ivectors), ("xv", pooled)):
        nnet3_descriptors.write_nnet(nnet3_descriptors.parse_config(text), path / f"{name}.raw")
    given = f"{CHAIN}/0.trans_mdl", f"{CHAIN}/initial.raw"
    run_tool("nnet3-am-init", *given, path / "chain.mdl", expected=0)
    given = f"{DIGITS}/final.raw", f"ark:{path}/egs.FINE"
    run_tool("nnet3-acc-lda-stats", *given, path / "lda.acc", expected=0)


def run_line(line: str) -> tuple[int, str]:
    """Runs a command line; returns its status and what it says, which is no traceback."""
    done = run_tool(*shlex.split(line))
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    return done.returncode, done.stderr


def said_by(line: str, *, status: int = 0) -> str:
    """Runs a command line, which must end with a status; returns what it says."""
    found, said = run_line(line)
    assert found == status, said
    return said


def keys_of(archive: Path) -> list[str]:
    """The keys of examples in a binary archive."""
    decode = read_chain_example if archive.name.startswith("c") else read_example
    return [entry.key for entry in read_objects(f"ark:{archive}", decode)]
