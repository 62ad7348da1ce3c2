"""What an instance of 1,024 processes and 100 phases a second costs the browser: measure.py SECONDS

Prints JSON: frames per second (median and lowest of all seconds, and how many had less than 30), the heap of scripts after the garbage was collected and at its
largest, in bytes, and bytes per phase.
"""

import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from page import look, simulated, start_browser
from stand_in import StandIn

PHASES_PER_SECOND = 100
SCENARIO = """
name = "large"
about = "1,024 processes, for figures"
[instance]
processes = 1024
warp_size = 4
read_size = 1
order = "shuffled"
[proposals]
distinct = 4
"""
COUNT_FRAMES = """
window.seconds = [];
let frames = 0;
const count = () => { frames += 1; requestAnimationFrame(count); };
requestAnimationFrame(count);
setInterval(() => { window.seconds.push(frames); frames = 0; }, 1000);
"""


def heap(browser):
    """Bytes of objects, of what the browser keeps for them, and of typed arrays."""
    used = browser.execute_cdp_cmd("Runtime.getHeapUsage", {})
    return round(sum(used.get(name, 0) for name in ("usedSize", "embedderHeapUsedSize", "backingStorageSize")))


def measured(seconds, folder):
    """The figures of one instance that is watched for so long."""
    scenario = folder / "large.toml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    page = StandIn(simulated(folder, scenario), phases_per_second=PHASES_PER_SECOND, most_frames=PHASES_PER_SECOND * (seconds + 30))
    browser = start_browser()
    try:
        look(browser, 1440)
        browser.get(page.address())
        time.sleep(3)
        browser.execute_script(COUNT_FRAMES)
        heaps, begun = [], time.monotonic()
        while time.monotonic() - begun < seconds:
            time.sleep(1)
            heaps.append(heap(browser))
            browser.get_log("performance")
        frames = browser.execute_script("return window.seconds")
        phase = int(browser.execute_script("return document.querySelector('.slider').max"))
        browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        return {
            "seconds": seconds, "phases": phase, "frames_per_second": {"median": statistics.median(frames), "lowest": min(frames), "seconds_below_30": sum(count < 30 for count in frames)},
            "heap_bytes": {"at_the_end": heap(browser), "largest": max(heaps)},
            "bytes_per_phase": round(page.sent / phase),
        }
    finally:
        browser.quit()
        page.stop()


if __name__ == "__main__":
    place = Path(tempfile.mkdtemp())
    try:
        print(json.dumps(measured(int(sys.argv[1]), place), indent=2))
    finally:
        shutil.rmtree(place)
