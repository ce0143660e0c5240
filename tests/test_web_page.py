"""The page of examples/digits/web recognises digits in a browser, as Kaldi does.

npm installs ONNX Runtime Web, and a headless Chromium loads the page.
"""

import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import nnet3
import numpy as np
import pytest
from nnet3_tables import read_table
from reference_cases import ROOT

DIGITS = ROOT / "examples" / "digits"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page, as build.py makes it."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, DIGITS / "web" / "build.py", folder], check=True)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


def page(address: str, folder: Path) -> str:
    """The page's HTML after all computations."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
    command = [CHROMIUM, *options, "--virtual-time-budget=60000", "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("number", [0, 17, 39])
def test_a_browser_recognises_digits(site: str, tmp_path: Path, number: int) -> None:
    """The recognised word is right, and the log-posteriors are those of the runtime."""
    key, features = list(read_table(f"ark:{DIGITS / 'test.feats.ark'}"))[number]
    expected = nnet3.load(DIGITS / "final.raw").compute(features)

    shown = page(f"{site}?utterance={key}", tmp_path)

    found = re.search(r'<span id="word" class="right">(\w+)</span>', shown)
    assert found is not None, shown
    assert found[1] == key.rpartition("-")[2]
    posteriors = re.search(r'data-posteriors="([^"]+)"', shown)
    assert posteriors is not None
    actual = json.loads(html.unescape(posteriors[1]))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-3)  # features have four decimals


def test_an_error_is_shown(site: str, tmp_path: Path) -> None:
    """The page shows errors."""
    shown = page(f"{site}?utterance=nobody", tmp_path)

    assert re.search(r'<span id="word" class="wrong">error: [^<]*nobody', shown), shown
