"""The pictures of the README, and pictures for eyes: screenshots.py FOLDER [--all]

Two screenshots and one animation. With --all, every view in both widths and both schemes, whole, into FOLDER.
"""

import base64
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path

from page import ROOT, SCHEMES, WIDTHS, Served, look, simulated, start_browser
from selenium.webdriver.support.ui import WebDriverWait
from stand_in import StandIn

MILLISECONDS = 900
# From the title to the end of the picture.
BETWEEN = """
const from = document.querySelector('.title').getBoundingClientRect();
const to = document.querySelector('.stage').getBoundingClientRect();
return { x: 0, y: Math.round(from.top) - 8, width: innerWidth, height: Math.round(to.bottom - from.top) + 16, scale: 1 };
"""


class Camera:
    """A browser that takes pictures of pages."""

    def __init__(self):
        self.browser = start_browser()

    def open(self, address, width, height, scheme="light"):
        look(self.browser, width, height, scheme)
        self.browser.get("about:blank")
        self.browser.get(address)
        self.wait("return document.querySelector('main h1') !== null")
        # Until what was asked for has come and has been drawn.
        time.sleep(1)

    def wait(self, script):
        WebDriverWait(self.browser, 30, 0.05).until(lambda browser: browser.execute_script(script))

    def run(self, script):
        return self.browser.execute_script(script)

    def take(self, kind="png", **options):
        shot = self.browser.execute_cdp_cmd("Page.captureScreenshot", {"format": kind, **options})
        return base64.b64decode(shot["data"])

    def step(self, phase):
        self.run("document.querySelector('[aria-label=\"One phase on\"]').click()")
        self.wait(f"return document.querySelector('.facts div:nth-child(2) dd').textContent === '{phase}'")
        time.sleep(0.2)


def chunks(data):
    """The parts of a WebP file, each whole."""
    place = 12
    while place < len(data):
        size = struct.unpack_from("<I", data, place + 4)[0]
        end = place + 8 + size + size % 2
        yield data[place : place + 4], data[place:end]
        place = end


def number24(number):
    return struct.pack("<I", number)[:3]


def animation(frames, width, height, milliseconds):
    """An animated WebP of WebP pictures, without end."""
    def chunk(name, content):
        return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)

    body = chunk(b"VP8X", struct.pack("<I", 1 << 1) + number24(width - 1) + number24(height - 1))
    body += chunk(b"ANIM", struct.pack("<IH", 0xFFFFFFFF, 0))
    for at, frame in enumerate(frames):
        duration = milliseconds * (3 if at == len(frames) - 1 else 1)
        picture = b"".join(content for name, content in chunks(frame) if name in (b"VP8 ", b"VP8L", b"ALPH"))
        head = number24(0) + number24(0) + number24(width - 1) + number24(height - 1) + number24(duration) + b"\2"
        body += chunk(b"ANMF", head + picture)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def for_readme(camera, played, folder):
    """Two screenshots and an animation."""
    hole = played.make({"preset": "late-append-open"})
    camera.open(f"{played.base}#/instance/{hole}?phase=10", 1200, 760)
    (folder / "page-the-hole.png").write_bytes(camera.take())
    bound = played.make({"preset": "at-the-bound"})
    camera.open(f"{played.base}#/instance/{bound}?phase=0", 900, 900)
    clip = camera.run(BETWEEN)
    frames = [camera.take("webp", quality=60, clip=clip)]
    for phase in range(1, 15):
        camera.step(phase)
        frames.append(camera.take("webp", quality=60, clip=clip))
    (folder / "page-a-run.webp").write_bytes(animation(frames, clip["width"], clip["height"], MILLISECONDS))


def live(camera, folder, work):
    """An instance as it happens, in the dark."""
    page = StandIn(simulated(work, ROOT / "examples/scenarios/silent-minority.toml"), until=2)
    try:
        del page.setting["cast"]
        camera.open(page.address(), 1200, 760, "dark")
        (folder / "page-live.png").write_bytes(camera.take())
    finally:
        page.stop()


def every_view(camera, played, folder):
    """For eyes."""
    views = {"play": "#/play", "table": "#/"}
    for preset, phase in [("late-append-open", 8), ("over-the-bound", 5), ("silent-minority", 2)]:
        views[preset] = f"#/instance/{played.make({'preset': preset})}?phase={phase}&process=3"
    form = {
        "processes": 1024, "warp_size": 32, "read_size": 8, "byzantine": 40, "strategy": "collude(value=0)", "values": 3, "arbiter": "uniform",
        "append_window": "first_access", "order": "shuffled", "seed": 4,
    }
    views["large"] = f"#/instance/{played.make({'form': form})}?phase=40"
    for name, address in views.items():
        for width in WIDTHS:
            for scheme in SCHEMES:
                camera.open(played.base + address, width, 900, scheme)
                # Of what is below the window a picture may lack what is drawn on a canvas.
                look(camera.browser, width, camera.run("return document.documentElement.scrollHeight"), scheme)
                time.sleep(0.5)
                (folder / f"{name}-{width}-{scheme}.png").write_bytes(camera.take())


def main(folder, everything):
    folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp())
    played = Served("play")
    camera = Camera()
    try:
        if everything:
            every_view(camera, played, folder)
        else:
            for_readme(camera, played, folder)
            live(camera, folder, work)
    finally:
        camera.browser.quit()
        played.stop()
        shutil.rmtree(work)
    for file in sorted(folder.iterdir()):
        print(f"{file}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--all" in sys.argv)
