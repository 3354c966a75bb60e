"""The connection is cut, or a byte changed, at hundreds of places of a deploy; then everything is as it was."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from deploy.devices.inventory import Device
from deploy.run.events import Event
from deploy.store import lock
from deploy.transport import base as transport
from tests.faults import server, tiny
from tests.faults.proxy import Proxy, proxied
from tests.faults.tiny import Tiny
from tests.support.processes import gone

pytestmark = pytest.mark.usefixtures("dist")  # results go to a folder of the test's own

PHASES = {
    "connect": 12, "probe": 12, "survey": 12, "verify": 6, "upload": 24, "run": 16, "settle": 8, "fetch": 10,
    "release": 4,
}  # fmt: skip
"""Phase of a deploy to places at which it is cut."""
ALWAYS = {"verify_days": 1e-12}
"""Of a device on which every deploy has all digests computed."""
CORRUPTED = 3
TIDYING = (20, 4)
"""Seconds beyond the deadline that a deploy may take to leave nothing behind; where nothing was begun, next to none."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return tiny.make(tmp_path_factory.mktemp("large"), elements=tiny.LARGE)


@pytest.fixture
def proxy(board: server.Device) -> Iterator[Proxy]:
    with proxied(board.port) as running:
        (board.home / "precious").write_text("precious")
        board.known_hosts.write_text(board.known_hosts.read_text().replace(f":{board.port} ", f":{running.port} "))
        yield running


@pytest.fixture
def far(device: Device, proxy: Proxy) -> Device:
    return device.model_copy(update={"port": proxy.port})


@pytest.fixture
def follow(proxy: Proxy) -> Callable[[Event], None]:
    """Tells the proxy in which phase the deploy is."""

    def listen(event: Event) -> None:
        proxy.phase = tiny.phase(event) or proxy.phase

    return listen


Strike = Callable[[str, str, int, float], Counter[str]]


@pytest.fixture
def strike(
    small: Tiny, large: Tiny, board: server.Device, far: Device, proxy: Proxy, follow: Callable[[Event], None]
) -> Strike:
    """Do a fault at ``points`` places of a phase, evenly spread; after each, see that nothing was lost or left."""
    root = board.home / ".slipway"

    def call(fault: str, phase: str, points: int, timeout: float) -> Counter[str]:
        fresh = phase in {"survey", "upload", "settle"}  # a device that has everything has nothing to do there
        what = large if phase == "fetch" else small
        looked_at = far.model_copy(update=ALWAYS) if phase == "verify" else far
        begun = time.monotonic()
        what.deploy(far, listeners=[follow])
        if not fresh:
            proxy.arm()
            what.deploy(looked_at, listeners=[follow])
        # On a busy host a deploy takes longer until the fault strikes, too.
        usual = time.monotonic() - begun
        timeout, tidying = max(timeout, 3 * usual), max(TIDYING[phase == "connect"], 3 * usual)
        total = proxy.seen[phase]
        assert total > points
        # Not up to the last byte: how much is said varies with how it falls into packets, above all when it is little.
        reach = total * 9 // 10 if total > 50_000 or (fault, phase) == ("stall", "connect") else total // 2
        seen: Counter[str] = Counter()
        for point in range(points):
            if fresh:
                shutil.rmtree(root)
            proxy.arm(fault, phase, reach * point // points)
            begun = time.monotonic()
            seen[tiny.outcome(lambda: what.deploy(looked_at, listeners=[follow], timeout=timeout))] += 1
            assert time.monotonic() - begun < timeout + tidying, (fault, phase, point)
            assert proxy.struck, (fault, phase, point)
            proxy.arm()
            assert gone(str(board.home), 15), (fault, phase, point)
            assert tiny.whole(board.home, root) == [], (fault, phase, point)
            what.deploy(far)
            assert gone(str(board.home)), (fault, phase, point)
            assert tiny.settled(board.home, root) == [], (fault, phase, point)
        return seen

    return call


@pytest.mark.parametrize("phase", PHASES)
def test_cut(strike: Strike, phase: str) -> None:
    tiny.check("connection cut", phase, strike("cut", phase, PHASES[phase], 60))


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase != "connect"])
def test_a_changed_byte(strike: Strike, phase: str) -> None:
    tiny.check("byte changed", phase, strike("corrupt", phase, CORRUPTED, 5))


STALLED = {phase: 4 if phase == "connect" else 1 for phase in PHASES}
"""Phase to places: while connecting, paramiko waits for other things in other ways."""


@pytest.mark.parametrize("phase", STALLED)
def test_a_stalled_link(strike: Strike, phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes through any more, and the connection does not end: the deadline ends the deploy.

    When all is done but the lock given back, the result stands: the device gives the lock back by itself.
    """
    # How long a slow device may take to end what runs there, to clean up, and to unlock.
    for module, name in ((transport, "_SLOW"), (lock, "_RELEASE")):
        monkeypatch.setattr(module, name, 2.0)
    tiny.check("link stalls", phase, strike("stall", phase, STALLED[phase], 4))


def test_a_broken_upload_is_tried_again_and_goes_on(
    small: Tiny, board: server.Device, far: Device, proxy: Proxy, follow: Callable[[Event], None]
) -> None:
    said: list[str] = []

    def listen(event: Event) -> None:
        follow(event)
        if event.kind == "note":
            said.append(event.text)

    proxy.arm("cut", "upload", tiny.PAYLOAD // 2)
    result = small.deploy(far, listeners=[listen], retries=2)
    assert result.attempts == 2
    assert 0 < result.upload.resumed_bytes < result.upload.bytes
    assert any("connection to board broke. Trying again in" in line for line in said)
    assert tiny.settled(board.home, board.home / ".slipway") == []
