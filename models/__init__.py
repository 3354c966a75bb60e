"""Models: the zoo, quantization schemes, export, reference outputs.

Nothing imported here costs more than a few milliseconds; torch comes in only when `models.export` really exports.
"""

from __future__ import annotations

from models.request.current import is_current
from models.zoo import ZooModel, load_zoo

__all__ = ["ZooModel", "is_current", "load_zoo"]
