"""pytest on devices: ``--device``, the fixtures ``slipway_device``, ``slipway_deploy`` and ``slipway_run``, a marker.

An installed Slipway (``pip install``) brings it along. With a checkout, a project takes it in by ``pytest_plugins =
["deploy.pytest_plugin"]`` in its topmost ``conftest.py``: docs/matrix.md. Building and exporting are the commands of
``./inv``, in processes of their own: no torch is imported into the tests' process.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from core.errors import SlipwayError, UsageError
from core.formats.bundle import Bundle
from core.paths import command, folder_of_commands
from core.plain import plain
from core.processes.commands import lines, process
from deploy.devices.inventory import Device, get_device, load_devices
from deploy.matrix.plan import Word, parse
from deploy.run.events import Event
from deploy.run.execute import Executed, execute
from deploy.run.pipeline import deploy
from deploy.run.result import Result
from deploy.run.settings import Settings

ALL = "all"
MARKER = (
    "slipway(target=..., needs=...): only devices whose target is like one of these globs, and that have these tags"
)

Deploy = Callable[..., Result]
Run = Callable[..., Executed]
Say = Callable[[str], object]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    group = parser.getgroup("slipway", "Slipway: tests on devices")
    group.addoption(
        "--device", action="append", default=[], metavar="NAME",
        help="a device of the inventory, 'all', or an expression such as 'linux-arm64 & !emulated'; may be repeated "
        "(default: local)",
    )  # fmt: skip
    group.addoption(
        "--device-wait", type=float, default=300.0, metavar="SECONDS",
        help="seconds to wait for a device that another deploy uses (default: 300)",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest."""
    config.addinivalue_line("markers", MARKER)
    try:
        chosen(config.getoption("--device"))
    except SlipwayError as error:
        # The expressions are those of ./inv matrix, whose option has another name.
        raise pytest.UsageError(f"--device: {error}".replace("--only ", "--device ")) from error


def chosen(words: Sequence[str]) -> list[Device]:
    """The devices that ``--device`` names, each once, in the inventory's order; ``local`` when it names none.

    Raises:
        ConfigError, UsageError: the inventory or an expression cannot be read, or a word of it fits nothing.
    """
    devices = {name: get_device(name) for name in load_devices()}
    tests = []
    for word in words or ["local"]:
        expression = parse("" if word == ALL else word)
        expression.check(words_of(device) for device in devices.values())
        tests.append(expression)
    found = [device for device in devices.values() if any(test.fits(words_of(device)) for test in tests)]
    if not found:
        raise UsageError(
            f"No device fits {' and '.join(map(repr, words))}.",
            f"the devices are {', '.join(devices)}",
            "./inv devices.list",
        )
    return found


def words_of(device: Device) -> dict[str, tuple[str, ...]]:
    """The words of ``device`` for expressions: its name, its target and its tags."""
    return {"device": (device.name,), "target": (device.target,), "tag": device.tags}


def misfit(device: Device, markers: Iterable[pytest.Mark]) -> str:
    """Why a test with these markers does not run on ``device``; empty if it does.

    Raises:
        UsageError: a marker has other arguments than ``target`` and ``needs``.
    """
    for marker in markers:
        if marker.args or set(marker.kwargs) - {"target", "needs"}:
            raise pytest.UsageError(f"@pytest.mark.slipway takes target=... and needs=... only, not {marker}")
        targets, needs = (_several(marker.kwargs.get(key, ())) for key in ("target", "needs"))
        if targets and not any(Word(glob, "target").fits(words_of(device)) for glob in targets):
            return f"{device.name} is {device.target}, not {' or '.join(targets)}"
        if lacking := [tag for tag in needs if tag not in device.tags]:
            return f"{device.name} is not tagged {', '.join(lacking)}"
    return ""


