"""Processes that are forked while their threads compute."""

import json
import os
import subprocess
import sys

import pytest
from other_processes import printed_by_python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

SCRIPT = """
import json, os, signal, sys, threading, time, warnings
import numpy as np
from nnet3_descriptors import Nnet3Error, parse_config
from nnet3_descriptors import forking
from nnet3 import Model

warnings.simplefilter("ignore")  # Python itself warns of forks with threads
threads, forks, is_stuck = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "stuck"
model = Model(parse_config('''
input-node name=input dim=20
component name=a type=AffineComponent input-dim=60 output-dim=64
component name=r type=RectifiedLinearComponent dim=64
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=r component=r input=a
output-node name=output input=r
'''), threads=threads)
frames = np.random.default_rng(0).standard_normal((150, 20), dtype=np.float32)
expected = model.compute(frames)
is_over = threading.Event()

def compute():
    number = 0
    while not is_over.is_set():  # every other time another request, to be compiled
        model.compute(frames[: 60 + number % 90], frames_per_chunk=20 + number % 30)
        number += 1

def hang():
    with forking.GATE.unforked():
        is_over.wait()

def result():
    try:
        return int(not np.allclose(model.compute(frames), expected, atol=1e-4))
    except Nnet3Error as error:
        return 2 if "forked while other threads computed" in str(error) else 3

forking.PATIENCE = 0.1 if is_stuck else 60.0
workers = [threading.Thread(target=hang if is_stuck else compute) for _ in range(2)]
for worker in workers:
    worker.start()
statuses = []
for _ in range(forks):
    time.sleep(0.02)
    child = os.fork()
    if not child:
        signal.alarm(60)  # a child that hangs is killed
        os._exit(result())
    statuses.append(os.waitpid(child, 0)[1])
is_over.set()
for worker in workers:
    worker.join()
print(json.dumps(statuses))
"""


def statuses(threads: int, forks: int, what: str) -> list[int]:
    """How forked processes ended: 0 for right results, 512 for a refusal by name."""
    printed = printed_by_python("-c", SCRIPT, str(threads), str(forks), what, timeout=240)
    found: list[int] = json.loads(printed)
    return found


@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_process_computes(threads: int) -> None:
    """Models compute in the new process, in any state of other threads in the old one."""
    assert statuses(threads, 8, "busy") == [0] * 8


def test_a_fork_that_could_not_wait() -> None:
    """If a thread of the old process never ended, the new process refuses to compute."""
    assert statuses(1, 2, "stuck") == [512] * 2


IMPORTING = """
import os, signal, sys, threading, time, warnings
import nnet3_runtime_cuda
import nnet3
from nnet3_descriptors import parse_config

warnings.simplefilter("ignore")
slow, kind = sys.argv[1:]
model = nnet3.Model(parse_config('''
input-node name=input dim=2
component name=a type=AffineComponent input-dim=2 output-dim=2
component-node name=a component=a input=input
output-node name=output input=a
'''))
is_importing = threading.Event()

class Finder:
    def find_spec(self, name, path, target=None):
        if name == slow and not is_importing.is_set():
            is_importing.set()
            time.sleep(1)

sys.meta_path.insert(0, Finder())
use = {"stream": model.stream, "export": lambda: nnet3_runtime_cuda.Tracer}[kind]
worker = threading.Thread(target=use)
worker.start()
is_importing.wait()
child = os.fork()
if not child:
    signal.alarm(20)  # a child that hangs is killed
    use()
    os._exit(0)
status = os.waitpid(child, 0)[1]
worker.join()
print(status)
"""


@pytest.mark.parametrize(
    ("slow", "kind"),
    [
        ("nnet3.streams.stream", "stream"),
        ("nnet3_runtime_cuda.tracing.tracer", "export"),
    ],
)
def test_forked_while_a_thread_imports(slow: str, kind: str) -> None:
    """A fork waits until other threads have imported what they use for the first time."""
    command = [sys.executable, "-c", IMPORTING, slow, kind]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert (run.stdout, run.stderr) == ("0\n", "")
