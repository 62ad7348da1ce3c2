//! The real engine over a disk that fails, tears, lies or loses its power: every write that was told as
//! committed is there, and nothing that was not written; or the engine says that it is damaged.
//!
//! The writes are made up here; the tests of the same name in [`crate::instances`] have the writes of
//! instances. The short form runs with all tests, the long one if `STICKYCAS_FAULTS=long` (`scripts/verify
//! --all`). Both print what they have counted.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::faulty_disk::{Fault, FaultyDisk, Kept, PowerLoss, choices};
use super::redb::was_cut_off;
use super::{Engine, EngineError, Outcome, RedbEngine, Stored, WriteBatch};

/// The contents of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contents {
    batches: BTreeMap<u64, Vec<u8>>,
    checkpoints: BTreeMap<u64, Vec<u8>>,
}

impl Contents {
    fn write(&mut self, write: &WriteBatch) {
        self.batches.insert(write.log_index, write.batch.clone());
        if let Some(trim) = write.trim {
            self.batches.retain(|log_index, _| *log_index >= trim);
        }
        for (number, state) in &write.checkpoints {
            match state {
                Some(state) => self.checkpoints.insert(*number, state.clone()),
                None => self.checkpoints.remove(number),
            };
        }
    }

    /// Whether this is the other without one of its tables.
    fn hides_a_table(&self, other: &Found) -> bool {
        let Found::Contents(other) = other else { return false };
        (self.batches.is_empty() && self.checkpoints == other.checkpoints)
            || (self.checkpoints.is_empty() && self.batches == other.batches)
    }

    fn of(engine: &dyn Engine) -> Result<Self, EngineError> {
        let mut contents = Self::default();
        engine.read(&mut |stored| {
            match stored {
                Stored::Batch(log_index, bytes) => contents.batches.insert(log_index, bytes.to_vec()),
                Stored::Checkpoint(number, bytes) => contents.checkpoints.insert(number, bytes.to_vec()),
            };
            Ok(())
        })?;
        Ok(contents)
    }
}

/// The counts of a test.
#[derive(Debug, Default)]
struct Counted {
    faults: u64,
    power_losses: u64,
    /// Disks as they may be found after a fault.
    disks: u64,
    recovered: u64,
    /// Recovered to a state that was told before, but not the last: only after a disk has lied.
    older: u64,
    reported: u64,
    panicked: u64,
    /// A table was not seen: only where a read returned a flipped bit of the page that lists the tables.
    hidden: u64,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faults, power_losses, disks, recovered, older, reported, panicked, hidden } = self;
        write!(
            f,
            "{faults} faults, {power_losses} power losses, {disks} disks: {recovered} recovered, {older} to an older \
             state, {reported} reported as damaged, {panicked} panics, {hidden} with a table hidden"
        )
    }
}

fn is_long() -> bool {
    std::env::var("STICKYCAS_FAULTS").is_ok_and(|form| form == "long")
}

/// The first in the short form, the second in the long one.
fn form(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}

/// Appends like those of a server, and then some: short and long batches, checkpoints, trims.
fn writes(seed: u64, count: u64) -> impl Iterator<Item = WriteBatch> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut bytes = move |longest: usize| {
        let length = random.random_range(1..=longest);
        let byte: u8 = random.random();
        (0..length).map(|index| byte.wrapping_add((index % 251) as u8)).collect::<Vec<u8>>()
    };
    (1..=count).map(move |log_index| {
        // With a long batch the file grows, and it shrinks when that is trimmed.
        let batch = bytes(if log_index % 6 == 0 { 200_000 } else { 2_000 });
        let checkpoints = match log_index % 5 {
            0 => (0..3).map(|number| (number + log_index, Some(bytes(3_000)))).collect(),
            3 => vec![(log_index.saturating_sub(3), None)],
            _ => Vec::new(),
        };
        let trim = (log_index % 7 == 0).then(|| log_index - 3);
        WriteBatch { log_index, batch, checkpoints, trim, ..WriteBatch::default() }
    })
}

/// A run of writes until the first that is not committed.
struct Run {
    disk: FaultyDisk,
    /// The expected contents of the engine after each write, and before the first.
    states: Vec<Contents>,
    /// The places on the tape at which the engine was open, and at which each write began.
    began: Vec<usize>,
    /// The places on the tape at which each write was told to be committed.
    told: Vec<usize>,
}

impl Run {
    fn new(disk: FaultyDisk, seed: u64, count: u64) -> Self {
        let position = disk.clone();
        Self::on(disk, seed, count, |engine, write| {
            let (sender, told) = mpsc::channel();
            engine.write(write, Box::new(move |outcome| sender.send(outcome).unwrap()));
            matches!(told.recv(), Ok(Outcome::Committed)).then(|| position.position())
        })
    }

