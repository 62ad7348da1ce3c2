//! A series: the instances NAME.1, NAME.2, NAME.3, ..., which are the slots of a log or the epochs of an
//! election.
//!
//! Their coordinator creates them in the order of their numbers, ahead of those who use them, with the same
//! roster and the same parameters. The seed among these is drawn once and so names the series: a second
//! series of the same name is told apart from the first one.

mod coordinator;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stickycas_client::info::{InstanceInfo, InstanceStatus, InstanceView, Summary};
use stickycas_client::{
    Client, Error, Event, InstanceId, InstanceName, Params, ParamsSpec, Patience, Played, Position,
    ProcessSpec, RefusalReason, Report, State, TableQuery, Value, WatchFrom, Watched,
};
use stickycas_model::machine::Entry;
use stickycas_model::params::LARGEST_PIPELINE;
use stickycas_model::process::mode;
use stickycas_model::types::ProcessId;
use tokio::time::sleep;

use crate::error::LogError;
use crate::order::{HEADER, SlotState, position_of};

/// The pause between two looks for an instance that does not exist yet, at first.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// The longest such pause.
const LOOK_AGAIN_LATER: Duration = Duration::from_millis(500);

/// The most instances that a coordinator creates ahead, and the most in which a member acts at a time: it has
/// a stream for each, of which a server takes 64 from one principal.
pub const MAX_WINDOW: u64 = 32;

/// The last number of a series: names with a higher one are of no series, so that none is counted past its
/// end.
const LAST: u64 = u64::MAX / 2;

/// A series, as one principal sees it.
#[derive(Clone, Debug)]
pub struct Series {
    client: Client,
    name: InstanceName,
    /// Of the first instance of the series that was seen.
    terms: Arc<OnceLock<Terms>>,
}

/// The facts that all instances of a series share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    creator: String,
    pub(crate) roster: Vec<String>,
    pub(crate) params: Params,
}

/// The members and the parameters of a series.
#[derive(Clone, Debug)]
pub struct SeriesSpec {
    /// The principals of members 1, 2, 3, ..., n.
    pub roster: Vec<String>,
    /// p, the number of members in a warp.
    pub warp_size: u32,
    /// The most instances that are created ahead of the first whose list is not sealed.
    pub window: u64,
    /// The time for which an instance is held up by a silent member (SPEC F3).
    pub patience: Duration,
    /// The time from the first join for which an instance waits for all members to join (SPEC F5).
    pub join_timeout: Duration,
    /// The most bytes of an entry.
    pub max_value_bytes: u32,
}

impl SeriesSpec {
    /// These members, with defaults for the rest.
    #[must_use]
    pub fn new(roster: Vec<String>) -> Self {
        Self {
            roster,
            warp_size: 1,
            window: 16,
            patience: Duration::from_secs(1),
            join_timeout: Duration::from_secs(1),
            max_value_bytes: 1024,
        }
    }

    /// The parameters of each instance: q = p, and one read takes the whole list.
    fn params(&self, seed: u64) -> Result<Params, LogError> {
        let invalid = |why: String| LogError::Client(Error::InvalidArgument(why));
        let processes = u32::try_from(self.roster.len()).unwrap_or(u32::MAX);
        let window = self.window;
        if !(1..=MAX_WINDOW).contains(&window) {
            return Err(invalid(format!("window = {window}: give 1 to {MAX_WINDOW}")));
        }
        if self.max_value_bytes as usize <= HEADER {
            return Err(invalid(format!(
                "max_value_bytes: give more than {HEADER}, which an entry has beside its value"
            )));
        }
        let spec = ParamsSpec::new(processes, self.warp_size, processes);
        let spec = ParamsSpec {
            patience: Patience::Finite(self.patience),
            join_timeout: self.join_timeout,
            max_value_bytes: self.max_value_bytes,
            append_rounds: self.warp_size,
            // All appends of a member, and its read, are sent at once.
            pipeline: spec.pipeline.max(self.warp_size.saturating_add(1)).min(LARGEST_PIPELINE),
            seed: stickycas_model::types::Seed::new(seed),
            ..spec
        };
        Params::try_new(spec).map_err(|error| invalid(error.to_string()))
    }
}

impl Series {
    /// The series of this name.
    ///
    /// # Errors
    /// If it is no name, or too long for the number behind it.
    pub fn new(client: &Client, name: &str) -> Result<Self, LogError> {
        let longest = format!("{name}.{LAST}");
        let parsed = name.parse().and_then(|name| longest.parse().map(|_: InstanceName| name));
        let name = parsed.map_err(|error| {
            let number = longest.len() - name.len();
            let why =
                format!("series {name:?}: {error}, of which {number} are for the number of an instance");
            Error::InvalidArgument(why)
        })?;
        Ok(Self { client: client.clone(), name, terms: Arc::default() })
    }

