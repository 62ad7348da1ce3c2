"""Judges a client: plays the server's side of the scripts of `client.json`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from script import Mismatch, brief, fill, load, refusal_trailers, shown, substitute
from wire import METHODS

from stickycas.v1 import (
    access_pb2,
    errors_pb2,
    instance_pb2,
    instance_service_pb2,
    server_service_pb2,
    sticky_cas_service_pb2,
)

ID = "00112233445566778899aabbccddeeff"
NAME = "conformance"
# Compressed messages are refused, as every server of StickyCAS does; pings may come.
OPTIONS = [
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.so_reuseport", 0),
]
# What a server fills in (P4).
DEFAULTS = {
    "order": "ORDER_ASCENDING",
    "seed": 0,
    "arbiter": "ARBITER_FIRST_COME",
    "append_window": "APPEND_WINDOW_FIRST_ACCESS",
    "patience": "1s",
    "join_timeout": "30s",
    "pace": "0s",
    "pipeline": 16,
    "max_value_bytes": 1024,
}
# Plays one process as it is told, and tells how that ended.
Client = Callable[[dict[str, str]], Awaitable[dict[str, Any]]]


def number_of(code: str) -> int:
    """The number of a code of gRPC."""
    return int(grpc.StatusCode[code].value[0])


class Broken(Exception):
    """The script breaks the call or stream: by a code and trailing metadata. OK: a stream just ends."""

    def __init__(self, code: str, text: str = "", trailers: Any = ()) -> None:
        super().__init__(text)
        self.code, self.text, self.trailers = code, text, trailers


class ScriptedServer:
    """The server's side of a script: one state, at one address or two."""

    def __init__(self, script: dict[str, Any], addresses: list[str]) -> None:
        self.script = substitute(script, {"$SECOND": addresses[-1]})
        self.addresses = addresses
        self.steps: list[dict[str, Any]] = self.script["steps"]
        self.step = 0
        self.wrong: str | None = None
        parameters = {name: value for name, value in self.script["instance"].items() if name != "roster"}
        self.parameters = fill(instance_pb2.Parameters(), DEFAULTS | parameters)
        self.own = fill(access_pb2.Own(process=1, next_access_number=1), self.script.get("own", {}))
        self.answers: dict[bytes, Any] = {}
        self.sessions = 0
        self.incarnation: int | None = None

    def fail(self, why: str) -> Broken:
        """What the client did is not what the script says; it is told so by a refusal that is final."""
        self.wrong = self.wrong or f"step {self.step + 1}: {why}"
        return Broken(
            "INVALID_ARGUMENT", why, refusal_trailers(3, "MALFORMED", f"the script is left: {why}", {}, "")
        )

    def take(self, kind: str, message: Any, place: int) -> dict[str, Any] | None:
        """Goes on by a step with what has come. None: no step says what to do with it, and it is in order."""
        step = self.steps[self.step] if self.step < len(self.steps) else None
        if step is not None and kind in step["takes"]:
            wanted = step["takes"][kind]
            if kind == "access":
                expected = fill(sticky_cas_service_pb2.Access(), wanted)
            elif kind == "decision":
                expected = fill(sticky_cas_service_pb2.Decision(), {"value": wanted})
            else:
                expected = message
            if message == expected:
                if place != step.get("at", 1):
                    raise self.fail(
                        f"expected {kind} at server {step.get('at', 1)}, got it at server {place}"
                    )
                self.step += 1
                return step
        if kind in ("get", "hello"):
            return None
        # To ask again is always safe.
        if message.SerializeToString() in self.answers:
            return {"answers": self.answers[message.SerializeToString()]}
        if kind == "decision" and self.own.HasField("decided") and message.value == self.own.decided:
            return {"decided": True}
        wanted = "the end" if step is None else shown(step["takes"])
        raise self.fail(f"expected {wanted}, got {kind} {brief(message)}")

    def accept(self, access: Any) -> None:
        """From now on the access waits."""
        if access.number >= self.own.next_access_number:
            self.own.next_access_number = access.number + 1
            waiting = self.own.waiting.add(number=access.number)
            getattr(waiting, access.WhichOneof("op")).CopyFrom(getattr(access, access.WhichOneof("op")))

    def answer(self, access: Any, data: dict[str, Any]) -> Any:
        """The answer to an access, which is kept."""
        self.accept(access)
        for waiting in list(self.own.waiting):
            if waiting.number == access.number:
                self.own.waiting.remove(waiting)
        answer = fill(sticky_cas_service_pb2.Answer(number=access.number), data)
        # Of the append that won, or else of the last: no script goes on with appends that are none of K2.
        won = self.own.append.result.HasField("position")
        if answer.WhichOneof("result") == "append" and not won:
            self.own.append.phase = answer.phase
            self.own.append.result.CopyFrom(answer.append)
        self.answers[access.SerializeToString()] = data
        return answer

    def react(self, step: dict[str, Any]) -> None:
        """Breaks or refuses, if the step says so."""
        if "breaks" in step:
            raise Broken(step["breaks"])
        if refuses := step.get("refuses"):
            metadata = {name: str(refuses[name]) for name in ("owner", "epoch") if name in refuses}
            code, reason = refuses["code"], refuses["reason"]
            trailers = refusal_trailers(
                number_of(code), reason, "the script says so", metadata, refuses.get("retry_after", "")
            )
            raise Broken(code, "the script says so", trailers)

    def check_caller(self, context: Any) -> None:
        """Every call names the principal."""
        names = [value for key, value in context.invocation_metadata() if key == "stickycas-principal"]
        if names != [self.principal()]:
            raise self.fail(f"expected the metadata stickycas-principal: {self.principal()}, got {names}")

    def principal(self) -> str:
        """The principal of the client: process 1 unless the script's own state says otherwise."""
        return str(self.script["instance"]["roster"][self.own.process - 1])

    def instance(self) -> Any:
        """The instance as Get shows it."""
        fixed = {
            "instance_id": ID,
            "name": NAME,
            "creator": "coordinator",
            "roster": self.script["instance"]["roster"],
        }
        times = {
            "retention": "600s",
            "idle_lifetime": "3600s",
            "rejoin": "5s",
            "create_time": "2026-01-01T00:00:00Z",
        }
        return fill(instance_pb2.Instance(parameters=self.parameters), fixed | times)

    # Unary calls.

    def unary(self, handler: Callable[..., Any], place: int) -> Callable[..., Awaitable[Any]]:
        """A unary method: what the handler returns, or how it breaks."""

        async def method(request: Any, context: Any) -> Any:
            try:
                self.check_caller(context)
                if getattr(request, "instance_id", ID) not in ("", ID) or getattr(
                    request, "name", ""
                ) not in ("", NAME):
                    raise self.fail(f"another instance is asked for: {brief(request)}")
                return handler(request, place)
            except Broken as broken:
                context.set_trailing_metadata(broken.trailers)
                code = "UNAVAILABLE" if broken.code == "OK" else broken.code
                await context.abort(grpc.StatusCode[code], broken.text)

        return method

    def get(self, request: Any, place: int) -> Any:
        """Get: the instance, and the state of the process."""
        if step := self.take("get", request, place):
            self.react(step)
        status = instance_pb2.Status(state=instance_pb2.STATE_RUNNING, phase=1, warp=1)
        return instance_service_pb2.GetResponse(instance=self.instance(), status=status, own=self.own)

    def access(self, request: Any, place: int) -> Any:
        """Append or Read."""
        access = sticky_cas_service_pb2.Access(number=request.access_number)
        append = isinstance(request, sticky_cas_service_pb2.AppendRequest)
        if append:
            access.append.value = request.value
        else:
            access.read.start = request.start
        step = self.take("access", access, place)
        assert step is not None
        if step.get("accepted"):
            self.accept(access)
        self.react(step)
        answer = self.answer(access, step["answers"])
        response = sticky_cas_service_pb2.AppendResponse if append else sticky_cas_service_pb2.ReadResponse
        return response(phase=answer.phase, result=answer.append if append else answer.read)

    def decide(self, request: Any, place: int) -> Any:
        """Decide."""
        self.decided(sticky_cas_service_pb2.Decision(value=request.value), place)
        return sticky_cas_service_pb2.DecideResponse()

    def decided(self, decision: Any, place: int) -> None:
        """A decision, by either transport."""
        step = self.take("decision", decision, place)
        assert step is not None
        self.react(step)
        self.own.decided = decision.value

    def get_cluster(self, request: Any, place: int) -> Any:
        """GetCluster: clients that know more than one server may ask."""
        servers = [
            server_service_pb2.ClusterServer(name=address, address=address) for address in self.addresses
        ]
        servers[-1].shards.add(epoch=2)
        answered_by = self.addresses[place - 1]
        return server_service_pb2.GetClusterResponse(shards=1, servers=servers, answered_by=answered_by)

    # Attach.

    def attach(self, place: int) -> Callable[..., AsyncIterator[Any]]:
        """A stream, until it ends or the script breaks it."""

        async def method(requests: Any, context: Any) -> AsyncIterator[Any]:
            # Whether they are open; those that are not were, or were asked for.
            channels: dict[int, bool] = {}
            try:
                self.check_caller(context)
                async for request in requests:
                    for frame in request.frames:
                        for answer in self.frame(frame, channels, place):
                            yield sticky_cas_service_pb2.AttachResponse(frames=[answer])
            except Broken as broken:
                if broken.code != "OK":
                    context.set_trailing_metadata(broken.trailers)
                    await context.abort(grpc.StatusCode[broken.code], broken.text)

        return method

    def frame(self, frame: Any, channels: dict[int, bool], place: int) -> list[Any]:
        """A frame of the client, and the answers to it."""
        kind = frame.WhichOneof("frame")
        if kind is None:
            raise self.fail("a frame without content")
        message = getattr(frame, kind)
        channel, number = message.channel, message.number if kind == "access" else 0
        message.channel = 0
        try:
            if kind == "hello":
                return [self.hello(message, channel, channels, place)]
            if kind == "access" and (refusal := self.sent_ahead(message, channel, channels)):
                return [refusal]
            if not channels.get(channel):
                raise self.fail(f"{kind} on channel {channel}, which no Hello has opened on this stream")
            if kind == "decision":
                self.decided(message, place)
                del channels[channel]
                return [fill(sticky_cas_service_pb2.ServerFrame(), {"decided": {"channel": channel}})]
            step = self.take("access", message, place)
            assert step is not None
            if step.get("accepted"):
                self.accept(message)
            if replaced := step.get("replaced"):
                channels[channel] = False
                self.sessions += 1
                incarnation = self.incarnation if replaced == "own" else (self.incarnation or 0) ^ 1
                frame = {"channel": channel, "session": self.sessions, "incarnation": incarnation}
                return [fill(sticky_cas_service_pb2.ServerFrame(), {"replaced": frame})]
            self.react(step)
            answer = self.answer(message, step["answers"])
            answer.channel = channel
            return [sticky_cas_service_pb2.ServerFrame(answer=answer)]
        except Broken as broken:
            refuses = self.steps[self.step - 1].get("refuses", {}) if self.step else {}
            if not broken.trailers or refuses.get("ends_stream") or self.wrong:
                raise
            refusal = fill(
                sticky_cas_service_pb2.Refusal(channel=channel, access_number=number),
                {name: refuses[name] for name in ("retry_after", "owner", "epoch") if name in refuses},
            )
            refusal.code = number_of(broken.code)
            # A reason that is newer than the client has a number that it does not know.
            names = dict(errors_pb2.RefusalReason.items())
            refusal.reason = names.get("REFUSAL_REASON_" + refuses["reason"], 999)
            if refuses["reason"] == "OWNER_LOST":
                refusal.access_number = 0
                channels[channel] = False
            return [sticky_cas_service_pb2.ServerFrame(refusal=refusal)]

    def sent_ahead(self, access: Any, channel: int, channels: dict[int, bool]) -> Any:
        """The refusal of an access that was sent ahead (F7) of what has been refused or replaced before it. None: it was not."""
        expected, before = self.own.next_access_number, self.steps[self.step - 1] if self.step else {}
        refusal = sticky_cas_service_pb2.Refusal(channel=channel, access_number=access.number, code=3)
        if channels.get(channel) is False:
            refusal.reason = errors_pb2.REFUSAL_REASON_MALFORMED
        elif channels.get(channel) and "refuses" in before and access.number == expected + 1:
            refusal.reason = errors_pb2.REFUSAL_REASON_ACCESS_NUMBER_OUT_OF_ORDER
            refusal.expected_access_number = expected
        else:
            return None
        return sticky_cas_service_pb2.ServerFrame(refusal=refusal)

    def hello(self, hello: Any, channel: int, channels: dict[int, bool], place: int) -> Any:
        """Opens the channel, and tells the state of the process."""
        if hello.instance_id != ID:
            raise self.fail(f"a Hello for another instance: {hello.instance_id!r}")
        if channels.get(channel):
            raise self.fail(f"a second Hello on channel {channel}")
        if self.incarnation not in (None, hello.incarnation):
            raise self.fail(
                f"another incarnation, {hello.incarnation}, in the same life: {self.incarnation} before"
            )
        self.incarnation = hello.incarnation
        channels[channel] = False
        if step := self.take("hello", hello, place):
            self.react(step)
        self.sessions += 1
        channels[channel] = True
        welcome = sticky_cas_service_pb2.Welcome(
            channel=channel, session=self.sessions, own=self.own, parameters=self.parameters
        )
        return sticky_cas_service_pb2.ServerFrame(welcome=welcome)

    def handlers(self, place: int) -> dict[str, Any]:
        """The methods at one of the addresses."""
        unary = {"Get": self.get, "Append": self.access, "Read": self.access, "Decide": self.decide}
        unary["GetCluster"] = self.get_cluster
        handlers = {name: self.unary(handler, place) for name, handler in unary.items()} | {
            "Attach": self.attach(place)
        }
        services: dict[str, Any] = {}
        for name, handler in handlers.items():
            method = METHODS[name]
            make = (
                grpc.stream_stream_rpc_method_handler
                if name == "Attach"
                else grpc.unary_unary_rpc_method_handler
            )
            services.setdefault(method.path.split("/")[1], {})[name] = make(
                handler,
                request_deserializer=method.request.FromString,
                response_serializer=method.response.SerializeToString,
            )
        return services


