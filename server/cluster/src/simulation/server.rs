//! A server of the simulation: it owns shards, writes to their logs, claims and releases names, confirms its
//! epochs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::checks::{Told, names_of};
use super::pause::Process;
use crate::committer::{Committer, CommitterConfig, Fault, LogEnd, LogWrite, NameChange, Outcome};
use crate::confirm::{Confirmation, Confirmer, EpochConfirmer};
use crate::keys::{Epoch, Keys, LogIndex, Name, RulesVersion, ServerInfo};
use crate::membership::{Event, Membership, MembershipConfig};
use crate::model::ModelStore;
use crate::read::{ReadError, Stored, read_shard};
use crate::shard::{ShardCount, ShardId};

/// The setting of a run.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) keys: Keys,
    pub(super) shards: ShardCount,
    pub(super) model: crate::model::Model,
    pub(super) told: Arc<Mutex<Told>>,
    pub(super) fault: Option<Fault>,
    pub(super) faulty_confirmation: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Server {
    setting: Setting,
    pub(super) process: Process,
    pub(super) store: ModelStore,
    committer: Committer,
    confirmer: Confirmer,
    membership: Membership,
}

/// The time of a lease.
const LEASE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    Serve,
    Release,
    Lost,
}

pub(super) fn random(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

impl Server {
    pub(super) fn start(setting: &Setting, number: usize, incarnation: u64) -> Self {
        let store = setting.model.connect();
        let process = Process::default();
        let keys = setting.keys.clone();
        let config = CommitterConfig { fault: setting.fault, ..CommitterConfig::default() };
        let (committer, driver) = Committer::new(Arc::new(store.clone()), keys.clone(), config);
        process.spawn(driver);
        let confirmer = if setting.faulty_confirmation {
            let (confirmer, driver) = Confirmer::faulty(Arc::new(store.clone()), keys.clone());
            process.spawn(driver);
            confirmer
        } else {
            let (confirmer, driver) = Confirmer::new(Arc::new(store.clone()), keys.clone());
            process.spawn(driver);
            confirmer
        };
        let info = ServerInfo {
            address: format!("server-{number}:1"),
            incarnation,
            replays: RulesVersion(1),
            draining: false,
        };
        let name = Name::new(&format!("server-{number}")).unwrap();
        let config = MembershipConfig { name, info, time_to_live: LEASE };
        let (membership, events, driver) = Membership::new(store.clone(), keys, setting.shards, config);
        process.spawn(driver);
        let server = Self { setting: setting.clone(), process, store, committer, confirmer, membership };
        server.process.spawn(server.clone().events(events, incarnation));
        server
    }

    pub(super) fn drain(&self) {
        self.membership.drain();
    }

    async fn events(self, mut events: mpsc::UnboundedReceiver<Event>, seed: u64) {
        let mut workers = BTreeMap::new();
        while let Some(event) = events.recv().await {
            match event {
                Event::Claimed { shard, epoch } => {
                    let (control, controlled) = watch::channel(Control::Serve);
                    workers.insert((shard, epoch), control);
                    let seed = seed ^ (epoch.0.0 << 8) ^ u64::from(shard.get());
                    self.process.spawn(self.clone().serve(shard, epoch, controlled, seed));
                }
                Event::ReleaseRequested { shard, epoch } => {
                    workers.get(&(shard, epoch)).map(|control| control.send_replace(Control::Release));
                }
                Event::Lost { shard, epoch } => {
                    workers.remove(&(shard, epoch)).map(|control| control.send_replace(Control::Lost));
                    self.committer.close(shard, epoch);
                }
            }
        }
    }

    async fn serve(self, shard: ShardId, epoch: Epoch, mut control: watch::Receiver<Control>, seed: u64) {
        let found = tokio::select! {
            biased;
            _ = control.wait_for(|control| *control == Control::Lost) => return,
            found = read(&self.store, &self.setting.keys, shard, epoch) => found,
        };
        let mut worker = match found {
            Ok((end, names)) => Worker::new(self.clone(), shard, epoch, end, names, seed),
            Err(ReadError::Deposed) => {
                self.membership.give_up(shard, epoch).await;
                return;
            }
            Err(error) => return self.setting.told.lock().unwrap().violations.push(error.to_string()),
        };
        loop {
            let now = *control.borrow_and_update();
            match now {
                Control::Lost => return,
                Control::Release if worker.in_flight == 0 => {
                    self.membership.release(shard, epoch).await;
                    return self.committer.close(shard, epoch);
                }
                Control::Release => {}
                Control::Serve => worker.append_some(),
            }
            let pause = worker.random.random_range(50..600);
            tokio::select! {
                biased;
                _ = control.changed() => {}
                Some((write, outcome)) = worker.results.recv() => if !worker.resolved(&write, &outcome) {
                    self.committer.close(shard, epoch);
                    self.membership.give_up(shard, epoch).await;
                    return;
                },
                () = sleep(Duration::from_millis(pause)), if now == Control::Serve => {}
            }
        }
    }
}

struct Worker {
    server: Server,
    shard: ShardId,
    epoch: Epoch,
    confirmer: EpochConfirmer,
    next: LogIndex,
    in_flight: usize,
    names: BTreeMap<String, Bytes>,
    random: StdRng,
    sender: mpsc::UnboundedSender<(LogWrite, Outcome)>,
    results: mpsc::UnboundedReceiver<(LogWrite, Outcome)>,
}

impl Worker {
    fn new(
        server: Server,
        shard: ShardId,
        epoch: Epoch,
        end: LogEnd,
        names: BTreeMap<String, Bytes>,
        seed: u64,
    ) -> Self {
        let (sender, results) = mpsc::unbounded_channel();
        let next = LogIndex(end.log_index().0 + 1);
        server.committer.open(shard, epoch, end);
        let random = random(seed);
        let confirmer = server.confirmer.epoch(shard, epoch, LEASE);
        Self { server, shard, epoch, confirmer, next, in_flight: 0, names, random, sender, results }
    }

    fn append_some(&mut self) {
        for _ in 0..self.random.random_range(0..4) {
            if self.in_flight >= 4 {
                break;
            }
            let write = self.make(self.next, true);
            self.next.0 += 1;
            self.send(write);
        }
        self.confirm();
    }

    fn make(&mut self, log_index: LogIndex, with_names: bool) -> LogWrite {
        let mut batch =
            format!("{}-{}-{}-{}", self.shard, self.epoch.0.0, log_index.0, self.random.random::<u32>());
        let mut write = LogWrite { log_index, ..LogWrite::default() };
        if self.in_flight == 0 && with_names && self.random.random_ratio(1, 6) {
            let mut state = batch.clone();
            for (name, holder) in &self.names {
                state.push_str(&format!("|{name}={}", String::from_utf8_lossy(holder)));
            }
            if self.random.random_ratio(1, 20) {
                state.push('|');
                state.push_str(&".".repeat(600 << 10));
            }
            write.checkpoints.push((1, Some(Bytes::from(state))));
            write.trim = Some(log_index);
        } else if with_names && self.random.random_ratio(1, 3) {
            let name = format!("name-{}", self.random.random_range(0..6));
            let before = self.names.remove(&name);
            let after = before.is_none().then(|| Bytes::from(batch.clone()));
            match &after {
                Some(holder) => {
                    batch.push_str(&format!("|{name}={}", String::from_utf8_lossy(holder)));
                    self.names.insert(name.clone(), holder.clone());
                }
                None => batch.push_str(&format!("|-{name}")),
            }
            write.names.push(NameChange { name, before, after });
        }
        write.is_given_back_when_full = with_names && self.random.random();
        write.batch = Bytes::from(batch);
        write
    }

    fn send(&mut self, write: LogWrite) {
        self.in_flight += 1;
        let outcome = self.server.committer.write(self.shard, self.epoch, write.clone());
        let (told, sender) = (Arc::clone(&self.server.setting.told), self.sender.clone());
        let (shard, epoch) = (self.shard, self.epoch);
        self.server.process.spawn(async move {
            let outcome = outcome.await;
            let record = (shard, epoch, write.log_index, write.batch.clone(), outcome.clone());
            told.lock().unwrap().writes.push(record);
            let _ = sender.send((write, outcome));
        });
    }

    /// Whether the shard is served on.
    fn resolved(&mut self, write: &LogWrite, outcome: &Outcome) -> bool {
        self.in_flight -= 1;
        match outcome {
            Outcome::Committed => true,
            Outcome::NameTaken { .. } | Outcome::Refused(_) | Outcome::NoSpace => {
                for change in &write.names {
                    if self.names.get(&change.name) == change.after.as_ref() {
                        self.names.remove(&change.name);
                    }
                }
                let other = self.make(write.log_index, false);
                self.send(other);
                true
            }
            Outcome::Deposed(_) | Outcome::Closed => false,
        }
    }

    fn confirm(&mut self) {
        let came = self.server.setting.model.revision();
        let confirmed = self.confirmer.confirm();
        let told = Arc::clone(&self.server.setting.told);
        let (shard, epoch) = (self.shard, self.epoch);
        self.server.process.spawn(async move {
            match confirmed.await {
                Confirmation::Confirmed => told.lock().unwrap().confirmed.push((shard, epoch, came)),
                Confirmation::Deposed => told.lock().unwrap().deposed_confirmations += 1,
                Confirmation::NotConfirmed => {}
            }
        });
    }
}

/// The end of a log, and the names that it holds.
pub(super) async fn read(
    store: &ModelStore,
    keys: &Keys,
    shard: ShardId,
    epoch: Epoch,
) -> Result<(LogEnd, BTreeMap<String, Bytes>), ReadError> {
    let mut names = BTreeMap::new();
    let end = read_shard(store, keys, shard, epoch, |stored| {
        let (Stored::Checkpoint(_, bytes) | Stored::Batch(_, bytes)) = stored;
        for (name, holder) in names_of(&bytes) {
            match holder {
                Some(holder) => names.insert(name, holder),
                None => names.remove(&name),
            };
        }
        Ok(())
    })
    .await?;
    Ok((end, names))
}

/// The names that shards hold by the store.
pub(super) async fn stored_names(store: &ModelStore, keys: &Keys) -> BTreeMap<String, Bytes> {
    use crate::store::{KeyRange, Store};
    let answer = store.range(KeyRange::prefix(keys.name("")), 0).await.unwrap();
    let prefix = keys.name("").len();
    let name = |key: &[u8]| String::from_utf8_lossy(&key[prefix..]).into_owned();
    answer.found.into_iter().map(|kv| (name(&kv.key), kv.value)).collect()
}
