"""Which operators and backends a selective bundle links, and what it is called."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from core.errors import UsageError
from core.files import sha256_bytes

XNNPACK = "XnnpackBackend"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*::[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)?")
_LONGEST = 48


@dataclass(frozen=True)
class Selection:
    """What some programs need of the engine ``lean``."""

    programs: tuple[str, ...]
    """Names of the programs, for people and for the folder's name."""
    operators: tuple[str, ...]
    backends: tuple[str, ...]
    types: tuple[str, ...] = ()
    """Types that the kernels of delegates compute with (``xnnpack::f32_layers``); empty: all."""

    @property
    def name(self) -> str:
        """What the bundle's folder has after the engine's name: ``mlp-fp32``, or ``a+b``; the same at every build."""
        joined = "+".join(re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "program" for name in self.programs)
        digest = sha256_bytes(joined.encode())[:8]
        return joined if len(joined) <= _LONGEST else f"{joined[: _LONGEST - 9]}-{digest}"

    @property
    def options(self) -> tuple[str, ...]:
        """The recipe's options for it. Neither ``:`` nor ``,`` may be in them."""
        operators = "+".join(name.replace("::", "/") for name in self.operators) or "none"
        backends = "+".join(self.backends) or "none"
        types = "+".join(name.replace("::", "/") for name in self.types) or "all"
        return (f"operators={operators}", f"backends={backends}", f"types={types}")


def select(
    programs: Iterable[str], operators: Iterable[str], backends: Iterable[str], types: Iterable[str] = ()
) -> Selection:
    """The selection for programs that need these operators, backends, and types of their kernels (none: all).

    Raises:
        UsageError: no program is given, or a name in one is not an operator's.
    """
    chosen = Selection(
        tuple(programs), tuple(sorted(set(operators))), tuple(sorted(set(backends))), tuple(sorted(set(types)))
    )
    if not chosen.programs:
        raise UsageError("--ops-from does not name a program.", "", "./inv build --ops-from model.pte")
    strange = [name for name in (*chosen.operators, *chosen.types) if not _NAME.fullmatch(name)]
    if strange:
        raise UsageError(f"{strange[0]!r} is not an operator's name.", "the program is damaged", "export it again")
    return chosen
