//! Whole servers, without their network, over a disk that fails, tears, lies or loses its power: every fact
//! that a client was told holds after the restart, and nothing is there that no client has sent.
//!
//! Each run is recorded by [`clients`]: everything that was sent and told, with the place of the disk's tape.
//! Then the power is lost wherever that can matter, the server is recovered, and asked again. The disk and
//! the moments at which power may be lost are those of
//! [`faulty_disk`](crate::commit_log::engine::faulty_disk).

mod calls;
mod clients;
mod server;
mod told;

use std::collections::BTreeSet;
use std::fmt;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use self::clients::Clients;
use self::server::{Server, Tells, recover};
use self::told::Told;
use crate::commit_log::engine::faulty_disk::{Fault, FaultyDisk, Kept, choices};

/// The first in the short form, the second in the long one.
fn form(short: usize, long: usize) -> usize {
    if std::env::var("STICKYCAS_FAULTS").is_ok_and(|form| form == "long") { long } else { short }
}

/// The counts of a test.
#[derive(Debug, Default)]
struct Counted {
    faults: u64,
    /// Servers that stopped because of it.
    stopped: u64,
    power_losses: u64,
    /// Disks as they may be found after a fault.
    disks: u64,
    recovered: u64,
    /// Facts that clients had been told, and that held after the recovery.
    facts: u64,
    /// Recovered as of an earlier moment: only after a disk has lied.
    older: u64,
    reported: u64,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faults, stopped, power_losses, disks, recovered, facts, older, reported } = self;
        write!(
            f,
            "{faults} faults, {stopped} servers stopped, {power_losses} power losses, {disks} disks: {recovered} \
             recovered with {facts} facts, {older} as of an earlier moment, {reported} reported as damaged"
        )
    }
}

/// One run of a server on a disk.
struct Life {
    disk: FaultyDisk,
    told: Told,
    /// The server stopped because its log had failed.
    has_failed: bool,
    /// The server served from this place of the tape on. `None`: it never did.
    served_from: Option<usize>,
}

impl Life {
    /// Whether the server had served by then, and the fault of the disk, if it has one, had come about.
    fn counts(&self, position: usize) -> bool {
        self.served_from.is_some_and(|from| from <= position)
            && self.disk.fired().is_none_or(|at| at <= position)
    }
}

/// Clients send so many batches to a server on this disk. If the log fails, nothing is told from then on.
async fn live(disk: FaultyDisk, clients: &mut Clients, batches: usize, tells: Tells) -> Option<usize> {
    let Ok(server) = Server::start(&disk, tells).await else { return None };
    let served_from = disk.position();
    clients.reconnect(&server);
    clients.create(&server);
    server.end_batch();
    for batch in 1..=batches {
        clients.send(&server, 3);
        if batch % 4 == 0 {
            server.begin_checkpoints().await;
        }
        clients.send(&server, 3);
        // Answers that need no commit.
        clients.listen(&server);
        server.write().await;
        if server.has_failed() {
            break;
        }
        clients.listen(&server);
    }
    if server.has_failed() {
        let before = clients.told.facts.len();
        clients.listen(&server);
        clients.send(&server, 60);
        for _ in 0..3 {
            server.write().await;
            clients.listen(&server);
        }
        let after = &clients.told.facts[before..];
        assert!(after.is_empty(), "the log has failed, and clients were told {after:?}");
        assert!(clients.refused > 0, "nobody was told that the log has failed");
    } else {
        while server.write().await {
            clients.listen(&server);
        }
        clients.listen(&server);
    }
    server.stop();
    Some(served_from)
}

/// A server and its clients on this disk.
fn run(disk: FaultyDisk, seed: u64, batches: usize, tells: Tells) -> Life {
    run_with(Clients::new(seed), disk, batches, tells)
}

fn run_with(mut clients: Clients, disk: FaultyDisk, batches: usize, tells: Tells) -> Life {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let served_from = runtime.block_on(live(disk.clone(), &mut clients, batches, tells));
    let has_failed = clients.refused > 0;
    Life { disk, told: clients.told, has_failed, served_from }
}

