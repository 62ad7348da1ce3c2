#!/usr/bin/python3
"""The live page in a real browser: headless Chromium, driven by Selenium (Debian: chromium-driver, python3-selenium).

    page/tests/browser.py PROGRAMS [-k NAME]     PROGRAMS: the folder with stickycas-loadgen

Every test ends by asking the browser whether something was logged as an error, whether the content security policy was
violated, and whether anything was requested from elsewhere. AXE, if given in the environment, is the file axe.min.js, by which
accessibility is checked.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request
import xml.etree.ElementTree as xml
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
PATIENCE = 30
WIDTHS = [390, 1440]
SCHEMES = ["light", "dark"]
# What a hostile client may choose as a value: markup, a change of direction, control characters, and one long word.
HOSTILE = ["<img src=x onerror=alert(1)>", "\u202egnirts\u202c", "a\u0007\u001b[31mb", "w" * 1000, "</svg><script>x</script>"]


class Page(unittest.TestCase):
    """A browser, and pages that are served for one test."""

    @classmethod
    def setUpClass(cls):
        options = Options()
        for argument in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"]:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        cls.downloads = tempfile.mkdtemp()
        options.add_experimental_option("prefs", {"download.default_directory": cls.downloads})
        cls.browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        shutil.rmtree(cls.downloads)

    def setUp(self):
        self.width(1440)

    def tearDown(self):
        logged = self.browser.get_log("browser")
        self.assertEqual([line["message"] for line in logged if line["level"] in ("SEVERE", "WARNING")], [])
        asked = [json.loads(line["message"])["message"] for line in self.browser.get_log("performance")]
        addresses = {it["params"]["request"]["url"] for it in asked if it["method"] == "Network.requestWillBeSent"}
        strangers = {it for it in addresses if not it.startswith((self.base, "blob:", "data:", "about:", "chrome:"))}
        self.assertEqual(strangers, set(), "requests to elsewhere")

    def serve(self, *arguments):
        """Starts a page and returns the address that it prints."""
        server = subprocess.Popen([PROGRAMS / "stickycas-loadgen", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(server.wait)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.kill)
        address = server.stdout.readline().strip()
        self.base = address.split("#")[0]
        return address

    def make(self, wanted):
        request = urllib.request.Request(f"{self.base}api/play/runs", json.dumps(wanted).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["id"]

    def open(self, address):
        # A page whose fragment alone changes is not loaded again.
        self.browser.get("about:blank")
        self.browser.get(address)

    def width(self, width, height=900, scheme="light", motion="no-preference"):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        features = [{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def find(self, selector):
        return self.wait(lambda: self.browser.find_element(By.CSS_SELECTOR, selector), selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, condition, what):
        waiting = WebDriverWait(self.browser, PATIENCE, 0.05, ignored_exceptions=(Exception,))
        return waiting.until(lambda _: condition(), f"never came: {what}")

    def press(self, label):
        self.find(f'[aria-label="{label}"]').click()

    def fact(self, name):
        return self.browser.execute_script(
            "return [...document.querySelectorAll('.facts div')].find((it) => it.firstChild.textContent === arguments[0])?.lastChild.textContent", name
        )

    def wait_for_fact(self, name, value):
        self.wait(lambda: self.fact(name) == value, f"{name} = {value}, not {self.fact(name)}")

    def is_within_its_width(self):
        inner, outer = self.browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(inner, outer, "the page is wider than its window")


class Play(Page):
    def setUp(self):
        super().setUp()
        self.start = self.serve("play")

    def test_each_preset_runs_and_says_why_it_ended_so(self):
        verdicts = {
            "all-correct": "verdict: valid", "at-the-bound": "verdict: valid", "over-the-bound": "verdict: outside",
            "late-append-open": "verdict: outside", "late-append": "verdict: valid", "silent-minority": "verdict: valid",
        }
        self.open(self.start)
        self.wait(lambda: len(self.all(".presets button")) == len(verdicts), "presets")
        for name, verdict in verdicts.items():
            self.open(self.start)
            self.wait(lambda: self.all(".presets button"), "presets")
            next(button for button in self.all(".presets button") if button.text == name).click()
            self.wait(lambda: verdict in self.find(".why").text, f"{verdict} of {name}")
            self.assertEqual(self.fact("phase"), "0", "it begins at the beginning")

    def test_the_hole_is_seen_step_by_step(self):
        self.open(f"{self.base}#/instance/{self.preset('late-append-open')}?phase=7")
        self.wait_for_fact("list", "4 entries")
        decisions = lambda: [it.text.split("\n")[0] for it in self.all(".decisions li")]
        self.press("One phase on")
        self.wait_for_fact("list", "5 entries, sealed")
        self.press("One phase on")
        self.press("One phase on")
        self.wait(lambda: sorted(decisions()) == ["a", "b"], "two decisions")

    def preset(self, name):
        return self.make({"preset": name})

    def test_time_goes_both_ways(self):
        self.open(f"{self.base}#/instance/{self.preset('all-correct')}")
        self.wait_for_fact("state", "finished")
        last = self.fact("phase")
        self.press("To the beginning")
        self.wait_for_fact("list", "0 entries")
        for phase in ["1", "2", "3"]:
            self.press("One phase on")
            self.wait_for_fact("phase", phase)
        won = len(self.all(".process.won"))
        self.press("One phase back")
        self.wait_for_fact("phase", "2")
        self.assertEqual(len(self.all(".process.won")), won - 1)
        self.assertIn("?phase=2", self.browser.current_url)
        slider = self.find(".slider")
        slider.send_keys(Keys.END)
        self.wait_for_fact("phase", last)
        self.press("To the beginning")
        self.find("[aria-label=Speed]").send_keys("64")
        self.press("Play")
        self.wait_for_fact("phase", last)
        self.wait(lambda: self.all('[aria-label="Play"]'), "it stops at the end")

    def test_a_link_names_instance_and_phase(self):
        self.open(f"{self.base}#/instance/{self.preset('at-the-bound')}?phase=4")
        self.wait_for_fact("phase", "4")
        self.assertEqual(self.find(".slider").get_attribute("value"), "4")

    def test_an_instance_that_is_not_there_is_told(self):
        self.open(f"{self.base}#/instance/nothing")
        self.wait(lambda: "no run of this name" in self.find(".refused").text, "the refusal")
        # Chromium logs every answer of 404 itself.
        logged = self.browser.get_log("browser")
        self.assertTrue(all("404" in line["message"] for line in logged), logged)

    def test_the_form_says_what_is_promised_and_what_is_wrong(self):
        self.open(self.start)
        promises = lambda: self.find(".promises").text
        self.wait(lambda: "1*(2+1)*2 = 6 < 12 = n" in promises(), "the inequality")
        self.fill("byzantine", "2")
        self.wait(lambda: "strong validity: not promised" in promises(), "no promise")
        self.fill("strategy", "nothing-of-the-kind")
        self.wait(lambda: "nothing-of-the-kind" in self.find("[role=alert]").text, "what is wrong")
        self.assertFalse(self.find(".run").is_enabled())
        self.fill("strategy", "silent")
        self.wait(lambda: self.find(".run").is_enabled(), "the button")
        self.find(".run").click()
        self.wait(lambda: "verdict:" in self.find(".why").text, "the run")
        logged = self.browser.get_log("browser")
        self.assertTrue(all("422" in line["message"] for line in logged), logged)

    def fill(self, name, text):
        field = self.find(f"#play-{name}")
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text)

    def test_a_process_is_chosen_by_mouse_and_by_keys(self):
        self.open(f"{self.base}#/instance/{self.preset('over-the-bound')}")
        self.find('[data-process="3"]').click()
        self.wait(lambda: "wins phase" in self.find(".chosen-process").text, "what it did")
        self.assertIn("Byzantine: plays collude(value=0)", self.find(".chosen-process").text)
        self.find("svg.picture").send_keys(Keys.ARROW_RIGHT)
        self.wait(lambda: "process 4" in self.find(".chosen-process h3").text, "the next one")
        self.assertIn("correct, proposes b", self.find(".chosen-process").text)

    def test_a_picture_is_saved_as_a_file_that_stands_alone(self):
        self.open(f"{self.base}#/instance/{self.preset('at-the-bound')}?phase=5")
        self.wait_for_fact("phase", "5")
        self.press("Save this picture as SVG")
        file = Path(self.downloads) / "phase-5.svg"
        self.wait(file.exists, "the file")
        root = xml.parse(file).getroot()
        rects = root.findall(".//{http://www.w3.org/2000/svg}rect")
        self.assertGreaterEqual(len(rects), 13)
        self.assertTrue(all("class" not in rect.attrib for rect in rects))

    def test_large_instances_are_drawn_whole_or_in_groups(self):
        form = {"processes": 1024, "warp_size": 32, "read_size": 32, "byzantine": 3, "strategy": "collude(value=0)", "values": 2,
                "arbiter": "uniform", "append_window": "first_access", "order": "shuffled", "seed": 4}
        self.open(f"{self.base}#/instance/{self.make({'form': form})}")
        self.wait_for_fact("state", "finished")
        self.wait(lambda: len(self.all(".process.left")) > 1000, "all processes")


class View(Page):
    """A folder whose values are what hostile clients would choose."""

    def setUp(self):
        super().setUp()
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        values = ", ".join(json.dumps(value) for value in [*HOSTILE, "a", "a", "a"])
        scenario = folder / "hostile.toml"
        scenario.write_text(
            f'name = "hostile"\nabout = {json.dumps(HOSTILE[0] + "x" * 300)}\n[instance]\nprocesses = 8\nwarp_size = 1\n'
            f"read_size = 8\n[proposals]\nvalues = [{values}]\n", encoding="utf-8"
        )
        made = subprocess.run([PROGRAMS / "stickycas-loadgen", "simulate", scenario, "--seed", "1", "--out", folder / "run"], capture_output=True, text=True, check=False)
        self.assertTrue((folder / "run").is_dir(), made.stderr)
        self.start = self.serve("view", folder / "run")

    def test_texts_of_clients_are_only_text(self):
        for width in WIDTHS:
            for scheme in SCHEMES:
                self.width(width, scheme=scheme)
                self.open(self.start)
                self.wait(lambda: "verdict:" in self.find(".why").text, "the reasons")
                self.is_within_its_width()
                injected = self.browser.execute_script("return document.querySelectorAll('main img, main script, main iframe').length")
                self.assertEqual(injected, 0)
                text = self.find("main").text
                self.assertNotIn("\u202e", text)
                self.assertNotIn("\u0007", text)

    def test_both_schemes_have_colours_of_their_own(self):
        seen = set()
        for scheme in SCHEMES:
            self.width(1440, scheme=scheme)
            self.open(self.start)
            self.find("svg.picture .process")
            seen.add(self.browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(len(seen), 2)

    def test_nothing_moves_if_less_motion_is_wanted(self):
        self.width(1440, motion="reduce")
        self.open(self.start)
        self.find("svg.picture .lane")
        moving = self.browser.execute_script(
            "return [...document.querySelectorAll('*')].filter((it) => getComputedStyle(it).transitionDuration !== '0s').length"
        )
        self.assertEqual(moving, 0)

    @unittest.skipUnless(os.environ.get("AXE"), "AXE is not given: pip install axe-core-python, and name its axe.min.js")
    def test_it_is_accessible(self):
        axe = Path(os.environ["AXE"]).read_text(encoding="utf-8")
        for width in WIDTHS:
            for scheme in SCHEMES:
                self.width(width, scheme=scheme)
                self.open(self.start)
                self.wait(lambda: "verdict:" in self.find(".why").text, "the reasons")
                self.browser.execute_script(axe)
                found = self.browser.execute_async_script("const done = arguments[0]; axe.run().then(done, (error) => done({ error: String(error) }));")
                problems = [(it["id"], [node["target"] for node in it["nodes"]][:3]) for it in found.get("violations", [found])]
                self.assertEqual(problems, [], f"{width} {scheme}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAMS = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
