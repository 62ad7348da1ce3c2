//! Plans: the operations on servers, members of etcd, the judge and clients, their moments, and the evidence
//! that they hit.
//!
//! A plan is a file, `examples/perturbations/NAME.toml`, or drawn from a seed ([`draw`](crate::draw)), which
//! the kill test writes as a file. Unknown keys and impossible values are refused with their line. The keys
//! are in docs/use/files.md.
//!
//! A step is due when its `when` has come and all steps before it are done ([`When`], [`Moment`]). If `by` is
//! seen before, the step came too late, and the plan did not do what it was to do. With `lasts = "2s"` a step
//! is undone after that time, before the next one. At the end of a plan everything is put back as it was.
//!
//! `[expectations]` is the evidence in the record of the run that the plan hit; without it the run proves
//! nothing (B3). The judge compares late processes with the plan, and checks that the attacks of Byzantine
//! processes fired.

mod file;
mod read;
mod service;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use stickycas_harness::files::{FileError, FileKind, Settings, Source, schema_of};
use stickycas_harness::scenario::Scenario;
use stickycas_model::ground_truth::Role;
use stickycas_model::judge::Outcome;
use stickycas_model::types::{AccessNumber, Phase, ProcessId};

pub use self::file::Expectations;
use self::file::{File, InstanceOf};
use self::read::{read, without_keys_of_demo};
pub use self::service::{NoService, Service};

/// A plan that can be carried out. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its name: letters, digits, `-` and `_`, at most 64.
    pub name: String,
    /// Its purpose, in one line; may be empty.
    pub about: String,
    /// The verdict that is expected.
    pub expect: Outcome,
    /// Correct processes that the plan makes faulty (V4).
    pub faulty: BTreeSet<ProcessId>,
    /// Correct processes that the plan makes late (F6).
    pub late: BTreeSet<ProcessId>,
    /// The values in place of the scenario's, [`faulty`](Self::faulty) and [`late`](Self::late) included.
    pub settings: Settings,
    /// Whether the server keeps its log in memory while the plan is carried out, and so forgets when it
    /// stops.
    pub in_memory: bool,
    /// The steps, in order. Those [`When::Before`] come first.
    pub steps: Vec<Step>,
    /// The evidence that it hit.
    pub expectations: Expectations,
}

impl Plan {
    /// Reads and checks a plan.
    ///
    /// # Errors
    /// The file cannot be read, or the first thing in it that is wrong.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        Self::read(&Source::load(path, &Settings::default())?)
    }

    /// Reads and checks a plan of the kill test: its steps, name and purpose alone. The kill test judges
    /// every instance by itself, and draws it from its seed.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), or a key that the kill test would not heed.
    pub fn load_for_kill_test(path: &Path) -> Result<Self, FileError> {
        let source = Source::load(path, &Settings::default())?;
        let plan = Self::read(&source)?;
        source.check(without_keys_of_demo)?;
        Ok(plan)
    }

    /// Checks a plan given as the text of a file, named `file` in errors.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        Self::read(&Source::new(file, text, &Settings::default()))
    }

    fn read(source: &Source) -> Result<Self, FileError> {
        // The keys of the instance are those of scenarios.
        let keys = source.check(|InstanceOf { instance: _ }| Ok(()));
        let plan =
            keys.and_then(|()| source.check(|written: File| read(written, &source.file, &source.text)));
        FileKind::Plan.or_another(source, plan)
    }

    /// The steps that are drawn from a seed, as a plan.
    #[must_use]
    pub fn drawn(seed: u64, steps: Vec<Step>) -> Self {
        Self {
            name: format!("crash-{seed}"),
            about: format!("drawn from seed {seed}"),
            expect: Outcome::Valid,
            faulty: BTreeSet::new(),
            late: BTreeSet::new(),
            settings: Settings::default(),
            in_memory: false,
            steps,
            expectations: Expectations::default(),
        }
    }

    /// Name, purpose, verdict and steps as the text of a file. A drawn plan has no more.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        let Self { name, about, expect, steps, .. } = self;
        let steps: String = steps.iter().map(|step| format!("\n[[steps]]\n{}", step.text())).collect();
        format!("name = {name:?}\nabout = {about:?}\nexpect = \"{expect}\"\n{steps}")
    }

    /// The same plan with every step that lasts for a time written as two: it, and the step that undoes it.
    #[must_use]
    pub fn without_durations(mut self) -> Self {
        let both = |step: Step| {
            let undone = step.lasts.zip(step.action.undone_by()).map(|(time, action)| Step {
                when: When::After(time),
                action,
                lasts: None,
                by: None,
                ..step.clone()
            });
            std::iter::once(Step { lasts: None, ..step }).chain(undone)
        };
        self.steps = std::mem::take(&mut self.steps).into_iter().flat_map(both).collect();
        self
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it is due.
    pub when: When,
    /// The operation.
    pub action: Action,
    /// The services; at least one, each once.
    pub services: Vec<Service>,
    /// The network to disconnect from or to reconnect to, by its name in the compose file; in the kill test
    /// the one with etcd. `None`: all. Of [`Action::Disconnect`], [`Action::Depose`],
    /// [`Action::DropIncoming`] and [`Action::Reconnect`] alone.
    pub network: Option<String>,
    /// The moment before which it must be done.
    pub by: Option<Moment>,
    /// How long it lasts: after that it is undone. `None`: until another step undoes it, or until the end.
    pub lasts: Option<Duration>,
    /// How far the clocks of a server that is killed are ahead when it is started again.
    pub ahead: Option<Duration>,
}