impl Counted {
    /// Recovers a server from a disk, and asks for everything that was told by this place of the tape.
    fn check(&mut self, image: Vec<u8>, life: &Life, position: usize) -> Result<(), String> {
        self.disks += 1;
        let disk = FaultyDisk::new(image);
        let (instances, _) = recover(&disk).map_err(|error| error.to_string())?;
        life.told.check(position, &instances)?;
        self.recovered += 1;
        self.facts += life.told.count(position) as u64;
        Ok(())
    }

    /// As [`Self::lose_power`], of a disk that has lied: the recovered state agrees with some place of the
    /// tape, or the damage is reported.
    fn lose_power_of_a_liar(&mut self, life: &Life, random: usize) -> Result<(), String> {
        let mut outcome = Ok(());
        // The places at which something was told, the last first.
        let mut places: Vec<usize> =
            [0].into_iter().chain(life.told.facts.iter().map(|(at, _, _)| *at)).collect();
        places.dedup();
        places.reverse();
        life.disk.tape().power_losses(|loss| {
            if outcome.is_err() || !life.counts(loss.position) {
                return;
            }
            self.power_losses += 1;
            for kept in choices(loss.unsynced.len(), random, loss.position as u64) {
                self.disks += 1;
                let Ok((instances, _)) = recover(&FaultyDisk::new(loss.image(&kept))) else {
                    self.reported += 1;
                    continue;
                };
                let mut checks = places.iter().map(|place| (place, life.told.check(*place, &instances)));
                match checks.find(|(_, check)| check.is_ok()) {
                    Some((place, _)) if life.told.count(*place) >= life.told.count(loss.position) => {
                        self.recovered += 1;
                    }
                    Some(_) => self.older += 1,
                    None => outcome = Err(format!("it was never so; power was lost at {}", loss.position)),
                }
            }
        });
        outcome
    }

    /// Loses power wherever that can matter. The error is the first that does not hold.
    fn lose_power(&mut self, life: &Life, random: usize, torn: usize) -> Result<(), String> {
        let mut outcome = Ok(());
        life.disk.tape().power_losses(|loss| {
            if outcome.is_err() || !life.counts(loss.position) {
                return;
            }
            self.power_losses += 1;
            let seed = loss.position as u64;
            let mut ways = choices(loss.unsynced.len(), random, seed);
            ways.extend(loss.torn(torn, seed));
            for kept in ways {
                if let Err(error) = self.check(loss.image(&kept), life, loss.position) {
                    outcome = Err(format!(
                        "{error}; power was lost at {}, and of what was unsynced the disk has kept {kept:?}",
                        loss.position
                    ));
                    return;
                }
            }
        });
        outcome
    }
}

#[test]
fn what_clients_were_told_survives_every_loss_of_power() {
    let mut counted = Counted::default();
    for seed in 0..form(1, 12) as u64 {
        let life = run(FaultyDisk::new(Vec::new()), seed, form(14, 40), Tells::AfterTheCommit);
        assert!(!life.has_failed);
        counted.lose_power(&life, form(4, 24), form(1, 2)).unwrap();
    }
    println!("power losses: {counted}");
}

/// The fault of a kind that comes about with this operation.
type Kind = Box<dyn Fn(u64) -> Fault>;

/// A server that cannot write stops, and tells nothing more: see [`live`], which checks that.
#[test]
fn a_server_whose_disk_fails_tells_nothing_more() {
    let (seed, batches) = (20, form(6, 30));
    let mut counted = Counted::default();
    let partly = [Kept::Nothing, Kept::Whole, Kept::Prefix(100), Kept::Suffix(100), Kept::Sector(0)];
    let mut kinds: Vec<(Kind, usize)> =
        vec![(Box::new(Fault::SyncFails), 1), (Box::new(Fault::ReadFails), 1)];
    for kept in partly {
        kinds.push((Box::new(move |write| Fault::WriteFails(write, kept)), form(7, 1)));
    }
    for (kind, step) in kinds {
        for number in (1..).step_by(step) {
            let life =
                run(FaultyDisk::with_fault(Vec::new(), kind(number)), seed, batches, Tells::AfterTheCommit);
            if life.disk.fired().is_none() {
                break;
            }
            counted.faults += 1;
            counted.stopped += u64::from(life.has_failed);
            assert_eq!(life.disk.counts().after_failure, 0, "nothing is written or synced after a failure");
            counted.lose_power(&life, form(2, 12), 0).unwrap();
        }
    }
    assert!(counted.stopped > 0);
    println!("failing disks: {counted}");
}

