"""What the Debian client reads without a network: the system's sources, and apt's answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import HostError
from toolchains.debian import http as debian_http
from toolchains.debian import packages as debian
from toolchains.debian import sources as debian_sources
from toolchains.debian.sources import Source, choose, parse_deb822, parse_list

DEB822 = """\
# the archive
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://third.example/debian
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
 -----END PGP PUBLIC KEY BLOCK-----

Enabled: no
Types: deb
URIs: http://disabled.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://sources.example/debian
Suites: bookworm
Components: main
"""

LIST = """\
# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/vendor.gpg] https://vendor.example/debian bookworm main
deb-src http://sources.example/debian bookworm main
deb http://plain.example/debian/ bookworm main non-free # the archive
deb http://plain.example/debian-security bookworm-security main
deb https://other.example/apt stable main
deb broken
"""


def test_the_archive_is_found_in_both_formats() -> None:
    entries = list(parse_deb822(DEB822))
    assert [entry.uris[0] for entry in entries] == [
        "http://mirror.example/debian",
        "http://mirror.example/debian-security",
        "http://third.example/debian",
    ]
    assert entries[0].suites == ("bookworm", "bookworm-updates")
    assert entries[0].components == ("main", "contrib")
    assert entries[0].signed_by == "/usr/share/keyrings/debian-archive-keyring.gpg"
    assert entries[2].signed_by == "inline"
    entries = list(parse_list(LIST))
    assert [entry.uris[0].split("/")[2] for entry in entries] == [
        "vendor.example", "plain.example", "plain.example", "other.example",
    ]  # fmt: skip
    assert entries[0].signed_by == "/usr/share/keyrings/vendor.gpg"
    assert entries[1] == Source(("http://plain.example/debian/",), ("bookworm",), ("main", "non-free"))
    from_deb822 = choose(list(parse_deb822(DEB822)), "bookworm")
    assert from_deb822 is not None
    assert from_deb822.uris == ("http://mirror.example/debian",)
    from_list = choose(list(parse_list(LIST)), "bookworm")
    assert from_list is not None
    assert from_list.uris == ("http://plain.example/debian/",)


@pytest.mark.parametrize(
    ("line", "is_it"),
    [
        ("deb http://mirror.example/ubuntu jammy main universe", False),
        ("deb http://mirror.example/debian-security bookworm-security main", False),
        ("deb [signed-by=/usr/share/keyrings/vendor.gpg] https://vendor.example/debian bookworm main", False),
        ("deb https://vendor.example/linux/debian bookworm stable", False),
        ("deb https://vendor.example/apt bookworm main", False),
        ("deb cdrom:[Debian_12]/ bookworm main", False),
        ("deb http://mirror.example/debian bookworm-backports main", False),
        ("deb http://mirror.example/debian stable main", True),
        ("deb http://mirror.example/pub/debian/ trixie main", True),
        ("deb mirror+file:/etc/apt/mirrors/debian.list bookworm main", True),
        ("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://10.0.0.1/mirror bookworm main", True),
    ],
)
def test_what_is_the_archive(line: str, is_it: bool) -> None:
    assert (choose(list(parse_list(line)), "bookworm") is not None) is is_it


def test_without_an_archive_the_error_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian_sources, "read_sources", list)
    monkeypatch.setattr(debian_sources, "TEMPLATE", tmp_path / "Debian.info")
    monkeypatch.delenv(debian_sources.VARIABLE, raising=False)
    with pytest.raises(HostError, match="names no mirror") as caught:
        debian_sources.find_mirror()
    assert debian_sources.VARIABLE in caught.value.hint
    keyring = tmp_path / "debian-archive-keyring.gpg"
    keyring.touch()
    monkeypatch.setattr(debian_sources, "KEYRINGS", (keyring,))
    monkeypatch.setenv(debian_sources.VARIABLE, "http://mirror.example/debian")
    assert debian_sources.find_mirror() == debian_sources.Mirror(("http://mirror.example/debian",), keyring)
    keyring.unlink()
    assert debian_sources.find_mirror().keyring is None, "the archive's own package of keys is taken"
    monkeypatch.setenv(debian_sources.KEYRING_VARIABLE, str(keyring))
    with pytest.raises(HostError, match="not a file"):
        debian_sources.find_mirror()


def test_a_relative_of_debian_knows_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Ubuntu, whose own sources are of another archive."""
    monkeypatch.delenv(debian_sources.VARIABLE, raising=False)
    ubuntu = "deb http://mirror.example/ubuntu noble main universe\n"
    monkeypatch.setattr(debian_sources, "read_sources", lambda: list(parse_list(ubuntu)))
    template = tmp_path / "Debian.info"
    template.write_text(
        "ChangelogURI: http://log.example/debian/%s\n\nSuite: {series}-security\nBaseURI: http://s.example/\n\n"
        "Suite: {series}\nRepositoryType: deb\nBaseURI: http://mirror.example/debian/\nComponent: main\n"
    )
    monkeypatch.setattr(debian_sources, "TEMPLATE", template)
    assert debian_sources.find_mirror().uris == ("http://mirror.example/debian/",)


def test_without_apt_the_error_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(debian_sources.VARIABLE, raising=False)
    monkeypatch.setattr(debian_sources, "APT", tmp_path / "etc/apt")
    monkeypatch.setattr(debian_sources, "read_sources", list)
    monkeypatch.setattr(debian_sources, "TEMPLATE", tmp_path / "Debian.info")
    assert "it has no apt" in debian.available()
    assert debian_sources.VARIABLE in debian.fix()
    with pytest.raises(HostError, match="names no mirror") as caught:
        debian.fetch("bookworm", "amd64", ["hello"])
    assert f"export {debian_sources.VARIABLE}=" in caught.value.hint


def test_apts_own_settings_are_read_and_the_environment_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "apt-config"
    program.write_text("""#!/bin/sh\ntest "$3" = Acquire::http::Proxy && echo "found='http://apt.example:3142'"\n""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("urllib.request.getproxies", dict)
    debian_sources.apts_setting.cache_clear()
    assert debian_http._proxies() == {"http": "http://apt.example:3142"}
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"http": "http://own.example"})
    assert debian_http._proxies() == {"http": "http://own.example"}
    debian_sources.apts_setting.cache_clear()
