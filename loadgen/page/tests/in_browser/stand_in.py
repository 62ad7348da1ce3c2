"""The page of a recorded run as if it happened now: a server between the browser and `stickycas-loadgen view`.

Frames come at a pace, or when a test lets them; streams are cut, refused or begun with a snapshot as a server does it; a token
may be needed. Everything else is passed on.
"""

import base64
import json
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from page import PATIENCE, Served

FRAMES_PER_SECOND = 20
MARK = {"joined": 1, "won": 2, "failed": 4, "limit": 8, "left": 16, "given_up": 32, "late": 64, "accused": 128, "refused": 256, "executed": 512}


class StandIn:
    """A live page. `until` is the phase up to which frames are sent; None: all."""

    def __init__(self, folder, phases_per_second=None, until=None, token=None, most_frames=None):
        self.upstream = Served("view", folder)
        self.pace = phases_per_second
        self.until = until
        self.token = token
        # Of streams: the refusal in the place of the next ones, and the first index that a new viewer is sent.
        self.refusal = None
        self.first = 0
        self.rows = None
        self.overview = []
        self.sent = 0
        self.asked = []
        self.changed = threading.Condition()
        self.streams = 0
        self.ended = None
        self.setting, self.frames = self.read(most_frames)
        self.id = self.setting["id"]
        # The last phase before each frame, by the index of its first event.
        self.before, phase = {}, 0
        for frame in self.frames:
            self.before[frame["events"][0]["index"]] = phase
            phase = max(phase, self.phase_of(frame))
        self.port = 0
        self.start()

    @property
    def base(self):
        return f"http://127.0.0.1:{self.port}/"

    def address(self, rest=""):
        return f"{self.base}#/instance/{self.id}{rest}"

    def read(self, most_frames):
        """The events of the run, as the page of its folder sends them."""
        name = self.upstream.address.split("/")[-1]
        setting, frames, event = None, [], ""
        with urllib.request.urlopen(f"{self.upstream.base}api/instances/{name}/events", timeout=PATIENCE) as answer:
            for line in answer:
                kind, _, text = line.decode().rstrip("\n").partition(": ")
                if kind == "event":
                    event = text
                elif kind == "data" and event == "setting":
                    setting = json.loads(text)
                elif kind == "data" and event == "frame":
                    frames.append(json.loads(text))
                if most_frames and len(frames) >= most_frames:
                    break
        say_what_is_awaited(frames, setting["patience_nanos"])
        return {**setting, "live": True}, frames

    def start(self):
        """Listens, on the same port as before."""
        handler = type("Handler", (Handler,), {"page": self})
        self.ended = threading.Event()
        self.server = Server(("127.0.0.1", self.port), handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=[0.02], daemon=True).start()

    def kill(self):
        """Ends every connection and listens no more."""
        self.ended.set()
        self.notify()
        self.server.shutdown()
        self.server.server_close()
        self.server.cut()

    def stop(self):
        if not self.ended.is_set():
            self.kill()
        self.upstream.stop()

    def cut(self):
        """Ends every connection that there is."""
        self.server.cut()

    def go_on(self, until=None):
        """Lets frames come up to this phase."""
        self.until = until
        self.notify()

    def notify(self):
        with self.changed:
            self.changed.notify_all()

    def may_send(self, frame):
        """Whether no step before this frame is that of the last phase, or a later one."""
        return self.until is None or self.before[frame["events"][0]["index"]] < max(1, self.until) and self.phase_of(frame) <= self.until

    def phase_of(self, frame):
        return max((event["phase"] for event in frame["events"] if event["event"] == "stepped"), default=0)

    def snapshot(self, index):
        """The state before the event with this index."""
        marks = [0] * self.setting["processes"]
        entries, length, now = [], 0, None
        for frame in self.frames:
            if frame["events"] and frame["events"][-1]["index"] >= index:
                break
            now = frame.get("now", now)
            for event in frame["events"]:
                if event["event"] == "added":
                    entries.append([event["position"], event["process"], event["phase"], event["value"]])
                bits = marks_of(event)
                if bits:
                    marks[event["process"] - 1] |= bits
            for process in frame.get("late", []):
                marks[process - 1] |= MARK["late"]
        return {"index": index, "missing": index, "now": now, "entries": entries[-1024:], "length": len(entries), **self.packed(marks)}

    def packed(self, marks):
        """The marks of all processes, or counts of warps if there are many."""
        if len(marks) <= 8192:
            return {"marks": base64.b64encode(struct.pack(f"<{len(marks)}H", *marks)).decode()}
        size = self.setting["warp_size"]
        warps = [marks[first : first + size] for first in range(0, len(marks), size)]
        counted = [MARK[name] for name in ("joined", "won", "left", "late", "accused", "given_up")]
        return {"group": 1, "warps": [[sum(1 for mark in warp if mark & bit) for bit in counted] for warp in warps]}


def say_what_is_awaited(frames, patience):
    """A server says after each phase for whom it waits; the page of a run folder only where the run did."""
    step, acting = None, []
    waiting = waiting_after(frames)
    for frame in reversed(frames):
        here = waiting.pop()
        if "now" not in frame and step:
            awaited = [{"process": process, "left_nanos": patience} for process in acting if process not in here]
            frame["now"] = {
                "at": frame["events"][-1]["at"], "state": "running", "phase": step["phase"], "warp": step["warp"], "round": 1, "open": True,
                "awaited_count": len(awaited), "awaited": awaited, "joined": 0,
            }
        stepped = [event for event in frame["events"] if event["event"] == "stepped"]
        if stepped:
            step = stepped[0]
            acting = [event["process"] for event in frame["events"] if event["event"] == "answered"]


