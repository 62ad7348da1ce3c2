"""Runs that a viewer makes up, and one of them at any moment: the form, the presets, time, links, keys, the file."""

import xml.etree.ElementTree as xml

from page import SCHEMES, WIDTHS, PageTest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

VERDICTS = {
    "all-correct": "VALID", "at-the-bound": "VALID", "late-append": "VALID", "silent-minority": "VALID",
    "over-the-bound": "BROKEN: strong validity (not promised: f*(|Vc|+1)*p < n does not hold: 2*(2+1)*2 = 12 >= 12)",
    "late-append-open": "BROKEN: agreement (not promised: append window open)",
    "one-append-round": "BROKEN: common-value validity (not promised: 2*f*p < n does not hold: 2*3*4 = 24 >= 8), "
    "strong validity (not promised: f*(|Vc|+1)*p < n does not hold: 3*(1+1)*4 = 24 >= 8)",
    "append-rounds": "VALID",
}
SVG = "{http://www.w3.org/2000/svg}"


class Play(PageTest):
    def setUp(self):
        super().setUp()
        self.served = self.serve("play")

    def preset(self, name):
        return self.served.make({"preset": name})

    def open_preset(self, name, rest=""):
        self.open(f"{self.base}#/instance/{self.preset(name)}{rest}")

    def test_each_preset_runs_and_says_why_it_ended_so(self):
        for name, verdict in VERDICTS.items():
            self.open(self.served.address)
            self.find(f"[data-preset={name}]").click()
            self.wait_for_text(".why", verdict)
            self.wait_for_fact("phase", "0")
            self.assertIn("1 of ", self.text(".story .note"))
            self.assertEqual(self.text(".verdict strong"), "so far nothing that is promised is broken")
            self.assertFalse(self.find(".why").is_displayed(), "a moment of the past does not tell the end")
            self.press_text("latest")
            self.wait(lambda: self.text(".verdict strong") == verdict, verdict)
            self.press_text("why")
            self.wait(lambda: self.browser.execute_script("return document.querySelector('.why').getBoundingClientRect().top < innerHeight"), "the reasons")

    def test_a_story_is_told_step_by_step_to_its_end(self):
        for name in VERDICTS:
            self.open_preset(name, "?phase=0")
            self.wait_for_fact("phase", "0")
            said = set()
            while self.find(".story .primary").is_enabled():
                self.assertNotIn(self.text(".story p"), said)
                said.add(self.text(".story p"))
                self.find(".story .primary").click()
                self.wait(lambda: self.text(".story p") not in said, f"the next step of {name}")
            self.assertGreaterEqual(len(said), 3, name)

    def test_the_hole_is_seen_step_by_step_to_the_disagreement(self):
        self.open_preset("late-append-open", "?phase=7")
        self.wait_for_fact("list", "4 entries")
        self.assertEqual(self.texts(".decisions .value"), ["a"])
        self.press("One phase on")
        self.wait_for_fact("list", "5, sealed")
        self.assertIn("append", self.text("[aria-label=Offences]"))
        self.press("One phase on")
        self.press("One phase on")
        self.wait(lambda: sorted(set(self.texts(".decisions .value"))) == ["a", "b"], "two decisions")
        self.assertIn("had read 5 entries: 3 x b, 2 x a", self.text(".decisions"))
        self.assertIn("had read 4 entries: 2 x a, 2 x b; a tie", self.text(".decisions"))
        self.assertEqual(self.texts(".verdict li"), ["agreement broken: 1, 2 decided a; 4, 5 decided b"])
        for scheme in SCHEMES:
            self.width(1440, scheme=scheme)
            self.is_accessible(f"the disagreement, {scheme}")

    def test_processes_that_decide_otherwise_look_otherwise(self):
        def looks():
            groups = {}
            for group in xml.fromstring(self.saved(self.fact("phase"))).iter(f"{SVG}g"):
                title = group.find(f"{SVG}title").text
                if title.startswith("process "):
                    boxes = [it for it in group.iter(f"{SVG}rect") if "rx" in it.attrib]
                    groups[int(title.split(" ")[1].rstrip(","))] = (boxes[0].get("fill"), len(list(group.iter(f"{SVG}path"))))
            return groups

        self.open_preset("late-append-open", "?phase=8")
        self.wait_for_fact("phase", "8")
        green, tick = looks()[1]
        self.assertEqual(tick, 1)
        self.press_text("latest")
        self.wait_for_fact("state", "finished")
        split = looks()
        fills = [split[process][0] for process in (1, 2, 4, 5)]
        self.assertEqual((fills[0], fills[2]), (fills[1], fills[3]))
        self.assertEqual(len({green, fills[0], fills[2], split[3][0]}), 4, "of those who agree, of both decisions, and of a Byzantine process")
        self.assertEqual(split[1][1], 0, "no tick")
        self.assertGreater(split[4][1], 2, "a hatch")

    def test_a_moment_of_the_past_tells_nothing_of_later_ones(self):
        self.open_preset("over-the-bound", "?phase=2&process=3")
        self.wait_for_text(".chosen", "process 3 decides 0")
        visible = "return [...document.querySelectorAll('.chosen li')].filter((it) => !it.hidden).map((it) => it.textContent)"
        self.assertIn("process 3 wins phase 2: 0 is added at 1", self.browser.execute_script(visible))
        self.assertNotIn("process 3 decides 0", self.browser.execute_script(visible))
        self.assertIn("more after this moment", self.text(".chosen"))
        self.press_text("latest")
        self.wait(lambda: "process 3 decides 0" in self.browser.execute_script(visible), "the decision")
        self.assertEqual(self.texts(".verdict li"), ["strong validity broken: 2, 4 to 12 decided 0, which no correct process proposed"])

    def test_the_root_is_the_form_with_the_runs_made_before(self):
        self.preset("all-correct")
        self.open(self.base)
        self.find("[data-preset=all-correct]")
        self.wait(lambda: self.texts("main > .panel:last-child a") == ["all-correct-3"], "the run")

    def test_what_is_pressed_is_legible_in_forced_colours(self):
        self.open_preset("all-correct", "?phase=0")
        self.width(1440, forced="active")
        self.addCleanup(self.width, 1440)
        self.press_text("latest")
        colours = "const { color, backgroundColor, forcedColorAdjust } = getComputedStyle(document.querySelector(arguments[0])); return [color, backgroundColor, forcedColorAdjust]"
        for button in [".latest[aria-pressed=true]", ".story .primary"]:
            # Otherwise the browser puts a plate behind the label.
            self.wait(lambda: self.browser.execute_script(colours, button)[2] == "none", f"colours of its own, {button}")
            ink, ground, _ = self.browser.execute_script(colours, button)
            self.assertNotEqual(ink, ground)

    def test_nobody_hears_of_an_instance_that_was_left(self):
        self.expected = ("404",)
        self.open_preset("all-correct", "?process=3")
        self.wait_for_text("#told", "process 3")
        self.browser.execute_script("location.hash = '#/instance/nothing'")
        self.wait_for_text(".refused", "no run of this name")
        self.assertEqual(self.text("#told"), "")

    def test_on_paper_nothing_is_cut_off_and_no_control_is_seen(self):
        self.open_preset("at-the-bound")
        self.wait_for_fact("state", "finished")
        canvas = "return document.querySelector('.picture canvas').getBoundingClientRect().right"
        wide = self.browser.execute_script(canvas)
        # The width of A4 between its margins. The picture keeps the size that it has in the window.
        self.width(718, media="print")
        self.addCleanup(self.width, 1440)
        self.assertEqual([it.text for it in self.all("button, input, select") if it.is_displayed() and "link" not in (it.get_attribute("class") or "")], [])
        self.assertLessEqual(self.browser.execute_script(canvas), 718)
        self.assertLess(718, wide)
        self.is_within_its_width()
        scrolled = "return [...document.querySelectorAll('.rows, .scroll')].filter((it) => it.scrollHeight > it.clientHeight + 1 && getComputedStyle(it).overflowY !== 'visible').length"
        self.assertEqual(self.browser.execute_script(scrolled), 0)
        self.assertIn("VALID", self.text(".verdict"))

    def test_time_goes_both_ways_and_plays(self):
        self.open_preset("all-correct")
        self.wait_for_fact("state", "finished")
        last = self.fact("phase")
        self.press("To the beginning")
        self.wait_for_fact("list", "0 entries")
        for phase in ["1", "2", "3"]:
            self.press("One phase on")
            self.wait_for_fact("phase", phase)
        self.assertEqual(self.fact("list"), "3 entries")
        self.press("One phase back")
        self.wait_for_fact("phase", "2")
        self.assertEqual(len(self.all(".entries tbody tr")), 2)
        self.wait(lambda: "?phase=2" in self.browser.current_url, "the address")
        self.find(".slider").send_keys(Keys.END)
        self.wait_for_fact("phase", last)
        self.press("To the beginning")
        self.find("[aria-label=Speed]").send_keys("64")
        self.press("Play")
        self.wait_for_fact("phase", last)
        self.wait(lambda: self.all('[aria-label="Play"]'), "it stops at the end")

    def test_a_link_names_instance_phase_and_process(self):
        self.open_preset("at-the-bound", "?phase=4&process=7")
        self.wait_for_fact("phase", "4")
        self.assertEqual(self.find(".slider").get_attribute("value"), "4")
        self.wait_for_text(".chosen", "wins phase 4")

    def test_an_entry_leads_to_its_process_and_phase(self):
        self.open_preset("over-the-bound")
        self.wait_for_fact("state", "finished")
        self.press_text("process 3, phase 2")
        self.wait_for_fact("phase", "2")
        self.wait_for_text(".chosen", "Byzantine: plays collude(value=0)")

    def test_an_instance_that_is_not_there_is_told(self):
        self.expected = ("404",)
        self.open(f"{self.base}#/instance/nothing")
        self.wait_for_text(".refused", "no run of this name")

    def test_the_form_says_what_is_promised_and_what_is_wrong(self):
        self.expected = ("422",)
        self.open(self.served.address)
        self.wait_for_text(".promises", "1*(2+1)*2 = 6 < 12 = n")
        self.fill("#play-byzantine", "2")
        self.wait_for_text(".promises", "strong validity: not promised")
        self.fill("#play-strategy", "nothing-of-the-kind")
        self.wait_for_text("#play-strategy + [role=alert]", 'there is no strategy "nothing-of-the-kind": give one of ')
        self.assertNotIn("form:", self.text("[role=alert]"))
        self.fill("#play-strategy", "colude(value=0)")
        self.wait_for_text("#play-strategy + [role=alert]", "did you mean collude?")
        self.assertFalse(self.find(".form .primary").is_enabled())
        self.fill("#play-strategy", "silent")
        self.wait(lambda: self.find(".form .primary").is_enabled(), "the button")
        self.find(".form .primary").click()
        self.wait_for_text(".why", "What was run")

    def test_a_process_is_chosen_by_keys_mouse_and_number(self):
        self.open_preset("over-the-bound")
        self.wait_for_fact("state", "finished")
        picture = self.find(".picture")
        for _ in range(3):
            picture.send_keys(Keys.ARROW_RIGHT)
        self.wait_for_text(".chosen h3", "process 3")
        self.wait_for_text("#told", "plays collude(value=0)")
        picture.send_keys(Keys.ARROW_DOWN)
        self.wait_for_text(".chosen h3", "process 5")
        self.fill("#process", "11")
        self.find("#process").send_keys(Keys.ENTER)
        self.wait_for_text(".chosen h3", "process 11")
        self.click_first_process()
        self.wait(lambda: self.text(".chosen h3") == "process 1", "the process that was clicked")

    def click_first_process(self):
        """It stands at the left, below the list."""
        canvas = self.find(".picture canvas")
        self.browser.execute_script("scrollTo(0, 0)")
        ActionChains(self.browser).move_to_element_with_offset(canvas, 110 - canvas.size["width"] // 2, 94 - canvas.size["height"] // 2).click().perform()

    def test_everything_is_reached_by_tab(self):
        self.open_preset("at-the-bound")
        self.wait_for_text(".why", "What was run")
        reached = set()
        body = self.browser.find_element(By.CSS_SELECTOR, "body")
        body.send_keys(Keys.TAB)
        for _ in range(60):
            reached.add(self.browser.execute_script("const it = document.activeElement; return it.getAttribute('aria-label') ?? it.textContent"))
            self.browser.switch_to.active_element.send_keys(Keys.TAB)
        wanted = {"To the content", "Play", "Phase", "Speed", "latest", "Save as SVG", "Entries", "process 1, phase 1"}
        self.assertEqual(wanted - reached, set())
        self.assertTrue(any((name or "").startswith("The warps and their processes") for name in reached))

    def test_a_picture_is_saved_as_a_file_that_stands_alone(self):
        self.open_preset("at-the-bound", "?phase=5")
        self.wait_for_fact("phase", "5")
        root = xml.fromstring(self.saved(5))
        titles = [it.text for it in root.iter(f"{SVG}title")]
        self.assertTrue(any(title.startswith("process 1, its append won, at position 0") for title in titles), titles)
        self.assertTrue(any(title.startswith("entry 4: b, of process 9 in phase 5") for title in titles), titles)
        self.assertEqual(len([title for title in titles if title.startswith("process ")]), 13)
        styled = [it for it in root.iter() if "class" in it.attrib or "style" in it.attrib or it.tag == f"{SVG}style"]
        self.assertEqual(styled, [])

    def test_large_instances_are_drawn_whole(self):
        form = {
            "processes": 1024, "warp_size": 32, "read_size": 32, "byzantine": 3, "strategy": "collude(value=0)", "values": 2,
            "arbiter": "uniform", "append_window": "first_access", "order": "shuffled", "seed": 4,
        }
        self.open(f"{self.base}#/instance/{self.served.make({'form': form})}")
        self.wait_for_fact("state", "finished")
        phase = self.fact("phase").replace(",", "")
        titles = [it.text for it in xml.fromstring(self.saved(phase)).iter(f"{SVG}title")]
        self.assertEqual(len([it for it in titles if it.startswith("process ") and "has decided and left" in it]), 1024)
        self.assertIn("1,024 processes in 32 groups (warps) of 32; a read returns up to 32 entries.", self.text(".title .note"))
        for width in [390, 768, 1440]:
            self.width(width)
            self.is_within_its_width()
            cut = "return [...document.querySelectorAll('.facts dd')].filter((it) => it.scrollWidth > it.clientWidth).map((it) => it.textContent)"
            self.assertEqual(self.browser.execute_script(cut), [], f"facts at {width}")

    def test_the_table_says_what_the_picture_shows(self):
        self.open_preset("at-the-bound")
        self.wait_for_fact("state", "finished")
        self.browser.execute_script("document.querySelectorAll('details').forEach((it) => { it.open = true; })")
        self.wait(lambda: len(self.all(".keys tbody tr")) == 7, "the warps")
        self.assertEqual(self.texts(".keys tbody tr:last-child th, .keys tbody tr:last-child td")[2:], ["1", "1", "0", "1", "0", "1", "0", "0"])

    def test_append_rounds_are_a_slider(self):
        self.open(self.served.address + "?append_rounds=2")
        self.wait_for_text(".promises", "f*(|Vc|+1) = 1*(2+1) = 3 < 12 = T")
        for field, text in {"processes": "8", "warp_size": "4", "byzantine": "3", "values": "1"}.items():
            self.fill(f"#play-{field}", text)
        self.wait_for_text(".promises", "2*f = 2*3 = 6 >= 4 = T")
        self.find("#play-append_rounds").send_keys(Keys.END)
        self.wait_for_text(".promises", "2*f = 2*3 = 6 < 8 = T")
        self.assertIn("append_rounds = 4", self.browser.execute_script("return document.querySelector('.file').textContent"))
        self.assertIn("q, append rounds: 4", self.texts("label"))
        self.find(".form .primary").click()
        self.wait(lambda: self.all("#promise-rounds"), "the run")
        self.find("#promise-rounds").send_keys(Keys.HOME)
        self.wait_for_text(".promises", "2*f*p = 2*3*4 = 24 >= 8 = n")

    def test_the_form_is_accessible_and_fits(self):
        for width in WIDTHS:
            self.width(width)
            self.open(self.served.address)
            self.wait_for_text(".promises", "promised")
            self.is_within_its_width()
            self.is_accessible(f"the form at {width}")