def _several(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for the device, itself or through a fixture, runs once on each."""
    if "slipway_device" in metafunc.fixturenames:
        devices = chosen(metafunc.config.getoption("--device"))
        markers = list(metafunc.definition.iter_markers("slipway"))
        cases = [
            pytest.param(device, id=device.name, marks=[pytest.mark.skip(reason=why)] if why else [])
            for device, why in ((device, misfit(device, markers)) for device in devices)
        ]
        metafunc.parametrize("slipway_device", cases, indirect=True, scope="session")


@pytest.fixture(scope="session")
def slipway_device(request: pytest.FixtureRequest) -> Device:
    """The device that the test runs on."""
    device: Device = request.param
    return device


@pytest.fixture
def slipway_deploy(slipway_device: Device, request: pytest.FixtureRequest) -> Deploy:
    """Deploys to the device: a zoo's model, an exported folder or a ``.pte`` or ``.onnx`` file; gives the result.

    ``slipway_deploy(what, scheme="fp32", engine="", check=True, **settings)``; see `deploy.run.settings.Settings`.
    A result that differs from its reference fails the test unless ``check=False``. Its figures go into JUnit XML.
    """
    say = partial(_say, request.config)

    def call(what: str | Path, scheme: str = "fp32", engine: str = "", check: bool = True, **options: Any) -> Result:
        listeners = [*options.pop("listeners", []), partial(_heard, say)]
        failed = ""
        try:
            settings = Settings(**{"wait": request.config.getoption("--device-wait"), **options})
            program = exported(what, scheme, say)  # first: it ends at once if PyTorch's wheel is missing
            bundle = built(slipway_device.target, engine, say)
            result = deploy(slipway_device, bundle, program, settings, listeners=listeners)
            if check:
                result.check()
        except (SlipwayError, ValidationError) as error:
            failed = str(error)
        if failed:  # not inside of except: pytest would print the error twice
            pytest.fail(failed, pytrace=False)
        latency = "" if result.emulated else result.runner.latency_ms.p50
        for key, value in (("device", result.device), ("verdict", result.verdict), ("p50_ms", latency)):
            # The fixture record_property does the same, and warns of JUnit's newer format, which has it as well.
            request.node.user_properties.append((f"slipway.{key}", value))
        return result

    return call


@pytest.fixture
def slipway_run(slipway_device: Device) -> Run:
    """Runs any executable on the device: ``slipway_run(executable, arguments, files)``; see `deploy.run.execute`."""

    def call(executable: Path, arguments: Sequence[str] = (), files: Sequence[Path] = (), **options: Any) -> Executed:
        try:
            return execute(slipway_device, executable, arguments, files, **options)
        except SlipwayError as error:
            pytest.fail(str(error), pytrace=False)

    return call


def _say(config: pytest.Config, line: str) -> None:
    """Show a line of progress at once, whatever pytest captures; not with ``-q``, and not in a worker of xdist."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    capture = config.pluginmanager.getplugin("capturemanager")
    if reporter is None or config.getoption("verbose") < 0:
        return
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        reporter.ensure_newline()
        reporter.write_line(f"slipway: {plain(line)}")


def _heard(say: Say, event: Event) -> None:
    """What a deploy does that takes long: its notes, its runs and what came of its steps."""
    if event.text and (event.kind in {"note", "end"} or (event.kind == "start" and event.step == "run")):
        say(event.text)


def built(target: str, engine: str, say: Say = print) -> Bundle:
    """The bundle for ``target``, by ``./inv build``; nothing is done when it is there."""
    words = ["build", "--target", target, *(["--engine", engine] if engine else [])]
    return Bundle.load(Path(_inv(words, say)["path"]))


def exported(what: str | Path, scheme: str, say: Say = print) -> Path:
    """``what`` itself when it is a file or folder, else the zoo's model of that name, by ``./inv export``."""
    if isinstance(what, Path) or Path(what).exists():
        return Path(what)
    return Path(_inv(["export", "--model", what, "--scheme", scheme], say)["path"])


def _inv(words: Sequence[str], say: Say) -> dict[str, Any]:
    """What ``./inv WORDS --json`` printed; its progress is passed on line by line.

    Raises:
        SlipwayError: it failed; with what it said.
    """
    said: list[str] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as answered:
        with process([*command(), *words, "--json"], cwd=folder_of_commands(), stdout=answered.fileno()) as child:
            assert child.stderr is not None  # noqa: S101 - a pipe
            for line in lines(child.stderr):
                said.append(line.decode(errors="replace").rstrip())
                if said[-1]:
                    say(said[-1])
            code = child.wait()
        answered.seek(0)
        try:
            found = json.load(answered)
        except ValueError:
            found = {}
    answer: dict[str, Any] = found[0] if isinstance(found, list) and found else found
    if code or "path" not in answer:
        what = answer.get("what") or f"./inv {' '.join(words)} failed (exit {code})."
        raise SlipwayError(what, str(answer.get("cause") or "\n".join(said)[-300:]), str(answer.get("try") or ""))
    return answer
