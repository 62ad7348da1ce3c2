//! The results of a campaign: counts over runs that differ by their seeds alone, cell by cell.
//!
//! [`Results`] is the content of `results.json` and all that the other formats are made from. Everything in
//! it but [`Made`] follows from the campaign and its seed, byte by byte, however many cores it took and
//! however often it was interrupted.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use stickycas_harness::environment::Platform;
use stickycas_harness::fault_plan::Placement;
use stickycas_harness::files::instance::Arbiter;
use stickycas_harness::files::schema::words;
use stickycas_harness::files::schema_of_result;
use stickycas_model::judge::Outcome;
use stickycas_model::params::{AppendWindow, Order, Params, ParamsSpec};

/// The version of [`Results`].
pub const RESULTS_VERSION: u32 = 1;

/// The JSON Schema of `results.json`.
#[must_use]
pub fn schema() -> Schema {
    schema_of_result::<Results>()
}

fn order(_: &mut SchemaGenerator) -> Schema {
    words(&Order::ALL)
}

fn append_window(_: &mut SchemaGenerator) -> Schema {
    words(&AppendWindow::ALL)
}

/// The results of a campaign: `results.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "StickyCAS campaign results")]
pub struct Results {
    /// The version of this form.
    pub version: u32,
    /// The campaign's name.
    pub name: String,
    /// Its purpose, in one line; may be empty.
    pub about: String,
    /// The command that makes it again.
    pub command: String,
    /// The campaign's seed: that of the first run of cell 1.
    #[serde(with = "stickycas_model::seed_text")]
    #[schemars(with = "String")]
    pub seed: u64,
    /// The sweeps, in the order of the file.
    pub sweeps: Vec<Sweep>,
    /// Where and when it was made.
    pub made: Made,
}

impl Results {
    /// All cells, in order.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.sweeps.iter().flat_map(|sweep| &sweep.cells)
    }

    /// Whether every cell that was planned is there.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.sweeps.iter().all(|sweep| sweep.cells.len() as u64 == sweep.planned)
    }

    /// The worst that happened: a violation, an accused process or a difference between the network and the
    /// simulator; a run that proves nothing; or neither.
    #[must_use]
    pub fn worst(&self) -> Outcome {
        let bad = |cell: &Cell| cell.counts.violation + cell.counts.accused + cell.network_differences;
        if sum(self.cells(), bad) > 0 {
            Outcome::Violation
        } else if sum(self.cells(), |cell| cell.counts.unknown) > 0 {
            Outcome::Unknown
        } else {
            Outcome::Valid
        }
    }
}

/// A count of cells, added up.
pub(super) fn sum<'a>(cells: impl IntoIterator<Item = &'a Cell>, count: impl Fn(&Cell) -> u64) -> u64 {
    cells.into_iter().map(count).sum()
}

/// The origin of the results (program, machine, time): it may differ when the same campaign is run again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Made {
    /// The program and the machine that began it.
    #[serde(flatten)]
    pub platform: Platform,
    /// When it was started first, in seconds since 1970 (UTC).
    pub started: u64,
    /// When the last cell was done.
    pub finished: u64,
    /// Milliseconds spent on running, without the time between an interrupt and its resumption.
    pub busy_millis: u64,
}

/// The results of one sweep of the campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sweep {
    /// Its name, unique in the campaign.
    pub name: String,
    /// Its subject, in one line; may be empty.
    pub about: String,
    /// How the report draws it; nothing: as a table alone.
    pub figure: Option<Figure>,
    /// The command that makes this sweep again.
    pub command: String,
    /// Runs of each cell.
    pub runs: u64,
    /// Cells that were to be run.
    pub planned: u64,
    /// Points of the axes that cannot be, such as p > n: left out.
    pub impossible: u64,
    /// Points of the axes that are another one of this sweep, such as f = 0 with a second strategy: left out.
    pub repeated: u64,
    /// The cells that have been run, in order.
    pub cells: Vec<Cell>,
}

/// How the report draws a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// The fraction of runs whose strong validity broke against f, for each (p, |Vc|), with the proven
    /// frontier (V3).
    Resilience,
    /// The phase of the last decision against the bound W*(q+c), over n, p and r (D2).
    Phases,
    /// The fraction of runs whose strong validity broke under the uniform arbiter, against its closed form.
    Chance,
    /// How many culprits were named, and whether anybody else was (B2).
    Blame,
    /// For each number of append rounds the most Byzantine processes that never broke strong validity,
    /// against the phase of the last decision, with both formulas (K2, K3).
    Tradeoff,
}