def program(command: list[str], timeout: float) -> Client:
    """A client that is a program: it reads its task from standard input and prints its result."""

    async def play(task: dict[str, str]) -> dict[str, Any]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            line = (json.dumps(task) + "\n").encode()
            out, err = await asyncio.wait_for(process.communicate(line), 3 * timeout)
        except (TimeoutError, asyncio.TimeoutError):
            process.kill()
            raise Mismatch(f"the client does not end in {3 * timeout:g} s") from None
        said = (err.decode(errors="replace").strip().splitlines() or ["nothing"])[-1]
        try:
            result = json.loads(out.splitlines()[0])
            return result if isinstance(result, dict) else {}
        except (ValueError, IndexError):
            raise Mismatch(f"expected a line of JSON from the client, got {out!r}; it says: {said}") from None

    return play


async def play_one(client: Client, script: dict[str, Any], transport: str) -> str | None:
    """Plays a script with a client of its own. The answer says what was wrong; None: nothing."""
    servers, addresses = [], []
    for _ in range(script.get("servers", 1)):
        servers.append(grpc.aio.server(options=OPTIONS))
        addresses.append(f"127.0.0.1:{servers[-1].add_insecure_port('127.0.0.1:0')}")
    scripted = ScriptedServer(script, addresses)
    try:
        for place, server in enumerate(servers, 1):
            for service, methods in scripted.handlers(place).items():
                server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
            await server.start()
        task = {"server": ",".join(addresses), "principal": scripted.principal(), "instance": NAME}
        task |= {"value": script["value"], "transport": transport}
        result = await client(task)
        return scripted.wrong or compare(scripted, result)
    except Mismatch as mismatch:
        return scripted.wrong or str(mismatch)
    finally:
        await asyncio.gather(*(server.stop(None) for server in servers))


