//! Tries what may be left of a disk: at each moment at which that can matter its power is lost, or it turns
//! out to have lied, or what is left of it cannot be read; then a server is recovered from it and compared
//! with what clients were told.

use std::collections::BTreeMap;
use std::fmt;
use std::num::ParseIntError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stickycas_faults::RoundPlan;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::random::SplitMix64;
use stickycas_model::sim::replay;
use stickycas_proto::convert::history::event_from_wire;
use stickycas_proto::names::InstanceId;
use stickycas_server::simulation::{RecoveredInstance, recover};

use super::tape::{Kept, Lie, PowerLoss, Tape};
use super::witness::Witness;
use super::{Disk, Fault};

/// How many of the possible ends of a life are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// So many drawn ones.
    Some(usize),
    /// Every moment at which it can matter, and every subset of a few changes; of lies and of reads that fail
    /// many.
    All,
}

/// The counts of what was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// Disks as they may be found.
    pub(crate) disks: u64,
    /// Of these, with a torn write.
    pub(crate) torn: u64,
    /// Of these, that had lied.
    pub(crate) lied: u64,
    /// Of these, with a flipped bit.
    pub(crate) flipped: u64,
    /// Of these, with a read that went wrong.
    pub(crate) misread: u64,
    /// Events that were told to clients, and that were there.
    pub(crate) events: u64,
    /// Servers that refused to serve a damaged log.
    pub(crate) reported: u64,
    /// Recovered as of an earlier moment: only after a disk has lied or has flipped a bit of its header.
    pub(crate) older: u64,
    /// The database panicked: only at a bit that changed between two reads.
    pub(crate) panicked: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct CrashPoints {
    plan: RoundPlan,
    witness: Witness,
    extent: Extent,
    random: SplitMix64,
    pub(crate) counted: Counted,
    /// The violations that were found.
    pub(crate) found: Vec<String>,
}

/// The result of a recovery from a disk.
enum Found {
    Events(BTreeMap<InstanceId, Vec<Recorded>>),
    Reported,
    Panicked,
    /// Something is there that nobody has sent.
    Wrong(String),
}

/// What is right besides all that was told.
#[derive(Clone, Copy, Debug, Default)]
struct Allowed {
    report: bool,
    /// An earlier state.
    older: bool,
    panic: bool,
}

const LIAR: Allowed = Allowed { report: true, older: true, panic: false };
const FAILING: Allowed = Allowed { report: true, older: false, panic: false };
/// redb has verified the page when it was opened, and trusts it.
const MISREAD: Allowed = Allowed { report: true, older: true, panic: true };

/// The number of the file of the tail.
const TAIL: usize = 1;
/// The file and the byte of the database's header that names the commit that counts. No checksum covers it:
/// one of its bits makes a commit happen, so a flip looks like a crash right before it.
const COMMIT_BYTE: (usize, usize) = (0, 9);
/// Of up to so many changes every subset is tried.
const EVERY_SUBSET: usize = 5;

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Some(count) => count.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

impl FromStr for Extent {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::Some) }
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { disks, torn, lied, flipped, misread, events, reported, older, panicked } = self;
        write!(
            f,
            "{disks} disks ({torn} torn, {lied} that had lied, {flipped} with a flipped bit, {misread} misread): \
             {events} events were there, {older} recovered to an earlier moment, {reported} reported as damaged, \
             {panicked} panics"
        )
    }
}

impl Counted {
    /// Adds the counts of others.
    pub(crate) fn add(&mut self, other: Self) {
        let Self { disks, torn, lied, flipped, misread, events, reported, older, panicked } = other;
        for (sum, count) in [
            (&mut self.disks, disks),
            (&mut self.torn, torn),
            (&mut self.lied, lied),
            (&mut self.flipped, flipped),
            (&mut self.misread, misread),
            (&mut self.events, events),
            (&mut self.reported, reported),
            (&mut self.older, older),
            (&mut self.panicked, panicked),
        ] {
            *sum += count;
        }
    }
}

