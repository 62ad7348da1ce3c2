//! The simulated disk of a server: slow, and it can fail, fill up, and lose its power.
//!
//! It records every change and every sync on a [`Tape`], from which follow the contents that it may have if
//! its server or its machine is gone at any moment: [`crash_points`] tries these.
//!
//! | module | what |
//! | --- | --- |
//! | `tape` | what was done to a disk, and what is left of it |
//! | `witness` | the committed events that a client was told, each with its place on the tape |
//! | `crash_points` | a server recovered from what is left, compared with what was told |

mod crash_points;
mod tape;
mod witness;

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stickycas_model::random::SplitMix64;
use stickycas_server::simulation::{self, StorageBackend};
use tokio::time::sleep;

use self::tape::{Change, Content, What};

pub(crate) use self::crash_points::{Counted, CrashPoints, Extent};
pub(crate) use self::tape::{Kept, Tape};
pub(crate) use self::witness::Witness;

/// A disk with the log of a server. Clones are the same disk.
#[derive(Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The content that reads see, with every change, durable or not.
    content: Content,
    /// Since it came into use.
    tape: Tape,
    /// The number of its uses so far.
    uses: u64,
    in_use: bool,
    /// A log is being made on it: it is there as a whole or not at all.
    is_made: bool,
    due: Option<Due>,
    due_in_next_use: Option<Due>,
    /// The fault that has come about.
    failed: Option<Fault>,
    /// Writes and syncs that were tried after an operation had failed.
    after_failure: u64,
    /// The place on the tape at which the last commit was told.
    told: usize,
    /// Whether the server that uses it was told that it has committed something.
    has_committed: bool,
}

/// A fault, and the operations of its kind until then.
#[derive(Clone, Copy)]
struct Due(Fault, u64);

/// A fault of the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A write fails; this much of it has reached the disk.
    WriteFails(Kept),
    /// A sync fails. The changes before it may or may not be durable then.
    SyncFails,
    /// A read fails.
    ReadFails,
    /// A read returns only the first half, and says so.
    ReadShort,
    /// A read returns this bit, counted on from the start as often as it takes, not as it was written.
    ReadFlips(usize),
    /// There is no space for a change that needs more.
    Full,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    Grow,
    Sync,
}

/// The ways in which a server comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Its process is killed: all its writes are kept, synced or not.
    Process,
    /// Its machine loses power: writes that were not synced are kept, lost, or torn.
    Power,
}

/// The duration of the commit of the next batch.
pub(crate) type CommitLatency = Arc<dyn Fn() -> Duration + Send + Sync>;

/// One of its files, as one server uses it.
#[derive(Debug)]
pub(crate) struct FileUse {
    disk: DiskUse,
    file: usize,
}

/// The disk as one server uses it. Clones are the same.
#[derive(Clone)]
pub(crate) struct DiskUse {
    disk: Disk,
    number: u64,
    latency: CommitLatency,
}

impl fmt::Debug for DiskUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskUse").finish_non_exhaustive()
    }
}

impl Fault {
    /// The faults with which a server that serves has to end by itself. The torn writes are drawn.
    const ENDING: [Self; 6] = [
        Self::WriteFails(Kept::Nothing),
        Self::SyncFails,
        Self::WriteFails(Kept::Prefix(0)),
        Self::Full,
        Self::WriteFails(Kept::Whole),
        Self::WriteFails(Kept::Prefix(0)),
    ];

    /// A fault with which a server has to end by itself: each has its turn. Only one that starts reads its
    /// disk.
    pub(crate) fn draw(turn: usize, is_starting: bool, random: &mut SplitMix64) -> Self {
        match Self::ENDING[turn % Self::ENDING.len()] {
            _ if is_starting && random.below(2) == 0 => Self::ReadFails,
            Self::WriteFails(Kept::Prefix(_)) => Self::WriteFails(Kept::torn(4_096, random)),
            fault => fault,
        }
    }

    fn operation(self) -> Operation {
        match self {
            Self::WriteFails(_) => Operation::Write,
            Self::SyncFails => Operation::Sync,
            Self::ReadFails | Self::ReadShort | Self::ReadFlips(_) => Operation::Read,
            Self::Full => Operation::Grow,
        }
    }

