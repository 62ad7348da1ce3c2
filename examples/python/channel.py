"""The channel to a server: by TLS with the credentials of a principal, or plain to a server that believes names."""

import ipaddress
from pathlib import Path

import grpc

# A server that is paused or cut off closes nothing. While a call waits it is pinged; without an answer the call ends with
# UNAVAILABLE, and so does one whose connection is not there in time. A server that was killed is reached again soon after
# it is back; grpc would wait for up to two minutes.
OPTIONS = {
    "grpc.keepalive_time_ms": 2000,
    "grpc.keepalive_timeout_ms": 2000,
    # Of every other ping; a keepalive one waits behind it.
    "grpc.http2.ping_timeout_ms": 2000,
    # A call that waits for its phase sends nothing else.
    "grpc.http2.max_pings_without_data": 0,
    # The time for a connection, too.
    "grpc.min_reconnect_backoff_ms": 2000,
    "grpc.initial_reconnect_backoff_ms": 200,
    "grpc.max_reconnect_backoff_ms": 1000,
}


def add_arguments(parser):
    """The flags that say whose channel it is."""
    parser.add_argument(
        "--credentials",
        type=Path,
        metavar="DIR",
        help="folder of the certificate that proves the principal (tls.crt, tls.key), and of the CAs of servers (ca.crt)",
    )


def is_this_machine(target):
    """Whether HOST:PORT is an address of this machine, of which no proxy knows anything."""
    host = target.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def open_channel(server, credentials):
    """A channel to HOST:PORT, also if it is written as a URL. Raises OSError if a file of the credentials cannot be read.

    grpc goes through the proxy of the variables http_proxy and https_proxy, with exceptions in no_proxy only: this machine would
    be none.
    """
    target = server.removeprefix("http://").removeprefix("https://")
    options = list(OPTIONS.items())
    if is_this_machine(target):
        options.append(("grpc.enable_http_proxy", 0))
    if credentials is None:
        return grpc.insecure_channel(target, options=options)
    shown = grpc.ssl_channel_credentials(
        root_certificates=(credentials / "ca.crt").read_bytes(),
        private_key=(credentials / "tls.key").read_bytes(),
        certificate_chain=(credentials / "tls.crt").read_bytes(),
    )
    return grpc.secure_channel(target, shown, options=options)
