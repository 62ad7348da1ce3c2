//! The writes to the model of etcd: each log by its owner at that moment; and the instances that had each
//! name.

use std::collections::BTreeMap;

use stickycas_cluster::keys::{Epoch, Keys, decode_batch};
use stickycas_cluster::shard::ShardCount;
use stickycas_cluster::store::{Change, KeyRange, Revision};
use stickycas_faults::ViolationKind;

/// The violations in a history of the store.
pub(super) fn check(
    keys: &Keys,
    shards: ShardCount,
    history: &[(Revision, Vec<Change>)],
) -> Vec<(ViolationKind, String)> {
    let mut found = Vec::new();
    for shard in shards.shards() {
        let (log, owner_key) = (keys.whole_log(shard), keys.owner(shard));
        let mut owner = None;
        for (at, changes) in history {
            // The changes of a transaction come in the order of their keys; the transaction compared the
            // owner before all of them.
            let owner_before = owner;
            for change in changes {
                match change {
                    Change::Put(kv) if kv.key == owner_key => owner = Some(Epoch(kv.created)),
                    Change::Deleted(key, _) if *key == owner_key => owner = None,
                    Change::Put(kv) if is_in(&log, &kv.key) => {
                        let written_by = decode_batch(&kv.value).map(|(epoch, _)| epoch).ok();
                        if written_by.is_none() || written_by != owner_before {
                            let what = format!(
                                "shard {shard} was written by {written_by:?} at {at:?}, and its owner was {owner_before:?}"
                            );
                            found.push((ViolationKind::Twice, what));
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    found
}

/// The instances that had each name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// The ids of the instances that hold names in the end, by name.
    pub(super) held: BTreeMap<String, String>,
    /// Names that went from one instance to another one in a single transaction, with the id of the former.
    pub(super) taken_over: Vec<(String, String)>,
}

impl Names {
    /// Those of a history of the store.
    pub(super) fn of(keys: &Keys, history: &[(Revision, Vec<Change>)]) -> Self {
        let prefix = keys.name("");
        let name =
            |key: &[u8]| key.strip_prefix(&*prefix).map(|name| String::from_utf8_lossy(name).into_owned());
        let mut names = Self::default();
        for change in history.iter().flat_map(|(_, changes)| changes) {
            match change {
                Change::Put(kv) => {
                    let Some(name) = name(&kv.key) else { continue };
                    let id = String::from_utf8_lossy(&kv.value).into_owned();
                    let before = names.held.insert(name.clone(), id.clone()).filter(|before| *before != id);
                    names.taken_over.extend(before.map(|before| (name, before)));
                }
                Change::Deleted(key, _) => drop(name(key).and_then(|name| names.held.remove(&name))),
            }
        }
        names
    }
}

fn is_in(range: &KeyRange, key: &[u8]) -> bool {
    match &range.to {
        Some(to) => *key >= *range.from && *key < **to,
        None => *key == *range.from,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use stickycas_cluster::keys::{LogIndex, Name, encode_batch};
    use stickycas_cluster::store::KeyValue;

    use super::*;

    fn put(key: Bytes, value: Bytes, created: u64) -> Change {
        let created = Revision(created);
        Change::Put(KeyValue { key, value, created, modified: created, lease: None })
    }

    /// The kinds of violations in these changes, one change at each revision.
    fn wrong(changes: impl Fn(&Bytes, &Bytes) -> Vec<Change>) -> Vec<ViolationKind> {
        let (keys, shards) = (Keys::new(&Name::new("demo").unwrap()), ShardCount::new(2).unwrap());
        let shard = shards.shard(1).unwrap();
        let changes = changes(&keys.owner(shard), &keys.log(shard, LogIndex(1)));
        let history: Vec<_> =
            (1..).map(Revision).zip(changes.into_iter().map(|change| vec![change])).collect();
        check(&keys, shards, &history).into_iter().map(|(kind, _)| kind).collect()
    }

    fn batch(epoch: u64) -> Bytes {
        encode_batch(Epoch(Revision(epoch)), b"batch")
    }

    #[test]
    fn only_the_owner_may_write() {
        let owned = |owner: &Bytes, log: &Bytes| {
            vec![put(owner.clone(), "a".into(), 1), put(log.clone(), batch(1), 2)]
        };
        assert_eq!(wrong(owned), []);
        let deposed = |owner: &Bytes, log: &Bytes| {
            let gone = Change::Deleted(owner.clone(), Revision(2));
            vec![put(owner.clone(), "a".into(), 1), gone, put(log.clone(), batch(1), 3)]
        };
        assert_eq!(wrong(deposed), [ViolationKind::Twice]);
        let other = |owner: &Bytes, log: &Bytes| {
            vec![put(owner.clone(), "b".into(), 2), put(log.clone(), batch(1), 3)]
        };
        assert_eq!(wrong(other), [ViolationKind::Twice]);
    }

    #[test]
    fn a_name_that_is_not_given_up_is_taken_over() {
        let keys = Keys::new(&Name::new("demo").unwrap());
        let key = keys.name("a");
        let gone = Change::Deleted(key.clone(), Revision(3));
        let changes = [
            put(key.clone(), "1".into(), 1),
            put(key.clone(), "2".into(), 2),
            gone,
            put(key, "3".into(), 4),
            put(keys.owner(ShardCount::new(2).unwrap().shard(1).unwrap()), "s1".into(), 5),
        ];
        let history: Vec<_> = (1..).map(Revision).zip(changes.map(|change| vec![change])).collect();
        let names = Names::of(&keys, &history);
        assert_eq!(names.held, [("a".to_owned(), "3".to_owned())].into());
        assert_eq!(names.taken_over, [("a".to_owned(), "1".to_owned())]);
    }
}
