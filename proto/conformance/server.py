"""Judges a server: plays the scripts of `server.json` against it."""

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
    """A call of a principal, unary or streaming, and what has come of it so far."""

    def __init__(self, principal: str | None, process: int, number: int) -> None:
        self.principal = principal
        # The process and its access number, if the call is a unary access.
        self.process, self.number = process, number
        self.answer: Any = None
        self.refusal: tuple[str, str, dict[str, str], bool, str] | None = None
        # Of a stream: frames of Attach, or events of Watch and snapshots; `seen` of the items were looked at.
        self.items: list[Any] = []
        self.snapshots: list[Any] = []
        self.seen = 0
        self.rpc: Any = None
        self.task: asyncio.Task[None] | None = None
        self.change = asyncio.Event()

    def ended(self) -> bool:
        """Whether the call is over."""
        return self.answer is not None or self.refusal is not None

    async def run(
        self, method: Method, multi: Callable[..., Any], request: Message, keywords: dict[str, Any]
    ) -> None:
        """Makes the call, and takes what comes until it is over."""
        try:
            if method.server_streams:
                self.rpc = multi(**keywords) if method.client_streams else multi(request, **keywords)
                async for message in self.rpc:
                    self.take(message)
                self.answer = method.response()
            else:
                self.answer = await multi(request, **keywords)
        except grpc.aio.AioRpcError as error:
            reason, metadata, retry = refusal_details(error.trailing_metadata())
            self.refusal = (error.code().name, reason, metadata, retry, error.details() or "")
        except asyncio.CancelledError:
            self.refusal = ("CANCELLED", "", {}, False, "the script has cut it")
        self.change.set()

    def take(self, message: Any) -> None:
        """Takes a message of a stream."""
        if hasattr(message, "frames"):
            self.items += message.frames
        elif message.HasField("snapshot"):
            self.snapshots.append(message.snapshot)
        else:
            self.items += message.events.events
        self.change.set()

    async def until(self, done: Callable[[], bool], wanted: str, timeout: float) -> None:
        """Waits until something has come, or says that it has not."""
        end = asyncio.get_running_loop().time() + timeout
        while not done():
            self.change.clear()
            try:
                await asyncio.wait_for(self.change.wait(), end - asyncio.get_running_loop().time())
            except (TimeoutError, asyncio.TimeoutError):
                raise Mismatch(f"expected {wanted}, got nothing in {timeout:g} s") from None

    def outcome(self) -> str:
        """What has come of the call, in words."""
        if self.refusal is not None:
            return " ".join(filter(None, self.refusal[:2])) + f" ({self.refusal[4]})"
        return "no answer" if self.answer is None else brief(self.answer)


