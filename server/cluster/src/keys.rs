//! The keys of a cluster in etcd, and what their values say.
//!
//! Everything of a cluster begins with `/stickycas/CLUSTER/`. Keys are text that sorts as the numbers in
//! them, so that `etcdctl` shows a cluster as it is; values are text too, but for batches and checkpoints.
//!
//! | key | value | lives |
//! | --- | --- | --- |
//! | `identity` | version of this layout, number of shards | for ever |
//! | `servers/NAME` | a [`ServerInfo`] | as long as the server's lease |
//! | `owner/SHARD` | the server's name; the key's create revision is the epoch | as long as the server's lease |
//! | `rules/SHARD` | the rules version that a server must replay to own the shard | for ever |
//! | `place/SHARD` | a [`PlaceMark`]: the last place of the log and its writer's epoch | for ever |
//! | `log/SHARD/PLACE` | the epoch, 8 bytes, and the batch | until it is trimmed |
//! | `checkpoint/SHARD/NUMBER` | the pointer: the checkpoint of this number, or where its pieces are | until it is removed |
//! | `piece/SHARD/NUMBER/EPOCH/GENERATION/PIECE` | a piece of a large checkpoint | until its pointer is switched |
//! | `names/NAME` | who holds the name | until it is released |

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::shard::{ShardCount, ShardId};
use crate::store::{KeyRange, Revision};

/// The version of this layout.
const LAYOUT: u32 = 1;

/// The number of one ownership of a shard: the create revision of the owner's key, which no other ownership
/// ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub Revision);

/// The place of a batch in the log of its shard, from 1; 0: before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogIndex(pub u64);

/// The version of the rules by which a log is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RulesVersion(pub u32);

/// Where the log of a shard ends. A writer compares it, so that each place is written once and none is left
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceMark {
    /// The last place.
    pub log_index: LogIndex,
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// How often the writer has fenced off its own requests there.
    pub fence: u64,
}

/// The facts that a server tells the others of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Where clients reach it.
    pub address: String,
    /// Drawn when the process has started: two processes with one name differ in it.
    pub incarnation: u64,
    /// The newest rules it can replay; all older ones too.
    pub replays: RulesVersion,
    /// It hands its shards over and takes no others.
    pub draining: bool,
}

/// The facts of a cluster that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// How many shards.
    pub shards: ShardCount,
}

/// The pointer of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// The checkpoint itself.
    Inline(Bytes),
    /// It lies in so many pieces, written in this epoch.
    Pieces {
        /// The epoch.
        epoch: Epoch,
        /// Which large checkpoint of that epoch it is.
        generation: u64,
        /// How many, at least 1.
        pieces: u32,
        /// Bytes in all of them.
        bytes: u64,
    },
}

/// The name of a cluster or a server: 1 to 63 of `a-z`, `0-9`, `-`, `.` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// Why a name is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("name {0:?}: give 1 to 63 of a-z, 0-9, '-', '.' and '_'")]
pub struct BadName(pub String);

/// A key or value that is none of this layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("etcd holds {found:?} where {wanted} is expected")]
pub struct BadRecord {
    /// The content that is expected there.
    pub wanted: &'static str,
    /// The beginning of what is there.
    pub found: String,
}

/// The subject of a key that all servers watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A server.
    Server(Name),
    /// The owner of a shard.
    Owner(ShardId),
    /// The rules that the log of a shard needs.
    Rules(ShardId),
}

