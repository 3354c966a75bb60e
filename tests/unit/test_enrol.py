"""Adding a device: what is written into the user's inventory, and what is not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError, UnreachableError, UsageError
from deploy.devices.facts import DeviceFacts
from deploy.devices.inventory import VARIABLE, Device, get_device, load_devices, user_file
from deploy.lab.labgrid import Service, located
from deploy.upkeep import enrol

PHONE = DeviceFacts(
    system="Linux", machine="aarch64", kernel="5.10", root="/data/local/tmp/slipway", board='Acme "One" \\ [5]',
    android="14", api_level=34, abis=("arm64-v8a",),
)  # fmt: skip
PI = DeviceFacts(
    system="Linux", machine="armv7l", kernel="6.6", root="/home/pi/.slipway", board="Raspberry Pi 2 Model B",
    cpu="Cortex-A7", cpu_features=("neon",), loaders=("/lib/ld-linux-armhf.so.3",), hostname="raspberrypi",
)  # fmt: skip


class Found:
    """An open device; ``serial`` as a transport over adb has it."""

    def __init__(self, serial: str) -> None:
        if serial:
            self.serial = serial


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config/slipway/devices.toml"


def meet(monkeypatch: pytest.MonkeyPatch, facts: DeviceFacts, serial: str = "") -> list[Device]:
    """The device that is found at whatever address; returns what was connected to."""
    met: list[Device] = []

    @contextlib.contextmanager
    def open_device(device: Device, *_: Any) -> Iterator[Found]:
        met.append(device)
        yield Found(serial)

    monkeypatch.setattr(enrol, "open_device", open_device)
    monkeypatch.setattr(enrol, "probe", lambda *_: facts)
    return met


def test_a_phone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    met = meet(monkeypatch, PHONE, "R5CT200ABCD")
    added = enrol.add(adb="any")
    assert met[0].serial == ""
    assert user_file() == added.file == file
    device = get_device("acme-one-5")
    assert added.device == device
    assert (device.transport, device.serial, device.target) == ("adb", "R5CT200ABCD", "android-arm64")
    assert device.title == 'Acme "One" \\ [5], Android 14'


@pytest.mark.parametrize(
    ("address", "host", "port", "user", "name"),
    [
        ("pi@raspberrypi.local", "raspberrypi.local", 0, "pi", "raspberrypi"),
        ("pi@192.168.1.9:2222", "192.168.1.9", 2222, "pi", "raspberrypi"),
        ("shelf", "shelf", 0, "", "shelf"),
        ("root@[fe80::1]:22", "fe80::1", 22, "root", "fe80-1"),
    ],
)
def test_over_ssh(
    file: Path, monkeypatch: pytest.MonkeyPatch, address: str, host: str, port: int, user: str, name: str
) -> None:
    met = meet(monkeypatch, PI)
    device = enrol.add(ssh=address).device
    assert (met[0].host, met[0].port, met[0].user) == (host, port, user)
    assert (device.host, device.port, device.user, device.name) == (host, port, user, name)
    assert (device.target, device.title) == ("linux-armv7", "Raspberry Pi 2 Model B, Cortex-A7")


def test_what_stands_there_stays_and_a_name_is_given_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.parent.mkdir(parents=True)
    before = '# mine\n[board] # the first\ntransport = "ssh"\nhost = "b"'
    file.write_text(before)
    meet(monkeypatch, PI)
    enrol.add(ssh="shelf", name="second one's".replace(" ", "-").replace("'", ""))
    assert file.read_text().startswith(before + "\n\n[second-ones]\n")
    assert {"board", "second-ones"} <= set(load_devices())
    meet(monkeypatch, PI)
    enrol.add(ssh="shelf")
    text = file.read_text()
    for name in ("", "shelf", "pi"):
        with pytest.raises(ConfigError, match="already"):
            enrol.add(ssh="shelf", name=name)
    assert file.read_text() == text


@pytest.mark.parametrize("name", ["a b", "../x", "-x", "x\ny", "x" * 64])
def test_a_name_that_is_none_is_refused_before_anything_is_written(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    met = meet(monkeypatch, PI)
    with pytest.raises(ConfigError):
        enrol.add(ssh="shelf", name=name)
    assert met == []
    assert not file.exists()


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"adb": "x", "ssh": "y"},
        {"ssh": "a b"},
        {"ssh": "-oProxyCommand=x"},
        {"ssh": "x:y"},
        {"ssh": "-oX"},
        {"adb": "a b"},
        {"adb": "x;y"},
    ],
)
def test_addresses_that_are_none(file: Path, monkeypatch: pytest.MonkeyPatch, words: dict[str, str]) -> None:
    met = meet(monkeypatch, PI)
    with pytest.raises((UsageError, ConfigError)):
        enrol.add(**words)
    assert met == []
    assert not file.exists()


def test_a_device_that_does_not_answer_is_not_written(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object) -> None:
        raise UnreachableError("gone")

    monkeypatch.setattr(enrol, "open_device", nobody)
    with pytest.raises(UnreachableError):
        enrol.add(ssh="shelf")
    assert not file.exists()


@pytest.mark.parametrize(
    ("host", "port", "user"),
    [("-oProxyCommand=x", 22, "pi"), ("a b", 22, "pi"), ("pi\x1b[2J", 22, "pi"), ("pi", -1, "pi"), ("pi", 22, "-l x")],
)
def test_what_a_lab_says_is_checked_like_the_inventory(host: str, port: int, user: str) -> None:
    desk = Device(name="desk", transport="ssh", source="labgrid", place="rack")
    assert located(desk, Service("10.0.0.7", 2222, "pi")).port == 2222
    with pytest.raises(ConfigError, match="does not accept the address of") as caught:
        located(desk, Service(host, port, user))
    assert "\x1b" not in str(caught.value)
