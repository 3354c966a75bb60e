"""Whether numbers are noise from a generator, or real. With NumPy, without torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_LEAST = 256  # elements; below, numbers may look like anything
_SIGMAS = 5.0  # a generator's numbers are further away once in two million


def is_noise(array: Any) -> bool:
    """Whether ``array`` looks like ``torch.randn``, ``torch.rand``, or one number everywhere.

    Pictures, sounds and other real numbers fail at once: neighbours resemble each other, or mean and spread are others.
    """
    if array.dtype.kind != "f" or array.size < _LEAST:
        return False
    numbers = array.astype(np.float64).ravel()
    if not np.isfinite(numbers).all():
        return False
    low, high, mean, spread = numbers.min(), numbers.max(), numbers.mean(), numbers.std()
    if low == high:
        return True
    unit = _SIGMAS / math.sqrt(numbers.size)
    neighbours = float(np.mean((numbers[1:] - mean) * (numbers[:-1] - mean))) / spread**2
    if abs(neighbours) > unit:
        return False
    normal = abs(mean) < unit and abs(spread - 1) < unit / math.sqrt(2)
    even = math.sqrt(1 / 12)
    uniform = low >= 0 and high <= 1 and abs(mean - 0.5) < unit * even and abs(spread - even) < unit * even
    return bool(normal or uniform)