/// The keys of one cluster.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: String,
}

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// See [`BadName`].
    pub fn new(name: &str) -> Result<Self, BadName> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_');
        if (1..=63).contains(&name.len()) && name.bytes().all(allowed) {
            Ok(Self(name.to_owned()))
        } else {
            Err(BadName(name.chars().take(80).collect()))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Keys {
    /// The keys of this cluster.
    pub fn new(cluster: &Name) -> Self {
        Self { prefix: format!("/stickycas/{}/", cluster.0) }
    }

    /// Of the cluster's [`Identity`].
    pub fn identity(&self) -> Bytes {
        self.key("identity")
    }

    /// Of a server.
    pub fn server(&self, name: &Name) -> Bytes {
        self.key(&format!("servers/{}", name.0))
    }

    /// Of all servers.
    pub fn servers(&self) -> KeyRange {
        KeyRange::prefix(self.key("servers/"))
    }

    /// Of a shard's owner.
    pub fn owner(&self, shard: ShardId) -> Bytes {
        self.key(&format!("owner/{}", number(shard)))
    }

    /// Of the owners of all shards.
    pub fn owners(&self) -> KeyRange {
        KeyRange::prefix(self.key("owner/"))
    }

    /// Of the rules that a shard's log needs.
    pub fn rules(&self, shard: ShardId) -> Bytes {
        self.key(&format!("rules/{}", number(shard)))
    }

    /// Of the rules of all shards.
    pub fn all_rules(&self) -> KeyRange {
        KeyRange::prefix(self.key("rules/"))
    }

    /// Of the end of a shard's log.
    pub fn log_index(&self, shard: ShardId) -> Bytes {
        self.key(&format!("place/{}", number(shard)))
    }

    /// Of a batch.
    pub fn log(&self, shard: ShardId, log_index: LogIndex) -> Bytes {
        self.key(&format!("log/{}/{:016x}", number(shard), log_index.0))
    }

    /// Of the batches before a place.
    pub fn log_before(&self, shard: ShardId, log_index: LogIndex) -> KeyRange {
        KeyRange { from: self.log(shard, LogIndex(0)), to: Some(self.log(shard, log_index)) }
    }

    /// Of all batches of a shard.
    pub fn whole_log(&self, shard: ShardId) -> KeyRange {
        KeyRange::prefix(self.key(&format!("log/{}/", number(shard))))
    }

    /// Of the pointer of a checkpoint.
    pub fn checkpoint(&self, shard: ShardId, checkpoint: u64) -> Bytes {
        self.key(&format!("checkpoint/{}/{checkpoint:016x}", number(shard)))
    }

    /// Of the pointers of a shard.
    pub fn checkpoints(&self, shard: ShardId) -> KeyRange {
        KeyRange::prefix(self.key(&format!("checkpoint/{}/", number(shard))))
    }

    /// Of a piece of a checkpoint.
    pub fn piece(&self, shard: ShardId, checkpoint: u64, epoch: Epoch, generation: u64, piece: u32) -> Bytes {
        self.key(&format!("{}{piece:08x}", self.piece_group(shard, checkpoint, epoch, generation)))
    }

    /// Of all pieces of one version of a checkpoint.
    pub fn pieces(&self, shard: ShardId, checkpoint: u64, epoch: Epoch, generation: u64) -> KeyRange {
        KeyRange::prefix(self.key(&self.piece_group(shard, checkpoint, epoch, generation)))
    }

    /// Of all pieces of all versions of a checkpoint.
    pub fn pieces_of(&self, shard: ShardId, checkpoint: u64) -> KeyRange {
        KeyRange::prefix(self.key(&format!("piece/{}/{checkpoint:016x}/", number(shard))))
    }

    /// Of all pieces of a shard.
    pub fn all_pieces(&self, shard: ShardId) -> KeyRange {
        KeyRange::prefix(self.key(&format!("piece/{}/", number(shard))))
    }

    /// Of a name that an instance holds.
    pub fn name(&self, name: &str) -> Bytes {
        self.key(&format!("names/{name}"))
    }

    /// The subject of a key of [`Keys::servers`], [`Keys::owners`] or [`Keys::all_rules`].
    ///
    /// # Errors
    /// If it is no such key.
    pub fn parse(&self, key: &[u8], shards: ShardCount) -> Result<Subject, BadRecord> {
        let shard = |part| self.rest(key, part).and_then(|rest| shard_number(rest, shards));
        let server = || self.rest(key, "servers/").and_then(|name| Name::new(name).ok());
        let subject = shard("owner/").map(Subject::Owner).or_else(|| shard("rules/").map(Subject::Rules));
        let subject = subject.or_else(|| server().map(Subject::Server));
        subject.ok_or_else(|| bad("the key of a server, of a shard's owner or of its rules", key))
    }

    /// The place that a key of [`Keys::whole_log`] is of.
    ///
    /// # Errors
    /// If it is no such key.
    pub fn parse_log(&self, shard: ShardId, key: &[u8]) -> Result<LogIndex, BadRecord> {
        let log_index = self.rest(key, &format!("log/{}/", number(shard))).and_then(|rest| hex(rest, 16));
        log_index.map(LogIndex).ok_or_else(|| bad("the key of a batch", key))
    }

    /// The number that a key of [`Keys::checkpoints`] is of.
    ///
    /// # Errors
    /// If it is no such key.
    pub fn parse_checkpoint(&self, shard: ShardId, key: &[u8]) -> Result<u64, BadRecord> {
        let checkpoint =
            self.rest(key, &format!("checkpoint/{}/", number(shard))).and_then(|rest| hex(rest, 16));
        checkpoint.ok_or_else(|| bad("the key of a checkpoint", key))
    }

    /// The checkpoint, epoch, generation and number of a key of [`Keys::all_pieces`].
    ///
    /// # Errors
    /// If it is no such key.
    pub fn parse_piece(&self, shard: ShardId, key: &[u8]) -> Result<(u64, Epoch, u64, u32), BadRecord> {
        let parse = || {
            let rest = self.rest(key, &format!("piece/{}/", number(shard)))?;
            let mut parts = rest.split('/');
            let checkpoint = hex(parts.next()?, 16)?;
            let epoch = Epoch(Revision(hex(parts.next()?, 16)?));
            let generation = hex(parts.next()?, 16)?;
            let piece = u32::try_from(hex(parts.next()?, 8)?).ok()?;
            parts.next().is_none().then_some((checkpoint, epoch, generation, piece))
        };
        parse().ok_or_else(|| bad("the key of a piece of a checkpoint", key))
    }

    fn key(&self, rest: &str) -> Bytes {
        Bytes::from(format!("{}{rest}", self.prefix))
    }

    fn piece_group(&self, shard: ShardId, checkpoint: u64, epoch: Epoch, generation: u64) -> String {
        format!("piece/{}/{checkpoint:016x}/{:016x}/{:016x}/", number(shard), epoch.0.0, generation)
    }

    fn rest<'a>(&self, key: &'a [u8], part: &str) -> Option<&'a str> {
        str::from_utf8(key).ok()?.strip_prefix(self.prefix.as_str())?.strip_prefix(part)
    }
}

