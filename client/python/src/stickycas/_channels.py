"""Channels to servers: addresses, who the caller is, and what keeps a connection alive (docs/use/clients.md)."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

Metadata = tuple[tuple[str, str], ...]

OPTIONS: dict[str, int] = {
    # While a call is open the server is pinged, so that one that is paused or cut off is noticed.
    "grpc.keepalive_time_ms": 10_000,
    "grpc.keepalive_timeout_ms": 10_000,
    # A call that waits for its phase sends nothing else.
    "grpc.http2.max_pings_without_data": 0,
    # A connection that is not there by then has failed.
    "grpc.min_reconnect_backoff_ms": 5_000,
    # A server that was killed is reached again soon after it is back.
    "grpc.initial_reconnect_backoff_ms": 200,
    "grpc.max_reconnect_backoff_ms": 1_000,
    # An answer to a read on Attach has what the parameters of its instance allow.
    "grpc.max_receive_message_length": 72 * 1024 * 1024,
}


class Credentials:
    """The folder of a client: `ca.crt`, and `tls.crt` with `tls.key`, or `token` (docs/operate/identity.md)."""

    def __init__(self, folder: Path) -> None:
        self.token_file = folder / "token"
        self.has_token = self.token_file.exists()
        key = None if self.has_token else (folder / "tls.key").read_bytes()
        certificate = None if self.has_token else (folder / "tls.crt").read_bytes()
        self.channel = grpc.ssl_channel_credentials((folder / "ca.crt").read_bytes(), key, certificate)

    def metadata(self) -> Metadata:
        """What each call shows. A token is replaced before it expires, so it is read each time."""
        if not self.has_token:
            return ()
        return (("authorization", f"Bearer {self.token_file.read_text().strip()}"),)


def addresses_of(urls: Sequence[str], has_credentials: bool) -> list[str]:
    """HOST:PORT of each server. Raises ValueError for what is no address, or does not fit the credentials."""
    if not urls:
        raise ValueError("server: give the address of at least one server")
    addresses = []
    for url in urls:
        scheme, _, address = url.strip().rpartition("://")
        address = address.rstrip("/")
        if scheme not in ("", "https" if has_credentials else "http"):
            needs = "https, since there are credentials" if has_credentials else "http, or give credentials"
            raise ValueError(f"server {url!r}: the address begins with {needs}")
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"server {url!r}: give host and port, as in https://localhost:7420")
        addresses.append(address)
    return addresses


def open_channel(address: str, credentials: Credentials | None) -> grpc.aio.Channel:
    """A channel, which connects when it is first used."""
    options: list[tuple[str, Any]] = list(OPTIONS.items())
    if _is_this_machine(address):
        # The proxy of the variable https_proxy knows no server on this machine.
        options.append(("grpc.enable_http_proxy", 0))
    if credentials:
        return grpc.aio.secure_channel(address, credentials.channel, options)
    return grpc.aio.insecure_channel(address, options)


def _is_this_machine(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
