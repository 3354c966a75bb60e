"""Outputs against the reference: every element, NaN and infinity included, with figures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from core.errors import ProgramError
from core.files import sha256_bytes
from core.formats.program import ENDLESS, Tolerance
from deploy.run.npy import BFLOAT16, Array, load, widen


def suspect(file: Path, got: Array, want: Array) -> tuple[str, float]:
    """The layer whose pattern explains most of the differences, of those beyond their limits; empty: there is none.

    Args:
        file: `core.formats.program.Layers.file`.
        got: the output, flat, float64, all numbers finite.

    Returns:
        What it seems to do, and how much of the differences' power its pattern explains, 0 to 1.

    Raises:
        ProgramError: the file is missing, or does not fit the output.
    """
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            names, elements, limits = arrays["names"], arrays["elements"], arrays["limits"]
            moves = arrays["moves"].astype(np.float64) * arrays["scale"].astype(np.float64)[:, None]
        far = got[elements] - want[elements]
        power = np.square(moves).sum(axis=1)
        gains = moves @ far / power
        beyond = np.abs(gains) > limits
    except Exception as error:  # whatever a damaged archive lets NumPy raise
        raise ProgramError(
            f"{file} does not fit its program.", f"{type(error).__name__}: {error}", "export it again with --force"
        ) from error
    if not beyond.any():
        return "", 0.0
    explained = np.where(beyond, np.square(gains) * power, -1.0)
    worst = int(explained.argmax())
    seems = f"as if {names[worst]} gave {1 + gains[worst]:.4f} times what it should"
    return f"{seems}, and rounding does 1 ± {limits[worst]:.2g}", float(explained[worst] / np.square(far).sum())


DEFAULTS = {
    "float64": Tolerance(atol=1e-9, rtol=1e-9, why="default for float64"),
    "float32": Tolerance(atol=1e-5, rtol=1e-5, why="default for float32"),
    "float16": Tolerance(atol=1e-2, rtol=1e-2, why="default for float16"),
    BFLOAT16: Tolerance(atol=2e-2, rtol=2e-2, why="default for bfloat16"),
    "complex64": Tolerance(atol=1e-5, rtol=1e-5, why="default for complex64"),
    "complex128": Tolerance(atol=1e-9, rtol=1e-9, why="default for complex128"),
}
"""For references that come without a ``program.json``; any other dtype must be equal."""

EXACT = Tolerance(atol=0.0, rtol=0.0, why="exact")

Verdict = Literal["identical", "agrees", "differs", "no reference"]


class Kept(BaseModel):
    """What JSON files of results and matrices keep; infinities and NaN as texts."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Comparison(Kept):
    """One output against its reference. Errors are ``None`` if they are not numbers."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    verdict: Verdict
    max_abs: float | None = None
    """Largest absolute difference; infinite where one side alone is NaN or infinite."""
    max_rel: float | None = None
    """Largest difference relative to the reference's value, where that is not 0."""
    different: int = 0
    """Elements whose bits differ."""
    outside: int = 0
    """Elements outside the tolerance."""
    elements: int = 0
    tolerance: Tolerance | None = None
    why: str = ""
    """Why it differs in other ways than by numbers: another shape or dtype."""
    exact_abs: float | None = None
    """Largest absolute difference from what float64 gives, where the export knows that."""
    right: bool = False
    """Whether it differs from the reference and agrees with float64, which decides."""

    @property
    def truth(self) -> str:
        """Who is nearer to float64, the device or the reference, where that matters and is known; else empty."""
        known = self.tolerance.exact if self.tolerance else None
        if known is None:
            return ""
        if self.exact_abs is None or not (self.right or self.verdict == "differs"):
            return f"the reference is {known.error:.3g} away from float64, more than its tolerance" if known.far else ""
        who = "this result is nearer" if self.exact_abs < known.error else "the reference is nearer"
        return f"{who} to float64: the largest error is {self.exact_abs:.3g} here, {known.error:.3g} in the reference"


def digest(array: Array) -> str:
    """SHA-256 of the elements' bytes, row-major and little-endian."""
    return sha256_bytes(array.tobytes())


def unreferenced(name: str, got: Path) -> Comparison:
    """An output without a counterpart."""
    dtype, array = load(got)
    return Comparison(name=name, dtype=dtype, shape=array.shape, verdict="no reference", elements=array.size)


