"""No tool replaces a file that it reads, nor writes one twice; models may be changed in place."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import nnet3_tables
import pytest
from nnet3_descriptors.files import REPLACES
from nnet3_tools.overwriting import guarded
from reference_cases import CHAIN_REFERENCE, DIGITS_EXAMPLE
from tool_runs import run_tool

READ = "it is read at the same time"
REFUSED = {
    "nnet3-report final.raw final.raw": "expected a page to replace",
    "nnet3-to-onnx final.raw final.raw": READ,
    "nnet3-compute . scp:wav.scp ark:final.raw": READ,
    "nnet3-compute final.raw ark:f.ark ark:f.ark": READ,
    "nnet3-compute final.raw scp:f.scp ark:f.ark": READ,
    "nnet3-compute final.raw scp:f.scp ark,scp:new.ark,link.ark": READ,
    "nnet3-compute-from-egs final.raw ark:egs.ark ark:final.raw": READ,
    "nnet3-compute-from-egs final.raw badname 'ark:| cat > f.ark'": "'badname'",
    "nnet3-merge-egs badname 'ark:| cat > f.ark'": "'badname'",
    "nnet3-acc-lda-stats final.raw ark:egs.ark final.raw": READ,
    "nnet3-train final.raw ark:egs.ark egs.ark": READ,
    "nnet3-combine final.raw ark:egs.ark egs.ark": READ,
    "nnet3-init nnet.config nnet.config": READ,
    "nnet3-am-init chain/0.trans_mdl chain/initial.raw chain/0.trans_mdl": READ,
    "chain-est-phone-lm ark:chain/phone_seqs.txt chain/phone_seqs.txt": READ,
    "chain-make-den-fst chain/tree chain/0.trans_mdl chain/phone_lm.fst a.fst a.fst": "already",
    "compute-fbank-feats --config=fbank.conf scp:wav.scp ark:fbank.conf": READ,
    "compute-fbank-feats --config=fbank.conf scp:wav.scp ark:wav/one.wav": READ,
    "apply-cmvn-sliding ark:f.ark scp:over.scp": READ,
    "apply-cmvn-sliding 'scp:cat f.scp |' ark,scp:f.ark,f.scp": READ,
    "apply-cmvn-sliding ark:f.ark scp:once.scp": "it is written already",
    "apply-cmvn-sliding scp:f.scp scp:copy.scp": "a place within a file ('f.ark:4')",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, features, examples, and what makes a denominator."""
    path = tmp_path_factory.mktemp("files") / "all"
    shutil.copytree(DIGITS_EXAMPLE, path)
    shutil.copytree(CHAIN_REFERENCE / "digits", path / "chain")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        Path("wav.scp").write_text(
            "".join(f"{key} wav/{key}.wav\n" for key in ("one", "two")), encoding="utf-8"
        )
        Path("over.scp").write_text("one f.ark\ntwo x\n", encoding="utf-8")
        Path("once.scp").write_text("one x\ntwo x\n", encoding="utf-8")
        for command in (
            "compute-fbank-feats --config=fbank.conf scp:wav.scp ark,scp:f.ark,f.scp",
            "nnet3-get-egs --num-pdfs=11 --left-context=12 --right-context=12 "
            "ark:train60.feats.ark ark:train60.post ark:all.ark",
            "nnet3-subset-egs --n=4 ark:all.ark ark:egs.ark",
        ):
            assert run_tool(*shlex.split(command)).returncode == 0
        shutil.copy("f.scp", "copy.scp")
        Path("link.ark").symlink_to("f.ark")
    return path


def contents() -> dict[Path, bytes]:
    """What stands in the files of the current folder."""
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


@pytest.mark.parametrize(("command", "message"), REFUSED.items())
def test_refused(folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, message: str) -> None:
    """All files stay as they were."""
    monkeypatch.chdir(folder)
    before = contents()

    done = run_tool(*shlex.split(command), expected=255)

    assert message in done.stderr
    assert before.items() <= contents().items()


@pytest.mark.parametrize(
    "command",
    ["nnet3-copy model model", "nnet3-average model final.raw model",
     "nnet3-train model ark:egs.ark model", "nnet3-init model more.config model"],
)  # fmt: skip
def test_models_are_changed_in_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """NNET-OUT may be NNET-IN."""
    monkeypatch.chdir(folder)
    shutil.copy("final.raw", "model")
    Path("more.config").write_text(
        "component name=new type=NoOpComponent dim=1\n", encoding="utf-8"
    )

    assert run_tool(*shlex.split(command)).returncode == 0


def test_number_of_a_file_that_is_gone(tmp_path: Path) -> None:
    """A file may have the number of one that was read and is gone; systems use numbers again."""
    read, other = tmp_path / "read", tmp_path / "other"
    read.write_text("text", encoding="utf-8")
    with guarded([], [], ""):
        read.read_text(encoding="utf-8")
        with pytest.raises(nnet3_tables.TableError, match=READ):
            sys.audit(REPLACES, str(read), True)
        read.rename(other)  # the same number under another name
        sys.audit(REPLACES, str(other), True)
