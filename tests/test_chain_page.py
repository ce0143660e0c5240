"""The commands of the page on training chain models run, one after the other, on the digits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from nnet3_descriptors import read_nnet
from nnet3_tables import read_table, write_table
from reference_cases import CHAIN_REFERENCE, ROOT

DIGITS = CHAIN_REFERENCE / "digits"
GIVEN = ("tree", "0.trans_mdl", "phones.txt", "phone_seqs.txt", "nnet.config")
FEWER = {"--minibatch-size=64": "--minibatch-size=8"}
"""What is changed for 60 utterances."""


def commands(page: str) -> list[str]:
    """The indented lines of a page; continued lines are joined."""
    blocks = re.findall(r"(?:^    .*\n)+", page, flags=re.MULTILINE)
    return [line.strip() for block in blocks for line in block.replace("\\\n", "").splitlines()]


def test_commands(tmp_path: Path) -> None:
    """From tree and alignments to a network that training has improved; each command succeeds."""
    for name in GIVEN:
        shutil.copy(DIGITS / name, tmp_path)
    shutil.copy(DIGITS / "cegs8.ark", tmp_path / "valid.cegs")
    with write_table(f"ark,scp:{tmp_path}/feats.ark,{tmp_path}/feats.scp") as table:
        for key, features in read_table(f"ark:{ROOT}/examples/digits/train60.feats.ark"):
            table.write(key, features)
    folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": os.pathsep.join([str(folder), os.environ["PATH"]])}
    lines = commands((ROOT / "docs" / "chain.md").read_text())
    said = {}
    for line in lines:
        for old, new in FEWER.items():
            line = line.replace(old, new)
        if line.startswith("nnet3-chain-combine"):  # of runs that the page says to make
            for name in ("2.raw", "3.raw"):
                shutil.copy(tmp_path / "1.raw", tmp_path / name)
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        said[line.split()[0]] = done.stderr

    tools = [line.split()[0] for line in lines]
    assert tools == [
        "chain-est-phone-lm",
        "chain-make-den-fst",
        "chain-get-supervision",
        "nnet3-chain-get-egs",
        "nnet3-chain-shuffle-egs",
        "nnet3-init",
        "nnet3-chain-train",
        "nnet3-chain-compute-prob",
        "nnet3-chain-combine",
    ]
    assert "for 60 utterances, errors on 0" in said["chain-get-supervision"]
    [objective] = re.findall(r"for 'output' is (\S+)", said["nnet3-chain-compute-prob"])
    assert float(objective) > -0.8
    assert read_nnet(tmp_path / "final.raw").node_dim("output") == 62
