"""rsync for both ends of a virtual device's link, from Debian's own packages, where it is not installed.

The device gets the program, its loader and its libraries into the bench's folder: its image stays as it is.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from core.errors import HostError
from deploy.devices.inventory import Device
from deploy.transport.base import Transport, run
from deploy.transport.deadline import Deadline
from deploy.virtual.spec import get_spec
from toolchains.debian import packages as debian
from toolchains.debian.host import host_arch
from toolchains.debian.tree import interpreter, library_folders
from toolchains.inspect import needs as inspect

_PROGRAM = "usr/bin/rsync"
_HERE = "bookworm"
"""The suite of this machine's rsync."""


def here() -> list[str]:
    """rsync on this machine; empty when it cannot be had."""
    if found := shutil.which("rsync"):
        return [found]
    try:
        return debian.installed_program(debian.tree(_HERE, host_arch(), ["rsync"], closure=True), _PROGRAM)
    except HostError:
        return []


def there(device: Device, transport: Transport, folder: str) -> str:
    """What ``--rsync-path`` names: the device's own rsync, else one put below ``folder``; empty when there is none."""
    soon = Deadline.after(120)
    if run(transport, ["sh", "-c", "command -v rsync"], deadline=soon, check=False).code == 0:
        return "rsync"
    if not device.virtual:
        return ""
    spec = get_spec(device.virtual)
    root = debian.tree(spec.suite, spec.arch, ["rsync"], closure=True)
    program = root / _PROGRAM
    loader = root / interpreter(program).lstrip("/")
    for file in (program, loader.resolve(), *_libraries(program, library_folders(root))):
        transport.put(file, f"{folder}/{loader.name if file == loader.resolve() else file.name}", lambda _: None, soon)
    run(transport, ["chmod", "755", f"{folder}/{program.name}", f"{folder}/{loader.name}"], deadline=soon)
    return shlex.join([f"{folder}/{loader.name}", "--library-path", folder, f"{folder}/{program.name}"])


def _libraries(program: Path, folders: list[Path]) -> list[Path]:
    """The libraries that ``program`` needs, and what these need."""
    found: dict[str, Path] = {}
    left = [program]
    while left:
        for name in inspect.read(left.pop()).needed:
            file = next((folder / name for folder in folders if (folder / name).is_file()), None)
            if file is not None and name not in found and not name.startswith("ld-"):
                found[name] = file
                left.append(file)
    return list(found.values())
