"""Instances of a real server on the page of `view`: watched to the decision, through kills of the server, with and without a token."""

import base64
import json
import subprocess
import time

from page import PROGRAMS, PageTest, Served

# What the browser itself logs of a lost connection and of answers that are errors.
LOST = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET", "Failed to load resource")


class Server:
    """A server that listens on ports of its own, which stay when it is started again."""

    def __init__(self, *arguments):
        self.arguments = arguments
        self.address = "127.0.0.1:0"
        self.tokens = "127.0.0.1:0" if "--token-listen" in arguments else None
        self.start()

    def start(self):
        arguments = [self.tokens if before == "--token-listen" else it for before, it in zip(("", *self.arguments), self.arguments)]
        command = [
            PROGRAMS / "stickycas-server", "serve", *arguments, "--listen", self.address, "--no-http",
            "--coordinator", "alice", "--observer", "olga", "--log", "error",
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        said = {}
        while len(said) < (2 if self.tokens else 1):
            what, _, address = self.process.stdout.readline().strip().partition(" on ")
            assert what, "the server did not start"
            said["tokens" if "token" in what else what] = address
        self.address, self.tokens = said["listening"], said.get("tokens")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def encoded(content):
    """As the parts of a token are."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class ServerTest(PageTest):
    """A test with a real server."""

    def setUp(self):
        super().setUp()
        self.expected = LOST
        self.processes = []

    def started(self, *arguments):
        server = Server(*arguments)
        self.addCleanup(server.kill)
        self.server = server
        return server

    def client(self, principal, *arguments):
        command = [PROGRAMS / "stickycas-client", *arguments, *self.identity(principal)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def identity(self, principal):
        return ["--server", f"http://{self.server.address}", "--principal", principal]

    def link(self, principal, *arguments):
        """A link to the page of what this principal may see."""
        served = Served("view", *self.identity(principal), *arguments)
        self.addCleanup(served.stop)
        self.base = served.base
        return served.address

    def create(self, *arguments):
        self.client("alice", "create", "--name", "demo", "--roster", "ann,bob,eve", *arguments)

    def play(self, principal, value):
        command = [PROGRAMS / "stickycas-client", "propose", "--instance", "demo", "--value", value, *self.identity(principal)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)


class Watched(ServerTest):
    """Without credentials everybody may watch."""

    def insecure(self, *arguments):
        return self.started("--insecure-principals", *arguments)

    def test_an_instance_is_watched_from_its_start_to_the_decision(self):
        self.insecure("--in-memory")
        self.create()
        self.open(self.link("alice"))
        self.wait(lambda: any(it.text == "demo" for it in self.all("table a")), "the instance in the table")
        next(it for it in self.all("table a") if it.text == "demo").click()
        self.wait_for_fact("state", "gathering")
        self.wait_for_fact("waits for", "3 to join")
        self.play("ann", "tea")
        self.wait(lambda: (self.fact("waits for") or "").startswith("2 to join"), "one has joined")
        self.play("bob", "tea")
        self.play("eve", "rum")
        self.wait_for_fact("state", "finished")
        self.wait_for_text(".decisions", "by 3 of 3")
        self.assertIn("had read 3 entries: 2 x tea, 1 x rum", self.text(".decisions"))
        self.wait_for_text(".why", "What correct processes decided")
        self.press("To the beginning")
        self.wait_for_fact("list", "0 entries")

    def test_a_viewer_goes_on_after_the_server_was_killed_and_has_its_log(self):
        server = self.insecure("--data", str(self.folder() / "log"))
        self.create()
        self.play("ann", "tea")
        self.play("bob", "tea")
        self.open(self.link("alice", "--instance", "demo"))
        self.wait(lambda: (self.fact("waits for") or "").startswith("1 to join"), "two have joined")
        server.kill()
        self.wait_for_text("#connection", "reconnecting")
        server.start()
        self.wait_for_text("#connection", "live")
        self.play("eve", "rum")
        self.wait_for_fact("state", "finished")
        self.wait_for_text("[aria-label=Events]", "the server restarts")
        self.wait_for_text(".decisions", "by 3 of 3")

    def test_a_server_without_its_log_has_forgotten_the_instance(self):
        server = self.insecure("--in-memory")
        self.create()
        self.open(self.link("alice", "--instance", "demo"))
        self.wait_for_fact("state", "gathering")
        server.kill()
        server.start()
        self.wait_for_text(".refused", "does not know this instance any more")


class Tokens(ServerTest):
    """With credentials a token is needed, on loopback too."""

    def setUp(self):
        super().setUp()
        credentials = self.folder() / "credentials"
        principals = [part for name in ("alice", "ann", "bob", "eve", "mallory", "olga") for part in ("--principal", name)]
        command = [PROGRAMS / "stickycas-server", "credentials", "--out", credentials, "--principals", "0", *principals]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.credentials = credentials
        self.started("--in-memory", "--credentials", str(credentials / "server"))
        self.create()

    def identity(self, principal):
        return ["--server", f"https://{self.server.address}", "--credentials", str(self.credentials / "clients" / principal)]

    def test_who_is_on_the_roster_may_watch(self):
        self.open(self.link("ann", "--instance", "demo"))
        self.wait_for_fact("state", "gathering")
        self.assertNotIn("token", self.browser.current_url)

    def test_a_viewer_without_a_token_is_told_how_to_get_one(self):
        link = self.link("ann", "--instance", "demo")
        for address in [link.split("token=")[0], link[:-4] + "AAAA", self.base]:
            self.open(address)
            self.wait_for_text(".refused", "`stickycas-loadgen view` prints a new link")

    def test_a_token_of_another_page_is_refused(self):
        token = self.link("olga").split("token=")[1]
        self.open(self.link("ann", "--instance", "demo").split("token=")[0] + f"token={token}")
        self.wait(lambda: self.text(".refused"), "the refusal")
        self.assertEqual(self.all(".facts"), [])

    def test_who_may_not_watch_shows_nothing(self):
        demo = self.link("ann", "--instance", "demo").split("#/instance/")[1].split("?")[0]
        link = self.link("mallory")
        self.open(link.replace("#/?", f"#/instance/{demo}?"))
        self.wait_for_text(".refused", "does not show this to the principal")
        self.assertEqual(self.all(".facts"), [])

    def test_a_link_outlives_a_server_that_is_killed(self):
        self.open(self.link("alice"))
        self.wait(lambda: any(it.text == "demo" for it in self.all("table a")), "the instance in the table")
        self.server.kill()
        self.server.start()
        self.client("alice", "create", "--name", "next", "--roster", "ann,bob")
        self.wait(lambda: any(it.text == "next" for it in self.all("table a")), "the instance of the new server")

    def test_streams_end_when_the_principal_is_denied(self):
        self.open(self.link("alice", "--instance", "demo"))
        self.wait_for_fact("state", "gathering")
        (self.credentials / "server" / "denied").write_text("alice\n", encoding="ascii")
        self.wait(lambda: self.text(".refused") or "reconnecting" in self.text("#connection"), "the end of the stream")


class ShortTokens(ServerTest):
    """Tokens that end while somebody looks; they are signed with a key that the test has made."""

    def setUp(self):
        super().setUp()
        self.credentials = self.folder() / "credentials"
        command = [
            PROGRAMS / "stickycas-server", "credentials", "--out", self.credentials, "--principals", "0", "--principal", "alice",
            "--tokens",
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.key = self.credentials / "signing-key.pem"
        self.openssl("genpkey", "-algorithm", "ed25519", "-out", self.key)
        keys = self.credentials / "server" / "token-keys.json"
        content = json.loads(keys.read_text(encoding="utf-8"))
        # The last 32 bytes of what is encoded are the key.
        public = self.openssl("pkey", "-in", self.key, "-pubout", "-outform", "DER")[-32:]
        content["keys"][0]["x"] = encoded(public)
        keys.write_text(json.dumps(content), encoding="utf-8")
        self.started("--in-memory", "--credentials", str(self.credentials / "server"), "--token-listen", "127.0.0.1:0")
        self.give_token("alice", 3_600)
        self.client("alice", "create", "--name", "demo", "--roster", "ann,bob")

    def openssl(self, *arguments):
        return subprocess.run(["openssl", *arguments], check=True, capture_output=True).stdout

    def identity(self, principal):
        return ["--server", f"https://{self.server.tokens}", "--credentials", str(self.credentials / "tokens" / principal)]

    def give_token(self, principal, seconds):
        """From now on the principal has a token for so long; returns when that ends."""
        file = self.credentials / "tokens" / principal / "token"
        head, claims, _ = file.read_text(encoding="ascii").strip().split(".")
        claims = json.loads(base64.urlsafe_b64decode(claims + "=="))
        claims["exp"] = int(time.time()) + seconds
        signed = f"{head}.{encoded(json.dumps(claims).encode())}"
        message = self.credentials / "message"
        message.write_text(signed, encoding="ascii")
        signature = self.openssl("pkeyutl", "-sign", "-rawin", "-inkey", self.key, "-in", message)
        file.write_text(f"{signed}.{encoded(signature)}", encoding="ascii")
        return claims["exp"]

    def test_nothing_new_is_seen_when_the_token_of_the_page_expires(self):
        ends = self.give_token("alice", 15)
        link = self.link("alice", "--instance", "demo")
        self.open(link)
        self.wait_for_fact("state", "gathering")
        self.wait_for_text(".refused", "does not show this to the principal")
        self.assertGreaterEqual(time.time(), ends)
        self.open(self.base)
        self.open(link)
        self.wait_for_text(".refused", "does not show this to the principal")
        self.assertEqual(self.all(".facts"), [])
