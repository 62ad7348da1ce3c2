"""Judges a server: plays the scripts of `server/` against it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message import Message

from script import Mismatch, brief, difference, fill, load, refusal_details, shown, substitute
from wire import METHODS, Method, Server

COORDINATOR = "coordinator"


class Call:
    """A call of a principal, unary or streaming: what has come of it so far."""

    def __init__(self, principal: str | None, number: int) -> None:
        self.principal = principal
        self.number = number
        self.answer: Message | None = None
        self.refusal: tuple[str, str, dict[str, str], bool, str] | None = None
        # Of a stream: frames of Attach, or events of Watch, and how many of them the script has looked at.
        self.items: list[Any] = []
        self.snapshots: list[Any] = []
        self.seen = 0
        self.rpc: Any = None
        self.task: asyncio.Task[None] | None = None
        self.change = asyncio.Event()

    def ended(self) -> bool:
        """Whether the call is over."""
        return self.answer is not None or self.refusal is not None

    async def run(self, method: Method, multi: Callable[..., Any], request: Any, keywords: dict[str, Any]) -> None:
        """Makes the call, and takes what comes until it is over."""
        try:
            if method.server_streams:
                self.rpc = multi(**keywords) if method.client_streams else multi(request, **keywords)
                async for message in self.rpc:
                    self.take(message)
                self.answer = method.response()
            else:
                self.rpc = multi(request, **keywords)
                self.answer = await self.rpc
        except grpc.aio.AioRpcError as error:
            reason, metadata, retry = refusal_details(error.trailing_metadata())
            self.refusal = (error.code().name, reason, metadata, retry, error.details() or "")
        except asyncio.CancelledError:
            self.refusal = ("CANCELLED", "", {}, False, "cut by the script")
        self.change.set()

    def take(self, message: Any) -> None:
        """Takes a message of a stream."""
        if hasattr(message, "frames"):
            self.items += message.frames
        elif message.HasField("snapshot"):
            self.snapshots.append(message.snapshot)
        else:
            for event in message.events.events:
                if self.items and event.index != self.items[-1].index + 1:
                    self.items.clear()
                self.items.append(event)
        self.change.set()

    async def until(self, done: Callable[[], bool], wanted: str, timeout: float) -> None:
        """Waits until something has come, or says that it has not."""
        try:
            async with asyncio.timeout(timeout) if hasattr(asyncio, "timeout") else Timeout(timeout):
                while not done():
                    self.change.clear()
                    await self.change.wait()
        except (TimeoutError, asyncio.TimeoutError):
            raise Mismatch(f"expected {wanted}, got nothing in {timeout:g} s") from None


class Timeout:
    """`asyncio.timeout` for Python 3.10."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.over = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.handle = asyncio.get_running_loop().call_later(self.seconds, self.end, task)

    def end(self, task: asyncio.Task[Any]) -> None:
        self.over = True
        task.cancel()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.handle.cancel()
        if self.over and kind is asyncio.CancelledError:
            raise asyncio.TimeoutError