    /// `write` says where the tape was when it was told to be committed; `None`: it was not.
    fn on(
        disk: FaultyDisk,
        seed: u64,
        count: u64,
        write: impl Fn(&RedbEngine, WriteBatch) -> Option<usize>,
    ) -> Self {
        let mut run = Self { disk, states: vec![Contents::default()], began: Vec::new(), told: Vec::new() };
        // An engine that cannot be opened has told nothing.
        let Ok(engine) = RedbEngine::with_backend(run.disk.clone()) else { return run };
        run.began.push(run.disk.position());
        for next in writes(seed, count) {
            let mut state = run.states.last().cloned().unwrap_or_default();
            state.write(&next);
            run.states.push(state);
            run.began.push(run.disk.position());
            let Some(told) = write(&engine, next) else { break };
            run.told.push(told);
        }
        run
    }

    /// The number of writes that were told by then to be committed, and of those that had begun.
    fn range(&self, position: usize) -> (usize, usize) {
        let told = self.told.iter().filter(|at| **at <= position).count();
        let began = self.began.iter().skip(1).filter(|at| **at <= position).count();
        (told, began)
    }

    /// Whether the database was complete by then, and the fault of the disk, if it has one, had come about.
    fn counts(&self, position: usize) -> bool {
        self.began.first().is_some_and(|at| *at <= position)
            && self.disk.fired().is_none_or(|at| at <= position)
    }
}

/// The result of a recovery from a disk.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Contents(Contents),
    Reported(String),
    Panicked,
}

/// Opens and reads the disk.
fn recover(disk: &FaultyDisk) -> Found {
    let reading = AssertUnwindSafe(|| {
        let engine = RedbEngine::with_backend(disk.clone())?;
        let contents = Contents::of(&engine);
        disk.switch_off();
        contents
    });
    match catch_unwind(reading) {
        Ok(Ok(contents)) => Found::Contents(contents),
        Ok(Err(error)) => Found::Reported(error.to_string()),
        Err(_) => Found::Panicked,
    }
}

/// The contents that a check allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    /// All writes that were told to be committed, and at most those that had begun.
    Nothing,
    /// Also an earlier state, as a whole, or a report of damage: the disk has lied.
    Older,
}

impl Counted {
    /// Checks the contents of a disk after a fault. `run`, `position`: the writes before it.
    fn check(&mut self, image: Vec<u8>, run: &Run, position: usize, allowed: Allowed) -> Result<(), String> {
        self.disks += 1;
        let (told, began) = run.range(position);
        match recover(&FaultyDisk::new(image)) {
            Found::Contents(contents) if run.states[told..=began].contains(&contents) => self.recovered += 1,
            Found::Contents(contents)
                if allowed == Allowed::Older && run.states[..told].contains(&contents) =>
            {
                self.older += 1;
            }
            Found::Contents(contents) => {
                let known = run.states.iter().position(|state| *state == contents);
                return Err(format!(
                    "{told} writes were told and {began} had begun; found the state after {known:?}"
                ));
            }
            Found::Reported(_) if allowed != Allowed::Nothing => self.reported += 1,
            Found::Reported(error) => return Err(format!("{told} writes were told: {error}")),
            Found::Panicked => return Err(format!("{told} writes were told, and reading them panics")),
        }
        Ok(())
    }

