#!/usr/bin/env python3
"""A proxy before a right server that spoils what passes in one way, so that the scripts notice it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import grpc
from script import refusal_details, refusal_trailers
from wire import METHODS, Method

from stickycas.v1 import access_pb2, errors_pb2, instance_service_pb2, sticky_cas_service_pb2

WAYS = ["overwrites", "two-winners", "other-order", "forgets-answers", "answers-early", "wrong-reason"]


class Spoiler:
    """What is done to the answers to appends and reads, and to refusals."""

    def __init__(self, way: str) -> None:
        self.way = way
        # Entries that somebody has read, by instance and position; accesses that were answered.
        self.read: set[tuple[str, int]] = set()
        self.answered: set[tuple[str, str, int]] = set()

    def append(self, result: Any) -> None:
        """The answer to an append."""
        if self.way == "two-winners" and result.outcome == access_pb2.APPEND_OUTCOME_FAILED:
            result.outcome = access_pb2.APPEND_OUTCOME_SUCCESS
            result.position = 0

    def values(self, instance: str, result: Any) -> None:
        """The answer to a read."""
        if self.way == "other-order":
            result.values[:] = list(reversed(result.values))
        if self.way == "overwrites":
            for index, position in enumerate(range(result.start, result.start + len(result.values))):
                if (instance, position) in self.read:
                    result.values[index] = b"overwritten"
                self.read.add((instance, position))

    def forgotten(self, principal: str, instance: str, number: int) -> bool:
        """Whether the access was answered before, and is forgotten."""
        return self.way == "forgets-answers" and (principal, instance, number) in self.answered

    def reason(self, reason: str) -> str:
        """The reason of a refusal: those of access numbers are exchanged."""
        if self.way != "wrong-reason":
            return reason
        exchanged = {"ACCESS_CONTENT_DIFFERS": "ACCESS_NUMBER_OUT_OF_ORDER", "NOT_A_MEMBER": "NOT_CREATOR"}
        return exchanged.get(reason, reason)


class Proxy:
    """Passes every call on."""

    def __init__(self, to: str, way: str) -> None:
        self.to, self.spoiler = to, Spoiler(way)
        self.channels: dict[str, grpc.aio.Channel] = {}
        # Of `answers-early`: calls that go on at the right server, and questions whether one of them waits.
        self.background: set[asyncio.Task[Any]] = set()
        self.questions: set[asyncio.Task[bool]] = set()

    def open(self, method: Method, context: Any) -> tuple[Callable[..., Any], str]:
        """The same call at the right server, and who makes it."""
        names = [value for key, value in context.invocation_metadata() if key == "stickycas-principal"]
        principal = names[0] if names else ""
        if principal not in self.channels:
            self.channels[principal] = grpc.aio.insecure_channel(self.to)
        kinds = ["unary", "stream"]
        name = f"{kinds[method.client_streams]}_{kinds[method.server_streams]}"
        multi = getattr(self.channels[principal], name)(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        metadata = [("stickycas-principal", principal)] if principal else []
        return lambda *request: multi(
            *request, metadata=metadata, timeout=context.time_remaining()
        ), principal

    async def refuse(self, context: Any, error: grpc.aio.AioRpcError) -> None:
        """Ends the call as the right server has ended it."""
        trailers = [
            (key, value) for key, value in error.trailing_metadata() if key.startswith("grpc-status-details")
        ]
        reason, metadata, retry = refusal_details(trailers)
        if reason and self.spoiler.reason(reason) != reason:
            code = error.code().value[0]
            changed = refusal_trailers(
                code, self.spoiler.reason(reason), "", metadata, "0.1s" if retry else ""
            )
            trailers = list(changed)
        context.set_trailing_metadata(trailers)
        await context.abort(error.code(), error.details() or "")

    def unary(self, method: Method) -> Callable[..., Awaitable[Any]]:
        """A unary call."""

        async def handler(request: Any, context: Any) -> Any:
            call, principal = self.open(method, context)
            number = getattr(request, "access_number", 0)
            key = (principal, getattr(request, "instance_id", ""), number)
            if number and self.spoiler.forgotten(*key):
                trailers = refusal_trailers(
                    3, "ACCESS_NUMBER_OUT_OF_ORDER", "", {"expected_access_number": str(number + 1)}, ""
                )
                context.set_trailing_metadata(trailers)
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "forgotten")
            if self.spoiler.way == "answers-early" and method.name == "Append":
                task = asyncio.ensure_future(call(request))
                self.background.add(task)
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
                question = asyncio.ensure_future(self.waits(task, request, context))
                self.questions.add(question)
                question.add_done_callback(self.questions.discard)
                if await question:
                    result = access_pb2.AppendResult(outcome=access_pb2.APPEND_OUTCOME_SUCCESS, position=0)
                    return sticky_cas_service_pb2.AppendResponse(phase=1, result=result)
                call = lambda _: task
            if method.name == "Get" and self.questions:
                await asyncio.wait(self.questions)
            try:
                answer = await call(request)
            except grpc.aio.AioRpcError as error:
                await self.refuse(context, error)
                return None
            if method.name in ("Append", "Read"):
                self.spoiler.answered.add(key)
                if method.name == "Append":
                    self.spoiler.append(answer.result)
                else:
                    self.spoiler.values(request.instance_id, answer.result)
            return answer

        return handler

    async def waits(self, task: asyncio.Task[Any], request: Any, context: Any) -> bool:
        """Whether the right server has accepted the access and waits for its phase."""
        get, _ = self.open(METHODS["Get"], context)
        while not task.done():
            try:
                own = (await get(instance_service_pb2.GetRequest(instance_id=request.instance_id))).own
            except grpc.aio.AioRpcError:
                return False
            if any(waiting.number == request.access_number for waiting in own.waiting):
                return True
            await asyncio.sleep(0.005)
        return False

    def watch(self, method: Method) -> Callable[..., AsyncIterator[Any]]:
        """A stream of the server."""

        async def handler(request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                async for message in self.open(method, context)[0](request):
                    yield message
            except grpc.aio.AioRpcError as error:
                await self.refuse(context, error)

        return handler

    def attach(self, method: Method) -> Callable[..., AsyncIterator[Any]]:
        """A stream of both sides."""

        async def handler(requests: Any, context: Any) -> AsyncIterator[Any]:
            instances: dict[int, str] = {}

            async def pass_on() -> AsyncIterator[Any]:
                async for request in requests:
                    for frame in request.frames:
                        if frame.HasField("hello"):
                            instances[frame.hello.channel] = frame.hello.instance_id
                    yield request

            call, _ = self.open(method, context)
            try:
                async for message in call(pass_on()):
                    for frame in message.frames:
                        self.spoil(frame, instances)
                    yield message
            except grpc.aio.AioRpcError as error:
                await self.refuse(context, error)

        return handler

    def spoil(self, frame: Any, instances: dict[int, str]) -> None:
        """A frame of the right server."""
        if frame.answer.HasField("append"):
            self.spoiler.append(frame.answer.append)
        elif frame.answer.HasField("read"):
            self.spoiler.values(instances[frame.answer.channel], frame.answer.read)
        elif frame.HasField("refusal"):
            prefix = "REFUSAL_REASON_"
            reason = errors_pb2.RefusalReason.Name(frame.refusal.reason).removeprefix(prefix)
            frame.refusal.reason = errors_pb2.RefusalReason.Value(prefix + self.spoiler.reason(reason))

    def handlers(self) -> list[Any]:
        """All methods."""
        services: dict[str, Any] = {}
        for name, method in METHODS.items():
            if method.client_streams:
                make, handler = grpc.stream_stream_rpc_method_handler, self.attach(method)
            elif method.server_streams:
                make, handler = grpc.unary_stream_rpc_method_handler, self.watch(method)
            else:
                make, handler = grpc.unary_unary_rpc_method_handler, self.unary(method)
            services.setdefault(method.path.split("/")[1], {})[name] = make(
                handler,
                request_deserializer=method.request.FromString,
                response_serializer=method.response.SerializeToString,
            )
        return [
            grpc.method_handlers_generic_handler(service, methods) for service, methods in services.items()
        ]


async def start(to: str, way: str, address: str = "127.0.0.1:0") -> tuple[grpc.aio.Server, int]:
    """Starts a proxy: the server and its port."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers(tuple(Proxy(to, way).handlers()))
    port = server.add_insecure_port(address)
    await server.start()
    return server, port


async def serve(args: argparse.Namespace) -> None:
    """Serves until it is ended."""
    server, port = await start(args.to, args.wrong, args.listen)
    print(f"listening on port {port}", flush=True)
    await server.wait_for_termination()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--to", required=True, metavar="HOST:PORT", help="the right server, which believes names"
    )
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--wrong", choices=WAYS, default="", help="without it nothing is spoiled")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
