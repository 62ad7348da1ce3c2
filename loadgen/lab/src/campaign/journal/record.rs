//! The records of a journal, line by line, and the state that follows from all of them.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use stickycas_harness::environment::Platform;
use stickycas_harness::files::settings;

use crate::campaign::cell::Counts;
use crate::campaign::plan::Campaign;

/// The version of its records.
const VERSION: u32 = 1;

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Campaign(CampaignSource),
    Session(Session),
    Cell(Done),
    Network(Sampled),
}

/// From what a campaign was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignSource {
    /// [`VERSION`].
    version: u32,
    /// Version of the program: another one may count differently.
    pub(super) program: String,
    /// The file, as it was named.
    pub file: String,
    /// The text of the file.
    pub text: String,
    /// The seed.
    #[serde(with = "stickycas_model::seed_text")]
    pub seed: u64,
    /// The sweeps to which it was limited; none: all of them.
    pub only: Vec<String>,
    /// The arguments of `--set`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
}

impl CampaignSource {
    /// For a campaign read from this file, with this seed and limited to these sweeps.
    #[must_use]
    pub fn new(file: String, text: String, seed: u64, only: Vec<String>) -> Self {
        let program = Platform::here().version;
        Self { version: VERSION, program, file, text, seed, only, set: Vec::new() }
    }

    /// The campaign.
    ///
    /// # Errors
    /// If the text is none, or has no such sweeps.
    pub fn campaign(&self) -> anyhow::Result<Campaign> {
        let settings = settings(&self.set)?;
        let (campaign, _) = Campaign::parse_with(&self.file, &self.text, Some(self.seed), &settings)?;
        campaign.only(&self.only).map_err(anyhow::Error::msg)
    }
}

/// A time at which the campaign was started or taken up again, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// When, in milliseconds since 1970 (UTC).
    pub at: u64,
    /// The program and the machine.
    #[serde(flatten)]
    pub platform: Platform,
}

/// A cell that is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) at: u64,
    pub(super) number: u64,
    #[serde(flatten)]
    pub(super) counts: Counts,
}

/// A run that was made over the network as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampled {
    /// When it ended, in milliseconds since 1970 (UTC).
    pub at: u64,
    /// Its cell.
    pub cell: u64,
    /// Its seed.
    #[serde(with = "stickycas_model::seed_text")]
    pub seed: u64,
    /// In what it differs from its replay or from the simulation; `None`: in nothing.
    pub difference: Option<String>,
}

/// Milliseconds since 1970 (UTC).
pub(in crate::campaign) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The state that follows from the records of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// The sessions, in order; the first one started the campaign.
    pub sessions: Vec<Session>,
    /// The counts of each cell that is done.
    pub cells: BTreeMap<u64, Counts>,
    /// The results of the runs over the network, by their seeds.
    pub network: BTreeMap<u64, Sampled>,
    /// When something was done last, in milliseconds since 1970 (UTC).
    pub last: u64,
    /// Milliseconds from the start of each session to the last thing that was done in it.
    pub busy: u64,
}

impl Completed {
    pub(super) fn take(&mut self, line: Line) {
        let at = match line {
            Line::Campaign(_) => return,
            Line::Session(session) => {
                let at = session.at;
                self.sessions.push(session);
                self.last = self.last.max(at);
                return;
            }
            Line::Cell(done) => {
                self.cells.insert(done.number, done.counts);
                done.at
            }
            Line::Network(sampled) => {
                let at = sampled.at;
                self.network.insert(sampled.seed, sampled);
                at
            }
        };
        self.busy += at.saturating_sub(self.last);
        self.last = self.last.max(at);
    }
}