def compare(scripted: ScriptedServer, result: dict[str, Any]) -> str | None:
    """Whether the client has told what it should, after it has done all that it should."""
    ends = scripted.script["ends"]
    if scripted.step < len(scripted.steps):
        wanted = scripted.steps[scripted.step]["takes"]
        return f"expected {shown(wanted)}, but the client has ended with {shown(result)}"
    if "decided" in ends:
        return (
            None
            if result.get("decided") == ends["decided"]
            else f"expected {shown(ends)}, got {shown(result)}"
        )
    if "error" not in result or ends["error"] not in str(result["error"]):
        return f"expected {shown(ends)}, got {shown(result)}"
    return None


async def judge(
    client: Client, only: list[str], transports: list[str], jobs: int
) -> AsyncIterator[tuple[str, dict[str, Any], str | None]]:
    """Plays every script by each transport, several at a time: name, script and what was wrong."""
    turn = asyncio.Semaphore(jobs)

    async def one(
        name: str, script: dict[str, Any], transport: str
    ) -> tuple[str, dict[str, Any], str | None]:
        async with turn:
            return f"{name} ({transport})", script, await play_one(client, script, transport)

    plays = [
        one(name, script, transport)
        for name, script in load("client", only)
        for transport in script.get("transports", ["attach", "unary"])
        if transport in transports
    ]
    for done in asyncio.as_completed(plays):
        yield await done
