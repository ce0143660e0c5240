"""The time of speech from samples to outputs, part by part, as a share of the recording's length.

    OPENBLAS_NUM_THREADS=1 python benchmarks/speech.py FOLDER WAV...
    OPENBLAS_NUM_THREADS=1 python benchmarks/speech.py --peer=vosk FOLDER WAV...
    OPENBLAS_NUM_THREADS=1 python benchmarks/speech.py --kaldi=BIN FOLDER WAV...
    OPENBLAS_NUM_THREADS=1 python benchmarks/speech.py --hours 1 FOLDER WAV

The recordings are joined, and repeated until they last a minute. "features" and "i-vectors" are
those of the whole; "network" is `Model.compute` with them; "whole" is all three from samples;
"stream" is an audio stream that gets 0.2 s at a time. All are processor time of the process, the
least of three runs, divided by the length: real-time factors. Loading and compiling are done
before, and are printed alone.

With `--peer=vosk`, the package `vosk` decodes the same samples to words, 0.2 s at a time, in a
process of its own: its time is that of the whole recogniser. The largest memory of each process,
and what it has after loading, stand beside.

With `--kaldi`, the tools for features, i-vectors and outputs run in turn with those of Kaldi in the
folder BIN, on one minute and on four: the difference of the processor times, the least of three,
divided by three minutes. FOLDER is one of Vosk's with `am`, `conf` and `ivector`.

With `--hours`, a stream gets this many hours, and the benchmark prints the largest memory of the
process so far after each tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np

os.environ.setdefault("NNET3_CACHE_DIR", "")  # compiling is timed, too

PIECE = 0.2
"""Seconds of a push."""

VOSK = """
import json, resource, sys, time, vosk
vosk.SetLogLevel(-1)
start = time.process_time()
model = vosk.Model(sys.argv[1])
loading = time.process_time() - start
loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data, rate, piece = open(sys.argv[2], "rb").read(), float(sys.argv[3]), int(sys.argv[4])
times = []
for _ in range(3):
    recognizer = vosk.KaldiRecognizer(model, rate)
    start = time.process_time()
    for begin in range(0, len(data), piece):
        recognizer.AcceptWaveform(data[begin : begin + piece])
    recognizer.FinalResult()
    times.append(time.process_time() - start)
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([loading, min(times), loaded, most]))
"""
"""A process that has Vosk decode 16-bit samples from a file."""


def memory() -> float:
    """The largest memory of the process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def least(call: Callable[[], object]) -> float:
    """Processor time of a call in seconds, the least of three."""
    times = []
    for _ in range(3):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def parts(folder: str, samples: np.ndarray, rate: int) -> None:
    """Prints the real-time factor of each part."""
    import nnet3

    seconds = len(samples) / rate
    start = time.process_time()
    model = nnet3.load(folder)
    pipeline = model.feature_pipeline()
    loading = time.process_time() - start
    found = model.features((samples, rate))
    model.compute(found.features, **ivectors_of(found))
    stream(model, samples, rate)
    loaded = memory()
    extractor, ivectors = pipeline.extractor, pipeline.ivectors
    features = extractor.compute(samples, rate)
    rows = {
        "features": lambda: extractor.compute(samples, rate),
        "i-vectors": lambda: ivectors and ivectors.compute(features),
        "network": lambda: model.compute(found.features, **ivectors_of(found)),
        "whole": lambda: model.compute((samples, rate)),
        "stream": lambda: stream(model, samples, rate),
    }
    print(f"{seconds:.0f} s of recordings; loading {loading:.2f} s, compiling", end=" ")
    print(f"{model.compile_seconds:.2f} s, both processor time")
    print(f"{'part':12} {'real-time factor':>16}")
    for name, call in rows.items():
        print(f"{name:12} {least(call) / seconds:16.4f}", flush=True)
    print(f"largest memory: {loaded:.0f} MB after a first run, {memory():.0f} MB in all")


def ivectors_of(found: object) -> dict[str, object]:
    """The keywords of `Model.compute` for the i-vectors of a recording."""
    return {
        "online_ivectors": found.online_ivectors,
        "online_ivector_period": found.ivector_period,
    }


def stream(model: object, samples: np.ndarray, rate: int) -> None:
    """Pushes a recording to a stream, piece by piece."""
    audio = model.audio_stream(rate)
    step = int(PIECE * rate)
    for begin in range(0, len(samples), step):
        audio.push(samples[begin : begin + step])
    audio.finish()


def vosk(folder: str, samples: np.ndarray, rate: int) -> None:
    """Prints the time and memory of Vosk."""
    with tempfile.TemporaryDirectory() as scratch:
        pcm = Path(scratch) / "samples"
        pcm.write_bytes(samples.astype("<i2").tobytes())
        command = [sys.executable, "-c", VOSK, folder, pcm, rate, 2 * int(PIECE * rate)]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"Vosk failed: {done.stderr.strip().splitlines()[-1:]}")
    loading, decoding, loaded, most = json.loads(done.stdout.splitlines()[-1])
    print(f"vosk, words  {decoding * rate / len(samples):16.4f}")
    print(
        f"vosk: loading {loading:.2f} s; largest memory: {loaded / 1024:.0f} MB after loading,",
        end=" ",
    )
    print(f"{most / 1024:.0f} MB in all")


