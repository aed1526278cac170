"""What arrays of NumPy hold, where the number of dimensions is said beside the name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