impl Step {
    /// A step that is undone after this time.
    #[must_use]
    pub const fn lasting(when: When, action: Action, services: Vec<Service>, lasts: Duration) -> Self {
        Self { when, action, services, network: None, by: None, lasts: Some(lasts), ahead: None }
    }

    /// Whether its moment, its operation or what else it has is of the kill test alone.
    #[must_use]
    pub const fn is_of_kill_test(&self) -> bool {
        let is_action = matches!(self.action, Action::Depose | Action::DropIncoming);
        is_action || self.when.is_of_kill_test() || self.ahead.is_some()
    }

    /// Its keys, a line each, but for `by`.
    fn text(&self) -> String {
        let Self { when, action, services, network, by: _, lasts, ahead } = self;
        let time = |key: &str, time: &Option<Duration>| {
            time.map(|time| format!("{key} = \"{}\"\n", humantime::format_duration(time))).unwrap_or_default()
        };
        let services: Vec<String> = services.iter().map(|service| format!("\"{service}\"")).collect();
        let network = network.as_ref().map(|network| format!("network = {network:?}\n")).unwrap_or_default();
        format!(
            "when = {}\ndo = \"{action}\"\nservices = [{}]\n{network}{}{}",
            when.text(),
            services.join(", "),
            time("lasts", lasts),
            time("ahead", ahead)
        )
    }
}

/// When a step is due, once all before it are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before there is an instance.
    Before,
    /// When this is seen at the instance.
    Observed(Moment),
    /// So long after the step before.
    After(Duration),
    /// So long after all servers serve.
    Served(Duration),
    /// When all instances are under way.
    UnderWay,
    /// When all instances have ended.
    Ended,
}

impl When {
    /// Whether it is a moment of the kill test alone.
    #[must_use]
    pub const fn is_of_kill_test(self) -> bool {
        matches!(self, Self::Served(_) | Self::UnderWay | Self::Ended)
    }

    /// As it is written in a file. Events of an instance are not drawn, and so not written.
    fn text(self) -> String {
        match self {
            Self::Before | Self::Observed(_) => "\"before\"".to_owned(),
            Self::After(time) => format!("{{ after = \"{}\" }}", humantime::format_duration(time)),
            Self::Served(time) => format!("{{ served = \"{}\" }}", humantime::format_duration(time)),
            Self::UnderWay => "{ under_way = true }".to_owned(),
            Self::Ended => "{ ended = true }".to_owned(),
        }
    }
}

/// An event of the instance, as its watch shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// Gathering has ended (F5).
    Gathered,
    /// This phase has come.
    Phase(Phase),
    /// This process has joined.
    Joined(ProcessId),
    /// This access of this process was accepted.
    Accepted(ProcessId, AccessNumber),
    /// This access of this process was executed.
    Answered(ProcessId, AccessNumber),
    /// This process has reported its decision.
    Decided(ProcessId),
}

/// An operation on a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is killed (SIGKILL), and stays down until it is started or the plan is over.
    Kill,
    /// It is frozen; its connections stay.
    Pause,
    /// It goes on.
    Unpause,
    /// It is stopped and started again.
    Restart,
    /// It is stopped (SIGTERM, after a while SIGKILL), and stays down likewise.
    Stop,
    /// It is started again after a kill or a stop.
    Start,
    /// It is taken off its networks, or off one of them, without a word to anybody.
    Disconnect,
    /// It is put back.
    Reconnect,
    /// Of the kill test: a server is disconnected from etcd, and its lease ends at once, which it does not
    /// learn.
    Depose,
    /// Of the kill test: nothing that is sent to it arrives; what it sends does.
    DropIncoming,
}