impl CrashPoints {
    pub(crate) fn new(plan: RoundPlan, witness: Witness, extent: Extent, random: SplitMix64) -> Self {
        Self { plan, witness, extent, random, counted: Counted::default(), found: Vec::new() }
    }

    /// Tries the ends of this use of a disk, of which this is the tape.
    pub(crate) fn try_all(&mut self, use_number: u64, tape: &Tape) {
        if self.extent == Extent::Some(0) {
            return;
        }
        self.lose_power(use_number, tape);
        self.lie(use_number, tape);
        self.damage(use_number, tape);
    }

    /// How many of so many are tried.
    fn count(&self, all: usize) -> usize {
        match self.extent {
            Extent::Some(count) => count.min(all),
            Extent::All => all,
        }
    }

    /// The numbers of the moments at which power is lost, of so many.
    fn draw_losses(&mut self, all: usize) -> Vec<usize> {
        let count = self.count(all);
        if count == all { (0..all).collect() } else { (0..count).map(|_| self.random.index(all)).collect() }
    }

    fn lose_power(&mut self, use_number: u64, tape: &Tape) {
        let all = tape.count_losses();
        let wanted = self.draw_losses(all);
        tape.power_losses(
            |number| wanted.contains(&number),
            |loss| {
                let mut ways = match self.extent {
                    Extent::Some(_) => Vec::new(),
                    Extent::All => loss.subsets(EVERY_SUBSET),
                };
                ways.push(loss.draw(&mut self.random));
                for kept in ways {
                    let is_torn = kept.iter().any(|kept| !matches!(kept, Kept::Nothing | Kept::Whole));
                    self.counted.torn += u64::from(is_torn);
                    self.check_loss(&loss, use_number, &kept, Allowed::default());
                }
            },
        );
    }

    /// The same disk, if an operation that it has acknowledged was never done.
    fn lie(&mut self, use_number: u64, tape: &Tape) {
        let (syncs, changes) = (tape.syncs(), tape.changes_made());
        for _ in 0..self.count(syncs).div_ceil(4) {
            if syncs == 0 || changes == 0 {
                return;
            }
            let lie = match self.random.below(3) {
                0 => Lie::Sync(self.random.index(syncs)),
                1 => Lie::SyncsFrom(self.random.index(syncs)),
                _ => Lie::Change(self.random.index(changes)),
            };
            let (lied, place) = tape.with(lie);
            let (all, mut behind) = (lied.count_losses() as u64, 0);
            lied.power_losses(
                |_| true,
                |loss| {
                    behind += u64::from(loss.position > place);
                    // The next moment, before a later sync makes up for it, and perhaps another one.
                    if behind == 1 || behind > 1 && self.random.below(all) == 0 {
                        self.counted.lied += 1;
                        let kept = loss.draw(&mut self.random);
                        self.check_loss(&loss, use_number, &kept, LIAR);
                    }
                },
            );
        }
    }

    /// A disk that has kept everything, with flipped bits, or with a read that goes wrong.
    fn damage(&mut self, use_number: u64, tape: &Tape) {
        let position = tape.len();
        let content = tape.whole_at(position);
        let bytes = |file: usize| (0..content[file].len()).map(move |at| (file, at));
        let used: Vec<_> = bytes(0).chain(bytes(1)).filter(|(file, at)| content[*file][*at] != 0).collect();
        for _ in 0..self.count(used.len() / 1_024).div_ceil(4) {
            let mut flipped = content.clone();
            let (file, at) = used[self.random.index(used.len())];
            flipped[file][at] ^= 1 << self.random.below(8);
            self.counted.flipped += 1;
            let allowed = Allowed { report: true, older: (file, at) == COMMIT_BYTE, panic: false };
            // The last batch of the tail looks as if it was torn.
            let least = if file == TAIL { tape.last_sync(TAIL) } else { position };
            self.check(&Disk::of(flipped), (use_number, least), allowed, &|| {
                format!("byte {at} of file {file} has changed")
            });
            let (fault, allowed) = match self.random.below(3) {
                0 => (Fault::ReadFails, FAILING),
                1 => (Fault::ReadShort, FAILING),
                _ => (Fault::ReadFlips(self.random.index(1 << 16)), MISREAD),
            };
            let (disk, read) = (Disk::of(content.clone()), self.random.below(30));
            disk.fail_in_next_use(fault, read);
            self.check(&disk, (use_number, position), allowed, &|| format!("read {read}: {fault:?}"));
            // Some recoveries need fewer reads.
            self.counted.misread += u64::from(disk.failed().is_some());
        }
    }

