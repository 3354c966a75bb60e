"""The virtual phone: a real adbd behind a real adb server; the transport, its errors, and how a phone is added."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import DeadlineError, DeviceFullError, TransferError, UnreachableError
from core.files import sha256_bytes
from core.formats.bundle import Bundle
from core.paths import ROOT
from deploy.devices.facts import choose_target
from deploy.devices.inventory import FILE, VARIABLE, Device, get_device
from deploy.lab.labgrid import borrowed
from deploy.run.connect import open_adb, open_device
from deploy.run.pipeline import deploy
from deploy.run.settings import Settings
from deploy.transport.adb.port import PORT_VARIABLE, listens
from deploy.transport.adb.transport import AdbTransport
from deploy.transport.base import run
from deploy.transport.deadline import Deadline
from deploy.virtual import machines as virtual
from deploy.virtual.supervisor import Folder, read_state
from tests.conftest import Inv
from tests.support.devices import ask, facts_of, left_over, own_devices, runs_programs, small_program
from tests.support.lab import Lab, service
from tests.support.processes import wait_for, well

pytestmark = pytest.mark.virtual

HERE = "/data/local/tmp"


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_devices(tmp_path_factory):
        yield


@pytest.fixture(scope="module")
def phone(machine: None) -> Iterator[AdbTransport]:
    with open_adb(get_device("phone", FILE)) as transport:
        yield transport


def soon() -> Deadline:
    return Deadline.after(60)


def test_it_is_a_phone_as_far_as_adb_sees(phone: AdbTransport) -> None:
    device = get_device("phone", FILE)
    facts = facts_of(device, phone)
    assert (facts.system, facts.machine, facts.cpu) == ("Linux", "aarch64", "Cortex-A76")
    assert (facts.android, facts.api_level, facts.abis) == ("14", 34, ("arm64-v8a",))
    assert facts.board == "Slipway virtual phone"
    assert (facts.home, facts.root) == (HERE, f"{HERE}/slipway")
    assert choose_target(facts) == device.target
    script = "id -un; echo $TMPDIR; ls -d /tmp /dev/shm /usr/bin/env /system/bin/sh 2>/dev/null; getprop no.such given"
    assert ask(phone, script).splitlines() == ["shell", HERE, "/system/bin/sh", "given"]


def test_streams_statuses_and_words(phone: AdbTransport) -> None:
    done = run(phone, ["sh", "-c", "head -c 300000 /dev/zero; echo oops >&2; exit 3"], deadline=soon(), check=False)
    assert (done.code, len(done.stdout), done.stderr) == (3, 300000, b"oops\n")
    words = ["a b", "$HOME", "'", '"', "*", "a;b", "\\", "-n", "ü", "a\nb"]
    assert run(phone, ["printf", "%s|", *words], deadline=soon()).text == "|".join(words) + "|"


def test_files_come_back_as_they_went(phone: AdbTransport, tmp_path: Path) -> None:
    data = os.urandom((3 << 20) + 17)
    (tmp_path / "data").write_bytes(data)
    told: list[int] = []
    remote = f"{HERE}/it's, 100% $(odd)"
    phone.put(tmp_path / "data", remote, told.append, soon())
    assert sum(told) == len(data)
    assert run(phone, ["sha256sum", remote], deadline=soon()).text.split()[0].strip("\\") == sha256_bytes(data)
    phone.get(remote, tmp_path / "back", len(data), Deadline.after(120))
    assert (tmp_path / "back").read_bytes() == data
    with pytest.raises(TransferError, match="longer than expected"):
        phone.get(remote, tmp_path / "back", len(data) - 1, soon())


def test_an_interrupted_upload_goes_on(phone: AdbTransport, tmp_path: Path) -> None:
    data = os.urandom(200_001)
    (tmp_path / "begun").write_bytes(data[:77_777])
    (tmp_path / "whole").write_bytes(data)
    phone.put(tmp_path / "begun", f"{HERE}/resumed", lambda _: None, soon())
    told: list[int] = []
    phone.put(tmp_path / "whole", f"{HERE}/resumed", told.append, soon(), 77_777)
    assert sum(told) == len(data) - 77_777
    assert run(phone, ["sha256sum", f"{HERE}/resumed"], deadline=soon()).text.split()[0] == sha256_bytes(data)


def test_what_the_device_refuses(phone: AdbTransport, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(os.urandom(12 << 20))
    with pytest.raises(DeviceFullError, match="while uploading big"):
        phone.put(tmp_path / "big", "/small/big", lambda _: None, soon())
    run(phone, ["sh", "-c", "rm -f /small/*; head -c 8000000 /dev/zero >/small/some"], deadline=soon())
    with pytest.raises(DeviceFullError, match="while uploading big"):
        phone.put(tmp_path / "big", "/small/some", lambda _: None, soon(), 8_000_000)
    run(phone, ["rm", "-f", "/small/some"], deadline=soon())
    with pytest.raises(TransferError, match="could not be moved"):
        phone.put(tmp_path / "big", "/system/nope/big", lambda _: None, soon())
    with pytest.raises(TransferError, match="could not be moved"):
        phone.get(f"{HERE}/nothing", tmp_path / "nothing", 10, soon())
    assert not (tmp_path / "nothing").exists()
    # And the transport is as good as before.
    assert ask(phone, "echo well") == "well\n"


@pytest.mark.parametrize("trap", ["", "trap '' TERM;"])
def test_a_deadline_ends_the_whole_group(phone: AdbTransport, trap: str) -> None:
    with pytest.raises(DeadlineError, match="while running"):
        run(phone, ["sh", "-c", f"{trap} sleep 4242 & sleep 4242"], deadline=Deadline.after(3))
    assert ask(phone, "ps -A -o args | grep -c '^sleep 4242'; true") == "0\n"


def test_static_programs_run(tmp_path: Path) -> None:
    runs_programs("phone", "android-arm64", tmp_path)


def test_ctrl_c_ends_what_runs_there(phone: AdbTransport) -> None:
    words = ["devices.run", "phone", str(small_program("android-arm64")), "--args", "sleep"]
    with subprocess.Popen([str(ROOT / "inv"), *words], cwd=ROOT, stderr=subprocess.PIPE, text=True) as child:
        device = get_device("phone", FILE)
        facts = facts_of(device, phone)
        wait_for(lambda: sum(name.startswith("/proc/") for name in left_over(phone, device, facts)) >= 2, 120, child)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=120)
    assert (child.returncode, said.splitlines()[-1]) == (130, "Interrupted.")
    assert left_over(phone, device, facts) == []


@pytest.mark.build
@pytest.mark.export
def test_a_whole_deploy_goes_over_adb(arm: Bundle, program: Path, dist: Path) -> None:
    device = get_device("phone", FILE)
    settings = Settings(num_executions=1, warmup=0, timeout=400)
    first = deploy(device, arm, program, settings, listeners=[])
    assert first.verdict in {"identical", "agrees"}
    assert (first.transport, first.facts.abis, first.emulated) == ("adb", ("arm64-v8a",), True)
    assert first.upload.bytes > 10_000_000
    again = deploy(device, arm, program, settings, listeners=[])
    assert (again.verdict, again.upload.files, again.upload.bytes) == (first.verdict, 0, 0)


def test_the_task_passes_streams_and_status_on(inv: Inv) -> None:
    small = small_program("android-arm64")
    done = inv("devices.run", "phone", str(small), "--args", "echo one 'two words'")
    assert (done.returncode, done.stdout) == (0, "one\ntwo words\n")
    assert done.stderr.startswith("done\n")
    done = inv("devices.run", "phone", str(small), "--args", "exit 42", "--json")
    assert done.returncode == 42
    assert json.loads(done.stdout)["code"] == 42


def test_it_is_added_by_its_serial(
    phone: AdbTransport, inv: Inv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user has it: the phone is attached to the server on adb's port, and stands in no inventory."""
    file = tmp_path / "devices.toml"
    file.write_text("# mine\n")
    env = {PORT_VARIABLE: str(virtual.private_server().port), VARIABLE: str(file)}
    monkeypatch.setenv(PORT_VARIABLE, env[PORT_VARIABLE])
    listing = inv("devices.list", env={**env, "COLUMNS": "80"}).stdout
    assert f"./inv devices.add --adb {phone.serial}" in listing
    said = json.loads(well(inv("devices.add", "--adb", phone.serial, "--name", "shelf", "--json", env=env)).stdout)
    assert said["device"]["target"] == "android-arm64"
    assert said["facts"]["api_level"] == 34
    assert file.read_text().startswith("# mine\n\n[shelf]\n")
    row = next(row for row in json.loads(inv("devices.list", "--json", env=env).stdout) if row["name"] == "shelf")
    assert (row["serial"], row["state"], row["transport"]) == (phone.serial, "device", "adb")
    with open_device(get_device("shelf", file)) as transport:
        assert ask(transport, "getprop ro.product.cpu.abilist") == "arm64-v8a\n"
    again = inv("devices.add", "--adb", "any", "--name", "shelf", env=env)
    assert (again.returncode, "already" in again.stderr) == (3, True)
    nobody = inv("devices.add", "--adb", "R5CT0000000", env=env)
    assert (nobody.returncode, f"adb sees {phone.serial}" in nobody.stderr) == (20, True)


