"""The inventory: ``devices.toml``, the one table of devices.

The checkout's own file ships ``local`` and ``wine``; the virtual devices have a table of their own. The user's are in
``devices.toml`` of the user's configuration folder, or in the file that ``SLIPWAY_DEVICES_FILE`` names; they are added
to these, and win by name.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from core.errors import ConfigError, did_you_mean, near
from core.toml import tomllib
from deploy.transport.ssh.spelled import spelled
from deploy.virtual.spec import load_specs

FILE = Path(__file__).with_name("devices.toml")
VARIABLE = "SLIPWAY_DEVICES_FILE"
HOST = "host"
"""The target of a device that is this machine."""

EMULATED = "emulated"
"""The tag of a device that is not real hardware: its times are not latency figures."""

CPU = "cpu:"
"""The prefix of the devices that are made from the table of targets: ``cpu:cortex-a53``."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class Device(BaseModel):
    """One device of the inventory."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    title: str = ""
    transport: Literal["local", "ssh", "adb"]
    target: str = HOST
    """Target its bundles are built for; ``host`` (this machine's) is resolved by `get_device`."""
    targets: tuple[str, ...] = ()
    """Further targets whose bundles it runs: ``./inv matrix`` takes all of them."""
    host: str = Field(default="", pattern=r"^([A-Za-z0-9_:][A-Za-z0-9_.:%-]*)?$")
    """Name or address, or a ``Host`` of the user's own ``~/.ssh/config``."""
    port: int = Field(default=0, ge=0, le=65535, strict=True)
    """0: what ``~/.ssh/config`` says, else 22."""
    user: str = Field(default="", pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.\\@-]*)?$")
    serial: str = Field(default="", pattern=r"^[A-Za-z0-9_.:%\[\]-]*$", max_length=200)
    """What adb calls it, as ``adb devices`` has it; ``address:port`` is connected first. Empty: the only one there."""
    jump: str = Field(default="", pattern=r"^([A-Za-z0-9_\[][A-Za-z0-9_.:%@\[\],-]*)?$")
    """SSH hosts to go through, ``user@host:port``; unset: what ``~/.ssh/config`` says."""
    key: Path | None = None
    """Private key file; ``~`` is expanded. Without it the agent's keys and ``~/.ssh/id_*`` are offered."""
    known_hosts: Path | None = None
    """File with the device's host key, instead of the user's own ``~/.ssh/known_hosts``."""
    compress: bool | None = Field(default=None, strict=True)
    """Compress what goes over SSH; unset: what ``~/.ssh/config`` says, else no (docs/deploy.md has figures)."""
    root: str = Field(default="", max_length=200)
    """Folder on the device that Slipway may fill: absolute, or below the login folder (``.slipway``)."""
    virtual: str = ""
    """Name of the virtual device (``deploy/virtual/virtual.toml``) that is started when this device is used."""
    cpu: str = Field(default="", pattern=r"^[A-Za-z0-9_.-]*$", max_length=60)
    """A CPU model on which QEMU's user mode runs programs here (``transport = "local"``); empty: this machine's own."""
    wine: bool = Field(default=False, strict=True)
    """Whether programs are Windows' and run under Wine here (``transport = "local"``)."""
    source: Literal["", "labgrid"] = ""
    """The source of its address: ``labgrid``, with ``place`` and ``coordinator``."""
    coordinator: str = Field(default="", pattern=r"^([A-Za-z0-9_\[][A-Za-z0-9_.:%\[\]-]*)?$")
    """Address and port of a labgrid coordinator; unset: ``LG_COORDINATOR``, else this machine's."""
    place: str = Field(default="", pattern=r"^([A-Za-z0-9_.][A-Za-z0-9_.-]*|\+[A-Za-z0-9]*)?$")
    """The labgrid place, or an alias of it, or ``+`` and a reservation's token; unset: ``LG_PLACE``."""
    place_tags: tuple[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*=[A-Za-z0-9_.-]*$")], ...] = ()
    """Tags of the labgrid places of which any may be taken, instead of a name: ``board=pi4``."""
    tags: tuple[str, ...] = ()
    fixtures: tuple[str, ...] = ()
    """Properties to select it by, such as attached hardware: ``camera``."""
    timeout: Annotated[float, Field(gt=0, le=86400, strict=True)] = 600.0
    """Seconds allowed for one run on it, connecting and uploading included."""
    store_gib: Annotated[float, Field(gt=0, strict=True)] = 4.0
    """Size of its store (GiB) above which the least recently used files are removed."""
    store_days: Annotated[float, Field(gt=0, strict=True)] = 30.0
    """Days without use after which a file in its store is removed."""
    weights_cache: Annotated[bool, Field(strict=True)] = True
    """Whether the engine lean may keep packed weights in its store, which shortens later loads."""
    verify_days: Annotated[float, Field(gt=0)] = 7.0
    """Days after which the digest of a file that seems unchanged is computed again."""

    @model_validator(mode="before")
    @classmethod
    def _spelled(cls, values: Any) -> Any:
        """A ``host`` may say user and port, too."""
        host = values.get("host") if isinstance(values, dict) else None
        if not isinstance(host, str) or not ("@" in host or "[" in host or host.count(":") == 1):
            return values
        at = spelled(host)
        for key, value in (("user", at.user), ("port", at.port)):
            if value and values.get(key, value) != value:
                raise ValueError(f"host says {key} {value}, and {key} = {values[key]!r}: leave one out")
        given = {"user": at.user, "port": at.port}
        return {**values, **{key: value for key, value in given.items() if value}, "host": at.host}

    @field_validator("key", "known_hosts")
    @classmethod
    def _home(cls, value: Path | None) -> Path | None:
        if value is not None and (not str(value).isprintable() or value == Path()):
            raise ValueError("a file's path, without control characters")
        try:
            return value.expanduser() if value is not None else None
        except RuntimeError as error:  # ~name of an unknown user
            raise ValueError(str(error)) from None

    @field_validator("title", "targets", "virtual", "tags", "fixtures")
    @classmethod
    def _printable(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not all(each.isprintable() for each in ((value,) if isinstance(value, str) else value)):
            raise ValueError("text without control characters")
        return value

    @field_validator("root")
    @classmethod
    def _safe_root(cls, value: str) -> str:
        if not value.isprintable() or value != value.strip() or ".." in value.split("/"):
            raise ValueError("a folder without '..', control characters, or blanks at an end")
        if value.rstrip("/") == "" and value:
            raise ValueError("Slipway must not fill the device's whole disk")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _complete(self) -> Device:
        if self.source == "labgrid" and (self.transport == "local" or self.virtual or self.host or self.serial):
            raise ValueError(
                'a labgrid device has transport = "ssh" or "adb" and no host or serial: the place gives the address'
            )
        if self.place and self.place_tags:
            raise ValueError("place and place_tags cannot be used together: a name, or tags")
        if (self.place or self.place_tags or self.coordinator) and self.source != "labgrid":
            raise ValueError('place, place_tags and coordinator go with source = "labgrid"')
        if self.transport == "ssh" and not (self.host or self.virtual or self.source):
            raise ValueError('an ssh device needs host = "..." (or virtual = "...")')
        if (self.cpu or self.wine) and (self.transport != "local" or self.target == HOST or (self.cpu and self.wine)):
            raise ValueError('cpu or wine goes with transport = "local" and a target = "..." of its own')
        return self

    @property
    def emulated(self) -> bool:
        """Whether its times are an emulator's, never a latency figure."""
        return bool(self.virtual or self.cpu) or EMULATED in self.tags

    @property
    def measured_here(self) -> bool:
        """Whether its times are this machine's own: nothing else may run here meanwhile."""
        return self.transport == "local" and not self.emulated

    @property
    def on_request(self) -> bool:
        """Whether a matrix takes it only if it is asked for: each of the many CPU models, and Wine."""
        return self.wine or self.name.startswith(CPU)


def user_file() -> Path:
    """The file of the user's own devices, which may not exist."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    import platformdirs

    return Path(platformdirs.user_config_dir("slipway", appauthor=False)) / "devices.toml"


def load_devices(path: Path | None = None) -> dict[str, Device]:
    """Read and check the inventory: ``path`` alone, or the checkout's file and the one ``SLIPWAY_DEVICES_FILE`` names.

    Raises:
        ConfigError: unreadable, not TOML (with the line), an unknown key or a wrong value (with its table).
    """
    devices: dict[str, Device] = {}
    own = user_file()
    usual = [FILE, own] if os.environ.get(VARIABLE) or own.is_file() else [FILE]  # a file that is named must exist
    for file in [path] if path is not None else usual:
        devices.update(_read(file))
        if file == FILE:
            devices.update({**_virtual(), **emulated_cpus()})
    return devices


@functools.cache
def _virtual() -> dict[str, Device]:
    """A device for each row of the table of virtual ones."""
    return {
        name: Device(
            name=name, title=f"virtual {spec.title}", transport=spec.system.login, target=spec.target, virtual=name,
            tags=(EMULATED,),
        )
        for name, spec in load_specs().items()
    }  # fmt: skip


@functools.cache
def emulated_cpus() -> dict[str, Device]:
    """A device for each CPU model that an emulator here knows: it needs no boot, and runs programs of all its targets.

    Its own target is the table's first with that model, so Linux comes before Android.
    """
    from toolchains.emulation.emulators import cpus
    from toolchains.targets import load_targets

    targets: dict[str, list[str]] = {}
    for target in load_targets().values():
        for cpu in cpus(target):
            targets.setdefault(cpu, []).append(target.name)
    return {
        CPU + cpu: Device(
            name=CPU + cpu, title=f"QEMU's user mode, {cpu}; no boot", transport="local", target=names[0],
            targets=tuple(names[1:]), cpu=cpu, tags=(EMULATED,),
        )
        for cpu, names in targets.items()
    }  # fmt: skip


def get_device(name: str, path: Path | None = None) -> Device:
    """The device called ``name``, its target ``host`` resolved to this machine's.

    Raises:
        ConfigError: unknown (near matches are named), or its target does not exist.
    """
    devices = load_devices(path)
    if name not in devices:
        address = bool(set(name.removeprefix(CPU)) & set("@:.["))
        meant = [] if address else near(name, devices)
        raise ConfigError(
            f"There is no device {name!r} in the inventory.",
            "it is an address, and the inventory has names" if address
            else did_you_mean(meant) or f"there are {', '.join(devices)}",
            "./inv devices.list, or ./inv devices.add --ssh "
            + (shlex.quote(name) if address else f"USER@HOST --name {name}"),
            meant,
        )  # fmt: skip
    from toolchains.targets import get_target, host_target

    device = devices[name]
    if device.target == HOST:
        return device.model_copy(update={"target": host_target().name})

    for target in (device.target, *device.targets):
        get_target(target)
    return device


def _read(file: Path) -> dict[str, Device]:
    hint = f"correct {file}; docs/deploy.md lists the keys"
    try:
        return parse(file.read_text(encoding="utf-8"), file)
    except FileNotFoundError as error:
        raise ConfigError(f"{file} is not there.", f"{VARIABLE} names it" if file != FILE else "", hint) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read.", str(error), hint) from error


def parse(text: str, file: Path) -> dict[str, Device]:
    """The devices of an inventory's text; ``file`` is named in errors."""
    hint = f"correct {file}; docs/deploy.md lists the keys"
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML.", str(error), hint) from error
    devices: dict[str, Device] = {}
    for name, table in tables.items():
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{file}: {name!r} is not a valid name for a device.",
                "letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 63",
                hint,
            )
        if not isinstance(table, dict):
            raise ConfigError(f"{file}: {name} is outside every table.", "each device is a table [name]", hint)
        if "name" in table:
            raise ConfigError(f"{file}: [{name}] has a key 'name'.", "the table's own name is the device's", hint)
        try:
            devices[name] = Device.model_validate({"name": name, **table})
        except ValidationError as error:
            causes = [_explain(dict(problem)) for problem in error.errors()]
            keys = tuple(".".join(str(part) for part in problem["loc"]) for problem in error.errors())
            raise ConfigError(f"{file}: table [{name}] is not a device.", "; ".join(causes), hint, keys) from None
    return devices


def _explain(problem: dict[str, Any]) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        meant = near(key, [name for name in Device.model_fields if name != "name"])
        return f"unknown key {key!r}" + (f" ({did_you_mean([*map(repr, meant)])})" if meant else "")
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{key}: {message}" if key else message