    /// Loses power at every moment of the run at which that can matter. The error is the first that does not
    /// hold.
    fn lose_power(
        &mut self,
        run: &Run,
        allowed: Allowed,
        mut disks: impl FnMut(&PowerLoss<'_>) -> Vec<Vec<Kept>>,
    ) -> Result<(), String> {
        let mut outcome = Ok(());
        run.disk.tape().power_losses(|loss| {
            if outcome.is_err() || !run.counts(loss.position) {
                return;
            }
            self.power_losses += 1;
            outcome = disks(&loss).into_iter().try_for_each(|kept| {
                self.check(loss.image(&kept), run, loss.position, allowed).map_err(|error| {
                    let (unsynced, position) = (&loss.unsynced, loss.position);
                    format!("{error}; power lost at {position}, kept {kept:?} of {unsynced:?}")
                })
            });
        });
        outcome
    }
}

fn subsets(random: usize, seed: u64) -> impl Fn(&PowerLoss<'_>) -> Vec<Vec<Kept>> {
    move |loss| choices(loss.unsynced.len(), random, seed ^ loss.position as u64)
}

#[test]
fn what_was_told_survives_every_loss_of_power() {
    let mut counted = Counted::default();
    for seed in 0..form(1, 8) as u64 {
        let run = Run::new(FaultyDisk::new(Vec::new()), seed, form(12, 40) as u64);
        assert_eq!(run.told.len(), run.states.len() - 1, "every write is told");
        counted.lose_power(&run, Allowed::Nothing, subsets(form(4, 40), seed)).unwrap();
    }
    println!("power losses: {counted}");
}

#[test]
fn a_torn_write_is_cut_off() {
    let mut counted = Counted::default();
    for seed in 0..form(1, 8) as u64 {
        let run = Run::new(FaultyDisk::new(Vec::new()), seed, form(12, 40) as u64);
        counted.lose_power(&run, Allowed::Nothing, |loss| loss.torn(form(1, 12), seed)).unwrap();
    }
    println!("torn writes: {counted}");
}

/// Runs the writes with each fault in turn, until one does not come about any more. The faults are `step`
/// apart.
fn with_each(seed: u64, count: u64, step: usize, fault: impl Fn(u64) -> Fault, mut visit: impl FnMut(Run)) {
    for number in (1..).step_by(step) {
        let run = Run::new(FaultyDisk::with_fault(Vec::new(), fault(number)), seed, count);
        if run.disk.fired().is_none() {
            assert!(number > 1, "there was no fault");
            return;
        }
        visit(run);
    }
}

#[test]
fn after_a_write_or_sync_has_failed_none_is_tried() {
    let (seed, count) = (1, form(8, 40) as u64);
    let mut counted = Counted::default();
    let mut check = |run: Run| {
        counted.faults += 1;
        assert_eq!(run.disk.counts().after_failure, 0, "nobody knows what the disk has kept");
        counted.lose_power(&run, Allowed::Nothing, subsets(form(2, 16), seed)).unwrap();
    };
    with_each(seed, count, 1, Fault::SyncFails, &mut check);
    for kept in [Kept::Nothing, Kept::Whole, Kept::Prefix(700), Kept::Suffix(700), Kept::Sector(1)] {
        with_each(seed, count, form(7, 1), |number| Fault::WriteFails(number, kept), &mut check);
    }
    println!("failed writes and syncs: {counted}");
}

/// A loss of synced data is noticed, unless all of it stood at the end: no engine can tell that log from one
/// that has always ended there. Then all contents are as they were at one moment.
#[test]
fn a_disk_that_lies_is_noticed_or_loses_only_the_end() {
    let (seed, count) = (2, form(8, 30) as u64);
    let mut counted = Counted::default();
    let mut check = |run: Run| {
        counted.faults += 1;
        counted.lose_power(&run, Allowed::Older, subsets(form(2, 8), seed)).unwrap();
    };
    with_each(seed, count, form(5, 2), Fault::SyncLost, &mut check);
    with_each(seed, count, form(5, 3), Fault::SyncsLostFrom, &mut check);
    with_each(seed, count, form(41, 7), Fault::WriteLost, &mut check);
    println!("lying disks: {counted}");
}

/// Also a read that returns a flipped bit, which no disk should do: data that were verified when the database
/// was opened are read again. Values have checksums and rows are counted; but a bit of the page that lists
/// the tables may hide a table, and is not noticed.
#[test]
fn a_read_that_fails_is_told_and_changes_nothing() {
    let (seed, count) = (3, form(8, 30) as u64);
    let mut counted = Counted::default();
    let run = Run::new(FaultyDisk::new(Vec::new()), seed, count);
    let mut crashed = Vec::new();
    run.disk.tape().power_losses(|loss| {
        if run.counts(loss.position) {
            crashed.push(loss.image(&vec![Kept::Whole; loss.unsynced.len()]));
        }
    });
    // In order, and after a crash.
    let images = [run.disk.content(), crashed.swap_remove(crashed.len() / 2)];
    for image in images {
        let expected = recover(&FaultyDisk::new(image.clone()));
        let mut kinds: Vec<&dyn Fn(u64) -> Fault> = vec![&Fault::ReadFails, &Fault::ReadShort];
        let flips: Vec<_> =
            (0..form(4, 400)).map(|bit| move |read| Fault::ReadFlips(read, bit * 997)).collect();
        kinds.extend(flips.iter().map(|flip| flip as &dyn Fn(u64) -> Fault));
        for kind in kinds {
            for read in 1.. {
                let fault = kind(read);
                let disk = FaultyDisk::with_fault(image.clone(), fault);
                let found = recover(&disk);
                if disk.fired().is_none() {
                    assert!(read > 3, "a log is read in several reads");
                    break;
                }
                counted.faults += 1;
                counted.disks += 1;
                match found {
                    Found::Reported(_) => counted.reported += 1,
                    // The database was whole when it was opened, so redb trusts it. No server serves then
                    // either.
                    Found::Panicked if matches!(fault, Fault::ReadFlips(..)) => counted.panicked += 1,
                    Found::Contents(contents)
                        if matches!(fault, Fault::ReadFlips(..)) && contents.hides_a_table(&expected) =>
                    {
                        counted.hidden += 1;
                    }
                    found => {
                        assert_eq!(found, expected, "{fault:?}");
                        counted.recovered += 1;
                    }
                }
            }
        }
    }
    println!("reads: {counted}");
}

/// The byte of the database's header that names the commit that counts. No checksum covers it: one of its
/// bits makes a commit happen, so a flip looks like a crash right before it, and the database is as it was
/// one commit before.
const COMMIT_BYTE: usize = 9;
/// Bytes of a page of the database.
const PAGE: usize = 4_096;
/// Bytes of the database's header, the rest of the first page is not used.
const HEADER: usize = 320;

#[test]
fn a_flipped_bit_is_reported_or_changes_nothing() {
    let (seed, count) = (4, form(8, 20) as u64);
    let mut counted = Counted::default();
    let run = Run::new(FaultyDisk::new(Vec::new()), seed, count);
    let mut crashed = Vec::new();
    run.disk.tape().power_losses(|loss| crashed = loss.durable.to_vec());
    let mut random = StdRng::seed_from_u64(seed);
    for image in [run.disk.content(), crashed] {
        let used = |page: &usize| image[page * PAGE..(page + 1) * PAGE].iter().any(|byte| *byte != 0);
        let pages: Vec<usize> = (1..image.len() / PAGE).filter(used).collect();
        let mut flips: Vec<(usize, u8)> =
            (0..HEADER).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit))).step_by(form(7, 1)).collect();
        for page in pages {
            // The kind of the page, the number of its entries, where these are.
            let start = page * PAGE;
            flips.extend((0..24).step_by(form(12, 1)).map(|at| (start + at, 1 << random.random_range(0..8))));
            let anywhere = (0..form(1, 100)).map(|_| (start + random.random_range(0..PAGE), random.random()));
            flips.extend(anywhere.filter(|(_, mask)| *mask != 0));
        }
        let expected = recover(&FaultyDisk::new(image.clone()));
        assert!(matches!(&expected, Found::Contents(contents) if run.states.last() == Some(contents)));
        for (at, mask) in flips {
            let mut flipped = image.clone();
            flipped[at] ^= mask;
            counted.faults += 1;
            counted.disks += 1;
            match recover(&FaultyDisk::new(flipped)) {
                Found::Reported(_) => counted.reported += 1,
                Found::Contents(contents) if at == COMMIT_BYTE && run.states.contains(&contents) => {
                    counted.older += 1;
                }
                found => {
                    assert_eq!(found, expected, "mask {mask} at byte {} of page {}", at % PAGE, at / PAGE);
                    counted.recovered += 1;
                }
            }
        }
    }
    println!("flipped bits: {counted}");
}

