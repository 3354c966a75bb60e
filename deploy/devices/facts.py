"""Facts about a device: read by the probe, kept in every result."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class DeviceFacts(BaseModel):
    """A device's description of itself. Sizes in bytes; versions as texts; unknown values empty or ``None``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    """Whether the file system of ``root`` refuses to run programs."""
    writable: bool = True
    """Whether ``root``, or the nearest folder above it that exists, may be written to."""
