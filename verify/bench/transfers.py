"""``./inv self.bench --what transfers``: a deploy's file transfer against the usual tools, on the same link.

The same random bytes go to the same device by Slipway's store (verified there, synced, renamed), by its bare
transport, and by ``scp`` or ``adb push``, as far as this machine and the device have them, without and with
a digest of what arrived; in turns, each of which another method begins. The ratios of one run say more than the times.
Then a deploy with nothing to upload, and what of its time is neither transfer nor run (the program's own, by the
device's clock); and one with a changed file, and the bytes that moved.
"""

from __future__ import annotations

import os
import secrets
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commands.own import Bench
from core import console
from core.errors import HostError, NotSupportedError
from core.files import sha256_file
from deploy.devices.inventory import Device, get_device
from deploy.devices.probe import probe
from deploy.devices.roots import device_root
from deploy.run.connect import open_device
from deploy.store.store import Blob, Store
from deploy.transport.base import Transport
from deploy.transport.base import run as run_there
from deploy.transport.deadline import Deadline
from verify.bench.cases import quiet
from verify.tables import Table

Send = Callable[[Path, str], None]
TRANSFERS = Table("docs/deploy.md", "transfers")
OVERHEADS = Table("docs/deploy.md", "overheads")
BUSY = 1.0
MIB = 64
"""What is sent."""
"""Load average before the run above which figures are not worth keeping."""
HEADINGS = ["method", "median", "MB/s", "time / slipway store"]
_STEPS = {"run": "run without the program", "ran": "program", "elsewhere": "other"}
"""What `summary` calls a step."""


@contextmanager
def _folder(transport: Transport, device: Device) -> Iterator[str]:
    """A folder of its own beside the root on the device, removed afterwards."""
    root = probe(transport, device_root(device), None, Deadline.after(60)).root
    folder = f"{root}-bench-{secrets.token_hex(4)}"
    run_there(transport, ["mkdir", "-p", "-m", "700", folder], deadline=Deadline.after(60))
    try:
        yield folder
    finally:
        run_there(transport, ["rm", "-rf", folder], deadline=Deadline.after(120), check=False)


def _store(transport: Transport, folder: str) -> Send:
    def send(file: Path, name: str) -> None:
        with Store(transport, f"{folder}/{name}") as store:
            store.open([], Deadline.after(600), make=True)
            blob = Blob(file, sha256_file(file), file.stat().st_size)
            store.upload([blob], lambda _: None, Deadline.after(600))

    return send


def _bare(transport: Transport, folder: str) -> Send:
    def send(file: Path, name: str) -> None:
        transport.put(file, f"{folder}/{name}", lambda _: None, Deadline.after(600))

    return send


def _program(argv: Callable[[Path, str], list[str]]) -> Send:
    def send(file: Path, name: str) -> None:
        done = subprocess.run(argv(file, name), capture_output=True, text=True, check=False)
        if done.returncode:
            program = argv(file, name)[0]
            raise HostError(f"{program} failed while being timed.", done.stderr.strip()[-300:], f"{program} by hand")

    return send


def _verified(send: Send, shell: list[str], folder: str) -> Send:
    """``send``, and what it takes to know what arrived: ``shell`` runs a command on the device."""

    def both(file: Path, name: str) -> None:
        send(file, name)
        argv = [*shell, "sha256sum", f"{folder}/{name}"]
        done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.stdout.split()[:1] != [sha256_file(file)]:
            said = (done.stdout + done.stderr).strip()[-300:]
            raise HostError("sha256sum failed while being timed.", said, "the same command again")

    return both


def _others(device: Device, transport: Transport, folder: str) -> dict[str, Send]:
    """The usual tools for this device's transport that both sides have."""
    if device.transport == "adb":
        from deploy.transport.adb.server import adb_program
        from deploy.transport.adb.transport import AdbTransport

        assert isinstance(transport, AdbTransport)
        adb = [adb_program(), "-P", str(transport.server.port), "-s", transport.serial]
        push = _program(lambda file, name: [*adb, "push", str(file), f"{folder}/{name}"])
        return {"adb push": push, "adb push, adb shell sha256sum": _verified(push, [*adb, "shell"], folder)}
    if device.transport != "ssh":
        return {}
    from deploy.run.connect import ssh_address

    address = ssh_address(device)
    options = ["-o", f"UserKnownHostsFile={address.known_hosts[0]}", "-o", "BatchMode=yes"]
    options += ["-i", str(address.key), "-o", "IdentitiesOnly=yes"] if address.key else []
    ends = f"{address.user}@{address.host}"
    found: dict[str, Send] = {}
    if shutil.which("scp"):
        found["scp"] = _program(
            lambda file, name: ["scp", "-q", "-P", str(address.port), *options, str(file), f"{ends}:{folder}/{name}"]
        )
        ssh = ["ssh", "-p", str(address.port), *options, ends]
        found["scp, ssh sha256sum"] = _verified(found["scp"], ssh, folder)
    return found