    fn error(self) -> io::Error {
        let kind = if matches!(self, Self::Full) { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
        io::Error::new(kind, format!("simulated: {self:?}"))
    }
}

impl Disk {
    /// A disk that holds this.
    fn of(content: Content) -> Self {
        let disk = Self::default();
        disk.state().content = content;
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A server begins to use it. A server before it has no effect any more.
    pub(crate) fn begin_use(&self, latency: CommitLatency) -> DiskUse {
        let state = &mut *self.state();
        *state = State {
            tape: Tape::new(state.content.clone()),
            is_made: state.content.iter().all(Vec::is_empty),
            content: std::mem::take(&mut state.content),
            uses: state.uses + 1,
            in_use: true,
            due: state.due_in_next_use,
            ..State::default()
        };
        DiskUse { disk: self.clone(), number: state.uses, latency }
    }

    /// This fault comes about with the next operation of its kind.
    pub(crate) fn fail(&self, fault: Fault) {
        self.state().due = Some(Due(fault, 0));
    }

    /// This fault comes about after so many operations of its kind of the next server that uses it: the first
    /// ones are those of opening the log, and of the record that it was started again.
    pub(crate) fn fail_in_next_use(&self, fault: Fault, after: u64) {
        self.state().due_in_next_use = Some(Due(fault, after));
    }

    /// The fault that has come about for the server that uses it.
    pub(crate) fn failed(&self) -> Option<Fault> {
        self.state().failed
    }

    /// Writes and syncs that were tried after an operation had failed.
    pub(crate) fn after_failure(&self) -> u64 {
        self.state().after_failure
    }

    /// Whether the server that uses it has committed something and was told so. The first thing is the record
    /// that it was started again; then it serves.
    pub(crate) fn has_committed(&self) -> bool {
        self.state().has_committed
    }

    /// The number of its use, and the place on the tape at which the last commit was told.
    fn told(&self) -> (u64, usize) {
        let state = self.state();
        (state.uses, state.told)
    }

    /// Stops it, at a drawn moment of the commit that is under way: later writes of its server are lost.
    /// Returns everything that the server had done, with the number of its use, unless there was no log yet.
    pub(crate) fn stop(&self, loss: Loss, random: &mut SplitMix64) -> Option<(u64, Tape)> {
        let state = &mut *self.state();
        if !std::mem::take(&mut state.in_use) {
            return None;
        }
        let tape = std::mem::take(&mut state.tape);
        if state.is_made {
            state.content = Content::default();
            return None;
        }
        state.content = tape.draw_end(loss, state.told, random);
        Some((state.uses, tape))
    }
}

impl Tape {
    /// The content of a disk that stops somewhere behind this place.
    fn draw_end(&self, loss: Loss, told: usize, random: &mut SplitMix64) -> Content {
        let position = told + random.index(self.len() + 1 - told);
        match loss {
            Loss::Process => self.whole_at(position),
            Loss::Power => {
                let stopped = self.until(position);
                let (mut image, last) = (Content::default(), stopped.count_losses() - 1);
                stopped.power_losses(
                    |number| number == last,
                    |loss| {
                        image = loss.image(&loss.draw(random));
                    },
                );
                image
            }
        }
    }
}

impl State {
    /// Counts this operation; the fault that comes about with it, if any.
    fn fault(&mut self, operation: Operation) -> Option<Fault> {
        let Due(fault, left) = self.due.as_mut().filter(|due| due.0.operation() == operation)?;
        // A disk that is full stays full.
        let is_due = *left == 0;
        *left = left.saturating_sub(1);
        let fault = *fault;
        if !is_due {
            return None;
        }
        if operation != Operation::Grow {
            self.due = None;
        }
        self.failed = Some(fault);
        Some(fault)
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        self.after_failure += u64::from(self.failed.is_some());
        let grows = change.end() > self.content[change.file].len();
        let fault = if grows { self.fault(Operation::Grow) } else { None };
        let most = match fault.or_else(|| self.fault(Operation::Write)) {
            None => {
                change.apply(&mut self.content, Kept::Whole);
                self.tape.change(change, Kept::Whole);
                return Ok(());
            }
            Some(fault @ Fault::WriteFails(kept)) => {
                self.tape.change(change, kept);
                return Err(fault.error());
            }
            Some(fault) => fault,
        };
        Err(most.error())
    }
}

impl DiskUse {
    /// The disk, if this server still uses it.
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        if state.in_use && state.uses == self.number {
            Ok(state)
        } else {
            Err(io::Error::other("the disk is off"))
        }
    }
}

fn index(position: u64) -> usize {
    usize::try_from(position).expect("the disk is small")
}

impl StorageBackend for FileUse {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state()?.content[self.file].len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.state()?;
        let (start, end) = (index(offset), index(offset) + out.len());
        let Some(found) = state.content[self.file].get(start..end) else {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is behind the end"));
        };
        out.copy_from_slice(found);
        match state.fault(Operation::Read) {
            None => Ok(()),
            Some(Fault::ReadFlips(bit)) => {
                let bit = bit % (out.len() * 8);
                out[bit / 8] ^= 1 << (bit % 8);
                Ok(())
            }
            Some(fault) => {
                let half = out.len() / 2;
                out[half..].fill(0);
                Err(fault.error())
            }
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.state()?.change(Change { file: self.file, what: What::SetLen(index(len)) })
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state()?;
        state.after_failure += u64::from(state.failed.is_some());
        match state.fault(Operation::Sync) {
            Some(fault) => Err(fault.error()),
            None => {
                state.tape.sync(self.file);
                Ok(())
            }
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.state()?.change(Change {
            file: self.file,
            what: What::Write { offset: index(offset), data: data.into() },
        })
    }
}

impl simulation::Disk for DiskUse {
    type File = FileUse;

    fn files(&self) -> [FileUse; 2] {
        [0, 1].map(|file| FileUse { disk: self.clone(), file })
    }

    fn opened(&self) {
        let Ok(mut state) = self.state() else { return };
        if std::mem::take(&mut state.is_made) {
            state.tape.begin_here();
            state.told = state.tape.len();
        }
    }

    async fn tell(&self, is_committed: bool) -> bool {
        sleep((self.latency)()).await;
        let Ok(mut state) = self.state() else { return false };
        state.told = state.tape.len();
        state.has_committed |= is_committed;
        true
    }
}
