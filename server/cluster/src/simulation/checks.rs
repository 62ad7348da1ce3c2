//! The comparison of the answers to the servers with the history of the store.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::committer::Outcome;
use crate::keys::{Epoch, Keys, LogIndex, Subject, decode_batch};
use crate::shard::{ShardCount, ShardId};
use crate::store::{Change, Revision};

/// The answers to the servers of a run.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) writes: Vec<(ShardId, Epoch, LogIndex, Bytes, Outcome)>,
    /// Confirmed epochs, with the revision at which the request came.
    pub(super) confirmed: Vec<(ShardId, Epoch, Revision)>,
    pub(super) deposed_confirmations: usize,
    pub(super) violations: Vec<String>,
}

/// The name changes that a batch of the simulation carries.
pub(super) fn names_of(batch: &[u8]) -> Vec<(String, Option<Bytes>)> {
    let text = String::from_utf8_lossy(batch).into_owned();
    text.split('|')
        .skip(1)
        .filter_map(|change| match change.split_once('=') {
            Some((name, holder)) => Some((name.to_owned(), Some(Bytes::from(holder.to_owned())))),
            None => Some((change.strip_prefix('-')?.to_owned(), None)),
        })
        .collect()
}

/// Everything that is wrong.
pub(super) fn check(
    keys: &Keys,
    shards: ShardCount,
    history: &[(Revision, Vec<Change>)],
    told: &Told,
) -> Vec<String> {
    let mut wrong = told.violations.clone();
    let mut ends: BTreeMap<(ShardId, Epoch), Option<Revision>> = BTreeMap::new();
    let mut owners: BTreeMap<ShardId, Epoch> = BTreeMap::new();
    let mut logs: BTreeMap<ShardId, Vec<(Epoch, Bytes)>> = BTreeMap::new();
    let mut names: BTreeMap<String, Bytes> = BTreeMap::new();
    let mut logged_names: BTreeMap<String, Bytes> = BTreeMap::new();
    for (revision, changes) in history {
        for change in changes {
            match change {
                Change::Deleted(key, _) => {
                    if let Ok(Subject::Owner(shard)) = keys.parse(key, shards)
                        && let Some(epoch) = owners.remove(&shard)
                    {
                        ends.insert((shard, epoch), Some(*revision));
                    }
                    if let Some(name) = key.strip_prefix(&keys.name("")[..]) {
                        names.remove(str::from_utf8(name).unwrap());
                    }
                }
                Change::Put(kv) => {
                    if let Ok(Subject::Owner(shard)) = keys.parse(&kv.key, shards) {
                        owners.insert(shard, Epoch(kv.created));
                        ends.insert((shard, Epoch(kv.created)), None);
                    }
                    if let Some(name) = kv.key.strip_prefix(&keys.name("")[..]) {
                        names.insert(str::from_utf8(name).unwrap().to_owned(), kv.value.clone());
                    }
                    for shard in shards.shards() {
                        let Ok(log_index) = keys.parse_log(shard, &kv.key) else { continue };
                        let (epoch, batch) = decode_batch(&kv.value).unwrap();
                        let log = logs.entry(shard).or_default();
                        if log_index.0 != log.len() as u64 + 1 {
                            wrong.push(format!(
                                "shard {shard}: place {} comes behind {}",
                                log_index.0,
                                log.len()
                            ));
                        }
                        if owners.get(&shard) != Some(&epoch) {
                            wrong.push(format!(
                                "shard {shard}: {epoch:?} wrote place {} and was no owner",
                                log_index.0
                            ));
                        }
                        for (name, holder) in names_of(&batch) {
                            match holder {
                                Some(holder) => logged_names.insert(name, holder),
                                None => logged_names.remove(&name),
                            };
                        }
                        log.push((epoch, batch));
                    }
                }
            }
        }
        if names != logged_names {
            wrong.push(format!("names at {revision:?}: {names:?}, of the logs: {logged_names:?}"));
            logged_names.clone_from(&names);
        }
    }
    for (shard, epoch, log_index, batch, outcome) in &told.writes {
        let log = logs.get(shard).map_or(&[][..], Vec::as_slice);
        let at = format!("shard {shard}, place {}, {epoch:?}", log_index.0);
        match outcome {
            Outcome::Committed => {
                let there = usize::try_from(log_index.0).ok().and_then(|log_index| log.get(log_index - 1));
                if there != Some(&(*epoch, batch.clone())) {
                    wrong.push(format!("{at}: told committed, but there is {there:?}"));
                }
            }
            Outcome::NameTaken { .. } | Outcome::Refused(_) | Outcome::NoSpace => {
                if log.iter().any(|(_, logged)| logged == batch) {
                    wrong.push(format!("{at}: told {outcome:?}, but it is in the log"));
                }
            }
            Outcome::Deposed(_) => {
                if ends.get(&(*shard, *epoch)) == Some(&None) {
                    wrong.push(format!("{at}: told deposed, but is the owner"));
                }
            }
            Outcome::Closed => {}
        }
    }
    for (shard, epoch, came) in &told.confirmed {
        match ends.get(&(*shard, *epoch)) {
            Some(None) => {}
            Some(Some(end)) if end > came => {}
            end => wrong.push(format!("shard {shard}: {epoch:?} confirmed at {came:?}, it ended at {end:?}")),
        }
    }
    wrong
}