impl Action {
    /// The operation that undoes it, if it leaves something to be undone.
    #[must_use]
    pub const fn undone_by(self) -> Option<Self> {
        match self {
            Self::Kill | Self::Stop => Some(Self::Start),
            Self::Pause => Some(Self::Unpause),
            Self::Disconnect | Self::Depose | Self::DropIncoming => Some(Self::Reconnect),
            Self::Unpause | Self::Restart | Self::Start | Self::Reconnect => None,
        }
    }
}

impl Plan {
    /// The processes whose clients are killed and not started again: no end of them is awaited.
    #[must_use]
    pub fn gone(&self) -> BTreeSet<ProcessId> {
        let mut gone = BTreeSet::new();
        for step in &self.steps {
            for process in step.services.iter().filter_map(|service| service.process()) {
                match step.action {
                    Action::Kill | Action::Stop if step.lasts.is_none() => gone.insert(process),
                    Action::Start | Action::Restart => gone.remove(&process),
                    _ => continue,
                };
            }
        }
        gone
    }

    /// Whether this plan goes with a scenario that was read with its [`settings`](Self::settings).
    ///
    /// # Errors
    /// It names processes that there are not, or kills or restarts a correct one and does not count it as
    /// faulty.
    pub fn check_against(&self, scenario: &Scenario) -> Result<(), Mismatch> {
        let n = scenario.params.processes();
        let named = self.steps.iter().flat_map(|step| &step.services).filter_map(|service| service.process());
        if let Some(process) = named.chain(self.expectations.processes()).find(|process| process.get() > n) {
            let what = format!("there is no process {process}: give 1 to n = {n}");
            return Err(Mismatch(self.name.clone(), what));
        }
        let is_correct = |process: &ProcessId| {
            scenario.truth.assignment(*process).is_some_and(|assignment| assignment.role == Role::Correct)
        };
        match self.without_memory().find(|process| is_correct(process) && !self.faulty.contains(process)) {
            Some(process) => {
                let what =
                    format!("process {process} is correct and killed or restarted: name it in faulty (V4)");
                Err(Mismatch(self.name.clone(), what))
            }
            None => Ok(()),
        }
    }

    /// The processes that are killed, stopped or restarted: if they come back, then without memory.
    fn without_memory(&self) -> impl Iterator<Item = ProcessId> {
        let ends = |step: &&Step| matches!(step.action, Action::Kill | Action::Stop | Action::Restart);
        let steps = self.steps.iter().filter(ends);
        steps.flat_map(|step| &step.services).filter_map(|service| service.process())
    }
}

/// A contradiction between a plan and a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("plan {0}: {1}")]
pub struct Mismatch(String, String);

impl Expectations {
    /// All processes that it names.
    fn processes(&self) -> impl Iterator<Item = ProcessId> {
        let listed = self.never_joined.iter().chain(&self.decided).chain(&self.never_decided);
        let counted = self.sessions.keys().chain(self.lives.keys()).chain(self.appends.keys());
        listed.chain(counted).copied()
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Before => f.write_str("before the instance"),
            Self::Observed(moment) => moment.fmt(f),
            Self::After(time) => write!(f, "{} after the step before", humantime::format_duration(*time)),
            Self::Served(time) => write!(f, "{} after all serve", humantime::format_duration(*time)),
            Self::UnderWay => f.write_str("all instances are under way"),
            Self::Ended => f.write_str("all instances have ended"),
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gathered => f.write_str("gathering has ended"),
            Self::Phase(phase) => write!(f, "phase {phase} has come"),
            Self::Joined(process) => write!(f, "process {process} has joined"),
            Self::Accepted(process, access) => write!(f, "access {access} of process {process} is accepted"),
            Self::Answered(process, access) => write!(f, "access {access} of process {process} is executed"),
            Self::Decided(process) => write!(f, "process {process} has decided"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::Unpause => "unpause",
            Self::Restart => "restart",
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Disconnect => "disconnect",
            Self::Reconnect => "reconnect",
            Self::Depose => "depose",
            Self::DropIncoming => "drop_incoming",
        })
    }
}

/// The JSON Schema of a plan file.
#[must_use]
pub fn schema() -> schemars::Schema {
    schema_of::<File>()
}

#[cfg(test)]
mod tests;
