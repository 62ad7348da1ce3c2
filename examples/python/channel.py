"""The channel to a server: by TLS with the credentials of a principal, or plain to a server that believes names."""

from pathlib import Path

import grpc


def add_arguments(parser):
    """The flags that say whose channel it is."""
    parser.add_argument(
        "--credentials",
        type=Path,
        metavar="DIR",
        help="folder of the certificate that proves the principal (tls.crt, tls.key), and of the CAs of servers (ca.crt)",
    )


def open_channel(server, credentials, options=()):
    """A channel to HOST:PORT, also if it is written as a URL. Raises OSError if a file of the credentials cannot be read."""
    target = server.removeprefix("http://").removeprefix("https://")
    if credentials is None:
        return grpc.insecure_channel(target, options=options)
    shown = grpc.ssl_channel_credentials(
        root_certificates=(credentials / "ca.crt").read_bytes(),
        private_key=(credentials / "tls.key").read_bytes(),
        certificate_chain=(credentials / "tls.crt").read_bytes(),
    )
    return grpc.secure_channel(target, shown, options=options)