def test_a_phone_of_a_lab(phone: AdbTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """labgrid exports where adbd listens, or a phone on the network with its bootloader's port."""
    monkeypatch.setenv(PORT_VARIABLE, str(virtual.private_server().port))
    port = int(phone.serial.rpartition(":")[2])
    phones = {"service": service(port, "shell"), "fastboot": "  AndroidNetFastboot:\n    address: 127.0.0.1\n"}
    with contextlib.closing(Lab(tmp_path, phones)) as lab:
        for place, given in (("service", 0), ("fastboot", port)):
            device = Device(
                name="desk", transport="adb", source="labgrid", coordinator=lab.address, place=place, port=given,
                target="android-arm64", tags=("emulated",),
            )  # fmt: skip
            with borrowed(device, 0, print) as held, open_device(held) as transport:
                assert ask(transport, "getprop ro.product.cpu.abilist") == "arm64-v8a\n"
                assert lab.holder(place) != ""
        assert [lab.holder(place) for place in phones] == ["", ""]


def test_the_server_is_private_and_alone(phone: AdbTransport) -> None:
    port = virtual.private_server().port
    assert port != 5037
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]
    assert not any(row[1].endswith(f":{port:04X}") for row in
                   (line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]))  # fmt: skip
    serial = read_state(Folder.of("phone"))
    assert serial is not None
    assert not 5555 <= serial.port <= 5585


def test_a_server_that_is_gone_is_started_again(machine: None) -> None:
    state = read_state(Folder.of(virtual.ADB_SERVER))
    assert state is not None
    with open_adb(get_device("phone", FILE)) as transport:
        assert virtual._end(Folder.of(virtual.ADB_SERVER))
        assert not listens(state.port)
        with pytest.raises(UnreachableError, match="The connection to phone broke"):
            ask(transport, "echo lost")
    with open_adb(get_device("phone", FILE)) as transport:
        assert ask(transport, "echo found") == "found\n"


def test_nothing_is_left_on_it() -> None:
    device = get_device("phone", FILE)
    with open_adb(device) as transport:
        assert left_over(transport, device, facts_of(device, transport)) == []
    assert virtual.status("phone").ready
