"""Kills a training process again and again, and resumes it from its last checkpoint.

    python tests/killed_training.py --kills 50

The process writes a checkpoint after every minibatch, and is killed at random moments (SIGKILL).
The last checkpoint must equal, byte for byte, that of an uninterrupted run.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from example_cases import noise
from nnet3_descriptors import parse_config
from nnet3_training import Trainer, TrainerOptions, TrainingExample

LONGEST_LIFE = 0.2
"""The longest time in seconds that a process trains before it is killed."""

NETWORK = """
input-node name=input dim=20
component name=a type=NaturalGradientAffineComponent input-dim=40 output-dim=64
component name=r type=RectifiedLinearComponent dim=64 self-repair-scale=0.01
component name=n type=BatchNormComponent dim=64
component name=d type=DropoutComponent dim=64 dropout-proportion=0.1
component name=l type=LinearComponent input-dim=64 output-dim=16 orthonormal-constraint=-1.0
component name=b type=NaturalGradientAffineComponent input-dim=16 output-dim=5
component-node name=a component=a input=Append(Offset(input, -1), input)
component-node name=r component=r input=a
component-node name=n component=n input=r
component-node name=d component=d input=n
component-node name=l component=l input=d
component-node name=b component=b input=l
output-node name=output input=b objective=quadratic
"""


def minibatch(number: int) -> TrainingExample:
    """The minibatch of this number: frames of noise that depends on the number."""
    return noise(number, 16, (20, 5), sequences=4, context=1)


def train(path: Path, count: int) -> None:
    """Trains up to `count` minibatches, from a checkpoint if any; writes one after each."""
    if path.exists():
        trainer = Trainer.load(path)
    else:
        nnet = parse_config(NETWORK, rng=np.random.default_rng(1))
        trainer = Trainer(nnet, TrainerOptions(learning_rate=0.01, momentum=0.5, seed=7))
    print("training", flush=True)
    while trainer.num_minibatches < count:
        trainer.train_minibatch(minibatch(trainer.num_minibatches))
        trainer.save(path)


def child(path: Path, count: int) -> subprocess.Popen[str]:
    """A process that runs `train`, once it has begun to train."""
    command = [sys.executable, __file__, "--child", str(path), "--count", str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def train_with_kills(path: Path, count: int, kills: int, seed: int) -> tuple[int, int]:
    """Trains in processes that are killed, and in one more that ends the run.

    Returns:
        The number of processes killed before the end of the run, and the number of those killed
        while writing a checkpoint.
    """
    rng = random.Random(seed)
    killed = writing = 0
    for _ in range(kills):
        process = child(path, count)
        time.sleep(rng.uniform(0.0, LONGEST_LIFE))
        process.kill()
        process.communicate()
        if process.returncode == 0:
            break
        killed += 1
        writing += any(path.parent.glob("*tmp"))
    process = child(path, count)
    process.communicate()
    assert process.returncode == 0
    return killed, writing


def main() -> None:
    """Kills a training process, resumes it, and compares the bytes of its last checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="how often the process is killed")
    parser.add_argument("--count", type=int, default=2000, help="minibatches of the whole run")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--child", type=Path, help="train, with this checkpoint")
    arguments = parser.parse_args()
    count = arguments.count
    if arguments.child is not None:
        train(arguments.child, count)
        return
    with tempfile.TemporaryDirectory() as name:
        whole, interrupted = Path(name, "whole"), Path(name, "interrupted")
        train(whole, count)
        killed, writing = train_with_kills(interrupted, count, arguments.kills, arguments.seed)
        same = whole.read_bytes() == interrupted.read_bytes()
    print(
        f"{killed} kills, {writing} of them within a checkpoint: "
        f"the bytes after {count} minibatches are {'the same' if same else 'OTHERS'}"
    )
    sys.exit(not same)


if __name__ == "__main__":
    main()