def compare(name: str, got: Path, want: Path, tolerance: Tolerance | None = None) -> Comparison:
    """Output ``got`` against the reference ``want``: within ``|got - want| <= atol + rtol * |want|`` everywhere.

    NaN agrees with NaN, an infinity with itself; anything else opposite to them is outside every tolerance. So is an
    output whose differences are small but many, if the tolerance says how large their root mean square may be, or
    that follow the pattern of a layer that gives too much, if there are patterns beside ``want``.

    If there is also what float64 gives, that decides: an output which is so near to it is right, whatever the export's
    reference says.

    Raises:
        ProgramError: a file beside the reference is missing or does not fit.
    """
    dtype, ours = load(got)
    expected_dtype, theirs = load(want)
    allowed = tolerance or DEFAULTS.get(expected_dtype, EXACT)
    common: dict[str, Any] = {
        "name": name, "dtype": dtype, "shape": ours.shape, "elements": ours.size, "tolerance": allowed,
    }  # fmt: skip
    other = f"dtype {dtype}, reference {expected_dtype}" if dtype != expected_dtype else ""
    if ours.shape != theirs.shape:
        other = other or f"shape {list(ours.shape)}, reference {list(theirs.shape)}"
    if other:
        return Comparison(**common, verdict="differs", outside=ours.size, why=other)
    changed = _bits(ours) != _bits(theirs)
    different = int(np.count_nonzero(changed.any(axis=-1))) if ours.size else 0
    if different == 0:
        return Comparison(**common, verdict="identical", max_abs=0.0, max_rel=0.0)
    found = _judged(widen(dtype, ours), widen(dtype, theirs), want.parent, allowed)
    exact_abs, right = None, False
    if allowed.exact:
        truth = _exact(want.parent / allowed.exact.file, ours.shape)
        decided = _judged(widen(dtype, ours), truth, want.parent, allowed)
        # The reference is as near as the export measured, or these are other numbers, which float64 is not asked about.
        off = _judged(widen(dtype, theirs), truth, want.parent, allowed).max_abs
        same = min(off, ENDLESS) <= allowed.exact.error * (1 + 1e-6)
        exact_abs, right = decided.max_abs, found.differs and not decided.differs and same
    if right:
        found = found._replace(outside=0, why="")
    return Comparison(
        **common,
        **found._asdict(),
        verdict="differs" if found.differs else "agrees",
        different=different,
        exact_abs=exact_abs,
        right=right,
    )


class _Judged(NamedTuple):
    """An output beside numbers that it should be."""

    max_abs: float
    max_rel: float
    outside: int
    why: str
    """What all elements together do that rounding does not."""

    @property
    def differs(self) -> bool:
        return bool(self.outside or self.why)


def _judged(ours: Array, theirs: Array, folder: Path, allowed: Tolerance) -> _Judged:
    error, reference = _differences(ours, theirs)
    with np.errstate(all="ignore"):
        outside = ~(error <= allowed.atol + allowed.rtol * np.abs(reference))
        relative = np.where(reference != 0, error / np.abs(reference), 0.0)
    count = int(np.count_nonzero(outside))
    return _Judged(float(error.max()), float(relative.max()), count, _together(ours, theirs, folder, allowed, count))


def _exact(file: Path, shape: tuple[int, ...]) -> Array:
    """What float64 gives, beside the reference.

    Raises:
        ProgramError: the file is missing, or does not fit the output.
    """
    again = "export it again with --force"
    if not file.is_file():
        raise ProgramError(f"{file} is missing.", "a reference file was removed", again)
    array = load(file)[1]
    if array.shape != shape:
        raise ProgramError(f"{file} does not fit its program.", f"it has the shape {list(array.shape)}", again)
    return array


_CLEAR = 0.5
"""The share of the differences that one layer's pattern must explain to be named beside elements that are outside."""


def _together(ours: Array, theirs: Array, folder: Path, allowed: Tolerance, outside: int) -> str:
    """What all elements together do that rounding does not: many small differences, or one direction; or empty."""
    if allowed.rms is None and allowed.gain is None and allowed.layers is None:
        return ""
    # An infinity agrees with itself only, and was looked at before.
    got, want = (np.nan_to_num(_parts(array), posinf=0.0, neginf=0.0) for array in (ours, theirs))
    layer, share = suspect(folder / allowed.layers.file, got, want) if allowed.layers else ("", 0.0)
    if outside:
        return layer if share > _CLEAR else ""
    with np.errstate(all="ignore"):
        rms = float(np.sqrt(np.mean(np.square(got - want))))
        power = float(np.dot(want, want))
        gain = float(np.dot(got - want, want)) / power if power else 0.0
    found = [layer] if layer else []
    if allowed.rms is not None and rms > allowed.rms:
        found.append(f"the root mean square of the differences is {rms:.3g}, beyond the {allowed.rms:.3g} of rounding")
    elif allowed.gain is not None and abs(gain) > allowed.gain:
        found.append(f"all together are {1 + gain:.5g} times the reference, beyond rounding's 1 ± {allowed.gain:.2g}")
    return f"no element is outside {allowed.atol:.3g}, but {'; '.join(reversed(found))}" if found else ""


def _bits(array: Array) -> Array:
    """Elements as rows of bytes."""
    return np.frombuffer(array.tobytes(), np.uint8).reshape(array.size, array.dtype.itemsize)


def _parts(array: Array) -> Array:
    """Flat, in float64; of complex numbers both parts."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128).ravel().view(np.float64)
    return array.astype(np.float64).ravel()


def _differences(ours: Array, theirs: Array) -> tuple[Array, Array]:
    """Absolute differences (infinite where NaN or infinity stands alone) and the reference, both as float64."""
    if ours.dtype.kind in "iub":
        # Python's integers: 64-bit ones do not survive float64, and unsigned ones wrap around.
        return np.abs(ours.astype(object) - theirs.astype(object)).astype(np.float64), theirs.astype(np.float64)
    kind = np.complex128 if ours.dtype.kind == "c" else np.float64
    a, b = (array.astype(kind) for array in (ours, theirs))
    with np.errstate(all="ignore"):
        error = np.abs(a - b).astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    error = np.where(same, 0.0, error)
    alone = ~same & ~(np.isfinite(a) & np.isfinite(b))
    return np.where(alone, math.inf, error), np.abs(np.where(np.isfinite(b), b, 0.0)).astype(np.float64)