    fn check_loss(&mut self, loss: &PowerLoss<'_>, use_number: u64, kept: &[Kept], allowed: Allowed) {
        let disk = Disk::of(loss.image(kept));
        let how = || format!("power was lost, and of {} changes this was kept: {kept:?}", loss.unsynced());
        self.check(&disk, (use_number, loss.position), allowed, &how);
    }

    fn check(&mut self, disk: &Disk, at: (u64, usize), allowed: Allowed, how: &dyn Fn() -> String) {
        self.counted.disks += 1;
        let found = self.recover(disk);
        let wrong = match &found {
            Found::Events(events) => match self.witness.check(events, at, false) {
                Ok(()) => {
                    self.counted.events += self.witness.count(at);
                    return;
                }
                Err(_) if allowed.older && self.witness.check(events, at, true).is_ok() => {
                    self.counted.older += 1;
                    return;
                }
                Err(wrong) => wrong,
            },
            Found::Reported => {
                self.counted.reported += 1;
                if allowed.report {
                    return;
                }
                "the log is reported to be damaged".to_owned()
            }
            Found::Panicked => {
                self.counted.panicked += 1;
                if allowed.panic {
                    return;
                }
                "the recovery panics".to_owned()
            }
            Found::Wrong(wrong) => wrong.clone(),
        };
        let (use_number, position) = at;
        self.found.push(format!("server {use_number}, place {position} of its disk: {}: {wrong}", how()));
    }

    /// The events of the instances that a server recovers from this disk.
    fn recover(&self, disk: &Disk) -> Found {
        let recovered =
            catch_unwind(AssertUnwindSafe(|| recover(disk.begin_use(Arc::new(|| Duration::ZERO)))));
        let Ok(recovered) = recovered else { return Found::Panicked };
        let Ok(recovered) = recovered else { return Found::Reported };
        let mut all = BTreeMap::new();
        for RecoveredInstance { dumped, is_named } in recovered {
            let created = dumped.created.unwrap_or_default();
            let known = self.plan.instances.iter().find(|plan| plan.name(self.plan.seed) == created.name);
            let Some(known) = known else { return Found::Wrong(format!("nobody has created {created:?}")) };
            let events: Result<Vec<Recorded>, _> = dumped
                .events
                .iter()
                .map(|event| event_from_wire(event).map(|(_, recorded)| recorded))
                .collect();
            let Ok(events) = events else { return Found::Wrong(format!("no events: {:?}", dumped.events)) };
            if let Err(difference) = replay(&known.params, &events) {
                return Found::Wrong(format!(
                    "{}: it does not follow from its inputs: {difference}",
                    created.name
                ));
            }
            let is_closed = events.iter().any(|recorded| matches!(recorded.event, Event::Closed));
            if !is_named && !is_closed {
                return Found::Wrong(format!("{}: it is not found by its name", created.name));
            }
            let Ok(id) = created.id.as_ref().try_into() else {
                return Found::Wrong(format!("no id: {created:?}"));
            };
            all.insert(InstanceId::new(u128::from_be_bytes(id)), events);
        }
        Found::Events(all)
    }
}
