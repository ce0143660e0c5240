"""Processes that are forked while their threads compute."""

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager

import pytest
from nnet3_descriptors.forking import ForkGate
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


def test_ctrl_c_at_the_gate() -> None:
    """A thread that Ctrl-C interrupts as it comes in is not within: forks do not wait for it."""
    gate = ForkGate()
    lock = gate._lock

    class Interrupted(AbstractContextManager[None]):
        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()
            gate._lock = lock
            raise KeyboardInterrupt

    gate._lock = Interrupted()
    with pytest.raises(KeyboardInterrupt), gate.importing():
        pass

    assert not gate._within


IN_USE = """
import contextlib, importlib, importlib.util, os, signal, sys, threading, time, warnings
import numpy as np
import nnet3_graph, nnet3_runtime_cuda, nnet3_speech
import nnet3.batches.larger_chunks, nnet3.model
from nnet3_descriptors import Nnet3Error, parse_config

warnings.simplefilter("ignore")
slow, use = sys.argv[1:]
model = nnet3.Model(parse_config('''
input-node name=input dim=2
component name=a type=AffineComponent input-dim=4 output-dim=2
component-node name=a component=a input=Append(Offset(input, -1), input)
output-node name=output input=a
'''), cache_dir="")
frames = np.zeros((65, 2), np.float32)
is_in_use = threading.Event()

def slowly(call, *arguments):
    if not is_in_use.is_set():
        is_in_use.set()
        time.sleep(1)
    return call(*arguments)

class Finder:
    def find_spec(self, name, path, target=None):
        if name == slow:
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: slowly(execute, module)
            return spec

module, _, name = slow.partition(":")
if name:
    module = sys.modules[module]
    call = getattr(module, name)
    setattr(module, name, lambda *arguments: slowly(call, *arguments))
else:
    sys.meta_path.insert(0, Finder())

def run():
    with contextlib.suppress(Nnet3Error):
        eval(use)

worker = threading.Thread(target=run)
worker.start()
is_in_use.wait()
child = os.fork()
if not child:
    signal.alarm(20)  # a child that hangs is killed
    run()
    os._exit(0)
status = os.waitpid(child, 0)[1]
worker.join()
print(status)
"""


@pytest.mark.parametrize(
    ("slow", "use"),
    [
        ("nnet3.streams.stream", "model.stream()"),
        ("nnet3_runtime_cuda.tracing.tracer", "nnet3_runtime_cuda.Tracer"),
        (
            "kaldi_native_fbank",
            "nnet3_speech.FeatureExtractor(nnet3_speech.MfccOptions()).stream(16000)",
        ),
        ("nnet3.model:pipeline_of", "model.feature_pipeline()"),
        ("nnet3.model:labels_of", "model.labels"),
        ("nnet3.model:set_test_mode", "model.compute(frames, output='input')"),
        (
            "nnet3.batches.larger_chunks:request_of",
            "list(model.compute_many([('a', frames)], frames_per_chunk=30))",
        ),
        ("nnet3_graph:build_computation_graph", "model.check_xvector()"),
    ],
)
def test_forked_while_a_thread_makes_something(slow: str, use: str) -> None:
    """A fork waits until other threads have imported or made what they use for the first time."""
    command = [sys.executable, "-c", IN_USE, slow, use]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert (run.stdout, run.stderr) == ("0\n", "")