/// After a loss of power the clients come back to the server, which goes on with its log, and power is lost
/// again, also while the server recovers.
#[test]
fn power_may_be_lost_again() {
    let mut counted = Counted::default();
    for seed in 40..40 + form(1, 6) as u64 {
        let first = run(FaultyDisk::new(Vec::new()), seed, form(6, 20), Tells::AfterTheCommit);
        let mut disks = Vec::new();
        first.disk.tape().power_losses(|loss| {
            if first.served_from.is_some_and(|from| loss.position >= from) {
                let mut ways = choices(loss.unsynced.len(), 4, seed);
                let kept = ways.swap_remove(loss.position % ways.len());
                disks.push((loss.position, loss.image(&kept)));
            }
        });
        for (position, image) in disks.into_iter().step_by(form(4, 2)) {
            // The facts of the first life hold at every moment of the second.
            let clients = Clients::returning(&first.told, position, seed);
            let mut second = run_with(clients, FaultyDisk::new(image), form(3, 8), Tells::AfterTheCommit);
            second.served_from = Some(0);
            counted.lose_power(&second, form(4, 16), 0).unwrap();
        }
    }
    println!("second lives: {counted}");
}

/// The planted bug: a log that tells steps that it has written and not yet synced.
#[test]
fn a_log_that_tells_before_the_sync_is_caught() {
    // The first sync of a commit is that of the data, the second that of the header which makes them count.
    for syncs_done in 0..2 {
        let life = run(FaultyDisk::new(Vec::new()), 50, 6, Tells::AfterSyncs(syncs_done));
        let lost = Counted::default().lose_power(&life, 4, 0).unwrap_err();
        assert!(lost.contains("though clients were told"), "{lost}");
        println!("caught: {lost}");
    }
}

/// A loss of synced data is noticed, unless all of it stood at the end of the log: then everything is as it
/// was at an earlier moment, and no server can tell that log from one that has always ended there.
#[test]
fn a_disk_that_lies_is_noticed_or_loses_only_the_end() {
    let (seed, batches) = (60, form(5, 24));
    let mut counted = Counted::default();
    let kinds: [(&dyn Fn(u64) -> Fault, usize); 2] =
        [(&Fault::SyncLost, form(5, 3)), (&Fault::WriteLost, form(19, 11))];
    for (kind, step) in kinds {
        for number in (1..).step_by(step) {
            let life =
                run(FaultyDisk::with_fault(Vec::new(), kind(number)), seed, batches, Tells::AfterTheCommit);
            if life.disk.fired().is_none() {
                break;
            }
            counted.faults += 1;
            counted.lose_power_of_a_liar(&life, form(2, 6)).unwrap();
        }
    }
    println!("lying disks: {counted}");
}

/// With a flipped bit anywhere in the file the server recovers its earlier state, or says that the log is
/// damaged.
#[test]
fn a_flipped_bit_is_reported_or_changes_nothing() {
    /// The byte of the database's header that names the commit that counts: see the engine's test of this
    /// name.
    const COMMIT_BYTE: usize = 9;
    let mut counted = Counted::default();
    let mut reasons = BTreeSet::new();
    for seed in 70..70 + form(1, 6) as u64 {
        let life = run(FaultyDisk::new(Vec::new()), seed, form(8, 30), Tells::AfterTheCommit);
        let (content, mut random) = (life.disk.content(), StdRng::seed_from_u64(seed));
        let used: Vec<usize> =
            (0..content.len()).filter(|at| content[*at] != 0 && *at != COMMIT_BYTE).collect();
        for _ in 0..form(300, 4_000) {
            let mut flipped = content.clone();
            for _ in 0..random.random_range(1..=3) {
                flipped[used[random.random_range(0..used.len())]] ^= random.random_range(1..=255);
            }
            counted.faults += 1;
            counted.disks += 1;
            match recover(&FaultyDisk::new(flipped)) {
                Ok((instances, _)) => {
                    life.told.check(usize::MAX, &instances).unwrap();
                    counted.recovered += 1;
                    counted.facts += life.told.count(usize::MAX) as u64;
                }
                Err(error) => {
                    counted.reported += 1;
                    reasons.insert(error.to_string());
                }
            }
        }
    }
    println!("flipped bits: {counted}");
    reasons.iter().for_each(|reason| println!("    {reason}"));
}
