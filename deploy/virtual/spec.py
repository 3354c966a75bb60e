"""The table of virtual devices (``virtual.toml``) as checked data."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from core.errors import ConfigError, did_you_mean, near
from core.strict_json import Frozen
from core.toml import tomllib

TABLE = Path(__file__).with_name("virtual.toml")


class System(Frozen):
    """A root file system that several virtual devices have; the fields are explained at the head of the table."""

    name: str
    login: Literal["ssh", "adb"]
    port: int = Field(gt=0, le=65535)
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    multicall: str
    folder: str
    applets: tuple[str, ...]


class Spec(Frozen):
    """One virtual device; the fields are explained at the head of the table."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    title: str
    target: str
    system: System
    arch: str
    suite: str
    kernel: str
    kernel_suite: str = ""
    emulator: str = "forky"
    modules: tuple[str, ...]
    qemu: tuple[str, ...]
    netdev: str
    append: str
    dtb: str = ""
    hostname: str
    user: str
    properties: dict[str, str] = Field(default_factory=dict)
    tmpfs: dict[str, str]
    idle_minutes: float = Field(default=15, gt=0)
    boot_seconds: float = Field(default=240, gt=0)

    @property
    def kernel_from(self) -> str:
        """The suite of the kernel."""
        return self.kernel_suite or self.suite


def load_specs() -> dict[str, Spec]:
    """All rows of the table.

    Raises:
        ConfigError: it is not a table of virtual devices.
    """
    try:
        table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
        systems = {name: System.model_validate({**row, "name": name}) for name, row in table["system"].items()}
        rows = {
            name: {**(table["device"][row.pop("like")] if "like" in row else {}), **row}
            for name, row in table["device"].items()
        }
        return {
            name: Spec.model_validate({**row, "name": name, "system": systems[row["system"]]})
            for name, row in rows.items()
        }
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise ConfigError(f"{TABLE} is not a table of virtual devices.", str(error), f"fix {TABLE}") from error


def get_spec(name: str) -> Spec:
    """The virtual device ``name``.

    Raises:
        ConfigError: unknown; near matches are named.
    """
    specs = load_specs()
    if name not in specs:
        raise ConfigError(
            f"There is no virtual device {name!r}.",
            did_you_mean(near(name, specs)) or f"virtual devices are {', '.join(specs)}",
            "./inv devices.list",
        )
    return specs[name]
