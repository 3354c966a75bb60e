"""The table of what works on which host, from the code that decides it and from ``verify/hosts.toml``."""

from __future__ import annotations

import sys
from typing import Literal

from pydantic import BaseModel, ConfigDict

from core.environment import bootstrap, lock
from core.paths import ROOT
from deploy.virtual.spec import load_specs
from toolchains.debian.host import arch_of
from toolchains.targets import load_targets
from toolchains.tools import table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DATA = ROOT / "verify" / "hosts.toml"

_SEEN = {"run": "run", "parts": "checked in parts", "no": "not run"}
_HEAD = (
    "host",
    "builds with zig",
    "Debian's archive",
    "exports",
    "emulators, virtual devices",
    "Wine",
    "SSH",
    "adb",
    "seen",
)


class Host(BaseModel):
    """One row; the fields are explained at the head of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    system: str
    machine: str
    python: str
    apt: bool
    mirror: str
    seen: Literal["run", "parts", "no"]
    what: str

    @property
    def refused(self) -> bool:
        """Whether ``./inv`` refuses it at the front door."""
        return bootstrap.unsupported(self.system, self.machine, self.python) is not None

    @property
    def arch(self) -> str:
        """Debian's name of it; empty where Debian's programs do not run."""
        return arch_of(self.system, self.machine)


def load() -> list[Host]:
    """All rows."""
    return [Host.model_validate(row) for row in tomllib.loads(DATA.read_text(encoding="utf-8"))["host"]]


def _builds(host: Host) -> str:
    return "all targets" if f"{host.system}-{host.machine}" in table()["ziglang"]["sha256"] else "no"


def _archive(host: Host) -> str:
    return f"{'by apt' if host.apt else 'read by Slipway'}; address: {host.mirror}"


def _exports(host: Host) -> str:
    if host.system == "Linux":
        return "yes" if any(name.endswith(f"_{host.machine}.whl") for name in lock.builds()) else "no"
    return "yes" if any("sys_platform != 'linux'" in pin for pin in lock.requirements("export")) else "no"


def _devices(host: Host) -> str:
    if not host.arch:
        return "no"
    own = [spec.name for spec in load_specs().values() if spec.arch == host.arch and "virt" in spec.qemu]
    return f"yes; by KVM on request: {', '.join(own)}" if own else "yes"


def _adb(host: Host) -> str:
    return "with an `adb` of its own" if host.system == "Linux" and host.machine != "x86_64" else "yes"


def _row(host: Host) -> list[str]:
    seen = f"{_SEEN[host.seen]}: {host.what}"
    if host.refused:
        return [host.name, "refused at the front door, with the reason", *["no"] * 6, seen]
    wine = "yes" if host.arch == "amd64" else "no"
    return [host.name, _builds(host), _archive(host), _exports(host), _devices(host), wine, "yes", _adb(host), seen]


def markdown() -> str:
    """The table."""
    rows = [_HEAD, ["---"] * len(_HEAD), *(_row(host) for host in load())]
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"{lines}\nzig builds {len(load_targets())} targets.\n"
