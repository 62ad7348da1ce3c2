//! Scenarios drawn from a seed, over the whole space of parameters that a scenario file has.
//!
//! A scenario is drawn as the text of its file, so that one that fails can be kept, read and run by itself.

use std::fmt::Write;

use stickycas_model::random::SplitMix64;

/// The most processes: enough for several warps of several sizes, few enough for fifty runs to be quick.
const MOST_PROCESSES: u64 = 14;

/// The text of the scenario with this seed.
pub(crate) fn scenario(seed: u64) -> String {
    Draw { random: SplitMix64::new(seed) }.scenario(seed)
}

struct Draw {
    random: SplitMix64,
}

/// What a group of Byzantine processes does.
struct Strategy {
    text: String,
    /// Others must wait for its processes until their patience is spent, or the join timeout is over.
    waited_for: bool,
    /// Its processes are sure to leave.
    leaves: bool,
}

impl Draw {
    /// From 1 to `most`.
    fn up_to(&mut self, most: u64) -> u64 {
        1 + self.random.below(most)
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.random.below(chances) == 0
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.random.index(choices.len())]
    }

    fn scenario(&mut self, seed: u64) -> String {
        let n = self.up_to(MOST_PROCESSES);
        // Small warps are where the most can happen.
        let p = if self.one_in(3) { self.up_to(n) } else { self.up_to(n.min(4)) };
        let f = self.random.below(n.div_ceil(3) + 1).min(n - 1);
        let groups = self.groups(f, n.div_ceil(p));
        let waited_for = groups.iter().any(|(_, strategy)| strategy.waited_for);
        let leave = groups.iter().all(|(_, strategy)| strategy.leaves);

        let mut text = String::new();
        self.instance(&mut text, (n, p), waited_for, leave).expect("writing to a string does not fail");
        self.proposals(&mut text, n, n - f).expect("writing to a string does not fail");
        for (count, strategy) in groups {
            let placement = self.pick(&["spread", "packed", "random"]);
            let text = &mut text;
            writeln!(
                text,
                "[[faults]]\ncount = {count}\nplacement = \"{placement}\"\nstrategy = \"{}\"",
                strategy.text
            )
            .expect("writing to a string does not fail");
        }
        format!("name = \"drawn-{seed}\"\n{text}")
    }

    fn instance(
        &mut self,
        text: &mut String,
        (n, p): (u64, u64),
        waited_for: bool,
        leave: bool,
    ) -> std::fmt::Result {
        let r = if self.one_in(2) { self.up_to(n) } else { self.up_to(n.min(3)) };
        writeln!(text, "[instance]\nprocesses = {n}\nwarp_size = {p}\nread_size = {r}")?;
        writeln!(text, "order = \"{}\"", self.pick(&["ascending", "descending", "shuffled"]))?;
        match self.random.below(3) {
            0 => writeln!(text, "arbiter = \"first_come\"")?,
            1 => writeln!(text, "arbiter = \"uniform\"")?,
            // Any one, and before it the last.
            _ => match self.up_to(n) {
                first if first == n => writeln!(text, "arbiter = {{ priority = [{n}] }}")?,
                first => writeln!(text, "arbiter = {{ priority = [{n}, {first}] }}")?,
            },
        }
        let window = if self.one_in(4) { "open" } else { "first_access" };
        writeln!(text, "append_window = \"{window}\"")?;
        // Where somebody must be waited for, the wait is short; else nobody correct must be late on a slow
        // machine.
        let patience = match (waited_for, leave) {
            (true, _) => "1500ms",
            (false, true) => self.pick(&["none", "20s", "1h"]),
            (false, false) => "20s",
        };
        let join_timeout = if waited_for { "3s" } else { "30s" };
        writeln!(text, "patience = \"{patience}\"\njoin_timeout = \"{join_timeout}\"")?;
        if !waited_for && self.one_in(5) {
            writeln!(text, "pace = \"{}\"", self.pick(&["200us", "1ms", "2ms"]))?;
        }
        writeln!(text, "pipeline = {}\nmax_value_bytes = {}", self.up_to(16), 32 + self.random.below(1000))?;
        writeln!(text, "seed = {}", self.random.below(1 << 40))?;
        match window {
            "first_access" => writeln!(text, "append_rounds = {}", self.up_to(p.min(3))),
            _ => Ok(()),
        }
    }

    fn proposals(&mut self, text: &mut String, n: u64, correct: u64) -> std::fmt::Result {
        writeln!(text, "[proposals]")?;
        if self.one_in(2) {
            return writeln!(text, "distinct = {}", self.up_to(correct.min(4)));
        }
        let values: Vec<&str> =
            (0..n).map(|_| self.pick(&["v1", "v1", "v2", "a longer value", "0x00ff", "\u{fc}ber"])).collect();
        writeln!(text, "values = {values:?}")
    }

    /// Strategies for f processes, in one group or two.
    fn groups(&mut self, f: u64, warps: u64) -> Vec<(u64, Strategy)> {
        let mut groups = Vec::new();
        let mut left = f;
        while left > 0 {
            let count = if groups.is_empty() && left > 1 { self.up_to(left) } else { left };
            left -= count;
            groups.push((count, self.strategy(warps)));
        }
        groups
    }

    fn strategy(&mut self, warps: u64) -> Strategy {
        let leaving = |text: &str| Strategy { text: text.to_owned(), waited_for: false, leaves: true };
        let access = 1 + self.up_to(3);
        match self.random.below(16) {
            0 => Strategy { text: "absent".to_owned(), waited_for: true, leaves: false },
            1 => Strategy { text: "silent".to_owned(), waited_for: true, leaves: false },
            2 => Strategy { text: format!("crash(access={access})"), waited_for: true, leaves: false },
            3 => Strategy { text: "stall".to_owned(), waited_for: true, leaves: false },
            4 => Strategy {
                text: "stall(conduct=collude(value=0))".to_owned(),
                waited_for: true,
                leaves: false,
            },
            5 => Strategy { text: "empty".to_owned(), waited_for: true, leaves: false },
            6 => leaving("distinct"),
            7 => leaving("collude(value=0)"),
            8 => leaving("collude(value=zz)"),
            9 => leaving("mimic(value=v1)"),
            10 => Strategy { text: "mixed(collude=0, mimic=v1)".to_owned(), waited_for: true, leaves: false },
            11 => leaving(&format!("late-append(access={access}, value=0)")),
            12 => {
                Strategy { leaves: false, ..leaving(self.pick(&["repeat-append", "repeat-append(value=0)"])) }
            }
            13 => leaving("reader"),
            14 => {
                let then = self.pick(&["collude(value=0)", "reader", "late-append(access=3, value=0)"]);
                let text = format!("adaptive(phase={}, then={then})", self.up_to(2 * warps));
                Strategy { leaves: false, ..leaving(&text) }
            }
            _ => leaving("liar"),
        }
    }
}
