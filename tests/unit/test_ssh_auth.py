"""`deploy.transport.ssh.auth`: whatever ends paramiko's reading thread reaches us in a class that is understood."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import paramiko
import pytest
from cryptography.exceptions import InvalidTag

from deploy.transport.ssh.auth import AuthTransport
from deploy.transport.ssh.sessions import LOST


@pytest.fixture
def transport() -> Iterator[AuthTransport]:
    ours, theirs = socket.socketpair()
    made = AuthTransport(ours)
    yield made
    made.close()
    ours.close()
    theirs.close()


@pytest.mark.parametrize("error", [InvalidTag(), struct.error("unpack"), IndexError("no byte"), ValueError("b")])
def test_an_error_of_another_class_is_a_lost_connection(transport: AuthTransport, error: Exception) -> None:
    transport.saved_exception = error  # as its reading thread does
    found = transport.get_exception()
    assert isinstance(found, LOST)
    assert type(error).__name__ in str(found)
    assert transport.get_exception() is None


@pytest.mark.parametrize("error", [paramiko.SSHException("MAC"), OSError(104, "reset"), EOFError()])
def test_an_error_that_is_understood_stays(transport: AuthTransport, error: Exception) -> None:
    transport.saved_exception = error
    assert transport.get_exception() is error
