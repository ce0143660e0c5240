"""Build a page that recognises spoken digits in a browser, as a folder of static files.

The digits are those of the example, or of a sound file or the microphone of who reads the page.

    python examples/digits/web/build.py site
    python -m http.server --directory site

The folder gets the model as ONNX, the test utterances as JSON, ONNX Runtime Web, which npm
installs, and the page. The script needs nnet3-tools with the extra onnx, and npm.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
from nnet3_tables import read_table

FOLDER = Path(__file__).parent
DIGITS = FOLDER.parent
RUNTIME = ("ort.wasm.min.js", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
"""The files of ONNX Runtime Web that the page needs."""

FRAMES = 50
"""Frames of a chunk."""


def export(model: Path) -> dict[str, int]:
    """Write the network as ONNX; returns the numbers that the page needs."""
    tool = shutil.which("nnet3-to-onnx", path=Path(sys.executable).parent)
    assert tool is not None, "nnet3-tools is not installed for this Python"
    subprocess.run([tool, DIGITS / "final.raw", model, f"--frames={FRAMES}"], check=True)
    found = onnx.load(model)
    about = {entry.key: entry.value for entry in found.metadata_props}
    return {
        "left": int(about["nnet3.left_context"]),
        "right": int(about["nnet3.right_context"]),
        "frames": int(about["nnet3.frames_per_chunk"]),
        "dim": found.graph.input[0].type.tensor_type.shape.dim[-1].dim_value,
    }


def install_runtime(site: Path) -> None:
    """Install ONNX Runtime Web with npm, and copy it to the site."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("build.py: npm is not installed; it comes with Node.js")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(FOLDER / "package.json", folder)
        install = [npm, "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(install, cwd=folder, check=True)
        for name in RUNTIME:
            shutil.copy(Path(folder, "node_modules/onnxruntime-web/dist", name), site)


def main() -> None:
    """Build the folder that the command line names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python build.py FOLDER")
    site = Path(sys.argv[1])
    site.mkdir(parents=True, exist_ok=True)
    about = export(site / "digits.onnx")
    utterances = [
        {"key": key, "word": key.rpartition("-")[2], "features": features.round(4).tolist()}
        for key, features in read_table(f"ark:{DIGITS / 'test.feats.ark'}")
    ]
    (site / "utterances.json").write_text(json.dumps({"about": about, "utterances": utterances}))
    install_runtime(site)
    for name in ("index.html", "page.js", "fbank.js"):
        shutil.copy(FOLDER / name, site)
    print(f"{site}: {len(utterances)} utterances; python -m http.server --directory {site}")


if __name__ == "__main__":
    main()