def waiting_after(frames):
    """The processes with an access that waits, after each frame."""
    waiting, after = set(), []
    for frame in frames:
        for event in frame["events"]:
            if event["event"] == "accepted":
                waiting.add(event["process"])
            elif event["event"] in ("answered", "withdrawn"):
                waiting.discard(event["process"])
        after.append(frozenset(waiting))
    return after


def marks_of(event):
    """What an event marks its process with."""
    name = event["event"]
    if name == "answered":
        append = event["answer"].get("append")
        won = {"failed": MARK["failed"], "limit_reached": MARK["limit"]}.get(append, MARK["won"]) if append is not None and not isinstance(append, dict) else 0
        return MARK["executed"] | (MARK["won"] if isinstance(append, dict) else won)
    return {"joined": MARK["joined"], "decided": MARK["left"], "offence": MARK["accused"], "patience_spent": MARK["given_up"]}.get(name, 0)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    # A browser asks for all modules at once.
    request_queue_size = 128

    def __init__(self, *arguments):
        self.sockets = set()
        super().__init__(*arguments)

    def get_request(self):
        connection, address = super().get_request()
        self.sockets.add(connection)
        return connection, address

    def shutdown_request(self, request):
        self.sockets.discard(request)
        super().shutdown_request(request)

    def cut(self):
        for connection in list(self.sockets):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def handle_error(self, request, client_address):
        """A browser that has gone is no error."""


class Handler(BaseHTTPRequestHandler):
    page = None

    def log_message(self, *_):
        """Nothing."""

    def do_GET(self):
        self.answer(None)

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers.get("content-length", 0))))

    def answer(self, body):
        page = self.page
        path, _, query = self.path.partition("?")
        page.asked.append(self.path)
        if path.startswith("/api/") and path != "/api/about" and not self.is_allowed():
            return
        if path == "/api/about":
            self.json(200, {"plays": False, "token": page.token is not None, "live": True, "version": "test"})
        elif path == "/api/overview":
            self.send_overview()
        elif path == "/api/instances" and page.rows is not None:
            self.json(200, page.rows)
        elif path.endswith("/events"):
            self.send_events(int(query.removeprefix("from=") or 0) if query else None)
        else:
            self.pass_on(body)

    def is_allowed(self):
        if self.page.token is None or self.headers.get("authorization") == f"Bearer {self.page.token}":
            return True
        foreign = self.headers.get("authorization") == "Bearer foreign"
        status, why = (403, "only members, the creator and observers may watch") if foreign else (401, "there is no token that is valid")
        self.json(status, {"why": why})
        return False

    def json(self, status, content, headers=()):
        data = json.dumps(content).encode()
        self.send_response(status)
        for name, value in [("content-type", "application/json"), ("content-length", str(len(data))), *headers]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def pass_on(self, body):
        headers = {name: value for name, value in self.headers.items() if name in ("content-type", "Content-Type")}
        request = urllib.request.Request(self.page.upstream.base.rstrip("/") + self.path, body, headers)
        try:
            answer = urllib.request.urlopen(request, timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            data = answer.read()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "date", "connection"):
                    self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def begin_stream(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.write(":\n\n")

    def write(self, text):
        data = text.encode()
        self.page.sent += len(data)
        self.wfile.write(data)
        self.wfile.flush()

    def event(self, name, data):
        self.write(f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n")

    def send_events(self, start):
        page = self.page
        if page.refusal:
            status, why, headers = page.refusal
            if status == "inside":
                self.begin_stream()
                self.event("setting", page.setting)
                self.event("refused", why)
                return
            self.json(status, {"why": why}, headers)
            return
        self.begin_stream()
        page.streams += 1
        self.event("setting", page.setting)
        start = start or 0
        if start < page.first:
            self.event("snapshot", page.snapshot(page.first))
            start = page.first
        self.send_frames([frame for frame in page.frames if frame["events"] and frame["events"][-1]["index"] >= start])

    def send_frames(self, frames):
        page, ended = self.page, self.page.ended
        each = max(1, round((page.pace or 0) / FRAMES_PER_SECOND))
        begun, number = time.monotonic(), 0
        while frames:
            while not page.may_send(frames[0]):
                with page.changed:
                    page.changed.wait(0.2)
                if ended.is_set():
                    return
            count = 1
            while count < min(each, len(frames)) and page.may_send(frames[count]):
                count += 1
            some, frames = frames[:count], frames[count:]
            self.event("frame", merged(some))
            number += count
            if page.pace:
                ended.wait(max(0, begun + number / page.pace - time.monotonic()))
            if ended.is_set():
                return
        self.event("end", {"why": None})

    def send_overview(self):
        self.begin_stream()
        for second in self.page.overview:
            self.event("overview", second)
        self.page.ended.wait()


def merged(frames):
    """Several frames as one."""
    late = [process for frame in frames for process in frame.get("late", [])]
    frame = {"events": [event for frame in frames for event in frame["events"]]}
    if late:
        frame["late"] = late
    if "now" in frames[-1]:
        frame["now"] = frames[-1]["now"]
    return frame
