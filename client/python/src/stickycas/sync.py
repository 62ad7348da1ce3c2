"""The same client for programs without asyncio: each method waits for its result.

from stickycas.sync import Client
with Client("https://localhost:7420", credentials="DIR") as client:
    print(client.propose("demo", b"tea"))
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

import stickycas.client
from stickycas._list import Listed
from stickycas.process import Strategy
from stickycas.v1 import history_pb2, instance_pb2, instance_service_pb2

Result = TypeVar("Result")


class Client:
    """See `stickycas.Client`, whose methods these are. Its work is done by an event loop in a thread of its own."""

    def __init__(self, server: str | Sequence[str], **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stickycas", daemon=True)
        self._thread.start()
        # So that no call begins behind the last one, that of `close`.
        self._lock, self._closed = threading.Lock(), False

        async def connect() -> stickycas.client.Client:
            return stickycas.client.Client(server, **options)

        try:
            self._client = self._wait(connect())
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections, and ends what is still watched; calls that wait in other threads raise `RuntimeError`."""
        with self._lock:
            was_closed, self._closed = self._closed, True
        if not was_closed:
            try:
                asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result()
            finally:
                self._end()

    def create(self, name: str = "", **options: Any) -> instance_pb2.Instance:
        """See `stickycas.Client.create`."""
        return self._wait(self._client.create(name, **options))

    def get(self, instance: str) -> instance_service_pb2.GetResponse:
        """See `stickycas.Client.get`."""
        return self._wait(self._client.get(instance))

    def list(self, *, states: Iterable[instance_pb2.State] = (), text: str = "") -> Listed:
        """See `stickycas.Client.list`."""
        return self._wait(self._client.list(states=states, text=text))

    def close_instance(self, instance_id: str) -> None:
        """See `stickycas.Client.close_instance`."""
        self._wait(self._client.close_instance(instance_id))

    def propose(self, instance: str, value: bytes, *, unary: bool = False) -> bytes:
        """See `stickycas.Client.propose`."""
        return self._wait(self._client.propose(instance, value, unary=unary))

    def play(self, instance: str, strategy: Strategy, *, unary: bool = False) -> bytes:
        """See `stickycas.Client.play`; the strategy is an async function here, too."""
        return self._wait(self._client.play(instance, strategy, unary=unary))

    def watch(self, instance: str) -> Iterator[history_pb2.Event]:
        """See `stickycas.Client.watch`. The watch ends when the iterator is closed, or the client."""
        return self._iterate(self._client.watch(instance))

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        with self._lock:
            if self._closed:
                work.close()
                raise RuntimeError("the client is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if not self._closed:
                raise
            raise RuntimeError("the client was closed during the call") from None
        finally:
            # Whoever waits was interrupted, as by Ctrl-C.
            future.cancel()

    def _iterate(self, source: AsyncGenerator[Result, None]) -> Iterator[Result]:
        async def following() -> Result:
            return await anext(source)

        try:
            while True:
                try:
                    result = self._wait(following())
                except StopAsyncIteration:
                    return
                yield result
        finally:
            if not self._closed:
                self._wait(source.aclose())

    async def _finish(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._client.close()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