/// The results of one point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// Its number in the campaign, from 1.
    pub number: u64,
    /// Where it lies.
    pub point: Point,
    /// The seed of its first run; each run has the next one.
    #[serde(with = "stickycas_model::seed_text")]
    #[schemars(with = "String")]
    pub first_seed: u64,
    /// W*(q+c): where every correct process has decided if none misses a phase (D2).
    pub phase_bound: u64,
    /// The counts.
    #[serde(flatten)]
    pub counts: Counts,
    /// Runs of it that were made over the network as well.
    pub network_runs: u64,
    /// Of these, runs whose history did not replay event by event, or whose verdict differed.
    pub network_differences: u64,
    /// The command that makes this cell again.
    pub command: String,
}

/// Where a cell lies on the axes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Processes.
    pub n: u32,
    /// Warp size.
    pub p: u32,
    /// The most entries that one read returns.
    pub r: u32,
    /// Byzantine processes.
    pub f: u32,
    /// |Vc|: different values that correct processes propose.
    pub distinct: u32,
    /// The strategy of the Byzantine processes, as scenarios write it; `none` where f = 0.
    pub strategy: String,
    /// Where they sit; `spread` where f = 0.
    pub placement: Placement,
    /// Which append of a phase wins.
    pub arbiter: Arbiter,
    /// The order of warps in a round.
    #[schemars(schema_with = "order")]
    pub order: Order,
    /// When appends count.
    #[schemars(schema_with = "append_window")]
    pub window: AppendWindow,
    /// q, the append rounds; 1 where it is missing.
    #[serde(default = "one")]
    pub q: u32,
}

const fn one() -> u32 {
    1
}

/// Why a point has parameters.
pub(super) const POSSIBLE: &str = "points that cannot be are left out";
/// The strategy of a point without Byzantine processes.
pub const NO_STRATEGY: &str = "none";

impl Point {
    /// The parameters of its instances; those that are no axis as in `others`.
    #[must_use]
    pub fn spec(&self, others: ParamsSpec) -> ParamsSpec {
        ParamsSpec {
            processes: self.n,
            warp_size: self.p,
            read_size: self.r,
            order: self.order,
            append_window: self.window,
            append_rounds: self.q,
            ..others
        }
    }

    /// The same with the default of each parameter that is no axis; `None` if there is no such instance.
    #[must_use]
    pub fn params(&self) -> Option<Params> {
        Params::try_new(self.spec(ParamsSpec::new(self.n, self.p, self.r))).ok()
    }
}

/// Counts over the runs of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Runs.
    pub runs: u64,
    /// Runs with the verdict `valid`.
    pub valid: u64,
    /// Runs with the verdict `outside`.
    pub outside: u64,
    /// Runs with the verdict `unknown`.
    pub unknown: u64,
    /// Runs with the verdict `violation`: a bug of ours.
    pub violation: u64,
    /// Runs in which agreement broke.
    pub agreement_broken: u64,
    /// Runs in which termination broke.
    pub termination_broken: u64,
    /// Runs in which weak validity broke.
    pub weak_broken: u64,
    /// Runs in which common-value validity broke.
    pub common_broken: u64,
    /// Runs in which strong validity broke.
    pub strong_broken: u64,
    /// Runs in which common-value validity was promised: all or none, if no process is late.
    pub common_promised: u64,
    /// Runs in which strong validity was promised: all or none, if no process is late.
    pub strong_promised: u64,
    /// The least phase in which a run had its last decision; nothing if no run had one.
    pub first_phase: Option<u64>,
    /// The largest phase in which a run had its last decision.
    pub last_phase: Option<u64>,
    /// Byzantine processes, over all runs, whose strategy commits an offence (B2) and was seen at work.
    pub culprits: u64,
    /// Of these, those that are blamed.
    pub named: u64,
    /// Processes that are blamed, over all runs.
    pub blamed: u64,
    /// Correct processes that are blamed: a bug of ours.
    pub accused: u64,
    /// The first seed whose run broke strong validity.
    #[serde(default, with = "stickycas_model::seed_text::option")]
    #[schemars(with = "Option<String>")]
    pub example: Option<u64>,
}
