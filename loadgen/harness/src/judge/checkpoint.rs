//! The checkpoint of a series of instances: the state that a judge needs in order to go on after a restart.
//!
//! The state is a file beside the run folders, `NAME.series.json`, replaced as a whole at each step. A judge
//! that finds one which is not done goes on with it if it was asked for the same; otherwise it begins anew.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};
use stickycas_model::judge::Outcome;
use stickycas_proto::names::{InstanceId, InstanceName};

use super::report_service::RECENT;
use crate::atomic_files::replace_file;
use crate::report::json;
use crate::run::CountsBefore;
use crate::scenario::LARGEST_SEED;

/// Version of the form of the state. Raised when a field changes its meaning or goes away.
const VERSION: u32 = 1;

/// The request for a series. Another judge goes on with the series only if its request is exactly the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesRequest {
    /// The text of the scenario.
    pub scenario: String,
    /// The values that take the place of the scenario's, as given.
    pub set: Vec<String>,
    /// The text of the plan.
    pub plan: Option<String>,
    /// The seed, if one was given.
    #[serde(default, with = "stickycas_model::seed_text::option")]
    pub seed: Option<u64>,
    /// How many instances; `None`: without end.
    pub instances: Option<u64>,
    /// A word that tells series apart that are asked for alike.
    pub series: String,
}

/// A series and its file.
#[derive(Debug)]
pub struct SeriesCheckpoint {
    file: PathBuf,
    state: State,
    /// The instance of an earlier series that is not continued.
    pub(super) abandoned: Option<InstanceId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    version: u32,
    asked: SeriesRequest,
    /// The seed of the first instance; the next has the next one.
    #[serde(with = "stickycas_model::seed_text")]
    first_seed: u64,
    /// How many are judged.
    done: u64,
    /// With which verdict how many.
    verdicts: BTreeMap<String, u64>,
    /// The last of them.
    #[serde(rename = "lately")]
    recent: Vec<JudgedInstance>,
    current: Option<CurrentInstance>,
}

/// An instance that was judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedInstance {
    /// 32 hex digits.
    instance: String,
    verdict: Outcome,
}

/// The instance that is being judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CurrentInstance {
    /// 32 hex digits. `None`: perhaps it was not created.
    pub(super) instance: Option<String>,
    /// The counts of the servers before any process acted at it.
    #[serde(rename = "servers")]
    pub(super) before: CountsBefore,
    /// The judge was told to end while it judged it.
    #[serde(default)]
    pub(super) interrupted: bool,
}

impl SeriesCheckpoint {
    /// The series that is under way here if it is the one that is asked for, or a new one, which begins with
    /// this seed.
    ///
    /// # Errors
    /// The state cannot be read, or is none.
    pub fn open(
        runs: &Path,
        name: &InstanceName,
        asked: SeriesRequest,
        first_seed: u64,
    ) -> anyhow::Result<Self> {
        let file = runs.join(format!("{name}.series.json"));
        let abandoned = match read(&file)? {
            Some(state) if state.asked == asked && !state.is_done() => {
                return Ok(Self { file, state, abandoned: None });
            }
            other => other.and_then(|other| other.current?.instance?.parse().ok()),
        };
        let state = State {
            version: VERSION,
            asked,
            first_seed,
            done: 0,
            verdicts: BTreeMap::new(),
            recent: Vec::new(),
            current: None,
        };
        Ok(Self { file, state, abandoned })
    }

    /// The seed of the first instance.
    #[must_use]
    pub fn first_seed(&self) -> u64 {
        self.state.first_seed
    }

    /// How many instances are judged.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.state.done
    }

    /// How many instances there are to be; `None`: without end.
    #[must_use]
    pub fn asked(&self) -> Option<u64> {
        self.state.asked.instances
    }

    /// Which verdicts there were so far, and how often.
    pub fn verdicts(&self) -> impl Iterator<Item = (Outcome, u64)> {
        let all = [Outcome::Valid, Outcome::Outside, Outcome::Unknown, Outcome::Violation];
        all.into_iter().filter_map(|outcome| Some((outcome, *self.state.verdicts.get(&outcome.to_string())?)))
    }

    /// The seed of the next instance, or the one under way; `None` if all are judged.
    ///
    /// # Errors
    /// There are no more seeds.
    pub(super) fn next_seed(&self) -> anyhow::Result<Option<u64>> {
        if self.state.is_done() {
            return Ok(None);
        }
        let seed = self.state.first_seed.checked_add(self.state.done).filter(|seed| *seed <= LARGEST_SEED);
        let none = || format!("no seed is above {LARGEST_SEED}: give a smaller one, or fewer instances");
        seed.map(Some).with_context(none)
    }

    /// The instance under way.
    pub(super) fn current(&self) -> Option<&CurrentInstance> {
        self.state.current.as_ref()
    }

    /// The instances that were judged last, the latest first.
    pub(super) fn recent(&self) -> impl DoubleEndedIterator<Item = (InstanceId, Outcome)> {
        let judged = |judged: &JudgedInstance| Some((judged.instance.parse().ok()?, judged.verdict));
        self.state.recent.iter().filter_map(judged)
    }

    /// The next instance is about to be created.
    pub(super) fn begin(&mut self, before: CountsBefore) -> anyhow::Result<()> {
        let current = CurrentInstance { instance: None, before, interrupted: false };
        self.state.current = Some(current);
        self.save()
    }

    /// It has this id, or it is gone on with.
    pub(super) fn goes_on(&mut self, instance: InstanceId) -> anyhow::Result<()> {
        if let Some(current) = &mut self.state.current {
            current.instance = Some(instance.to_string());
            current.interrupted = false;
        }
        self.save()
    }

    /// It is judged.
    pub(super) fn judged(&mut self, instance: InstanceId, verdict: Outcome) -> anyhow::Result<()> {
        let state = &mut self.state;
        state.current = None;
        state.done += 1;
        *state.verdicts.entry(verdict.to_string()).or_default() += 1;
        state.recent.truncate(RECENT - 1);
        state.recent.insert(0, JudgedInstance { instance: instance.to_string(), verdict });
        self.save()
    }

    /// The judge was told to end. If the instance under way is gone when it comes back, that was the end of
    /// it.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn interrupted(&mut self) -> anyhow::Result<()> {
        let Some(current) = &mut self.state.current else { return Ok(()) };
        current.interrupted = true;
        self.save()
    }

    fn save(&self) -> anyhow::Result<()> {
        let saved = replace_file(&self.file, json::text(&self.state).as_bytes());
        saved.with_context(|| self.file.display().to_string())
    }
}

