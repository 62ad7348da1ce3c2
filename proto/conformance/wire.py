"""The methods of the services, from their descriptors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from stickycas.v1 import instance_service_pb2, server_service_pb2, sticky_cas_service_pb2


@dataclass(frozen=True)
class Method:
    """A method: its path, the classes of its messages, and which sides stream."""

    name: str
    path: str
    request: Any
    response: Any
    client_streams: bool
    server_streams: bool


SERVICES = [
    sticky_cas_service_pb2.DESCRIPTOR.services_by_name["StickyCasService"],
    instance_service_pb2.DESCRIPTOR.services_by_name["InstanceService"],
    server_service_pb2.DESCRIPTOR.services_by_name["ServerService"],
]

METHODS = {
    method.name: Method(
        method.name,
        f"/{service.full_name}/{method.name}",
        GetMessageClass(method.input_type),
        GetMessageClass(method.output_type),
        method.client_streaming,
        method.server_streaming,
    )
    for service in SERVICES
    for method in service.methods
}


@dataclass(frozen=True)
class Server:
    """A server under test, and the folder with everybody's credentials. None: it believes names."""

    address: str
    credentials: Path | None

    def channel(self, principal: str | None) -> grpc.aio.Channel:
        """A connection as a principal."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        if self.credentials is None:
            return grpc.aio.insecure_channel(self.address, options=options)
        folder = self.folder(principal or "coordinator")
        parts: dict[str, bytes] = {"root_certificates": (folder / "ca.crt").read_bytes()}
        if (folder / "tls.key").exists():
            parts["private_key"] = (folder / "tls.key").read_bytes()
            parts["certificate_chain"] = (folder / "tls.crt").read_bytes()
        return grpc.aio.secure_channel(self.address, grpc.ssl_channel_credentials(**parts), options=options)

    def metadata(self, principal: str | None) -> list[tuple[str, str]]:
        """What tells in each call who calls."""
        if principal is None:
            return []
        if self.credentials is None:
            return [("stickycas-principal", principal)]
        token = self.folder(principal) / "token"
        return [("authorization", "Bearer " + token.read_text().strip())] if token.exists() else []

    def folder(self, principal: str) -> Path:
        """The credentials of a principal: DIR/NAME, or DIR/clients/NAME as `credentials` makes it."""
        assert self.credentials is not None
        folder = self.credentials / principal
        return folder if folder.exists() else self.credentials / "clients" / principal

    def can_be_nobody(self) -> bool:
        """Whether a call without identity reaches the server: with certificates none does."""
        return self.credentials is None or not (self.folder("coordinator") / "tls.key").exists()
