//! The results of rounds: for people, and as `result.json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stickycas_harness::report::grid::counted;
use stickycas_harness::report::table::{align_right, counted_as, emphasis, grid, grouped};
use stickycas_model::judge::Outcome;

use crate::draw::FaultKind;
use crate::fail_over::FailOver;
use crate::violation::{Violation, ViolationKind};

/// The counts of a round, or of all rounds of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundCounts {
    /// How often the server was killed.
    pub kills: u64,
    /// How often of these before it served: while it started or recovered.
    pub kills_before_serving: u64,
    /// Faults of a cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub faults: BTreeMap<FaultKind, u64>,
    /// How often of these others had taken over shards of the server before it went on or was started again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub deposed: BTreeMap<FaultKind, u64>,
    /// How long clients waited for another owner after faults of servers of a cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fail_over: BTreeMap<FaultKind, FailOver>,
    /// Instances of which an access was acknowledged before and after a fault of a server that owned them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub went_on: u64,
    /// Get and List at servers of a cluster that others had deposed, of instances that had been closed or
    /// created there.
    #[serde(default, skip_serializing_if = "is_none")]
    pub asked_deposed: u64,
    /// Clients that were killed, and started again without their memory.
    pub clients_killed: u64,
    /// Instances.
    pub instances: u64,
    /// Processes of all instances.
    pub processes: u64,
    /// Accesses that were acknowledged, and compared with the history.
    pub accesses: u64,
    /// Reads that were compared with the list.
    pub reads: u64,
    /// Decisions that were acknowledged.
    pub decisions: u64,
    /// Accesses that waited when the server was started again, once for each start.
    pub waited: u64,
    /// Instances whose patience is so short that a slow machine may spend it.
    #[serde(default)]
    pub short_patience: u64,
    /// Those of them whose patience was not judged, since the machine was too slow for that.
    #[serde(default)]
    pub starved: u64,
    /// Instances by verdict.
    pub verdicts: BTreeMap<String, u64>,
    /// How many violations were found.
    pub violations_found: u64,
}

impl RoundCounts {
    pub(crate) fn add(&mut self, round: &Self) {
        self.kills += round.kills;
        self.kills_before_serving += round.kills_before_serving;
        add_each(&mut self.faults, &round.faults);
        add_each(&mut self.deposed, &round.deposed);
        add_each(&mut self.verdicts, &round.verdicts);
        for (kind, fail_over) in &round.fail_over {
            self.fail_over.entry(*kind).or_default().add(fail_over);
        }
        self.went_on += round.went_on;
        self.asked_deposed += round.asked_deposed;
        self.clients_killed += round.clients_killed;
        self.instances += round.instances;
        self.processes += round.processes;
        self.accesses += round.accesses;
        self.reads += round.reads;
        self.decisions += round.decisions;
        self.waited += round.waited;
        self.short_patience += round.short_patience;
        self.starved += round.starved;
        self.violations_found += round.violations_found;
    }
}

fn add_each<K: Clone + Ord>(sums: &mut BTreeMap<K, u64>, counts: &BTreeMap<K, u64>) {
    for (kind, count) in counts {
        *sums.entry(kind.clone()).or_default() += count;
    }
}

/// The result of one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundResult {
    /// Its seed: `--rounds 1 --seed SEED` repeats it.
    #[serde(with = "stickycas_model::seed_text")]
    pub seed: u64,
    /// Its counts.
    #[serde(flatten)]
    pub counts: RoundCounts,
    /// How long it took.
    pub seconds: f64,
    /// The first violations that were found.
    pub violations: Vec<Violation>,
    /// The folder with what is left of it: the data folder of the server, its logs, and the facts of each
    /// instance with a violation. `None`: nothing is left, since all was well.
    pub folder: Option<PathBuf>,
    /// The texts for that folder, by the number of the instance.
    #[serde(skip)]
    pub(crate) evidence: Vec<(usize, String)>,
}

