"""Which kernels ran, as far as the profile's names tell: for engines that do not report kernels.

XNNPACK names an operator by its layout, the types of what it multiplies and the kind of its kernel:
``Fully Connected (NC, PF32) GEMM #1 @0``. Types that begin with P (PF16, PF32, PQS8) and QP8 are packed for KleidiAI;
XNNPACK's own kernels take all others (F32, F16, QD8, QDU8, QS8, QC8). Which kernel of that family ran is not in the
name: it depends on the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from deploy.run.runner import Kernel, ProfileRow, RunnerResult

FROM_PROFILE = "profile"
"""`Kernel.known` of what is found here."""

_NODE = re.compile(r"^(?:[A-Z][\w-]* ?)+ \((?:NC|NHWC|NCHW), (?P<types>[A-Z0-9, ]+)\) (?P<kind>I?GEMM|DWConv)\b")
_PACKED = re.compile(r"^(P[A-Z]+[0-9]+|QP8)$")


def completed(result: RunnerResult) -> RunnerResult:
    """``result`` with kernels, as far as its profile names them; as it is if the engine reported kernels itself."""
    if result.kernels:
        return result
    return result.model_copy(update={"kernels": named_kernels(result.profile)})


def named_kernels(profile: Iterable[ProfileRow]) -> tuple[Kernel, ...]:
    """A `Kernel` for each matrix product, linear layer and convolution of ``profile``, in its order."""
    found = []
    for row in profile:
        match = _NODE.match(row.name)
        if match:
            types = match["types"].split(", ")
            found.append(
                Kernel(
                    node=row.name.partition(" @")[0],
                    kernel=f"{'_'.join(types).lower()}_{match['kind'].lower()}_*",
                    library="KleidiAI" if _PACKED.match(types[0]) else "XNNPACK",
                    feature="",
                    known=FROM_PROFILE,
                )
            )
    return tuple(found)
