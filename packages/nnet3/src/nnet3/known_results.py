"""What the graph, the compiler and the optimizer made of a network, kept for later processes.

A result that is known needs none of these packages. So whoever makes one imports them where it is
made.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
import nnet3_computation
from nnet3_descriptors import Nnet, Nnet3Error, current_limits
from nnet3_descriptors.forking import GATE
from nnet3_descriptors.structure import NetworkFingerprint

from nnet3.disk_cache import debug, disk_cache, folder_of

_SOURCES: Final = (
    "nnet3",
    "nnet3_compiler",
    "nnet3_computation",
    "nnet3_descriptors",
    "nnet3_graph",
    "nnet3_optimizer",
)
"""The packages that decide results."""


class KnownResults:
    """Results of one network, in the files of a cache.

    The key of a result is a digest of all that it depends on: the structure of the network, the
    request, the options, the limits, and the sources of the packages that make it. Networks with
    components of a class from elsewhere have no results here: nothing tells whether that class has
    changed.

    Attributes:
        nnet: The network.
    """

    def __init__(self, nnet: Nnet, cache_dir: str | os.PathLike[str] | None = None) -> None:
        """Looks for no result yet.

        Args:
            nnet: The network.
            cache_dir: The folder of the cache, see `folder_of`.

        Raises:
            OptionError: `cache_dir` is no path.
        """
        self.nnet = nnet
        self._lock = threading.Lock()
        self._answers: dict[str, Any] = {}
        folder = folder_of(cache_dir)
        self._cache = None if folder is None else disk_cache(folder)

    def computation(
        self,
        request: nnet3_computation.ComputationRequest,
        options: tuple[attrs.AttrsInstance | None, ...],
        make: Callable[[], nnet3_computation.NnetComputation],
    ) -> nnet3_computation.NnetComputation:
        """The computation for a request, from the cache or made and kept there.

        Args:
            request: The request.
            options: The options that it is made with; None for default ones.
            make: Makes it.
        """
        if self._cache is None or not isinstance(request, nnet3_computation.ComputationRequest):
            return make()  # which says what is wrong with another request
        key = self._key("computation", "; ".join(map(_changed, options)), _digest_of(request))
        data = self._read(key)
        if data is not None:
            try:
                found = nnet3_computation.NnetComputation.from_bytes(data)
                found.check_network(self.nnet)
                found.check_request(request)
            except Nnet3Error as error:
                debug(f"a computation of the cache is made again: {error}")
            else:
                return found
        computation = make()
        if key is not None:
            self._cache.write(key, computation.to_bytes())
        return computation

    @property
    def context(self) -> tuple[int, int]:
        """The frames of context to the left and right: `nnet3_graph.compute_context`.

        Raises:
            ContextError: The network has other inputs than 'input' and 'ivector', or no context.
        """

        def context() -> tuple[int, int]:
            from nnet3_graph import compute_context

            return compute_context(self.nnet)

        left, right = self.answer("context", context)
        return left, right

    @property
    def fixed_frame(self) -> str | None:
        """The frame at a fixed time that outputs need, if any: `nnet3_graph.fixed_frame`."""

        def found() -> str | None:
            from nnet3_graph import fixed_frame

            return fixed_frame(self.nnet)

        sentence: str | None = self.answer("fixed frame", found)
        return sentence

    def answer(self, question: str, make: Callable[[], Any]) -> Any:
        """The answer to a question about the network, from the cache or found and kept there.

        Other threads with a question wait for it.

        Args:
            question: Says what is asked.
            make: Finds the answer, a value of JSON.
        """
        with GATE.importing(), self._lock:
            if question not in self._answers:
                self._answers[question] = self._answer(question, make)
            return self._answers[question]

    def _answer(self, question: str, make: Callable[[], Any]) -> Any:
        key = self._key("answer", question)
        data = self._read(key)
        if data is not None:
            return json.loads(data)
        answer = make()
        if self._cache is not None and key is not None:
            self._cache.write(key, json.dumps(answer).encode())
        return answer

    def _read(self, key: str | None) -> bytes | None:
        return None if self._cache is None or key is None else self._cache.read(key)

    def _key(self, *parts: str) -> str | None:
        """The key of a result; None if it can't be kept."""
        if self._cache is None or self._network is None:
            return None
        whole = [self._network, _changed(current_limits()), *parts]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()

    @functools.cached_property
    def _network(self) -> list[str] | None:
        """Says what decides results besides the question; None if that is not known."""
        sources = digest_of_sources()
        modules = {type(component).__module__ for component in self.nnet.components}
        if sources is None or any(not each.startswith("nnet3_descriptors.") for each in modules):
            return None
        fingerprint = NetworkFingerprint.of(self.nnet)
        digests = fingerprint.nodes.tobytes().hex(), fingerprint.components.tobytes().hex()
        return [sources, *digests, *self.nnet.node_names]


def _changed(options: attrs.AttrsInstance | None) -> str:
    """The options that are not the default ones."""
    if options is None:
        return ""
    cls = type(options)
    values = ((field.name, getattr(options, field.name)) for field in attrs.fields(cls))
    default = cls()
    changed = [f"{name}={value!r}" for name, value in values if value != getattr(default, name)]
    return ", ".join(changed)


def _digest_of(request: nnet3_computation.ComputationRequest) -> str:
    """A digest of a request."""
    digest = hashlib.sha256()
    for io in (*request.inputs, *request.outputs):
        head = (io.name, len(io.indexes), io.has_deriv)
        digest.update(json.dumps(head).encode())
        digest.update(io.indexes.astype("<i4", copy=False).tobytes())
    counts = len(request.inputs), request.need_model_derivative, request.store_component_stats
    digest.update(json.dumps(counts).encode())
    return digest.hexdigest()


@functools.cache
def digest_of_sources() -> str | None:
    """A digest of names, sizes and times of the sources of the packages that decide results.

    The number of a version would not do: whoever changes the sources, or installs them anew from a
    repository, seldom changes that. Reading all of them would take ten times as long.

    Returns:
        None if they are no files.
    """
    files: list[tuple[str, int, int]] = []
    for package in _SOURCES:
        spec = importlib.util.find_spec(package)
        folders = (spec and spec.submodule_search_locations) or ()
        before = len(files)
        try:
            for folder in folders:
                files += _files_of(folder, package)
        except OSError:
            return None
        if len(files) == before:
            return None
    return hashlib.sha256(json.dumps(sorted(files)).encode()).hexdigest()


def _files_of(folder: str, name: str) -> Iterator[tuple[str, int, int]]:
    """The Python files in a folder and below: name, size, and time of the last change."""
    with os.scandir(folder) as entries:
        for entry in entries:
            inner = f"{name}/{entry.name}"
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield inner, status.st_size, status.st_mtime_ns
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _files_of(entry.path, inner)