impl RoundResult {
    /// Of the round of this seed, which has not begun.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Adds a violation: of the instance with this number and id, or of all of them.
    pub fn found(&mut self, kind: ViolationKind, instance: Option<(usize, String)>, what: String) {
        self.counts.violations_found += 1;
        if self.violations.len() < TOLD_OF_A_ROUND {
            self.violations.push(Violation { kind, instance, what });
        }
    }

    /// Writes the evidence of instances with a violation, a file each.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_evidence(&mut self, folder: &Path) -> std::io::Result<()> {
        for (number, text) in std::mem::take(&mut self.evidence) {
            fs::write(folder.join(format!("instance-{number}.txt")), text)?;
        }
        Ok(())
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CrashResult {
    /// The seed of the first round; each other one has the next.
    #[serde(with = "stickycas_model::seed_text")]
    pub seed: u64,
    /// Rounds that were asked for.
    pub asked: u64,
    /// Rounds that were run.
    pub rounds: u64,
    /// Why no partitions of the network are among the faults of a cluster, if they were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions_left_out: Option<String>,
    /// An effect that the rounds of a cluster should have had and have not had, if any: then a run without
    /// violations proves little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_shown: Option<String>,
    /// The counts of all rounds.
    #[serde(flatten)]
    pub counts: RoundCounts,
    /// How long the longest round took.
    pub longest_round: f64,
    /// The rounds in which violations were found.
    pub failed: Vec<RoundResult>,
}

impl CrashResult {
    /// Adds a round.
    pub fn add(&mut self, round: RoundResult) {
        self.rounds += 1;
        self.counts.add(&round.counts);
        self.longest_round = self.longest_round.max(round.seconds);
        if round.counts.violations_found > 0 {
            self.failed.push(round);
            self.failed.sort_by_key(|round| round.seed);
        }
    }

    /// Whether nothing was found in the rounds that were run. These may be fewer than were asked for.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.counts.violations_found == 0
    }

    /// Whether nothing was measured: no access was acknowledged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.accesses == 0
    }

    /// The verdict of the whole run; `None` if it was clean and too little was run.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        match self.is_clean() {
            false => Some(Outcome::Violation),
            true if self.shortfall().is_some() => None,
            true if self.is_empty() => Some(Outcome::Unknown),
            true => Some(Outcome::Valid),
        }
    }

    /// Why a run without violations proves less than it was to, if so: a planned effect is missing, the
    /// machine was too slow, or the run was interrupted.
    #[must_use]
    pub fn shortfall(&self) -> Option<String> {
        let Self { asked, rounds, not_shown, counts, .. } = self;
        let RoundCounts { starved, short_patience, .. } = counts;
        if let Some(what) = not_shown {
            return Some(format!("too little was shown: {what}"));
        }
        if self.is_starved() {
            return Some(format!(
                "patience was not judged of {starved} of {short_patience} instances with a short one: take a faster \
                 machine, or fewer instances"
            ));
        }
        (rounds < asked && self.is_clean())
            .then(|| format!("it was interrupted after {rounds} of {asked} rounds"))
    }

    /// Whether the machine was too slow: patience was not judged of more than a tenth of the instances with a
    /// short one.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.counts.starved * 10 > self.counts.short_patience
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks like this")]
const fn is_none(count: &u64) -> bool {
    *count == 0
}

/// Violations of one round that are reported.
pub(crate) const TOLD_OF_A_ROUND: usize = 50;
/// Violations of a round that are shown; its folder has more.
const SHOWN_OF_A_ROUND: usize = 5;

