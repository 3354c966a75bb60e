"""A file over HTTP: it resumes, only the right digest is kept, and a proxy is used."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.files import download
from core.files.download import DownloadError, Way
from tests.support.files_server import Served, serving

DATA = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither this machine's proxy nor pauses."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(download, "_PAUSE", 0.0)


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(DATA) as found:
        yield found


def _get(served: Served, folder: Path, digest: str = DIGEST, way: Way | None = None, address: str = "") -> bytes:
    seen: list[int] = []
    file = folder / "a+b.whl"
    download.download(address or f"{served.address}/a%2Bb.whl", file, digest, way=way or Way(), watch=seen.append)
    assert seen[-1] == len(DATA)
    return file.read_bytes()


def test_an_interrupted_download_goes_on_where_it_ended(served: Served, tmp_path: Path) -> None:
    served.cuts = [100_000, 5, 0, 0, 300_000]
    assert _get(served, tmp_path) == DATA
    begins = [0, 100_000, 100_005, 100_005, 100_005, 400_005]
    assert served.asked == [("/a%2Bb.whl", f"bytes={begin}-" if begin else "") for begin in begins]
    assert [file.name for file in tmp_path.iterdir()] == ["a+b.whl"]


def test_what_an_earlier_command_left_is_used(served: Served, tmp_path: Path) -> None:
    (tmp_path / "a+b.whl.part").write_bytes(DATA[:-7])
    assert _get(served, tmp_path) == DATA
    assert served.asked == [("/a%2Bb.whl", f"bytes={len(DATA) - 7}-")]


@pytest.mark.parametrize("left", [b"another file", DATA + b"more", b"x" * len(DATA)])
def test_what_was_left_of_another_file_is_dropped(left: bytes, served: Served, tmp_path: Path) -> None:
    (tmp_path / "a+b.whl.part").write_bytes(left)
    assert _get(served, tmp_path) == DATA
    assert [wanted for _, wanted in served.asked] == [f"bytes={len(left)}-", ""]


def test_a_server_that_cannot_resume_sends_all_of_it(served: Served, tmp_path: Path) -> None:
    served.resumes, served.cuts = False, [1000]
    assert _get(served, tmp_path) == DATA


def test_a_wrong_digest_leaves_nothing(served: Served, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="another file") as caught:
        _get(served, tmp_path, "0" * 64)
    assert caught.value.found == DIGEST
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("status", "tries", "said"), [(404, 1, "404 Not Found"), (503, 3, "503 Service Unavailable")])
def test_what_the_server_refuses(status: int, tries: int, said: str, served: Served, tmp_path: Path) -> None:
    served.status = status
    with pytest.raises(DownloadError, match=said):
        _get(served, tmp_path)
    assert len(served.asked) == tries


def test_without_network(served: Served, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="Connection refused"):
        _get(served, tmp_path, address="http://127.0.0.1:9/a.whl")
    with pytest.raises(DownloadError, match="only addresses that begin with http"):
        _get(served, tmp_path, address="file:///etc/hostname")


@pytest.mark.parametrize("told_by", ["pip", "the environment"])
def test_a_proxy_is_used(told_by: str, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "http://wheels.invalid/a%2Bb.whl"
    if told_by == "the environment":
        monkeypatch.setenv("http_proxy", served.address)
    way = Way(proxy=served.address if told_by == "pip" else "")
    assert _get(served, tmp_path, way=way, address=address) == DATA
    assert served.asked == [(address, "")]