impl Identity {
    /// The value of its key.
    pub fn encode(self) -> Bytes {
        Bytes::from(format!("layout {LAYOUT}, shards {}", self.shards.get()))
    }

    /// Reads a value.
    ///
    /// # Errors
    /// If it is another layout.
    pub fn decode(value: &[u8]) -> Result<Self, BadRecord> {
        let parse = || {
            let rest = str::from_utf8(value).ok()?.strip_prefix(&format!("layout {LAYOUT}, shards "))?;
            Some(Self { shards: ShardCount::new(decimal(rest)?.try_into().ok()?).ok()? })
        };
        parse().ok_or_else(|| bad("the identity of a cluster of layout 1", value))
    }
}

impl ServerInfo {
    /// The value of its key.
    pub fn encode(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("strings and numbers are JSON"))
    }

    /// Reads a value.
    ///
    /// # Errors
    /// If it is no such value.
    pub fn decode(value: &[u8]) -> Result<Self, BadRecord> {
        serde_json::from_slice(value).map_err(|_| bad("a server", value))
    }
}

impl RulesVersion {
    /// The value of its key.
    pub fn encode(self) -> Bytes {
        Bytes::from(self.0.to_string())
    }

    /// Reads a value.
    ///
    /// # Errors
    /// If it is no such value.
    pub fn decode(value: &[u8]) -> Result<Self, BadRecord> {
        let version = str::from_utf8(value).ok().and_then(decimal).and_then(|v| v.try_into().ok());
        version.map(Self).ok_or_else(|| bad("a version of the rules", value))
    }
}