def kaldi(folder: Path, wav: Path, binaries: Path) -> None:
    """Prints the real-time factors of three tools of ours and of Kaldi's."""
    ours, scratch = Path(sys.executable).parent, wav.parent
    options = (folder / "conf" / "mfcc.conf").read_text().splitlines()
    (scratch / "mfcc.conf").write_text("\n".join(o for o in options if "allow" not in o))
    ivector = folder / "ivector"
    extractor = (
        f"--splice-config={ivector}/splice.conf --cmvn-config={ivector}/online_cmvn.conf "
        f"--lda-matrix={ivector}/final.mat --global-cmvn-stats={ivector}/global_cmvn.stats "
        f"--diag-ubm={ivector}/final.dubm --ivector-extractor={ivector}/final.ie --max-count=100"
    )
    commands = (
        "compute-mfcc-feats --dither=0 --config=mfcc.conf scp:{n}.scp ark:mfcc",
        f"ivector-extract-online2 {extractor} ark:{{n}}.spk ark:mfcc ark:ivectors",
        "nnet3-compute --frame-subsampling-factor=3 --frames-per-chunk=51 "
        "--online-ivectors=ark:ivectors --online-ivector-period=10 "
        f"{folder}/am/final.mdl ark:mfcc ark:outputs",
    )
    least: dict[tuple[Path, int, str], float] = {}
    for n in 1, 4:
        (scratch / f"{n}.scp").write_text("".join(f"u{i} {wav}\n" for i in range(n)))
        (scratch / f"{n}.spk").write_text("".join(f"u{i} u{i}\n" for i in range(n)))
    for _ in range(3):
        for place in binaries, ours:
            for n in 1, 4:
                for command in commands:
                    tool, *arguments = command.format(n=n).split()
                    before = os.times()
                    subprocess.run([place / tool, *arguments], cwd=scratch, check=True)
                    after = os.times()
                    taken = after[2] + after[3] - before[2] - before[3]
                    key = place, n, tool
                    least[key] = min(taken, least.get(key, taken))
    print(f"{'tool':24} {'Kaldi':>8} {'here':>8} {'ratio':>6}")
    sums = [0.0, 0.0]
    for command in commands:
        tool = command.split()[0]
        found = [(least[p, 4, tool] - least[p, 1, tool]) / 180.0 for p in (binaries, ours)]
        sums = [a + b for a, b in zip(sums, found, strict=True)]
        print(f"{tool:24} {found[0]:8.5f} {found[1]:8.5f} {found[1] / found[0]:6.2f}")
    print(f"{'together':24} {sums[0]:8.5f} {sums[1]:8.5f} {sums[1] / sums[0]:6.2f}")


def long_audio(folder: str, samples: np.ndarray, rate: int, hours: float) -> None:
    """Prints the largest memory while a stream gets hours of audio."""
    import nnet3

    model = nnet3.load(folder)
    audio = model.audio_stream(rate)
    step, total, given, rows, tenth = int(PIECE * rate), int(hours * 3600 * rate), 0, 0, 1
    print(f"{'hours':>8} {'largest memory, MB':>20} {'rows':>10}")
    while given < total:
        begin = given % len(samples)
        piece = samples[begin : begin + step]
        rows += len(audio.push(piece))
        given += len(piece)
        if given * 10 >= tenth * total:
            print(f"{given / rate / 3600:8.2f} {memory():20.1f} {rows:10}", flush=True)
            tenth += 1
    rows += len(audio.finish())


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("recordings", nargs="+")
    parser.add_argument("--peer", choices=["vosk"])
    parser.add_argument("--kaldi", type=Path)
    parser.add_argument("--hours", type=float, default=0.0)
    options = parser.parse_args()
    from nnet3_speech import read_wav

    found = [read_wav(path) for path in options.recordings]
    rate = found[0].rate
    joined = np.concatenate([recording.samples[0] for recording in found])
    samples = np.tile(joined, -(-60 * rate // len(joined)))[: 60 * rate]
    if options.hours:
        long_audio(options.folder, samples, rate, options.hours)
        return
    if options.kaldi:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "minute.wav"
            with wave.open(str(path), "wb") as file:
                file.setparams((1, 2, rate, 0, "NONE", ""))
                file.writeframes(samples.astype("<i2").tobytes())
            kaldi(Path(options.folder).absolute(), path, options.kaldi)
        return
    parts(options.folder, samples, rate)
    if options.peer:
        vosk(options.folder, samples, rate)


if __name__ == "__main__":
    main()
