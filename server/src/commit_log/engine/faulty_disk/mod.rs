//! A simulated disk, to put below the real engine: it keeps durable changes apart from those that no sync has
//! made durable yet, and can be told which operation goes wrong.
//!
//! It also records every change and every sync on a [`Tape`], from which [`PowerLoss`] makes the possible
//! contents of a disk after a loss of power at any moment of the run.

mod power_loss;

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

pub(crate) use power_loss::{Kept, PowerLoss, Tape, choices};

/// Bytes that a disk writes as a whole.
pub(crate) const SECTOR: usize = 512;

/// See the module. Clones are the same disk.
#[derive(Clone)]
pub(crate) struct FaultyDisk(Arc<Mutex<State>>);

struct State {
    /// The content that reads see, with every change, durable or not.
    content: Vec<u8>,
    tape: Tape,
    counts: Counts,
    fault: Option<Fault>,
    /// The place on the tape at which the fault first came about.
    fired: Option<usize>,
    before_sync: Option<(u32, Box<dyn FnOnce() + Send>)>,
    /// Nothing is read or written any more.
    off: bool,
}

/// One change of a disk.
#[derive(Clone)]
pub(crate) enum Change {
    Write { offset: usize, data: Arc<[u8]> },
    SetLen(usize),
}

/// Operations so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    /// Writes and changes of the length.
    pub(crate) writes: u64,
    pub(crate) syncs: u64,
    /// Writes and syncs that were tried after an operation had failed.
    pub(crate) after_failure: u64,
}

/// A fault of the disk. Operations of each kind are counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A write fails; this much of it has reached the disk.
    WriteFails(u64, Kept),
    /// A write succeeds as far as anybody can see, but the disk never does it.
    WriteLost(u64),
    /// A sync fails. The changes before it may or may not be durable then.
    SyncFails(u64),
    /// A sync succeeds as far as anybody can see, and makes nothing durable.
    SyncLost(u64),
    /// From this sync on, none makes anything durable.
    SyncsLostFrom(u64),
    /// A read fails.
    ReadFails(u64),
    /// A read returns only the first half, and says so.
    ReadShort(u64),
    /// A read returns this bit, counted on from the start as often as it takes, not as it was written.
    ReadFlips(u64, usize),
}

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyDisk").finish_non_exhaustive()
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { offset, data } => write!(f, "{}@{offset}", data.len()),
            Self::SetLen(length) => write!(f, "length {length}"),
        }
    }
}