    fn name_of(&self, number: u64) -> String {
        format!("{}.{number}", self.name)
    }

    /// The numbers of all instances that are kept.
    pub(crate) async fn kept(&self) -> Result<BTreeSet<u64>, LogError> {
        loop {
            let listed = self.client.list_named(&format!("{}.", self.name)).await?;
            if listed.shards_left_out == 0 {
                return Ok(listed.instances.iter().filter_map(|it| self.number_of(it)).collect());
            }
            tracing::warn!("waiting for all servers of the cluster to list their instances");
            sleep(LOOK_AGAIN_LATER).await;
        }
    }

    /// The newest instance in a table that may be some seconds old; 0: there is none, or nobody knows.
    async fn newest(&self) -> Result<u64, LogError> {
        let query = TableQuery { text: format!("{}.", self.name), rows: 32, ..TableQuery::default() };
        let page = match self.client.table(&query, None).await {
            // The server has gone meanwhile, and a table is asked for at one server.
            Err(error) if error.may_retry() => return Ok(0),
            page => page?,
        };
        let newest = page.rows.iter().filter_map(|it| self.number_of(it)).max();
        Ok(match newest {
            // Names of others have this text in them, or the server has looked at as many as it does for a
            // page.
            None if page.next.is_some() => self.kept().await?.last().copied().unwrap_or(0),
            newest => newest.unwrap_or(0),
        })
    }

    fn number_of(&self, summary: &Summary) -> Option<u64> {
        let text = summary.name.as_ref()?.as_str().strip_prefix(self.name.as_str())?.strip_prefix('.')?;
        let number: u64 = text.parse().ok()?;
        (number.to_string() == text && (1..=LAST).contains(&number)).then_some(number)
    }

