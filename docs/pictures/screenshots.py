"""Take pictures of the pages that nnet3-report and nnet3-train-recipe make, in a browser.

uv run python docs/pictures/screenshots.py screenshots

The networks are the digits, an LSTM and those of the benchmarks with a quarter of their units; the
runs of training are the digits, and the digits as a chain model. Each page is shown in a window for
a phone, a tablet and a desk, and in dark colours. A page must not be wider than its window. To
judge more than that, look at the pictures.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from nnet3_descriptors import Nnet, parse_config, read_nnet
from nnet3_report.pages import pooled_frames, report_page, training_page, usual_request
from nnet3_training.recipes import TrainingRun

ROOT = Path(__file__).parents[2]
BENCHMARKS = {"tdnnf": 3, "tdnn-lstm": 3, "xvector": 1, "cnn-tdnnf": 3}
"""The networks of benchmarks/networks.py, and the frames for one row of output."""

DIGITS = ROOT / "examples" / "digits"
CHAIN = ROOT / "tests" / "reference" / "chain" / "digits"
USUAL = ("--num-epochs=10", "--minibatch-size=16", "--num-jobs-final=3")
RUNS = {
    "digits-run": (
        *USUAL,
        f"--nnet-config={DIGITS / 'nnet.config'}",
        f"--posteriors=ark:{DIGITS / 'train60.post'}",
    ),
    "chain-run": (
        *USUAL,
        f"--nnet={CHAIN / 'initial.raw'}",
        f"--supervisions=ark:{CHAIN / 'sup.ark'}",
        f"--den-fst={CHAIN / 'den.fst'}",
        "--frame-subsampling-factor=3",
        "--frames-per-example=30",
        "--frames-per-archive=800",
        "--xent-regularize=0.1",
    ),
}
"""Options of nnet3-train-recipe for the runs of training."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = {"phone": 500, "tablet": 820, "desk": 1280}
"""Pixels; Chromium has no narrower window than 500."""

MEASURE = """<script>
document.documentElement.dataset.excess = document.documentElement.scrollWidth - innerWidth;
document.documentElement.dataset.height = document.documentElement.scrollHeight;
</script>"""


def browser() -> str | None:
    """The browser, or None if there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def networks() -> Iterator[tuple[str, Nnet, int]]:
    """The name of each network, the network, and the frames for one row of its output."""
    yield "digits", read_nnet(DIGITS / "final.raw"), 1
    lstm = ROOT / "tests" / "reference" / "network" / "lstmp"
    yield "lstm", read_nnet(next(lstm.glob("*.raw"))), 1
    for name, every in BENCHMARKS.items():
        written = [sys.executable, str(ROOT / "benchmarks" / "networks.py"), name, "--scale=0.25"]
        config = subprocess.run(written, capture_output=True, text=True, check=True).stdout
        yield name, parse_config(config, rng=np.random.default_rng(0)), every


def pages() -> Iterator[tuple[str, Callable[[], str]]]:
    """The name of each page, and what makes it."""
    for name, nnet, every in networks():
        yield name, partial(network_page, name, nnet, every)
    for name, options in RUNS.items():
        yield name, partial(run_page, name, options)


def network_page(name: str, nnet: Nnet, every: int) -> str:
    """The page about a network and a request of training."""
    frames = 200 if pooled_frames(nnet) else 51
    request = usual_request(nnet, frames, 2, every, train=True)
    return report_page(name, nnet, request, timed=True)


def run_page(name: str, options: Sequence[str]) -> str:
    """The page about a run of the recipe on the digits."""
    tool = Path(sys.executable).with_name("nnet3-train-recipe")
    features = f"--features=ark:{DIGITS / 'train60.feats.ark'}"
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        subprocess.run([tool, features, *options, run], check=True, capture_output=True)
        return training_page(name, TrainingRun.read(run))


def shown(program: str, page: Path, width: int, height: int, *options: str) -> str:
    """Opens a page in a window of a size in pixels, and returns what the browser prints.

    Raises:
        subprocess.CalledProcessError: The browser fails.
    """
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    size = f"--window-size={width},{height}"
    with tempfile.TemporaryDirectory() as profile:
        return subprocess.run(
            [*command, f"--user-data-dir={profile}", size, *options, page.resolve().as_uri()],
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def take_pictures(program: str, name: str, page: str, folder: Path) -> None:
    """Writes a page and its pictures.

    Raises:
        AssertionError: It is wider than a window.
    """
    path = folder / f"{name}.html"
    path.write_text(page.replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
    height = 0
    for window, width in WIDTHS.items():
        measured = shown(program, path, width, 800, "--dump-dom")
        excess = re.search(r'data-excess="(-?\d+)"', measured)
        length = re.search(r'data-height="(\d+)"', measured)
        assert excess, f"{path}: the browser did not run the page"
        assert length, f"{path}: the browser did not run the page"
        assert int(excess[1]) <= 0, f"{path}: {excess[1]} pixels wider than a window of {width}"
        height = int(length[1])
        shown(program, path, width, height, f"--screenshot={folder / f'{name}-{window}.png'}")
    dark = "--blink-settings=preferredColorScheme=0"
    picture = f"--screenshot={folder / f'{name}-dark.png'}"
    shown(program, path, WIDTHS["desk"], height, dark, picture)
    path.write_text(page, encoding="utf-8")


def main() -> None:
    """Write pages and pictures of all networks and runs."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", action="append", help="only this one")
    arguments = parser.parse_args()
    program = browser()
    if program is None:
        parser.exit(2, f"there is no browser here ({', '.join(BROWSERS)})\n")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, page in pages():
        if arguments.page and name not in arguments.page:
            continue
        take_pictures(program, name, page(), arguments.folder)
        print(f"{arguments.folder / name}.html, {len(WIDTHS) + 1} pictures")


if __name__ == "__main__":
    main()
