"""A run whose texts are what hostile clients would choose, in both widths and both schemes."""

import json

from page import SCHEMES, WIDTHS, PageTest, simulated

# Markup, a change of direction, control characters, one long word, and what would end an element of a picture.
HOSTILE = ["<img src=x onerror=alert(1)>", "\u202egnirts\u202c", "a\u0007\u001b[31mb", "w" * 1000, "</svg><script>x</script>"]


class View(PageTest):
    def setUp(self):
        super().setUp()
        folder = self.folder()
        values = ", ".join(json.dumps(value) for value in [*HOSTILE, "a", "a", "a"])
        scenario = folder / "hostile.toml"
        scenario.write_text(
            f'name = "hostile"\nabout = {json.dumps(HOSTILE[0] + "x" * 300)}\n[instance]\nprocesses = 8\nwarp_size = 1\n'
            f"read_size = 8\n[proposals]\nvalues = [{values}]\n", encoding="utf-8"
        )
        self.served = self.serve("view", simulated(folder, scenario, 1))

    def each_look(self):
        for width in WIDTHS:
            for scheme in SCHEMES:
                self.width(width, scheme=scheme)
                self.open(self.served.address)
                self.wait_for_text(".why", "What was run")
                yield f"{width} {scheme}"

    def test_texts_of_clients_are_only_text(self):
        for what in self.each_look():
            self.is_within_its_width()
            injected = self.browser.execute_script("return document.querySelectorAll('img, main script, iframe, [style*=url]').length")
            self.assertEqual(injected, 0, what)
            text = self.text("body") + self.saved(self.fact("phase"))
            for hidden in "\u202e\u202c\u0007\u001b":
                self.assertNotIn(hidden, text, what)
            self.assertIn("0xe280ae676e69727473e280ac", text, what)
            self.assertNotIn("<img", self.saved(self.fact("phase")))

    def test_the_root_is_the_run(self):
        self.open(self.served.base)
        self.wait_for_text(".why", "What was run")
        self.assertIn("#/instance/hostile-1", self.browser.current_url)

    def test_long_texts_do_not_move_the_layout(self):
        self.width(1440)
        self.open(self.served.address)
        self.wait_for_text(".why", "What was run")
        place = "const { x, width } = document.querySelector(arguments[0]).getBoundingClientRect(); return [x, width]"
        at_end = [self.browser.execute_script(place, it) for it in [".stage", ".narrow", ".clock"]]
        self.press("To the beginning")
        self.wait_for_fact("phase", "0")
        self.assertEqual([self.browser.execute_script(place, it) for it in [".stage", ".narrow", ".clock"]], at_end)

    def test_both_schemes_have_colours_of_their_own(self):
        seen = set()
        for scheme in SCHEMES:
            self.width(1440, scheme=scheme)
            self.open(self.served.address)
            self.wait_for_text(".why", "What was run")
            pixel = "return [...document.querySelector('.picture canvas').getContext('2d').getImageData(90, 20, 1, 1).data].join()"
            seen.add((self.browser.execute_script("return getComputedStyle(document.body).backgroundColor"), self.browser.execute_script(pixel)))
        self.assertEqual(len({body for body, _ in seen}), 2)
        self.assertEqual(len({picture for _, picture in seen}), 2)

    def test_a_change_of_the_scheme_recolours_the_picture(self):
        self.open(self.served.address)
        self.wait_for_text(".why", "What was run")
        before = self.saved(self.fact("phase"))
        self.width(1440, scheme="dark")
        self.wait(lambda: self.saved(self.fact("phase")) != before, "other colours")

    def test_nothing_moves_if_less_motion_is_wanted(self):
        self.width(1440, motion="reduce")
        self.open(self.served.address)
        self.wait_for_text(".why", "What was run")
        moving = self.browser.execute_script(
            "return [...document.querySelectorAll('*')].filter((it) => getComputedStyle(it).transitionDuration !== '0s').length"
        )
        self.assertEqual(moving, 0)

    def test_it_is_accessible(self):
        for what in self.each_look():
            self.browser.execute_script("document.querySelectorAll('details').forEach((it) => { it.open = true; })")
            self.is_accessible(what)