impl PlaceMark {
    /// The value of its key. Equal marks have equal values, so a transaction may compare them.
    pub fn encode(self) -> Bytes {
        Bytes::from(format!("{} {} {}", self.log_index.0, self.epoch.0.0, self.fence))
    }

    /// Reads a value.
    ///
    /// # Errors
    /// If it is no such value.
    pub fn decode(value: &[u8]) -> Result<Self, BadRecord> {
        let parse = || {
            let mut parts = str::from_utf8(value).ok()?.split(' ');
            let mut next = || parts.next().and_then(decimal);
            let mark = Self { log_index: LogIndex(next()?), epoch: Epoch(Revision(next()?)), fence: next()? };
            (mark.encode() == value).then_some(mark)
        };
        parse().ok_or_else(|| bad("the end of a log", value))
    }
}

impl Pointer {
    /// The value of its key.
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Inline(bytes) => {
                let mut value = BytesMut::with_capacity(1 + bytes.len());
                value.put_u8(0);
                value.put_slice(bytes);
                value.freeze()
            }
            Self::Pieces { epoch, generation, pieces, bytes } => {
                let mut value = BytesMut::with_capacity(29);
                value.put_u8(1);
                value.put_u64(epoch.0.0);
                value.put_u64(*generation);
                value.put_u32(*pieces);
                value.put_u64(*bytes);
                value.freeze()
            }
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// If it is no such value.
    pub fn decode(value: &Bytes) -> Result<Self, BadRecord> {
        let parse = || match value.split_first()? {
            (0, _) => Some(Self::Inline(value.slice(1..))),
            (1, rest) => {
                let (epoch, rest) = rest.split_first_chunk()?;
                let (generation, rest) = rest.split_first_chunk()?;
                let (pieces, rest) = rest.split_first_chunk()?;
                Some(Self::Pieces {
                    epoch: Epoch(Revision(u64::from_be_bytes(*epoch))),
                    generation: u64::from_be_bytes(*generation),
                    pieces: u32::from_be_bytes(*pieces),
                    bytes: u64::from_be_bytes(rest.try_into().ok()?),
                })
            }
            _ => None,
        };
        parse().ok_or_else(|| bad("the pointer of a checkpoint", value))
    }
}

/// The value of a batch's key.
pub fn encode_batch(epoch: Epoch, batch: &[u8]) -> Bytes {
    let mut value = BytesMut::with_capacity(8 + batch.len());
    value.put_u64(epoch.0.0);
    value.put_slice(batch);
    value.freeze()
}

/// Reads the value of a batch's key: its writer's epoch, and the batch.
///
/// # Errors
/// If it is no such value.
pub fn decode_batch(value: &Bytes) -> Result<(Epoch, Bytes), BadRecord> {
    let Some((epoch, _)) = value.split_first_chunk() else { return Err(bad("a batch", value)) };
    Ok((Epoch(Revision(u64::from_be_bytes(*epoch))), value.slice(8..)))
}

fn number(shard: ShardId) -> String {
    format!("{:06x}", shard.get())
}

fn shard_number(text: &str, shards: ShardCount) -> Option<ShardId> {
    shards.shard(u32::try_from(hex(text, 6)?).ok()?)
}

/// Exactly so many digits, as [`Keys`] writes them: one number has one key.
fn hex(text: &str, digits: usize) -> Option<u64> {
    let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != digits || !text.bytes().all(lower) {
        return None;
    }
    u64::from_str_radix(text, 16).ok()
}

