"""The types of arrays over cindexes."""

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
IdArray = npt.NDArray[np.int32]
