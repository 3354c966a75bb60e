"""Shared builds: which variables and remotes a build gets. tests/integration/test_shared_builds.py has real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import ConfigError
from toolchains.bundle import conan
from toolchains.compilers import ccache


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLIPWAY_CONAN_REMOTE", "SLIPWAY_CONAN_UPLOAD", "SLIPWAY_CCACHE", "SLIPWAY_CCACHE_REMOTE"):
        monkeypatch.delenv(name, raising=False)


def test_nothing_is_shared_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCACHE_REMOTE_STORAGE", "redis://elsewhere")
    monkeypatch.setenv("CONAN_PASSWORD", "secret")
    monkeypatch.setenv("SLIPWAY_CONAN_UPLOAD", "on")
    assert (conan.shared(), conan.uploads()) == ("", False)
    assert "CONAN_PASSWORD" not in conan._environment()
    assert "CCACHE_REMOTE_STORAGE" not in {**conan._environment(), **ccache.environment(Path("log"))}


@pytest.mark.parametrize("wrong", ["conan.example.org", "ftp://x", "https://me:secret@conan.example.org", "http://a b"])
def test_an_address_that_is_none_is_refused_and_not_quoted(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("SLIPWAY_CONAN_REMOTE", wrong)
    with pytest.raises(ConfigError) as caught:
        conan.shared()
    assert "secret" not in str(caught.value)
