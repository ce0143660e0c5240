"""The command lines of Kaldi's tools whose outputs are in `data/kaldi.npz`, by their names there.

Recordings are samples 20000 to 28000 of `data/k2.wav`, as if at the rate given, with --dither=0.
Other tools read the features `input`.
"""

FEATURES = {
    "mfcc": ("compute-mfcc-feats", 16000, "--num-ceps=10"),
    "mfcc_up": (
        "compute-mfcc-feats",
        8000,
        "--allow-upsample=true --high-freq=3700 --energy-floor=1 --frame-shift=20",
    ),
    "mfcc_any_size": (
        "compute-mfcc-feats",
        16000,
        "--round-to-power-of-two=false --window-type=hanning --frame-length=32 --frame-shift=20 "
        "--use-energy=false --htk-compat=true --cepstral-lifter=0",
    ),
    "fbank_down": (
        "compute-fbank-feats",
        44100,
        "--allow-downsample=true --snip-edges=false --num-mel-bins=20 --low-freq=50",
    ),
    "fbank_energy": (
        "compute-fbank-feats",
        8000,
        "--sample-frequency=8000 --snip-edges=false --use-energy=true --raw-energy=false "
        "--num-mel-bins=15 --frame-shift=20",
    ),
    "fbank_linear": (
        "compute-fbank-feats",
        22050,
        "--sample-frequency=22050 --use-log-fbank=false --use-power=false --window-type=blackman "
        "--blackman-coeff=0.4 --preemphasis-coefficient=0.5 --remove-dc-offset=false",
    ),
}

SLIDING = {
    "sliding": "--cmn-window=60 --min-cmn-window=20",
    "sliding_center": "--cmn-window=41 --min-cmn-window=1 --center=true --norm-vars=true",
    "sliding_short": "--cmn-window=7 --min-cmn-window=30 --norm-vars=true --max-warnings=2",
    "sliding_long": "--center=true",
}

VAD = {
    "vad": "--vad-energy-threshold=2 --vad-frames-context=2 --vad-proportion-threshold=0.6",
    "vad_mean": "--vad-energy-threshold=0 --vad-energy-mean-scale=1",
}

DELTAS = {
    "deltas": "",
    "deltas_long": "--delta-order=3 --delta-window=4 --truncate=2",
}


def options(text: str) -> dict[str, str]:
    """The options of a command line, by their names."""
    return dict(option.removeprefix("--").split("=") for option in text.split())
