//! [`Member`]: appends to the log; its [`MemberDriver`] acts in the slots.

use std::collections::{BTreeMap, VecDeque};

use stickycas_client::Error;
use stickycas_client::info::InstanceView;
use stickycas_model::types::{Position, ProcessId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use crate::error::LogError;
use crate::order::{AppendId, HEADER, Order, Place, SlotState};
use crate::series::{MAX_WINDOW, Series, first_that_may_be_open, instance_name, is_used, state_of};

/// The slots that a member knows ahead of acting in them.
const KNOWN_AHEAD: usize = 4;

/// A member of a log. Clones append as the same member; when the last one is dropped, the driver ends the
/// slots in flight and then itself.
#[derive(Clone, Debug)]
pub struct Member {
    appends: mpsc::Sender<Append>,
    max_value: usize,
}

#[derive(Debug)]
struct Append {
    value: Vec<u8>,
    appended: oneshot::Sender<Place>,
}

impl Member {
    /// Takes part in this log, once it has a slot, as the principal of its client. The driver is to be run;
    /// as long as it is not, this member is a silent one.
    ///
    /// # Errors
    /// When the principal is no member of the log, and when a call fails.
    pub async fn join(series: &Series) -> Result<(Self, MemberDriver), LogError> {
        let kept = series.kept().await?;
        let (from, newest) = (first_that_may_be_open(&kept), kept.last().copied().unwrap_or(0));
        let view = series.find(from).await?;
        let Some(own) = &view.own else {
            let principal = series.client().principal();
            let why = format!("{principal} is no member of {series}: a reader needs no membership");
            return Err(Error::InvalidArgument(why).into());
        };
        let spec = series.terms().params.spec();
        let max_value = (spec.max_value_bytes as usize).checked_sub(HEADER);
        let is_of_a_log = |max: &usize| *max > 0 && spec.append_rounds == spec.warp_size;
        let Some(max_value) = max_value.filter(is_of_a_log) else {
            let why = format!(
                "{series} is no log: its instances take values of {} bytes in {} append rounds, and warps have {}",
                spec.max_value_bytes, spec.append_rounds, spec.warp_size
            );
            return Err(Error::InvalidArgument(why).into());
        };
        let (sender, appends) = mpsc::channel(1);
        let driver = MemberDriver {
            order: Order::new(from, MAX_WINDOW),
            me: own.process,
            newest_of_earlier_lives: newest,
            series: series.clone(),
            appends,
            answers: BTreeMap::new(),
            ahead: VecDeque::new(),
            is_looking: false,
            missing: None,
            watching: None,
            tasks: JoinSet::new(),
        };
        Ok((Self { appends: sender, max_value }, driver))
    }

    /// Appends a value. It has its place, and all slots before are sealed, when this returns: an append that
    /// begins later, by any member, stands behind it. Appends of one member that are under way at the same
    /// time may stand in any order.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a value that is too long; [`LogError::Ended`] when the driver has
    /// ended: the value may be in the log or not, and this append adds it no more than once.
    pub async fn append(&self, value: impl Into<Vec<u8>>) -> Result<Place, LogError> {
        let value = value.into();
        let (given, max) = (value.len(), self.max_value);
        if given > max {
            let why = format!("a value of {given} bytes: give at most {max} for this log");
            return Err(Error::InvalidArgument(why).into());
        }
        let (appended, place) = oneshot::channel();
        self.appends.send(Append { value, appended }).await.map_err(|_| LogError::Ended)?;
        place.await.map_err(|_| LogError::Ended)
    }
}

/// Acts in the slots of a log for its [`Member`].
#[must_use = "a member whose driver does not run is a silent one"]
#[derive(Debug)]
pub struct MemberDriver {
    series: Series,
    me: ProcessId,
    /// The newest slot in which an earlier life may have acted.
    newest_of_earlier_lives: u64,
    order: Order,
    appends: mpsc::Receiver<Append>,
    answers: BTreeMap<AppendId, oneshot::Sender<Place>>,
    /// The slots from the next one on, as they were found.
    ahead: VecDeque<(Box<InstanceView>, SlotState)>,
    /// Whether a task looks for the slot behind these.
    is_looking: bool,
    /// The last slot that did not exist when it was looked for ahead of its turn.
    missing: Option<u64>,
    /// The task that waits for another member to begin in the next slot.
    watching: Option<AbortHandle>,
    tasks: JoinSet<Result<Done, LogError>>,
}

/// What a task has done.
#[derive(Debug)]
enum Done {
    /// Found a slot, or found that it does not exist yet.
    Found(u64, Option<Box<InstanceView>>),
    /// A member has begun there; which one, if that is known.
    Begun(u64, Option<ProcessId>),
    /// The list of a slot is sealed, and this is the place of the member's entry in it.
    Sealed(u64, Option<Position>),
}

impl MemberDriver {
    /// Acts until all members are dropped and their slots ended. Dropping the future is like killing the
    /// member: the slots in flight go on without it.
    ///
    /// # Errors
    /// [`LogError::Replaced`] when it finds another life of this member; when a call fails for good. The
    /// appends that are not answered may be in the log or not.
    pub async fn run(mut self) -> Result<(), LogError> {
        let mut is_leaving = false;
        loop {
            self.deliver();
            let acts_on = !is_leaving || self.order.has_values();
            if acts_on {
                self.act();
            } else if !self.order.is_in_flight() {
                return Ok(());
            }
            tokio::select! {
                append = self.appends.recv(), if !is_leaving && !self.order.is_full() => match append {
                    Some(Append { value, appended }) => {
                        let id = rand::random();
                        self.order.append(id, &value);
                        self.answers.insert(id, appended);
                    }
                    None => is_leaving = true,
                },
                Some(done) = self.tasks.join_next() => self.done(done)?,
            }
        }
    }

    fn deliver(&mut self) {
        for (id, place) in self.order.deliver() {
            if let Some(answer) = self.answers.remove(&id) {
                // The caller may have gone.
                let _ = answer.send(place);
            }
        }
    }

    /// Acts in as many slots as it can, and has the next ones found and the first of them watched.
    fn act(&mut self) {
        while let Some(slot) = self.order.next_slot() {
            self.look_ahead(slot + self.ahead.len() as u64);
            let Some((_, state)) = self.ahead.front() else { return };
            let Some(value) = self.order.act(*state) else { return self.watch(slot) };
            let (view, _) = self.ahead.pop_front().expect("it is the first one");
            self.watching.take().inspect(AbortHandle::abort);
            let series = self.series.clone();
            self.tasks.spawn(async move { Ok(Done::Sealed(slot, series.act(&view, value).await?.entry)) });
        }
    }

    /// Looks for a slot, one at a time. Only for the next slot it waits until that exists.
    fn look_ahead(&mut self, slot: u64) {
        let is_next = self.ahead.is_empty();
        if self.is_looking || self.ahead.len() >= KNOWN_AHEAD || (!is_next && self.missing == Some(slot)) {
            return;
        }
        self.is_looking = true;
        let series = self.series.clone();
        self.tasks.spawn(async move {
            let found = if is_next { Some(series.find(slot).await?) } else { series.get(slot).await? };
            Ok(Done::Found(slot, found.map(Box::new)))
        });
    }

    /// Waits for another member to begin in the next slot.
    fn watch(&mut self, slot: u64) {
        if self.watching.is_none() {
            let (series, instance) = (self.series.clone(), self.ahead[0].0.instance.clone());
            let begun = async move { Ok(Done::Begun(slot, series.begun(&instance).await?)) };
            self.watching = Some(self.tasks.spawn(begun));
        }
    }

    fn done(&mut self, done: Result<Result<Done, LogError>, tokio::task::JoinError>) -> Result<(), LogError> {
        match done {
            Ok(Ok(Done::Found(slot, None))) => (self.is_looking, self.missing) = (false, Some(slot)),
            Ok(Ok(Done::Found(slot, Some(view)))) => {
                if is_used(&view) && slot > self.newest_of_earlier_lives {
                    return Err(LogError::Replaced(instance_name(&view.instance)));
                }
                let state = state_of(&view);
                self.ahead.push_back((view, state));
                self.is_looking = false;
            }
            Ok(Ok(Done::Begun(slot, member))) => {
                if self.order.next_slot() == Some(slot)
                    && let Some((view, state @ SlotState::Idle)) = self.ahead.front_mut()
                {
                    if member == Some(self.me) {
                        return Err(LogError::Replaced(instance_name(&view.instance)));
                    }
                    *state = SlotState::Begun;
                }
            }
            Ok(Ok(Done::Sealed(slot, entry))) => self.order.sealed(slot, entry),
            Ok(Err(error)) => return Err(error),
            // A watch that is wanted no more.
            Err(ended) if ended.is_cancelled() => {}
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
        Ok(())
    }
}
