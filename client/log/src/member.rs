//! [`Member`]: appends to the log; its [`MemberDriver`] acts in the slots.

use std::collections::BTreeMap;

use stickycas_client::Error;
use stickycas_client::info::InstanceView;
use stickycas_model::machine::Entry;
use stickycas_model::types::ProcessId;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use crate::error::LogError;
use crate::order::{AppendId, HEADER, Order, Place, SlotState};
use crate::series::{MAX_WINDOW, Series, first_that_may_be_open, instance_name, is_used, state_of};

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
            order: Order::new(own.process, from, MAX_WINDOW),
            me: own.process,
            newest_of_earlier_lives: newest,
            series: series.clone(),
            appends,
            answers: BTreeMap::new(),
            next: Next::None,
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
    next: Next,
    tasks: JoinSet<Result<Done, LogError>>,
}

/// What is known of the slot in which the member acts next.
#[derive(Debug)]
enum Next {
    None,
    /// It is looked for.
    Wanted,
    /// It stands so; a task watches for its begin.
    Found(Box<InstanceView>, SlotState, Option<AbortHandle>),
}

/// What a task has done.
#[derive(Debug)]
enum Done {
    /// Found the slot in which the member acts next.
    Found(Box<InstanceView>),
    /// A member has begun there; which one, if that is known.
    Begun(u64, Option<ProcessId>),
    /// The list of a slot is sealed.
    Sealed(u64, Vec<Entry>),
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
        while let Some(slot) = self.order.deliver() {
            let answer = slot.own.and_then(|(id, place)| Some((self.answers.remove(&id)?, place)));
            if let Some((answer, place)) = answer {
                // The caller may have gone.
                let _ = answer.send(place);
            }
        }
    }

    /// Acts in as many slots as it can, and has the next one found or watched.
    fn act(&mut self) {
        while let Some(slot) = self.order.next_slot() {
            let series = self.series.clone();
            match std::mem::replace(&mut self.next, Next::Wanted) {
                Next::None => {
                    self.tasks.spawn(async move { Ok(Done::Found(Box::new(series.find(slot).await?))) });
                    return;
                }
                Next::Wanted => return,
                Next::Found(view, state, watching) => match self.order.act(state) {
                    Some(value) => {
                        watching.inspect(AbortHandle::abort);
                        self.next = Next::None;
                        self.tasks
                            .spawn(async move { Ok(Done::Sealed(slot, series.act(&view, value).await?)) });
                    }
                    None => {
                        let instance = view.instance.clone();
                        let watching = watching.unwrap_or_else(|| {
                            self.tasks
                                .spawn(async move { Ok(Done::Begun(slot, series.begun(&instance).await?)) })
                        });
                        self.next = Next::Found(view, state, Some(watching));
                        return;
                    }
                },
            }
        }
    }

    fn done(&mut self, done: Result<Result<Done, LogError>, tokio::task::JoinError>) -> Result<(), LogError> {
        match done {
            Ok(Ok(Done::Found(view))) => {
                let slot = self.order.next_slot();
                if is_used(&view) && slot.is_some_and(|slot| slot > self.newest_of_earlier_lives) {
                    return Err(LogError::Replaced(instance_name(&view.instance)));
                }
                let state = state_of(&view);
                self.next = Next::Found(view, state, None);
            }
            Ok(Ok(Done::Begun(slot, member))) => {
                if let Next::Found(view, state @ SlotState::Idle, _) = &mut self.next
                    && self.order.next_slot() == Some(slot)
                {
                    if member == Some(self.me) {
                        return Err(LogError::Replaced(instance_name(&view.instance)));
                    }
                    *state = SlotState::Begun;
                }
            }
            Ok(Ok(Done::Sealed(slot, list))) => self.order.sealed(slot, list),
            Ok(Err(error)) => return Err(error),
            // A watch that is wanted no more.
            Err(ended) if ended.is_cancelled() => {}
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
        Ok(())
    }
}
