"""An instance as it happens: from its start to the decision, through lost connections, with and without a token."""

from page import ROOT, WIDTHS, PageTest, simulated
from stand_in import StandIn

# What the browser itself logs of a lost connection.
LOST = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET", "Failed to load resource")
TOKEN = "0123456789abcdef"
HOSTILE = "<b>\u202e" + "w" * 1024


class Live(PageTest):
    def live(self, scenario="quickstart", **options):
        run = simulated(self.folder(), ROOT / f"examples/scenarios/{scenario}.toml")
        page = StandIn(run, **options)
        self.addCleanup(page.stop)
        self.base = page.base
        return page

    def picture(self):
        return self.saved(self.fact("phase").replace(",", ""))

    def test_a_run_is_watched_from_its_start_to_the_decision(self):
        page = self.live(until=0)
        self.open(page.address())
        self.wait_for_text("#connection", "live")
        self.wait(lambda: self.fact("state"), "the state")
        for phase in range(1, 8):
            page.go_on(phase)
            self.wait_for_fact("list", f"{phase} {'entry' if phase == 1 else 'entries'}")
            self.wait_for_fact("phase", str(phase + 1))
        self.assertEqual(self.texts(".decisions .value"), [])
        page.go_on()
        self.wait_for_fact("state", "finished")
        self.wait_for_text(".decisions", "by ")
        self.assertIn("had read 8 entries", self.text(".decisions"))
        self.wait_for_text(".why", "What was run")

    def test_the_end_is_told_to_those_who_hear_the_page(self):
        page = self.live()
        said = [event["says"] for frame in page.frames for event in frame["events"] if event.get("says")]
        self.open(page.address())
        self.wait_for_fact("state", "finished")
        self.wait_for_text("#connection", "ended")
        self.wait_for_text("#told", said[-1])

    def test_a_link_names_a_process_before_the_picture_has_its_size(self):
        late = "window.ResizeObserver = class extends ResizeObserver { observe(node) { setTimeout(() => super.observe(node), 1000); } };"
        script = self.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": late})
        self.addCleanup(self.browser.execute_cdp_cmd, "Page.removeScriptToEvaluateOnNewDocument", script)
        page = self.live(until=0)
        page.frames[0]["now"] |= {"awaited_count": 1, "awaited": [{"process": 5, "left_nanos": page.setting["patience_nanos"]}]}
        self.open(page.address("?process=5"))
        self.wait_for_text("#told", "process 5, has joined, an access of it waits, is awaited")
        self.wait(lambda: self.find(".picture canvas").size["height"] > 200, "the picture")
        page.go_on()
        self.wait_for_fact("state", "finished")

    def test_a_page_that_fails_says_so(self):
        self.expected = ("TypeError",)
        page = self.live(until=0)
        page.setting["words"] = None
        self.open(page.address())
        self.wait_for_text(".refused", "the page failed: load it again")
        self.assertEqual(self.text("#connection"), "not connected")

    def test_a_moment_in_the_past_stays_while_the_run_goes_on(self):
        page = self.live(until=4)
        self.open(page.address())
        self.wait_for_fact("list", "4 entries")
        self.press("One phase back")
        self.wait_for_fact("list", "3 entries")
        page.go_on(6)
        self.wait(lambda: self.find(".slider").get_attribute("max") == "6", "more phases")
        self.assertEqual(self.fact("list"), "3 entries")
        self.press_text("latest")
        self.wait_for_fact("list", "6 entries")

    def test_a_viewer_goes_on_where_it_was_after_the_server_was_killed(self):
        self.expected = LOST
        page = self.live(until=5)
        self.open(page.address())
        self.wait_for_fact("list", "5 entries")
        page.kill()
        self.wait_for_text("#connection", "reconnecting")
        page.go_on()
        page.start()
        self.wait_for_fact("state", "finished")
        self.assertIn("?from=", next(path for path in reversed(page.asked) if "/events" in path))
        through = self.picture()
        self.open(page.address())
        self.wait_for_fact("state", "finished")
        self.assertEqual(self.picture(), through, "nothing is missing")

    def test_each_lost_stream_is_opened_again(self):
        self.expected = LOST
        page = self.live(until=0)
        self.open(page.address())
        for phase in range(1, 5):
            page.go_on(phase)
            self.wait_for_fact("list", f"{phase} {'entry' if phase == 1 else 'entries'}")
            page.cut()
            self.wait(lambda: page.streams > phase, "the next stream")
        page.go_on()
        self.wait_for_fact("state", "finished")

    def test_a_server_that_has_forgotten_the_instance_is_told(self):
        self.expected = LOST
        page = self.live(until=3)
        self.open(page.address())
        self.wait_for_fact("list", "3 entries")
        page.kill()
        page.refusal = (404, "there is no such instance", ())
        page.start()
        self.wait_for_text(".refused", "does not know this instance any more")
        self.assertEqual(self.fact("list"), "3 entries", "what was received stays")

    def test_a_history_that_is_shorter_is_told(self):
        self.expected = LOST
        page = self.live(until=3)
        self.open(page.address())
        self.wait_for_fact("list", "3 entries")
        page.kill()
        page.refusal = (409, "there are only 2 events", ())
        page.start()
        self.wait_for_text(".refused", "shorter than what was received")
        page.refusal = None
        self.press_text("Show it from the beginning")
        self.wait(lambda: not self.text(".refused") and self.fact("list") == "3 entries", "the instance from its beginning")

    def test_a_viewer_that_is_too_slow_or_one_too_many_tries_again(self):
        self.expected = LOST
        page = self.live(until=3)
        for refusal in [("inside", {"status": 429, "why": "this viewer is too slow"}, ()), (429, "too many viewers", [("retry-after", "1")])]:
            page.refusal = refusal
            self.open(page.address())
            why = refusal[1]["why"] if refusal[0] == "inside" else refusal[1]
            self.wait_for_text("#connection", why)
            page.refusal = None
            self.wait_for_fact("list", "3 entries")

    def test_history_that_is_not_kept_is_marked_missing(self):
        page = self.live(until=6)
        page.first = next(frame["events"][0]["index"] for frame in page.frames if any(event.get("phase") == 4 for event in frame["events"]))
        self.open(page.address())
        self.wait_for_text(".missing", f"first {page.first} events are not kept")
        self.wait_for_fact("list", "6 entries")
        self.assertEqual(len(self.all(".entries tbody tr")), 6, "the snapshot has the entries")
        self.press("To the beginning")
        self.wait_for_fact("list", "3 entries")
        page.go_on()
        self.press_text("latest")
        self.wait_for_fact("state", "finished")

    def test_a_history_that_begins_anew_has_no_rows_of_the_old_one(self):
        self.expected = LOST
        page = self.live(until=4)
        self.open(page.address())
        self.wait_for_fact("list", "4 entries")
        self.assertEqual(self.text("[aria-label=Events] li"), "gathering ends with 16 joined")
        page.kill()
        page.first = next(frame["events"][0]["index"] for frame in page.frames if any(event.get("phase") == 6 for event in frame["events"]))
        page.go_on(7)
        page.start()
        self.wait_for_fact("list", "7 entries")
        self.wait_for_text(".missing", f"begins with event {page.first}")
        sent = [event for frame in page.frames if page.phase_of(frame) in (6, 7) for event in frame["events"]]
        said = [event["says"] for event in sent if event.get("says")]
        self.wait(lambda: self.texts("[aria-label=Events] li span:first-child") == said, "the sentences of the new history alone")
        self.assertEqual(len(self.all(".entries tbody tr")), 7)
        page.go_on()
        self.wait_for_fact("state", "finished")

    def test_names_of_clients_are_only_text(self):
        page = self.live()
        page.setting["names"] = [HOSTILE] * page.setting["processes"]
        page.setting["title"] = HOSTILE
        for width in WIDTHS:
            self.width(width)
            self.open(page.address("?process=3"))
            self.wait_for_fact("state", "finished")
            self.wait_for_text(".chosen h3", "<b>\\u{202e}www")
            self.is_within_its_width()
            self.assertEqual(self.browser.execute_script("return document.querySelectorAll('main b').length"), 0)
            self.assertNotIn("\u202e", self.text("body") + self.browser.title + self.picture())

    def test_many_processes_are_shown_by_warps(self):
        folder = self.folder()
        scenario = folder / "many.toml"
        scenario.write_text(
            'name = "many"\n[instance]\nprocesses = 9000\nwarp_size = 36\nread_size = 250\n[proposals]\ndistinct = 2\n', encoding="utf-8"
        )
        page = StandIn(simulated(folder, scenario), until=40)
        self.addCleanup(page.stop)
        self.base = page.base
        page.first = next(frame["events"][0]["index"] for frame in page.frames if any(event.get("phase") == 20 for event in frame["events"]))
        self.open(page.address("?process=1"))
        self.wait_for_fact("list", "40 entries")
        self.assertIn("<title>warp 1: of 36 processes 36 have joined, 1 won, 0 lost, 0 have left</title>", self.picture(), "from counts")
        self.assertIn("<title>warp 30: of 36 processes 36 have joined, 1 won, 35 lost, 0 have left</title>", self.picture(), "as it was seen")
        page.go_on()
        self.wait_for_fact("state", "finished")
        self.wait(lambda: self.picture().count("36 have left</title>") == 250, "all 250 warps drawn as they ended")
        self.is_within_its_width()

    def test_a_token_opens_the_page_and_leaves_the_address(self):
        page = self.live(token=TOKEN)
        self.open(page.address(f"?phase=3&token={TOKEN}"))
        self.wait_for_fact("phase", "3")
        self.assertNotIn(TOKEN, self.browser.current_url)
        self.assertEqual(self.browser.get_cookies(), [])
        kept = self.browser.execute_script("return JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])")
        self.assertNotIn(TOKEN, kept)
        self.assertNotIn(TOKEN, "".join(page.asked))
        self.open(f"{page.base}#token={TOKEN}")
        self.wait_for_text("table", page.id.removesuffix("-3"))

    def test_a_viewer_without_a_token_is_told_how_to_get_one(self):
        self.expected = ("401",)
        page = self.live(token=TOKEN)
        for address in [page.address(), page.address("?token=expired"), page.base]:
            self.open(address)
            self.wait_for_text(".refused", "needs the link again")

    def test_a_foreign_token_is_refused(self):
        self.expected = ("403",)
        page = self.live(token=TOKEN)
        self.open(page.address("?token=foreign"))
        self.wait_for_text(".refused", "only members, the creator and observers may watch")

    def test_a_token_that_expires_ends_the_stream(self):
        self.expected = LOST
        page = self.live(until=3, token=TOKEN)
        self.open(page.address(f"?token={TOKEN}"))
        self.wait_for_fact("list", "3 entries")
        page.token = "another"
        page.cut()
        self.wait_for_text(".refused", "needs the link again")
        self.assertEqual(self.fact("list"), "3 entries")

    def test_the_table_shows_what_the_server_does(self):
        page = self.live()
        second = {"at": 0, "live": 3, "ended": 4, "accesses": 1234, "refusals": 5, "latency_ms": {"p50": 0.5, "p99": 2.25}, "viewers": 1, "offences": [], "offence_kinds": []}
        offence = {"instance": "i1", "name": HOSTILE, "process": 3, "says": f"process 3 commits an offence {HOSTILE}"}
        page.overview = [second, {**second, "accesses": 2345, "offences": [offence], "offence_kinds": [{"kind": "oversized", "count": 7}]}]
        page.rows = {"rows": [self.row("i1", HOSTILE), self.row("i2", "two")], "total": 1_000_000, "next": "p2"}
        for width in WIDTHS:
            self.width(width)
            self.open(page.base)
            self.wait_for_text(".lines", "2,345")
            self.wait_for_text(".lines", "2.3 ms")
            self.wait_for_text(".overview .panel", "7 x oversized at any instance")
            self.wait_for_text(".overview .panel", "commits an offence <b>\\u{202e}www")
            self.wait_for_text(".total", "1,000,000 in all")
            self.is_within_its_width()
            self.assertEqual(self.browser.execute_script("return document.querySelectorAll('main b').length"), 0)
            state = "return document.querySelector('tbody td').getBoundingClientRect().right"
            self.assertLess(self.browser.execute_script(state), width, "a long name leaves room for the state")
            self.is_accessible(f"the table at {width}")

    def test_the_server_filters_and_pages(self):
        page = self.live()
        page.rows = {"rows": [self.row("i1", "one")], "total": None, "next": "p2"}
        self.open(page.base)
        self.find("#state").send_keys("running")
        self.wait(lambda: any("state=running" in path for path in page.asked), "the filter")
        self.wait(lambda: self.browser.switch_to.active_element.get_attribute("id") == "state", "the focus on the same field")
        self.press_text("the next ones")
        self.wait(lambda: any("page=p2" in path for path in page.asked), "the next page")

    def test_the_table_has_what_runs_first_then_what_is_new(self):
        page = self.live()
        identity = "0123456789abcdef" * 2
        page.rows = {"total": 4, "next": None, "rows": [
            self.row("i1", "old", state="finished", created=1000, decided=4, decision="a"), self.row("i2", "ended", state="closed", created=3000, decided=2),
            self.row("i3", "slow", created=2000, offences=7), self.row(identity, "", created=4000, decided=0),
        ]}
        self.open(page.base)
        names = "tbody tr th"
        self.wait(lambda: self.texts(names) == ["01234567", "slow", "old", "ended"], "the rows")
        self.assertEqual(self.texts("tbody tr:first-child td")[3:4], ["0/4"])
        for title, first, sort in [("age", "01234567", "ascending"), ("age", "old", "descending"), ("offences", "ended", "ascending"), ("offences", "slow", "descending")]:
            self.press_text(title)
            self.assertEqual(self.text(names) if title == "age" else self.texts(names)[0 if sort == "descending" else -1], first if sort == "descending" or title == "age" else "slow")
            self.assertEqual(self.browser.execute_script("return document.querySelector('th[aria-sort=ascending], th[aria-sort=descending]').ariaSort"), sort)

    def test_an_empty_table_says_what_to_do(self):
        page = self.live()
        page.rows = {"rows": [], "total": 0, "next": None}
        self.open(page.base)
        self.wait_for_text(".total", "stickycas-client create --name demo")
        self.assertEqual(set(self.texts(".lines dd")), {"-"})
        self.open(f"{page.base}#/?state=running")
        self.press_text("show all")
        self.wait_for_text(".total", "stickycas-client create --name demo")

    def test_while_it_runs_the_verdict_is_that_of_this_moment(self):
        page = self.live("late-append-open", until=7)
        self.open(page.address())
        self.wait_for_text(".verdict", "so far nothing that is promised is broken")
        page.go_on()
        self.wait_for_text(".verdict", "BROKEN: agreement (not promised: append window open)")
        self.press("One phase back")
        self.wait(lambda: "BROKEN" not in self.text(".verdict"), "the moment before")

    def row(self, instance, name, **fields):
        return {
            "id": instance, "name": name, "state": "running", "created": 1_700_000_000_000, "processes": 4, "decided": 1, "decision": HOSTILE, "phase": 2,
            "awaited": [1, 3], "offences": 0, **fields,
        }
