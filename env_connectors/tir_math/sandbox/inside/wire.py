"""Messages between the owner and a session: a JSON header, then byte strings, on a stream socket."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_SIZE = struct.Struct("!I")
MAX_HEADER = 1 << 16


class WireError(Exception):
    """The other side sent something that is no message."""


def send(channel: socket.socket, header: dict[str, Any], *blobs: bytes) -> None:
    """Send one message."""
    head = json.dumps({**header, "sizes": [len(blob) for blob in blobs]}).encode()
    channel.sendall(b"".join((_SIZE.pack(len(head)), head, *blobs)))


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = channel.recv(min(size - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def receive(channel: socket.socket, max_blob: int) -> tuple[dict[str, Any], list[bytes]]:
    """Return the next message.

    Raises:
        EOFError: the other side closed.
        WireError: no message, or one larger than allowed.
    """
    (size,) = _SIZE.unpack(_exactly(channel, _SIZE.size))
    if size > MAX_HEADER:
        raise WireError(f"header of {size} bytes")
    try:
        header = json.loads(_exactly(channel, size))
        sizes = [int(value) for value in header.pop("sizes")]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WireError("broken header") from error
    if len(sizes) > 8 or any(not 0 <= value <= max_blob for value in sizes):
        raise WireError(f"parts of {sizes} bytes, at most {max_blob} are allowed")
    return header, [_exactly(channel, value) for value in sizes]