/// The result for people. `again`: the command that repeats the round of a seed.
#[must_use]
pub fn table(result: &CrashResult, again: impl Fn(u64) -> String) -> String {
    let mut table = grid(["what", "count"]);
    let CrashResult { rounds, counts, .. } = result;
    let rows = [
        ("rounds", *rounds),
        ("kills of the server", counts.kills),
        ("  before it served (starting, recovering)", counts.kills_before_serving),
        ("kills of clients", counts.clients_killed),
        ("instances", counts.instances),
        ("processes", counts.processes),
        ("accesses acknowledged, compared with the history", counts.accesses),
        ("reads compared with the list", counts.reads),
        ("decisions acknowledged", counts.decisions),
        ("accesses that waited over a restart", counts.waited),
        ("instances with a short patience", counts.short_patience),
        ("  on a machine too slow to judge patience", counts.starved),
    ];
    for (what, count) in rows {
        table.add_row([what.to_owned(), grouped(count)]);
    }
    for (kind, count) in &counts.faults {
        table.add_row([kind.to_string(), grouped(*count)]);
        if let Some(deposed) = counts.deposed.get(kind) {
            table.add_row(["  others had its shards when it came back".to_owned(), grouped(*deposed)]);
        }
    }
    if counts.asked_deposed > 0 {
        table.add_row([
            "Get and List at a server that others had deposed".to_owned(),
            grouped(counts.asked_deposed),
        ]);
    }
    for outcome in Outcome::ALL {
        if let Some(count) = counts.verdicts.get(&outcome.to_string()) {
            table.add_row([format!("instances: {}", counted_as(outcome)), grouped(*count)]);
        }
    }
    table.add_row(["violations".to_owned(), grouped(counts.violations_found)]);
    align_right(&mut table, 1..2);
    let mut text = format!("{table}\n");
    for (kind, fail_over) in &counts.fail_over {
        // Writing to a string does not fail.
        let _ = writeln!(text, "fail-over after {kind}: {fail_over}");
    }
    if let Some(why) = &result.partitions_left_out {
        let _ = writeln!(text, "partitions of the network were left out: {why}");
    }
    for round in &result.failed {
        let shown = round.violations.iter().take(SHOWN_OF_A_ROUND);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "round of seed {}: {}",
            round.seed,
            counted(round.counts.violations_found, "violation")
        );
        for violation in shown {
            let _ = writeln!(text, "  - {violation}");
        }
        if let Some(folder) = &round.folder {
            let _ = writeln!(text, "  what is left of it: {}", folder.display());
        }
        let _ = writeln!(text, "  to repeat it: {}", again(round.seed));
    }
    if let Some(why) = result.shortfall() {
        let _ = writeln!(text, "{why}");
    }
    let what = match result.outcome() {
        Some(Outcome::Valid) => "nothing was lost",
        Some(Outcome::Unknown) => "no access was acknowledged",
        Some(_) => "what clients were told did not stand",
        None => "nothing was lost, but too little was run",
    };
    let title = result.outcome().map_or("INCOMPLETE", Outcome::title);
    let style = emphasis(result.outcome().unwrap_or(Outcome::Unknown));
    let seeds = match (result.seed, *rounds) {
        (first, 0 | 1) => format!("seed {first}"),
        (first, rounds) => format!("seeds {first} to {}", first + rounds - 1),
    };
    let _ = writeln!(text, "verdict: {style}{title}{style:#}: {what} ({seeds})");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_starved_if_patience_was_not_judged_of_many() {
        let result = |short_patience, starved| {
            let counts = RoundCounts { short_patience, starved, ..RoundCounts::default() };
            CrashResult { counts, ..CrashResult::default() }
        };
        assert!(!result(0, 0).is_starved() && !result(30, 3).is_starved());
        assert!(!table(&result(30, 3), |_| String::new()).contains("was not judged of"));
        assert!(result(30, 4).is_starved());
        let text = table(&result(30, 4), |_| String::new());
        assert!(text.contains("patience was not judged of 4 of 30 instances"), "{text}");
    }

    #[test]
    fn what_was_not_shown_is_told() {
        let not_shown = Some("no server was asked".to_owned());
        let text = table(&CrashResult { not_shown, ..CrashResult::default() }, |_| String::new());
        assert!(text.contains("too little was shown: no server was asked\n"), "{text}");
    }
}