fn decimal(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// `wanted` is not what `found` is.
fn bad(wanted: &'static str, found: &[u8]) -> BadRecord {
    let found = String::from_utf8_lossy(&found[..found.len().min(80)]).into_owned();
    BadRecord { wanted, found }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> Keys {
        Keys::new(&Name::new("demo").unwrap())
    }

    fn epoch(number: u64) -> Epoch {
        Epoch(Revision(number))
    }

    #[test]
    fn keys_are_text_below_the_prefix_of_their_cluster() {
        let shards = ShardCount::default();
        let shard = shards.shard(42).unwrap();
        assert_eq!(keys().owner(shard), "/stickycas/demo/owner/00002a");
        assert_eq!(keys().log(shard, LogIndex(258)), "/stickycas/demo/log/00002a/0000000000000102");
        assert_eq!(
            keys().piece(shard, 7, epoch(8), 9, 1),
            "/stickycas/demo/piece/00002a/0000000000000007/0000000000000008/0000000000000009/00000001"
        );
    }

    #[test]
    fn a_name_that_could_leave_its_folder_is_refused() {
        for name in ["", "a/b", "A", "ä", &"a".repeat(64)] {
            assert!(Name::new(name).is_err(), "{name:?}");
        }
        assert!(Name::new("server-1.example_2").is_ok());
    }

    #[test]
    fn what_is_no_record_is_named_in_the_error() {
        let error = PlaceMark::decode(b"1 2").unwrap_err();
        assert_eq!(error.to_string(), "etcd holds \"1 2\" where the end of a log is expected");
        for value in ["01 2 3", "1 2 3 4", "1  2", "+1 2 3", "1 2 3 "] {
            assert!(PlaceMark::decode(value.as_bytes()).is_err(), "{value:?}");
        }
        assert!(keys().parse(b"/stickycas/demo/owner/000040", ShardCount::default()).is_err());
        assert!(keys().parse(b"/stickycas/other/owner/000001", ShardCount::default()).is_err());
        assert!(Identity::decode(b"layout 2, shards 64").is_err());
    }

    proptest! {
        #[test]
        fn keys_and_values_are_read_as_written(a: u64, b: u64, c: u64, piece: u32, bytes: Vec<u8>) {
            let shards = ShardCount::default();
            let shard = shards.shard(u32::try_from(a % 64).unwrap()).unwrap();
            let keys = keys();
            prop_assert_eq!(keys.parse(&keys.owner(shard), shards), Ok(Subject::Owner(shard)));
            prop_assert_eq!(keys.parse(&keys.rules(shard), shards), Ok(Subject::Rules(shard)));
            prop_assert_eq!(keys.parse_log(shard, &keys.log(shard, LogIndex(b))), Ok(LogIndex(b)));
            prop_assert_eq!(keys.parse_checkpoint(shard, &keys.checkpoint(shard, c)), Ok(c));
            let key = keys.piece(shard, a, epoch(b), c, piece);
            prop_assert_eq!(keys.parse_piece(shard, &key), Ok((a, epoch(b), c, piece)));
            let mark = PlaceMark { log_index: LogIndex(a), epoch: epoch(b), fence: c };
            prop_assert_eq!(PlaceMark::decode(&mark.encode()), Ok(mark));
            let bytes = Bytes::from(bytes);
            prop_assert_eq!(decode_batch(&encode_batch(epoch(a), &bytes)), Ok((epoch(a), bytes.clone())));
            for pointer in [
                Pointer::Inline(bytes),
                Pointer::Pieces { epoch: epoch(a), generation: b, pieces: piece, bytes: c },
            ] {
                prop_assert_eq!(Pointer::decode(&pointer.encode()), Ok(pointer));
            }
            let identity = Identity { shards };
            prop_assert_eq!(Identity::decode(&identity.encode()), Ok(identity));
            prop_assert_eq!(RulesVersion::decode(&RulesVersion(piece).encode()), Ok(RulesVersion(piece)));
        }

        #[test]
        fn keys_sort_as_their_numbers(a: u64, b: u64) {
            let shard = ShardCount::default().shard(1).unwrap();
            let (first, second) = (keys().log(shard, LogIndex(a)), keys().log(shard, LogIndex(b)));
            prop_assert_eq!(first.cmp(&second), a.cmp(&b));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let bytes = Bytes::from(bytes);
            let shard = ShardCount::default().shard(1).unwrap();
            let _ = (PlaceMark::decode(&bytes), Pointer::decode(&bytes), decode_batch(&bytes));
            let _ = (ServerInfo::decode(&bytes), Identity::decode(&bytes), RulesVersion::decode(&bytes));
            let _ = (keys().parse_piece(shard, &bytes), keys().parse(&bytes, ShardCount::default()));
        }
    }
}