    /// The instance with this number; `None`: there is none, or none any more.
    ///
    /// # Errors
    /// [`LogError::Foreign`] if it is of another series.
    pub(crate) async fn get(&self, number: u64) -> Result<Option<InstanceView>, LogError> {
        match self.client.get(&self.name_of(number)).await {
            Ok(view) => self.check(&view.instance).map(|()| Some(view)),
            Err(error) if error.reason() == Some(RefusalReason::InstanceUnknown) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The instance with this number; `None`: there is none yet.
    ///
    /// # Errors
    /// [`LogError::Forgotten`] if it is kept no more; [`LogError::Foreign`] if it is of another series.
    pub(crate) async fn look(&self, number: u64) -> Result<Option<InstanceView>, LogError> {
        let mut newest = 0;
        loop {
            if let Some(view) = self.get(number).await? {
                return Ok(Some(view));
            }
            // It was there before the newest one.
            if newest > number {
                return Err(LogError::Forgotten(self.name_of(number)));
            }
            newest = self.newest().await?;
            if newest <= number {
                return Ok(None);
            }
        }
    }

    /// The same, once it is created.
    ///
    /// # Errors
    /// As for [`look`](Self::look); [`LogError::BegunAgain`] if it cannot be the next one.
    pub(crate) async fn find(&self, number: u64) -> Result<InstanceView, LogError> {
        /// Looks after which it says that it waits, and asks whether the series is still there.
        const TELL_EVERY: u32 = 16;
        let (mut pause, mut looks) = (LOOK_AGAIN, 0);
        loop {
            if let Some(view) = self.look(number).await? {
                return Ok(view);
            }
            sleep(pause).await;
            looks += 1;
            if looks % TELL_EVERY == TELL_EVERY / 2 {
                let name = self.name_of(number);
                tracing::warn!("waiting for {name}, which the coordinator of {self} is to create");
                if let Some(&newest) = self.kept().await?.last() {
                    self.check_reach(newest, number)?;
                }
            }
            pause = (2 * pause).min(LOOK_AGAIN_LATER);
        }
    }

    /// Checks that the instance with this number may come next after the newest one, or came before it.
    ///
    /// # Errors
    /// [`LogError::BegunAgain`] if the one before it is not there yet either.
    pub(crate) fn check_reach(&self, newest: u64, number: u64) -> Result<(), LogError> {
        if number <= newest + 1 {
            return Ok(());
        }
        Err(LogError::BegunAgain { newest: self.name_of(newest), wanted: self.name_of(number) })
    }

    fn check(&self, instance: &InstanceInfo) -> Result<(), LogError> {
        let InstanceInfo { creator, roster, parameters, .. } = instance.clone();
        let terms = Terms { creator, roster, params: parameters };
        let first = self.terms.get_or_init(|| terms.clone());
        if *first == terms {
            return Ok(());
        }
        Err(LogError::Foreign { name: instance_name(instance), creator: terms.creator })
    }

    /// The facts that all instances share; one has been found.
    pub(crate) fn terms(&self) -> &Terms {
        self.terms.get().expect("an instance was found")
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Waits until a process has joined, or the instance is over; tells which process, if that is known.
    ///
    /// # Errors
    /// [`LogError::Forgotten`] if it is kept no more.
    pub(crate) async fn begun(&self, instance: &InstanceInfo) -> Result<Option<ProcessId>, LogError> {
        let mut watch = self.client.watch(instance.id, WatchFrom::Snapshot);
        loop {
            match watch.try_next().await {
                Ok(Some(Watched::Snapshot(snapshot))) if snapshot.status.state == State::Gathering => {
                    if snapshot.status.joined > 0 {
                        return Ok(None);
                    }
                }
                Ok(Some(Watched::Event(_, recorded))) => {
                    if let Event::Joined { process } = recorded.event {
                        return Ok(Some(process));
                    }
                }
                // Older, or over.
                Ok(Some(Watched::Snapshot(_))) => return Ok(None),
                Err(error) if has_missed_events(&error) => return Ok(None),
                Err(error) => return Err(forgotten(error, instance)),
                Ok(None) => {
                    sleep(LOOK_AGAIN).await;
                    watch = self.client.watch(instance.id, WatchFrom::Snapshot);
                }
            }
        }
    }

    /// The list once it is sealed, or the instance over: nothing will be added any more. That is what a read
    /// returns then (SPEC A3), with the process of each entry.
    ///
    /// # Errors
    /// [`LogError::Forgotten`] if it is kept no more.
    pub(crate) async fn sealed(&self, instance: &InstanceInfo) -> Result<Vec<Entry>, LogError> {
        loop {
            match self.sealed_once(instance.id).await {
                Ok(Some(list)) => return Ok(list),
                // A watch that ends before it says so tells a part of the list.
                Ok(None) => sleep(LOOK_AGAIN).await,
                Err(error) if has_missed_events(&error) => {}
                Err(error) => return Err(forgotten(error, instance)),
            }
        }
    }

    async fn sealed_once(&self, id: InstanceId) -> Result<Option<Vec<Entry>>, Error> {
        let (mut watch, mut list) = (self.client.watch(id, WatchFrom::Snapshot), Vec::new());
        while let Some(watched) = watch.try_next().await? {
            match watched {
                Watched::Snapshot(snapshot) => {
                    let entries = snapshot.entries.into_iter();
                    list = entries
                        .map(|it| Entry { value: it.value, process: it.process, phase: it.phase })
                        .collect();
                    if is_sealed(&snapshot.status) {
                        return Ok(Some(list));
                    }
                }
                Watched::Event(_, recorded) => match recorded.event {
                    Event::Added { process, phase, value, .. } => list.push(Entry { value, process, phase }),
                    Event::Sealed { .. } | Event::Finished | Event::Closed => return Ok(Some(list)),
                    _ => {}
                },
            }
        }
        Ok(None)
    }

    /// Acts in this instance as a correct process that proposes this value, until its list is sealed.
    ///
    /// # Errors
    /// [`LogError::Replaced`] if another life of the same principal acts there; when its client has given up.
    pub(crate) async fn act(&self, view: &InstanceView, value: Value) -> Result<Acted, LogError> {
        let id = view.instance.id;
        let rounds = u64::from(view.instance.parameters.append_rounds());
        // An earlier life was killed between its appends: another value in the rounds that are left would be
        // a second proposal.
        if view.own.as_ref().is_some_and(|own| (2..=rounds).contains(&own.next.get())) {
            return self.acted_in(view, &value).await;
        }
        let spec = ProcessSpec::correct(value.clone()).having_seen(view);
        let played = self.client.play(id, spec, std::future::pending()).await;
        match played.error {
            None => match Acted::of(&played, &value) {
                Some(acted) => Ok(acted),
                None => self.acted_in(view, &value).await,
            },
            Some(error) => match error.reason() {
                Some(RefusalReason::InstanceClosed) => self.acted_in(view, &value).await,
                Some(
                    RefusalReason::SessionReplaced
                    | RefusalReason::AccessContentDiffers
                    | RefusalReason::ProcessLeft,
                ) => Err(LogError::Replaced(instance_name(&view.instance))),
                _ => Err(forgotten(error, &view.instance)),
            },
        }
    }

    /// What appending this value came to, by the sealed list.
    async fn acted_in(&self, view: &InstanceView, value: &Value) -> Result<Acted, LogError> {
        let list = self.sealed(&view.instance).await?;
        let me = view.own.as_ref().map(|own| own.process);
        let entry = list.iter().position(|entry| Some(entry.process) == me && entry.value == *value);
        Ok(Acted { entry: entry.map(position_of), decision: decision(&list).cloned() })
    }
}

/// What a member's part in an instance came to.
#[derive(Debug)]
pub(crate) struct Acted {
    /// The place of its entry in the sealed list.
    pub(crate) entry: Option<Position>,
    /// The decision of all correct processes.
    pub(crate) decision: Option<Value>,
}

impl Acted {
    /// What the process knows of it by itself, if it has read that the list is sealed.
    fn of(played: &Played, value: &Value) -> Option<Self> {
        let Played { report, entry, has_read_seal: true, .. } = played else { return None };
        let Report { from, decision, .. } = report.as_ref()?;
        // An entry with another value is of another life.
        let is_own = entry.is_none_or(|entry| from.get(entry.index()) == Some(value));
        (is_own && !from.is_empty()).then(|| Self { entry: *entry, decision: decision.clone() })
    }
}

/// The decision of Algorithm 1 from this sealed list: the most frequent value.
pub(crate) fn decision(list: &[Entry]) -> Option<&Value> {
    mode(list.iter().map(|entry| &entry.value))
}

/// The first of these instances whose list may not be sealed: all are sealed that are older than the window.
pub(crate) fn first_that_may_be_open(kept: &BTreeSet<u64>) -> u64 {
    let newest = kept.last().copied().unwrap_or(0);
    kept.range((newest + 1).saturating_sub(MAX_WINDOW)..).next().copied().unwrap_or(1)
}

/// Whether nothing will be added to the list any more.
pub(crate) fn is_sealed(status: &InstanceStatus) -> bool {
    status.sealed || matches!(status.state, State::Finished | State::Closed)
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.as_str().fmt(f)
    }
}

pub(crate) fn instance_name(instance: &InstanceInfo) -> String {
    instance.name.as_ref().map_or("", InstanceName::as_str).to_owned()
}

/// The failure of a call for this instance, which the server may have forgotten.
fn forgotten(error: Error, instance: &InstanceInfo) -> LogError {
    match error.reason() {
        Some(RefusalReason::InstanceUnknown) => LogError::Forgotten(instance_name(instance)),
        _ => error.into(),
    }
}

/// Whether a watch has ended because the server keeps some of its events no more.
fn has_missed_events(error: &Error) -> bool {
    matches!(error.reason(), Some(RefusalReason::PhaseNotKept | RefusalReason::WatcherTooSlow))
}

/// Whether the caller's process has acted there.
pub(crate) fn is_used(view: &InstanceView) -> bool {
    view.own.as_ref().is_none_or(|own| own.next.get() > 1 || own.decided.is_some())
}

/// How an instance stands for the caller's process.
pub(crate) fn state_of(view: &InstanceView) -> SlotState {
    let status = &view.status;
    if is_used(view) || is_sealed(status) {
        SlotState::Used
    } else if status.state == State::Running || status.joined > 0 {
        SlotState::Begun
    } else {
        SlotState::Idle
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::process::ProcessEnd;

    use super::*;

    #[test]
    fn a_member_knows_its_entry_by_itself_only_if_it_is_its_own() {
        let value = |text: &str| Value::parse(text).unwrap();
        let played = |from: &[&str], entry: Option<u32>, has_read_seal| {
            let report = Report {
                process: ProcessId::FIRST,
                decision: from.first().map(|text| value(text)),
                phase: None,
                from: from.iter().map(|text| value(text)).collect::<Vec<_>>().into(),
                ended: ProcessEnd::Decided,
                unanswered: None,
            };
            let entry = entry.map(Position::new);
            Played { report: Some(report), entry, has_read_seal, ..Played::unseen() }
        };
        let acted =
            |played: &Played| Acted::of(played, &value("a")).map(|acted| (acted.entry, acted.decision));
        let decision = Some(value("b"));
        assert_eq!(
            acted(&played(&["b", "a"], Some(1), true)),
            Some((Some(Position::new(1)), decision.clone()))
        );
        assert_eq!(acted(&played(&["b", "c"], None, true)), Some((None, decision)));
        // The entry is of another life; the list may grow; an earlier life has decided.
        assert_eq!(acted(&played(&["b", "c"], Some(1), true)), None);
        assert_eq!(acted(&played(&["b", "a"], Some(1), false)), None);
        assert_eq!(acted(&played(&[], Some(1), true)), None);
        assert_eq!(acted(&Played::unseen()), None);
    }
}
