"""Build a page that recognises spoken digits in a browser, as a folder of static files.

The digits are those of the example, or of a sound file or the microphone of who reads the page.

    python examples/digits/web/build.py site            # or: site --wasm
    python -m http.server --directory site

The folder gets the test utterances as JSON, the page, and the network: as ONNX, with ONNX Runtime
Web, which npm installs; or with --wasm as C, compiled to WebAssembly by Zig, which is in the
package index as ziglang. The script needs nnet3-tools, for ONNX with the extra onnx, and npm.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from nnet3_tables import read_table

FOLDER = Path(__file__).parent
DIGITS = FOLDER.parent
PAGE = ("index.html", "page.js", "fbank.js", "chunks.js")
RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
"""The files of ONNX Runtime Web that the page needs."""

FRAMES = 50
"""Frames of a chunk."""

EXPORTS = ("input", "output", "compute")
"""The functions of page.c."""


def tool(name: str, path: Path) -> None:
    """Write the network by a tool of nnet3-tools."""
    found = shutil.which(name, path=Path(sys.executable).parent)
    assert found is not None, "nnet3-tools is not installed for this Python"
    subprocess.run([found, DIGITS / "final.raw", path, f"--frames={FRAMES}"], check=True)


def numbers(metadata: dict[str, str]) -> dict[str, int]:
    """The numbers that the page needs."""
    names = {
        "left": "left_context",
        "right": "right_context",
        "frames": "frames_per_chunk",
        "dim": "input_dim",
        "classes": "output_dim",
    }
    return {key: int(metadata[f"nnet3.{name}"]) for key, name in names.items()}


def as_onnx(site: Path) -> dict[str, int]:
    """Write the network as ONNX, and install ONNX Runtime Web with npm."""
    import onnx

    tool("nnet3-to-onnx", site / "digits.onnx")
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("build.py: npm is not installed; it comes with Node.js")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(FOLDER / "package.json", folder)
        install = [npm, "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(install, cwd=folder, check=True)
        for name in RUNTIME:
            shutil.copy(Path(folder, "node_modules/onnxruntime-web/dist", name), site)
    shutil.copy(FOLDER / "onnx.js", site / "network.js")
    return numbers(
        {each.key: each.value for each in onnx.load(site / "digits.onnx").metadata_props}
    )


def as_wasm(site: Path) -> dict[str, int]:
    """Write the network as C, and compile it with page.c."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tool("nnet3-to-c", folder / "digits.c")
        about = numbers(dict(re.findall(r"(nnet3\.\w+): (\d+)", (folder / "digits.h").read_text())))
        defined = [f"-D{key.upper()}={number}" for key, number in about.items()]
        command = [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi", "-msimd128"]
        command += ["-std=c99", "-O2", "-s", "-I.", *defined, "digits.c", FOLDER / "page.c"]
        command += ["-mexec-model=reactor", *(f"-Wl,--export={each}" for each in EXPORTS)]
        subprocess.run([*command, "-o", site.resolve() / "digits.wasm"], cwd=folder, check=True)
    shutil.copy(FOLDER / "wasm.js", site / "network.js")
    return about


def main() -> None:
    """Build the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path, metavar="FOLDER")
    parser.add_argument("--wasm", action="store_true", help="as C, compiled to WebAssembly")
    options = parser.parse_args()
    site = options.site
    site.mkdir(parents=True, exist_ok=True)
    about = (as_wasm if options.wasm else as_onnx)(site)
    utterances = [
        {"key": key, "word": key.rpartition("-")[2], "features": features.round(4).tolist()}
        for key, features in read_table(f"ark:{DIGITS / 'test.feats.ark'}")
    ]
    (site / "utterances.json").write_text(json.dumps({"about": about, "utterances": utterances}))
    for name in PAGE:
        shutil.copy(FOLDER / name, site)
    print(f"{site}: {len(utterances)} utterances; python -m http.server --directory {site}")


if __name__ == "__main__":
    main()
