"""Facts about a device: read by the probe, kept in every result; and the target that they stand for."""

from __future__ import annotations

from core.errors import NotSupportedError
from core.strict_json import Frozen

_ANDROID = {
    "arm64-v8a": "android-arm64", "armeabi-v7a": "android-armv7", "x86_64": "android-x86_64", "x86": "android-x86",
}  # fmt: skip

_OTHERS = {
    ("Windows", "x86_64"): "windows-x86_64", ("Windows", "i686"): "windows-x86",
    ("Windows", "aarch64"): "windows-arm64",
    ("Darwin", "arm64"): "macos-arm64", ("Darwin", "x86_64"): "macos-x86_64",
}  # fmt: skip
"""By ``uname -s`` and ``uname -m``, or what stands for them."""

_HARD_FLOAT = ("/lib/ld-linux-armhf.so.3", "/lib/ld-musl-armhf.so.1")
_LOADER_64 = ("/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-aarch64.so.1")
_X86_64 = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1")


class DeviceFacts(Frozen):
    """A device's description of itself. Sizes in bytes; versions as texts; unknown values empty or ``None``."""

    system: str
    """``uname -s``: ``Linux``."""
    machine: str
    """``uname -m``: ``aarch64``."""
    kernel: str
    hostname: str = ""
    board: str = ""
    """``Raspberry Pi 4 Model B Rev 1.4``, from the device tree or DMI."""
    cpu: str = ""
    cpu_features: tuple[str, ...] = ()
    cores: int = 1
    android: str = ""
    """Android's release, ``14``; empty on other systems."""
    api_level: int | None = None
    abis: tuple[str, ...] = ()
    """Android's ABIs, the preferred first: ``arm64-v8a``, ``armeabi-v7a``."""
    memory_total: int = 0
    memory_available: int = 0
    """During the probe; 0: unknown."""
    libc: str = ""
    """``glibc``, ``musl``, ``bionic`` or empty."""
    glibc: str = ""
    glibcxx: str = ""
    """Newest GLIBCXX symbol version of the device's libstdc++."""
    loaders: tuple[str, ...] = ()
    """ELF interpreters that exist, of all known ones and the requested one."""
    libraries: tuple[str, ...] = ()
    """Requested libraries that were found."""
    tools: tuple[str, ...] = ()
    """Programs that deploying needs and that were found."""
    home: str = ""
    root: str
    """Absolute folder that Slipway fills on the device."""
    free: int | None = None
    """Bytes that an ordinary user may still write below ``root``."""
    noexec: bool = False
    writable: bool = True
    """Whether ``root``, or the nearest folder above it that exists, may be written to."""


def choose_target(facts: DeviceFacts) -> str:
    """The target for a device: on Android by its list of ABIs, else by its machine, its loaders and its CPU.

    Raises:
        NotSupportedError: the device cannot run any target.
    """
    if facts.abis:
        found = next((_ANDROID[abi] for abi in facts.abis if abi in _ANDROID), "")
        said = f"its ABIs are {', '.join(facts.abis)}"
    else:
        found = _linux(facts) if facts.system == "Linux" else _OTHERS.get((facts.system, facts.machine), "")
        said = f"it is {facts.system} on {facts.machine} with {', '.join(facts.loaders) or 'no known loader'}"
    if not found:
        raise NotSupportedError("No target runs on this device.", said, "./inv targets")
    return found


def _linux(facts: DeviceFacts) -> str:
    """A 64-bit kernel may have a 32-bit system: its loaders show that. Without loaders, static programs run."""
    machine, loaders = facts.machine, set(facts.loaders)
    if machine in {"aarch64", "arm64"}:
        return "linux-armv7" if loaders & set(_HARD_FLOAT) and not loaders & set(_LOADER_64) else "linux-arm64"
    if machine in {"x86_64", "amd64"}:
        return "linux-x86" if "/lib/ld-linux.so.2" in loaders and not loaders & set(_X86_64) else "linux-x86_64"
    if machine in {"i686", "i586"}:
        return "linux-x86"
    if machine in {"armv7l", "armv8l"}:
        # linux-armv7 needs NEON, which a Tegra 2 or an Armada lacks; and a hard-float system, if it is not static.
        return "linux-armv7" if "neon" in facts.cpu_features or "asimd" in facts.cpu_features else "linux-armv6"
    return "linux-armv6" if machine == "armv6l" and "vfp" in facts.cpu_features else ""
