"""Exports that fail: each is tried once, and said once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from commands import export as command
from core.errors import ExportError, SlipwayError
from deploy.matrix.plan import Exportable
from models import export
from models.request import Request, resolve
from models.warm import client


@pytest.fixture(autouse=True)
def refusing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each export fails with the exporter's kind of message; the names in their order."""
    tried: list[str] = []

    def fail(request: Request, force: bool, host: object) -> Path:
        tried.append(request.name)
        raise ExportError(f"{request.name}: Lowering failed.", "no kernel", "another scheme")

    monkeypatch.setattr(export, "export_request", fail)
    return tried


def test_failures_are_said_once_and_the_only_one_is_left_to_the_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, dist: Path
) -> None:
    monkeypatch.setattr(client, "attempt", lambda requests, force, at_once: export.attempt(requests, force))
    monkeypatch.setattr("core.environment.ensure_export", lambda: None)
    with pytest.raises(ExportError, match=r"^mlp-qs8: Lowering failed\.\n"):
        command.exported([resolve("mlp", "qs8")])
    assert capsys.readouterr().err == ""
    with pytest.raises(ExportError) as caught:
        command.exported([resolve("mlp", scheme) for scheme in ("qs8", "fp32")])
    assert capsys.readouterr().err.splitlines() == [
        "mlp-qs8: failed: Lowering failed.", "mlp-fp32: failed: Lowering failed.",
    ]  # fmt: skip
    assert caught.value.cause.splitlines() == [
        "mlp-qs8: Lowering failed. no kernel", "mlp-fp32: Lowering failed. no kernel",
    ]  # fmt: skip


def test_a_matrix_tries_each_program_once(refusing: list[str], monkeypatch: pytest.MonkeyPatch, dist: Path) -> None:
    def attempt(requests: Sequence[Request], force: bool, at_once: int) -> dict[str, SlipwayError]:
        assert (force, at_once) == (False, 1)
        return export.attempt(requests, force)

    monkeypatch.setattr(client, "attempt", attempt)
    monkeypatch.setattr("core.environment.ensure_export", lambda: None)
    programs = [Exportable(f"mlp-{scheme}", "mlp", scheme, "pte") for scheme in ("fp32", "qs8")]
    programs += [
        Exportable("mlp-qs8-none", "mlp", "qs8", "pte", variant="none"),
        Exportable("mlp-fp32-group_64", "mlp", "fp32", "pte", variant="group=64"),
    ]
    found = command.each(programs)
    assert refusing == ["mlp-fp32", "mlp-qs8", "mlp-qs8-none"]
    assert list(found) == programs
    for program, error in found.items():
        assert isinstance(error, SlipwayError)
        assert error.what.startswith(program.name) or "group does not go with" in error.what
