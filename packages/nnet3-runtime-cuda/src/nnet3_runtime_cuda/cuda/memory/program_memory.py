"""The memory of one program: taken when all of it is known, given back with the program."""

from __future__ import annotations

from nnet3_computation.computation import NnetComputation

from nnet3_runtime_cuda.cuda.memory.budget import check_fits
from nnet3_runtime_cuda.cuda.memory.shadow_memory import Region, ShadowMemory
from nnet3_runtime_cuda.cuda.platform.platform import ALIGNMENT
from nnet3_runtime_cuda.operations import Array


class ProgramMemory(ShadowMemory):
    """Matrices, working memory and workspace of a program, beside the memory of its network.

    Arrays that hold data (parameters, tables, statistics) are adopted by the network's memory, as
    other programs use them too. Only `commit` allocates reserved memory. So the need of a program
    is known before it takes any.
    """

    def __init__(self, network: ShadowMemory) -> None:
        """Memory for a program with a network whose memory is `network`."""
        super().__init__(network.platform)
        self._network = network
        self._planned: list[tuple[Region, bool]] = []

    @property
    def planned_bytes(self) -> int:
        """The bytes that `commit` will allocate."""
        return sum(_padded(region.nbytes) for region, _ in self._planned)

    def place(self, memory: Array, *, zeroed: bool = False) -> Region:
        """Gives host memory, (bytes,) uint8, a region that has no address on the device yet."""
        region = Region.of(memory, 0)
        self._planned.append((region, zeroed))
        return self.insert(region)

    def adopt(self, array: Array) -> None:
        """Makes sure that an array is on the device, with its data."""
        if self.find(array) is None:
            self._network.adopt(array)

    def address(self, pointer: int) -> int:
        """The address on the device for an address of the shadow."""
        region = self.find_address(pointer)
        if region is None:
            return self._network.address(pointer)
        assert region.device, "memory has addresses once it is committed"
        return region.device + pointer - region.shadow

    def commit(self, computation: NnetComputation | None = None) -> None:
        """Allocates all reserved memory, in one piece.

        Args:
            computation: The computation, so that an error can name the minibatch that would fit.

        Raises:
            DeviceMemoryError: there is not enough memory; nothing is allocated then.
        """
        size = self.planned_bytes
        if size == 0:
            return
        if computation is not None:
            padding = ALIGNMENT * len(self._planned)
            check_fits(size, self.platform.properties, computation, fixed_bytes=padding)
        at = self.allocate(size)
        for region, zeroed in self._planned:
            region.device = at
            if zeroed:
                self.platform.clear(at, region.nbytes)
            at += _padded(region.nbytes)
        self._planned = []


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