/// The planted bug: an engine that tells that a write is committed when it is written, but not synced yet.
#[test]
fn an_engine_that_tells_before_the_sync_is_caught() {
    // The first sync is that of the data, the second that of the header which makes them count.
    for syncs_done in 0..2 {
        let disk = FaultyDisk::new(Vec::new());
        let run = Run::on(disk.clone(), 5, 6, |engine, write| {
            let (sender, told) = mpsc::channel();
            let position = disk.clone();
            disk.before_sync(syncs_done, move || sender.send(position.position()).unwrap());
            engine.write(write, Box::new(|_| ()));
            told.recv().ok()
        });
        let lost = Counted::default().lose_power(&run, Allowed::Nothing, subsets(4, 5)).unwrap_err();
        println!("caught: {lost}");
        assert!(lost.starts_with("1 writes were told"), "{lost}");
    }
}

#[test]
fn what_was_cut_off_is_told() {
    let run = Run::new(FaultyDisk::new(Vec::new()), 6, 3);
    assert!(!was_cut_off(&[]), "a new log");
    assert!(!was_cut_off(&run.disk.content()), "it was closed");
    let mut crashed = Vec::new();
    run.disk.tape().power_losses(|loss| {
        if run.range(loss.position).0 == 2 && crashed.is_empty() {
            crashed = loss.image(&vec![Kept::Prefix(90); loss.unsynced.len()]);
        }
    });
    assert!(was_cut_off(&crashed));
    RedbEngine::with_backend(FaultyDisk::new(crashed)).unwrap();
}