impl FaultyDisk {
    /// A disk that holds this.
    pub(crate) fn new(content: Vec<u8>) -> Self {
        let state = State {
            tape: Tape::new(content.clone()),
            content,
            counts: Counts::default(),
            fault: None,
            fired: None,
            before_sync: None,
            off: false,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// This will go wrong.
    pub(crate) fn with_fault(content: Vec<u8>, fault: Fault) -> Self {
        let disk = Self::new(content);
        disk.state().fault = Some(fault);
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next write goes wrong, and nothing of it reaches the disk.
    pub(crate) fn fail_next_write(&self) {
        let mut state = self.state();
        state.fault = Some(Fault::WriteFails(state.counts.writes + 1, Kept::Nothing));
    }

    /// Every operation fails from now on.
    pub(crate) fn switch_off(&self) {
        self.state().off = true;
    }

    /// Calls this in the middle of the sync that comes after `skipped` others: the changes before it are not
    /// durable yet.
    pub(crate) fn before_sync(&self, skipped: u32, call: impl FnOnce() + Send + 'static) {
        self.state().before_sync = Some((skipped, Box::new(call)));
    }

    /// The place on the tape at which the fault came about; `None`: it has not.
    pub(crate) fn fired(&self) -> Option<usize> {
        self.state().fired
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// The length of the tape by now.
    pub(crate) fn position(&self) -> usize {
        self.state().tape.len()
    }

    /// Everything that was done so far.
    pub(crate) fn tape(&self) -> Tape {
        self.state().tape.clone()
    }

    /// The content that reads see.
    pub(crate) fn content(&self) -> Vec<u8> {
        self.state().content.clone()
    }
}

impl State {
    fn check_on(&self) -> io::Result<()> {
        if self.off { Err(io::Error::other("the disk is off")) } else { Ok(()) }
    }

    fn note_fired(&mut self) {
        self.fired.get_or_insert(self.tape.len());
    }

    /// The simulated failure.
    fn fail<T>(&mut self, what: &str) -> io::Result<T> {
        self.note_fired();
        Err(io::Error::other(format!("simulated fault: {what}")))
    }

    fn note_failed(&mut self) {
        let failing = matches!(
            self.fault,
            Some(Fault::WriteFails(..) | Fault::SyncFails(_) | Fault::ReadFails(_) | Fault::ReadShort(_))
        );
        self.counts.after_failure += u64::from(self.fired.is_some() && failing);
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        self.check_on()?;
        self.note_failed();
        self.counts.writes += 1;
        match self.fault {
            Some(Fault::WriteFails(write, kept)) if write == self.counts.writes => {
                self.tape.change_in_part(change, kept);
                self.fail("the write failed")
            }
            Some(Fault::WriteLost(write)) if write == self.counts.writes => {
                self.note_fired();
                change.apply(&mut self.content, Kept::Whole);
                Ok(())
            }
            _ => {
                change.apply(&mut self.content, Kept::Whole);
                self.tape.change(change);
                Ok(())
            }
        }
    }
}

impl Change {
    /// Does as much of the change as was kept.
    pub(crate) fn apply(&self, content: &mut Vec<u8>, kept: Kept) {
        match self {
            Self::SetLen(length) if kept != Kept::Nothing => content.resize(*length, 0),
            Self::SetLen(_) => {}
            Self::Write { offset, data } => {
                for range in kept.ranges(data.len()).into_iter().filter(|range| !range.is_empty()) {
                    let end = offset + range.end;
                    if content.len() < end {
                        content.resize(end, 0);
                    }
                    content[offset + range.start..end].copy_from_slice(&data[range]);
                }
            }
        }
    }
}

fn index(position: u64) -> usize {
    usize::try_from(position).expect("the disk is small")
}

impl StorageBackend for FaultyDisk {
    fn len(&self) -> io::Result<u64> {
        let state = self.state();
        state.check_on()?;
        Ok(state.content.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = &mut *self.state();
        state.check_on()?;
        state.counts.reads += 1;
        let (start, end) = (index(offset), index(offset) + out.len());
        let Some(found) = state.content.get(start..end) else {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is behind the end"));
        };
        out.copy_from_slice(found);
        match state.fault {
            Some(Fault::ReadFails(read)) if read == state.counts.reads => state.fail("the read failed"),
            Some(Fault::ReadShort(read)) if read == state.counts.reads => {
                let half = out.len() / 2;
                out[half..].fill(0);
                state.fail("the read was short")
            }
            Some(Fault::ReadFlips(read, bit)) if read == state.counts.reads => {
                state.note_fired();
                let bit = bit % (out.len() * 8);
                out[bit / 8] ^= 1 << (bit % 8);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state().change(Change::SetLen(index(len)))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.check_on()?;
        state.note_failed();
        state.counts.syncs += 1;
        let sync = state.counts.syncs;
        match state.before_sync.take() {
            Some((0, call)) => {
                drop(state);
                call();
                state = self.state();
            }
            Some((skipped, call)) => state.before_sync = Some((skipped - 1, call)),
            None => {}
        }
        match state.fault {
            Some(Fault::SyncFails(failing)) if failing == sync => state.fail("the sync failed"),
            Some(Fault::SyncLost(lost)) if lost == sync => {
                state.note_fired();
                Ok(())
            }
            Some(Fault::SyncsLostFrom(lost)) if lost <= sync => {
                state.note_fired();
                Ok(())
            }
            _ => {
                state.tape.sync();
                Ok(())
            }
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.state().change(Change::Write { offset: index(offset), data: data.into() })
    }
}
