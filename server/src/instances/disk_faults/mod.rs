//! Whole servers, without their network, over a disk that fails, tears, lies or loses its power: whatever a client was
//! told holds after the restart, and nothing is there that no client has sent.
//!
//! Each run is recorded by [`clients`]: everything that was sent and told, with the place of the disk's tape. Then the
//! power is lost wherever that can matter, the server is recovered, and asked again. The disk and the moments at which
//! power may be lost are those of [`faulty_disk`](crate::commit_log::engine::faulty_disk).

mod clients;
mod server;
mod told;

use std::panic::{AssertUnwindSafe, catch_unwind};

use self::clients::Clients;
use self::server::{Server, Tells, recover};
use self::told::Told;
use crate::commit_log::engine::faulty_disk::{Fault, FaultyDisk, Kept, choices};

/// The first in the short form, the second in the long one.
fn form(short: usize, long: usize) -> usize {
    if std::env::var("STICKYCAS_FAULTS").is_ok_and(|form| form == "long") { long } else { short }
}

/// What was counted.
#[derive(Debug, Default)]
struct Counted {
    faults: u64,
    /// Servers that stopped because of it.
    stopped: u64,
    power_losses: u64,
    /// Disks as they may be found after a fault.
    disks: u64,
    recovered: u64,
    /// What clients had been told, and held.
    facts: u64,
    reported: u64,
}

/// A server until its log fails or the clients have sent everything.
struct Life {
    disk: FaultyDisk,
    told: Told,
    has_failed: bool,
    /// The server served from this place of the tape on.
    served_from: usize,
}

/// Clients send so many batches to a server on this disk. If the log fails, nothing is told from then on.
async fn live(disk: FaultyDisk, clients: &mut Clients, batches: usize, tells: Tells) -> Option<usize> {
    let Ok(server) = Server::start(&disk, tells).await else { return None };
    let served_from = disk.position();
    clients.reconnect(&server);
    clients.create(&server);
    server.end_batch();
    for _ in 0..batches {
        clients.send(&server, 6);
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

/// One life on a disk that is empty at first.
fn run(disk: FaultyDisk, seed: u64, batches: usize, tells: Tells) -> Option<Life> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut clients = Clients::new(seed);
    let served_from = runtime.block_on(live(disk.clone(), &mut clients, batches, tells))?;
    let has_failed = clients.refused > 0;
    Some(Life { disk, told: clients.told, has_failed, served_from })
}

impl Counted {
    /// Recovers what is on a disk, and asks for everything that was told by this place of the tape.
    fn check(&mut self, image: Vec<u8>, life: &Life, position: usize) -> Result<(), String> {
        self.disks += 1;
        let disk = FaultyDisk::new(image);
        let recovered = catch_unwind(AssertUnwindSafe(|| recover(&disk))).map_err(|_| "a panic".to_owned())?;
        let (instances, _) = recovered.map_err(|error| error.to_string())?;
        life.told.check(position, &instances)?;
        self.recovered += 1;
        self.facts += life.told.count(position) as u64;
        Ok(())
    }

    /// Loses power wherever that can matter. The error is the first that does not hold.
    fn lose_power(&mut self, life: &Life, random: usize, torn: usize) -> Result<(), String> {
        let mut outcome = Ok(());
        life.disk.tape().power_losses(|loss| {
            if outcome.is_err() || loss.position < life.served_from {
                return;
            }
            self.power_losses += 1;
            let seed = loss.position as u64;
            let mut ways = choices(loss.unsynced.len(), random, seed);
            ways.extend(loss.torn(torn, seed));
            for kept in ways {
                if let Err(error) = self.check(loss.image(&kept), life, loss.position) {
                    outcome = Err(format!("{error}; power was lost at {}, and of what was unsynced the disk has kept {kept:?}", loss.position));
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
        let life = run(FaultyDisk::new(Vec::new()), seed, form(14, 40), Tells::AfterTheCommit).unwrap();
        assert!(!life.has_failed);
        counted.lose_power(&life, form(4, 24), form(0, 1)).unwrap();
    }
    println!("power losses: {counted:?}");
}