class Play:
    """One script, played against a server."""

    def __init__(self, server: Server, channels: dict[str | None, grpc.aio.Channel], timeout: float) -> None:
        self.server, self.channels, self.timeout = server, channels, timeout
        self.calls: dict[str, Call] = {}
        self.texts = {"$NAME": "conformance-" + os.urandom(8).hex()}
        self.roster: list[str] = []
        self.step = 0

    async def run(self, script: dict[str, Any]) -> str | None:
        """Plays the script. The answer says what was wrong; None: nothing."""
        self.roster = script["instance"]["roster"]
        steps = script["steps"]
        try:
            parameters = {name: value for name, value in script["instance"].items() if name != "roster"}
            create = {"name": "$NAME", "parameters": parameters, "roster": self.roster}
            created: Any = await self.ask("Create", COORDINATOR, substitute(create, self.texts))
            self.texts["$ID"] = created.instance.instance_id
            for self.step, step in enumerate(steps, 1):
                await self.play(substitute(step, self.texts))
        except Mismatch as mismatch:
            doing = next(iter(steps[self.step - 1].items())) if self.step else ("call", "Create")
            return f"step {self.step}, {doing[0]} {shown(doing[1])}: {mismatch}"
        finally:
            for call in self.calls.values():
                if call.task is not None and not call.ended():
                    call.task.cancel()
            if "$ID" in self.texts:
                self.start("Close", COORDINATOR, {}, 0, self.timeout)
        return None

    async def play(self, step: dict[str, Any]) -> None:
        """Does one step."""
        timeout = self.timeout
        if "call" in step:
            call = self.start(step["call"], step.get("as"), step.get("with", {}), 0, step.get("deadline", 60))
            self.calls[step.get("label", "")] = call
            if "answer" in step or "refusal" in step:
                await self.expect(call, step)
        elif "await" in step:
            await self.expect(self.calls[step["await"]], step)
        elif "send" in step:
            stream, request = self.calls[step["send"]], METHODS["Attach"].request()
            await stream.rpc.write(
                fill(request, {"frames": [self.with_id(frame) for frame in step["frames"]]})
            )
        elif "receive" in step:
            stream = self.calls[step["receive"]]
            for frame in step["frames"]:
                await stream.until(
                    lambda: len(stream.items) > stream.seen or stream.ended(), shown(frame), timeout
                )
                if len(stream.items) == stream.seen:
                    raise Mismatch(f"expected {shown(frame)}, but the stream has ended: {stream.outcome()}")
                stream.seen += 1
                if found := difference(stream.items[stream.seen - 1], frame):
                    raise Mismatch(found)
        elif "watch" in step:
            await self.watch(self.calls[step["watch"]], step)
        elif "waits" in step:
            await self.waits([self.calls[label] for label in step["waits"]])
        elif "silent" in step:
            stream = self.calls[step["silent"]]
            if stream.ended() or len(stream.items) > stream.seen:
                got = stream.outcome() if stream.ended() else brief(stream.items[stream.seen])
                raise Mismatch(f"expected nothing yet, got {got}")
        elif "cut" in step:
            call = self.calls[step["cut"]]
            assert call.task is not None
            call.task.cancel()
            await call.until(call.ended, "the end of the call", timeout)
        elif "status" in step:
            await self.status(lambda got: difference(got, step["status"]))

    def start(
        self, name: str, principal: str | None, data: dict[str, Any], number: int, deadline: float
    ) -> Call:
        """Begins a call. The instance of the script is meant where the request names none."""
        method, request = METHODS[name], METHODS[name].request()
        if not method.client_streams:
            fill(request, data)
            oneof = request.DESCRIPTOR.oneofs_by_name.get("instance")
            if "instance_id" in request.DESCRIPTOR.fields_by_name and not (
                oneof and request.WhichOneof("instance")
            ):
                request.instance_id = request.instance_id or self.texts["$ID"]
        process = self.roster.index(principal) + 1 if principal in self.roster else 0
        call = Call(principal, process, data.get("access_number", number))
        if principal not in self.channels:
            self.channels[principal] = self.server.channel(principal)
        kind = ["unary", "stream"]
        make = getattr(
            self.channels[principal], f"{kind[method.client_streams]}_{kind[method.server_streams]}"
        )
        multi = make(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        keywords: dict[str, Any] = {"metadata": self.server.metadata(principal), "wait_for_ready": True}
        if not method.server_streams:
            keywords["timeout"] = deadline
        if method.client_streams:
            call.rpc = multi(**keywords)
            call.task = asyncio.ensure_future(call.run(method, lambda **_: call.rpc, request, keywords))
        else:
            call.task = asyncio.ensure_future(call.run(method, multi, request, keywords))
        return call

    async def ask(self, name: str, principal: str, data: dict[str, Any]) -> Message:
        """A call of the runner itself."""
        call = self.start(name, principal, data, 0, self.timeout)
        await call.until(call.ended, f"an answer to {name}", self.timeout)
        if call.answer is None:
            raise Mismatch(f"{name} of {principal}: {call.outcome()}")
        return call.answer

    def with_id(self, frame: dict[str, Any]) -> dict[str, Any]:
        """A Hello names the instance of the script, unless it names another."""
        hello = frame.get("hello")
        return frame if hello is None else {"hello": {"instance_id": self.texts["$ID"], **hello}}

    async def expect(self, call: Call, step: dict[str, Any]) -> None:
        """Waits for the end of a call, and compares."""
        wanted = step["refusal"] if "refusal" in step else step["answer"]
        await call.until(call.ended, shown(wanted), self.timeout)
        if "answer" in step:
            if call.answer is None:
                raise Mismatch(f"expected {shown(wanted)}, got {call.outcome()}")
            if step.get("call") == "List":
                await self.further_pages(call.answer, step)
            if found := difference(call.answer, wanted):
                raise Mismatch(found)
            if saved := step.get("save"):
                self.texts[saved] = call.answer.instance.instance_id
            return
        if call.refusal is None:
            raise Mismatch(f"expected {shown(wanted)}, got {call.outcome()}")
        code, reason, metadata, retry, _ = call.refusal
        wrong_reason = "reason" in wanted and wanted["reason"] != reason
        if code != wanted["code"] or wrong_reason or wanted.get("retry_info", retry) != retry:
            raise Mismatch(
                f"expected {shown(wanted)}, got {call.outcome()}, {'with' if retry else 'no'} RetryInfo"
            )
        for key, value in wanted.get("metadata", {}).items():
            if metadata.get(key) != value:
                raise Mismatch(f"metadata {key}: expected {value}, got {metadata.get(key)}")

    async def further_pages(self, first: Any, step: dict[str, Any]) -> None:
        """A page of List may be empty although more follow: they are put together."""
        while token := first.next_page_token:
            page: Any = await self.ask("List", step["as"], {**step["with"], "page_token": token})
            first.instances.extend(page.instances)
            first.next_page_token = page.next_page_token

    async def watch(self, call: Call, step: dict[str, Any]) -> None:
        """The next events of some kinds; `ends`: then the stream ends without an error."""
        kinds = step.get("of", [])
        for event in step.get("events", []):
            while True:
                await call.until(
                    lambda: len(call.items) > call.seen or call.ended(), shown(event), self.timeout
                )
                if len(call.items) == call.seen:
                    raise Mismatch(f"expected {shown(event)}, but the stream has ended: {call.outcome()}")
                got = call.items[call.seen]
                if call.seen and got.index != call.items[call.seen - 1].index + 1:
                    raise Mismatch(
                        f"expected the index {call.items[call.seen - 1].index + 1}, got {got.index}"
                    )
                call.seen += 1
                if not kinds or got.WhichOneof("what") in kinds:
                    break
            if found := difference(got, event):
                raise Mismatch(found)
        if "snapshot" in step:
            await call.until(lambda: bool(call.snapshots), "a snapshot", self.timeout)
            if found := difference(call.snapshots[0], step["snapshot"]):
                raise Mismatch(found)
        if step.get("ends"):
            await call.until(call.ended, "the end of the stream", self.timeout)
            if call.answer is None:
                raise Mismatch(f"expected an end without an error, got {call.outcome()}")

    async def waits(self, calls: list[Call]) -> None:
        """The server says itself that these accesses wait, and none of the calls is answered."""

        def found(got: Any) -> str | None:
            rows = {row.process: [*row.append_numbers, *row.read_numbers] for row in got.status.waiting}
            missing = [call for call in calls if call.number not in rows.get(call.process, [])]
            return (
                f"expected access {missing[0].number} of {missing[0].principal} to wait" if missing else None
            )

        def answered() -> Call | None:
            return next((call for call in calls if call.ended()), None)

        await self.status(lambda got: None if answered() else found(got))
        # One more round trip: what was answered before this is here now.
        await self.ask("Get", COORDINATOR, {})
        if call := answered():
            raise Mismatch(f"expected access {call.number} of {call.principal} to wait, got {call.outcome()}")

    async def status(self, wrong: Callable[[Message], str | None]) -> None:
        """Asks until the answer is right: what another call has sent may be under way."""
        end = asyncio.get_running_loop().time() + self.timeout
        while found := wrong(await self.ask("Get", COORDINATOR, {})):
            if asyncio.get_running_loop().time() > end:
                raise Mismatch(found)
            await asyncio.sleep(0.01)


async def judge(
    server: Server, only: list[str], timeout: float, jobs: int
) -> AsyncIterator[tuple[str, dict[str, Any], str | None]]:
    """Plays every script, several at a time: name, script and what was wrong."""
    channels: dict[str | None, grpc.aio.Channel] = {}
    turn = asyncio.Semaphore(jobs)

    async def one(name: str, script: dict[str, Any]) -> tuple[str, dict[str, Any], str | None]:
        async with turn:
            return name, script, await Play(server, channels, timeout).run(script)

    nobody = server.can_be_nobody()
    scripts = [
        (name, script)
        for name, script in load("server", only)
        if nobody or not script.get("without_identity")
    ]
    try:
        for done in asyncio.as_completed([one(name, script) for name, script in scripts]):
            yield await done
    finally:
        await asyncio.gather(*(channel.close() for channel in channels.values()))