def measure(name: str, runs: int, mib: int) -> list[dict[str, Any]]:
    """One row a method: median seconds, MB/s, and its time as a ratio to Slipway's store in the same turn."""
    device = get_device(name)
    with tempfile.TemporaryDirectory() as here, open_device(device) as transport, _folder(transport, device) as folder:
        file = Path(here) / "payload"
        ways: dict[str, Send] = {"slipway store": _store(transport, folder), "slipway put": _bare(transport, folder)}
        ways |= _others(device, transport, folder)
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(runs):
            file.write_bytes(os.urandom(mib << 20))
            first = turn % len(ways)
            for at, (way, send) in enumerate([*ways.items()][first:] + [*ways.items()][:first]):
                begun = time.monotonic()
                send(file, f"{turn}-{at}")
                seconds[way].append(time.monotonic() - begun)
            run_there(transport, ["sh", "-c", f'rm -rf "$1"/{turn}-*', "x", folder], deadline=Deadline.after(120))
            console.note(
                f"turn {turn + 1} of {runs}: " + ", ".join(f"{way} {took[-1]:.2f} s" for way, took in seconds.items())
            )
    own = seconds["slipway store"]
    return [
        {
            "way": way,
            "median_s": round(statistics.median(took), 3),
            "mb_per_s": round((mib << 20) / 1e6 / statistics.median(took), 1),
            "ratio": round(statistics.median(each / base for each, base in zip(took, own, strict=True)), 2),
        }
        for way, took in seconds.items()
    ]


def overhead(name: str, runs: int) -> dict[str, Any]:
    """A deploy with nothing to upload: seconds that are neither transfer nor the program's; and a changed file.

    Returns:
        ``why_not`` instead of figures, if no engine works on the device's target.
    """
    from deploy.run.pipeline import deploy
    from deploy.run.settings import Settings
    from models.export import export
    from toolchains.bundle.builder import build

    device = get_device(name)
    try:
        bundle = build(device.target)
    except NotSupportedError as error:
        return {"why_not": f"{error.what} Its transfers were measured, a deploy was not."}
    program = export("mlp", "fp32")
    once = Settings(num_executions=1, warmup=0)
    deploy(device, bundle, program, once, listeners=[])
    rows: list[dict[str, float]] = []
    for _ in range(runs):
        begun = time.monotonic()
        result = deploy(device, bundle, program, once, listeners=[])
        took = time.monotonic() - begun
        ran = result.conditions.ran_seconds
        apart = {**result.seconds, "run": result.seconds["run"] - (ran or 0.0), "ran": ran or 0.0}
        rest = took - apart["ran"] - apart["upload"]
        rows.append({**apart, "overhead": rest, "elsewhere": took - sum(result.seconds.values())})
    with tempfile.TemporaryDirectory() as here:
        changed = Path(here) / "changed.pte"
        changed.write_bytes((program / "model.pte").read_bytes() + secrets.token_bytes(16))
        fed = once.model_copy(update={"inputs": (program / "input0.npy",)})
        again = deploy(device, bundle, changed, fed, listeners=[])
        size = changed.stat().st_size
    medians = {key: round(statistics.median(row.get(key, 0.0) for row in rows), 3) for key in rows[0]}
    return {
        "overhead_s": medians.pop("overhead"),
        "steps_s": medians,
        "changed_file_bytes": size,
        "moved_bytes": again.upload.bytes,
        "moved_files": again.upload.files,
    }


def run(request: Bench) -> None:
    """Print both; keep them for the docs with ``--update`` if the machine was quiet."""
    name, runs, load = request.device, request.runs, os.getloadavg()[0]
    rest = overhead(name, runs)  # first: the large transfers leave a device busy with writing
    rows = measure(name, runs, MIB)
    result = {"device": name, "mib": MIB, "runs": runs, "load_average_before": round(load, 2), "ways": rows, **rest}
    if request.update and quiet(load, BUSY):
        keys = ["device", "sent", *HEADINGS]
        lines = [[name, f"{MIB} MiB, {runs} times", *_cells(row)] for row in rows]
        TRANSFERS.put([dict(zip(keys, line, strict=True)) for line in lines], ("device", HEADINGS[0]))
        OVERHEADS.put([{"device": name, "a deploy": summary(result)}], ("device",))
    if request.json:
        console.print_json(result)
        return
    console.table(f"{MIB} MiB to {name}, {runs} turns", HEADINGS, [_cells(row) for row in rows], summary(result))


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [str(row["way"]), f"{row['median_s']:.2f} s", f"{row['mb_per_s']}", f"{row['ratio']}"]


def summary(result: dict[str, Any]) -> str:
    """The notes beside the table."""
    if "why_not" in result:
        return str(result["why_not"])
    steps = ", ".join(
        f"{_STEPS.get(step, step)} {seconds:.2f}" for step, seconds in result["steps_s"].items() if seconds >= 0.01
    )
    return (
        f"Overhead of a deploy without an upload: {result['overhead_s']:.2f} s (seconds by step: {steps}). After a "
        f"change of one file of {result['changed_file_bytes']:,} bytes, {result['moved_bytes']:,} bytes moved."
    )