impl State {
    fn is_done(&self) -> bool {
        self.asked.instances.is_some_and(|asked| self.done >= asked)
    }
}

fn read(file: &Path) -> anyhow::Result<Option<State>> {
    let broken = |reason: String| anyhow!("{}: {reason}: remove it to begin anew", file.display());
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| file.display().to_string()),
    };
    let state: State =
        serde_json::from_str(&text).map_err(|error| broken(format!("no state of a series: {error}")))?;
    match state.version {
        VERSION => Ok(Some(state)),
        other => Err(broken(format!("version {other}, and this program knows version {VERSION}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(instances: Option<u64>) -> SeriesRequest {
        let (scenario, series) = ("name = ...".to_owned(), String::new());
        SeriesRequest { scenario, set: Vec::new(), plan: None, seed: None, instances, series }
    }

    fn open(runs: &Path, instances: Option<u64>, seed: u64) -> SeriesCheckpoint {
        let name = "demo".parse().unwrap();
        SeriesCheckpoint::open(runs, &name, asked(instances), seed).unwrap()
    }

    #[test]
    fn a_series_resumes_until_it_is_done() {
        let runs = tempfile::tempdir().unwrap();
        let instance = InstanceId::new(7);
        let mut series = open(runs.path(), Some(2), 5);
        assert_eq!(series.next_seed().unwrap(), Some(5));
        series.begin(CountsBefore::default()).unwrap();
        series.goes_on(instance).unwrap();
        series.interrupted().unwrap();

        let mut again = open(runs.path(), Some(2), 99);
        assert_eq!(again.next_seed().unwrap(), Some(5), "the seed is that of its first life");
        let current = again.current().unwrap();
        assert_eq!(current.instance.as_deref(), Some(instance.to_string().as_str()));
        assert!(current.interrupted);
        again.judged(instance, Outcome::Unknown).unwrap();
        assert_eq!(again.next_seed().unwrap(), Some(6));

        let mut again = open(runs.path(), Some(2), 99);
        assert_eq!(again.current(), None);
        assert_eq!(again.recent().collect::<Vec<_>>(), [(instance, Outcome::Unknown)]);
        again.judged(InstanceId::new(8), Outcome::Valid).unwrap();
        assert_eq!(again.next_seed().unwrap(), None);
        assert_eq!(again.verdicts().collect::<Vec<_>>(), [(Outcome::Valid, 1), (Outcome::Unknown, 1)]);
        assert_eq!(open(runs.path(), Some(2), 99).next_seed().unwrap(), Some(99));
    }

    #[test]
    fn a_series_that_was_asked_for_something_else_begins_anew() {
        let runs = tempfile::tempdir().unwrap();
        let mut series = open(runs.path(), None, 5);
        series.judged(InstanceId::new(1), Outcome::Valid).unwrap();
        series.begin(CountsBefore::default()).unwrap();
        series.goes_on(InstanceId::new(2)).unwrap();
        let same = open(runs.path(), None, 99);
        assert_eq!((same.next_seed().unwrap(), same.abandoned), (Some(6), None));
        let other = open(runs.path(), Some(3), 99);
        assert_eq!((other.next_seed().unwrap(), other.current()), (Some(99), None));
        assert_eq!(other.abandoned, Some(InstanceId::new(2)), "it is in the way");
    }

    #[test]
    fn what_is_no_state_is_told_by_its_file() {
        let runs = tempfile::tempdir().unwrap();
        let refused = |text: &str| {
            fs::write(runs.path().join("demo.series.json"), text).unwrap();
            let name = "demo".parse().unwrap();
            SeriesCheckpoint::open(runs.path(), &name, asked(None), 1).unwrap_err().to_string()
        };
        let told = refused("{}");
        assert!(told.contains("demo.series.json: no state of a series: missing field"), "{told}");
        assert!(told.ends_with(": remove it to begin anew"), "{told}");
    }

    #[test]
    fn there_is_no_seed_above_the_largest() {
        let runs = tempfile::tempdir().unwrap();
        let mut series = open(runs.path(), None, LARGEST_SEED);
        series.judged(InstanceId::new(1), Outcome::Valid).unwrap();
        assert!(series.next_seed().unwrap_err().to_string().starts_with("no seed is above"));
    }
}
