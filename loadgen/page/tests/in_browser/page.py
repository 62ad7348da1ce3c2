"""A real browser, headless Chromium driven by Selenium, and pages of the program that are served for one test.

Every test ends by asking the browser whether something was logged as an error, whether the content security policy was
violated, and whether anything was requested from elsewhere.
"""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import unittest
import urllib.request
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).resolve().parents[4]
PROGRAMS = Path(os.environ.get("STICKYCAS_PROGRAMS", ROOT / "target/debug")).resolve()
AXE = os.environ.get("AXE")
# Seconds until something that must come has not come. Nothing is measured by it.
PATIENCE = 40
WIDTHS = [390, 1440]
SCHEMES = ["light", "dark"]

FACT = """
const row = [...document.querySelectorAll('.facts div')].find((it) => it.firstChild.textContent === arguments[0]);
return row?.lastChild.textContent;
"""
POLICY = """
window.violations = [];
addEventListener('securitypolicyviolation', (event) => window.violations.push(event.violatedDirective + ' ' + event.blockedURI));
"""


class Browser:
    """The one browser of all tests."""

    driver = None
    downloads = None

    @classmethod
    def get(cls):
        if cls.driver is None:
            cls.downloads = tempfile.mkdtemp()
            cls.driver = start_browser(cls.downloads)
            atexit.register(cls.quit)
        return cls.driver

    @classmethod
    def quit(cls):
        cls.driver.quit()
        shutil.rmtree(cls.downloads)


def start_browser(downloads=None):
    """A new browser, which writes down what it logs and requests."""
    options = Options()
    for argument in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    if downloads:
        options.add_experimental_option("prefs", {"download.default_directory": downloads})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_page_load_timeout(PATIENCE)
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": POLICY})
    return driver


def look(driver, width, height=900, scheme="light", motion="no-preference", media="", forced="none"):
    """Sets the size of the window and what its user prefers."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion, "forced-colors": forced}
    features = [{"name": name, "value": value} for name, value in wanted.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


class Served:
    """A page that `stickycas-loadgen` serves. `address` is what it prints."""

    def __init__(self, *arguments):
        command = [PROGRAMS / "stickycas-loadgen", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = self.process.stdout.readline().strip()
        self.base = self.address.split("#")[0]

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def make(self, wanted):
        """Has a run made, and returns its id."""
        return post(f"{self.base}api/play/runs", wanted)["id"]


def post(address, content):
    request = urllib.request.Request(address, json.dumps(content).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def simulated(folder, scenario, seed=3):
    """The folder of a simulated run of this scenario file."""
    command = [PROGRAMS / "stickycas-loadgen", "simulate", scenario, "--seed", str(seed), "--out", folder / "run"]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (folder / "run").is_dir(), made.stderr
    return folder / "run"


class PageTest(unittest.TestCase):
    """A test with the browser. `base` is the address of the page without its fragment."""

    # Parts of messages that the browser may log: it logs each answer that is an error itself.
    expected = ()
    base = None

    def setUp(self):
        self.browser = Browser.get()
        self.expected = ()
        self.width(1440)
        self.browser.get_log("browser")
        self.browser.get_log("performance")

    def tearDown(self):
        violations = self.browser.execute_script("return window.violations")
        logged = [line["message"] for line in self.browser.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]
        asked = [json.loads(line["message"])["message"] for line in self.browser.get_log("performance")]
        # Streams end with the page, not when the next test has begun.
        self.browser.get("about:blank")
        self.assertEqual(violations or [], [], "violations of the policy")
        self.assertEqual([line for line in logged if not any(part in line for part in self.expected)], [])
        addresses = {it["params"]["request"]["url"] for it in asked if it["method"] == "Network.requestWillBeSent"}
        strangers = {it for it in addresses if not it.startswith((self.base, "blob:", "data:", "about:", "chrome:"))}
        self.assertEqual(strangers, set(), "requests to elsewhere")
        self.assertEqual([it for it in addresses if "token" in it.split("#")[0]], [], "a token in an address")

    def serve(self, *arguments):
        served = Served(*arguments)
        self.addCleanup(served.stop)
        self.base = served.base
        return served

    def folder(self):
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        return folder

    def open(self, address):
        # A page whose fragment alone changes is not loaded again.
        self.browser.get("about:blank")
        self.browser.get(address)

    def width(self, width, **preferences):
        look(self.browser, width, **preferences)

    def find(self, selector):
        return self.wait(lambda: self.browser.find_element(By.CSS_SELECTOR, selector), selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        """The text of the first such element, or nothing."""
        return self.browser.execute_script("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def texts(self, selector):
        return self.browser.execute_script("return [...document.querySelectorAll(arguments[0])].map((it) => it.textContent)", selector)

    def wait(self, condition, what):
        waiting = WebDriverWait(self.browser, PATIENCE, 0.05, ignored_exceptions=(WebDriverException, AttributeError))
        return waiting.until(lambda _: condition(), f"never came: {what}")

    def wait_for_text(self, selector, part):
        self.wait(lambda: part in self.text(selector), f"{part!r} in {selector}: {self.text(selector)!r}")

    def press(self, label):
        self.find(f'[aria-label="{label}"]').click()

    def press_text(self, text):
        self.wait(lambda: next((it for it in self.all("button") if it.text == text), None), text).click()

    def fill(self, field, text):
        node = self.find(field)
        node.send_keys(Keys.CONTROL, "a")
        node.send_keys(text)

    def fact(self, name):
        return self.browser.execute_script(FACT, name)

    def wait_for_fact(self, name, value):
        self.wait(lambda: self.fact(name) == value, f"{name} = {value}, not {self.fact(name)}")

    def saved(self, phase):
        """The text of the picture of this phase, saved as a file."""
        def texts():
            return [file.read_text(encoding="utf-8") for file in Path(Browser.downloads).glob(f"?*-phase-{phase}.svg")]

        for file in Path(Browser.downloads).iterdir():
            file.unlink()
        self.press_text("Save as SVG")
        # It is there before it is whole.
        self.wait(lambda: any(text.rstrip().endswith("</svg>") for text in texts()), "the whole file")
        return texts()[0]

    def is_within_its_width(self):
        inner, outer = self.browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(inner, outer, "the page is wider than its window")

    def is_accessible(self, what):
        """By axe-core, where it is given."""
        if not AXE:
            self.skipTest("AXE is not given: use scripts/page")
        if not self.browser.execute_script("return 'axe' in window"):
            self.browser.execute_script(Path(AXE).read_text(encoding="utf-8"))
        found = self.browser.execute_async_script("axe.run().then(arguments[0], (error) => arguments[0]({ error: String(error) }))")
        problems = [(it["id"], [node["target"] for node in it["nodes"]][:3]) for it in found.get("violations", [found])]
        self.assertEqual(problems, [], what)
