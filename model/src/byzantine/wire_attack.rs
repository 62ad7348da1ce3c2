//! Wire attacks: attacks on a server below the protocol of processes (SPEC section 8).
//!
//! They concern neither appends nor decisions, so no behaviour expresses them and the simulator cannot show
//! them. Here are their names, their amounts, their offences and the counts that show that they happened; the
//! client carries them out. Their text is that of strategies: `flood(frames=5000)`, or `flood` for the
//! default amount.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::parse::{Arguments, StrategyError, Vocabulary, column};
use crate::counts::RunCounts;
use crate::history::OffenceKind;
use crate::types::ProcessId;

/// The kinds of attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WireAttackKind {
    /// Calls without an identity, with two, with an unknown one, and in roles that the caller has not.
    Impersonate,
    /// Calls with `no_wait` in the phases of others.
    OutOfTurn,
    /// Two contents for one access number within one session.
    Double,
    /// Its own old messages again.
    Replay,
    /// Far more accesses ahead than may wait, and calls as fast as it can.
    Flood,
    /// Values and messages above their limits.
    Oversize,
    /// Bytes that are no message.
    Garbage,
    /// Requests many answers and never reads them.
    SlowRead,
    /// Opens connections and sends nothing.
    SlowOpen,
    /// Opens streams and resets them at once.
    ResetFlood,
    /// Opens connections and begins a handshake on each.
    HandshakeFlood,
    /// Sends frames of HTTP/2 that carry no request.
    FrameFlood,
    /// Calls with bearer tokens that prove nothing.
    BadTokenFlood,
}

/// The definition of a kind of attack.
struct AttackSpec {
    name: &'static str,
    /// The name of the amount.
    key: &'static str,
    default: u32,
    /// The largest amount: an attack is bounded, so that it cannot take down the machine that it runs on.
    max: u32,
    usage: &'static str,
    offences: &'static [OffenceKind],
    shown_by: ShownBy,
}

/// The evidence that an attack happened: always a count, never an offence on record. The judge must be able
/// to find that an offence is missing from the record (B2).
#[derive(Clone, Copy)]
enum ShownBy {
    /// A count of the process under any of these names. Where the attack commits offences, only counts
    /// qualify that an offence at the instance of the run implies: a rate may have been exceeded before the
    /// process acted there.
    CountOfProcess(&'static [&'static str]),
    /// A count of the server that it cannot attribute to a process.
    CountOfServer(&'static str),
}

impl WireAttackKind {
    /// All of them, in the order of SPEC section 8.
    pub const ALL: [Self; 13] = [
        Self::Impersonate,
        Self::OutOfTurn,
        Self::Double,
        Self::Replay,
        Self::Flood,
        Self::Oversize,
        Self::Garbage,
        Self::SlowRead,
        Self::SlowOpen,
        Self::ResetFlood,
        Self::HandshakeFlood,
        Self::FrameFlood,
        Self::BadTokenFlood,
    ];

    const fn spec(self) -> AttackSpec {
        match self {
            Self::Impersonate => AttackSpec {
                name: "impersonate",
                key: "rounds",
                default: 3,
                max: 1_000,
                usage: "impersonate(rounds=K): K times, calls without identity, with two, with an unknown one, and \
                           in roles that it has not",
                offences: &[OffenceKind::ForeignIdentity],
                shown_by: ShownBy::CountOfProcess(&["NOT_CREATOR", "NOT_COORDINATOR"]),
            },
            Self::OutOfTurn => AttackSpec {
                name: "out-of-turn",
                key: "calls",
                default: 50,
                max: 10_000,
                usage: "out-of-turn(calls=K): K calls with no_wait, also in the phases of others",
                offences: &[],
                shown_by: ShownBy::CountOfProcess(&["NOT_YOUR_PHASE"]),
            },
            Self::Double => AttackSpec {
                name: "double",
                key: "times",
                default: 3,
                max: 1_000,
                usage: "double(times=K): K times another content for one access number within one session",
                offences: &[OffenceKind::OtherContent],
                shown_by: ShownBy::CountOfProcess(&["ACCESS_CONTENT_DIFFERS"]),
            },
            Self::Replay => AttackSpec {
                name: "replay",
                key: "times",
                default: 5,
                max: 1_000,
                usage: "replay(times=K): its own old messages K times again, in this session, an older one, and after \
                           it has left",
                offences: &[],
                shown_by: ShownBy::CountOfProcess(&["accesses_repeated"]),
            },
            Self::Flood => AttackSpec {
                name: "flood",
                key: "frames",
                default: 5_000,
                max: 1_000_000,
                usage: "flood(frames=K): K accesses ahead on one stream and as many calls, as fast as it can",
                offences: &[OffenceKind::QuotaExceeded],
                shown_by: ShownBy::CountOfProcess(&["TOO_MANY_WAITING"]),
            },
            Self::Oversize => AttackSpec {
                name: "oversize",
                key: "messages",
                default: 3,
                max: 100,
                usage: "oversize(messages=K): K values and K whole messages above their limits",
                offences: &[OffenceKind::Oversized],
                shown_by: ShownBy::CountOfProcess(&["VALUE_TOO_LARGE", "messages_oversized"]),
            },
            Self::Garbage => AttackSpec {
                name: "garbage",
                key: "messages",
                default: 10,
                max: 10_000,
                usage: "garbage(messages=K): K calls, K streams and K connections with bytes that are no message",
                offences: &[OffenceKind::Malformed],
                shown_by: ShownBy::CountOfProcess(&["messages_undecodable"]),
            },
            Self::SlowRead => AttackSpec {
                name: "slow-read",
                key: "frames",
                default: 4_096,
                max: 1_000_000,
                usage: "slow-read(frames=K): asks for K answers on a stream that it never reads",
                offences: &[],
                shown_by: ShownBy::CountOfProcess(&["streams_stalled"]),
            },
            Self::SlowOpen => AttackSpec {
                name: "slow-open",
                key: "connections",
                default: 64,
                max: 10_000,
                usage: "slow-open(connections=K): opens K connections and says nothing",
                offences: &[],
                shown_by: ShownBy::CountOfServer("connections_silent"),
            },
            Self::ResetFlood => AttackSpec {
                name: "reset-flood",
                key: "streams",
                default: 5_000,
                max: 1_000_000,
                usage: "reset-flood(streams=K): opens K streams and resets each at once",
                offences: &[],
                shown_by: ShownBy::CountOfProcess(&["connections_reset_flooded"]),
            },
            Self::HandshakeFlood => AttackSpec {
                name: "handshake-flood",
                key: "connections",
                default: 256,
                max: 10_000,
                usage: "handshake-flood(connections=K): opens K connections, begins a handshake on each and stops",
                offences: &[],
                shown_by: ShownBy::CountOfServer("connections_silent"),
            },
            Self::FrameFlood => AttackSpec {
                name: "frame-flood",
                key: "frames",
                default: 60_000,
                max: 100_000_000,
                usage: "frame-flood(frames=K): sends K frames of HTTP/2 that carry no request, as fast as it can",
                offences: &[],
                shown_by: ShownBy::CountOfProcess(&["connections_paced"]),
            },
            Self::BadTokenFlood => AttackSpec {
                name: "bad-token-flood",
                key: "calls",
                default: 2_000,
                max: 1_000_000,
                usage: "bad-token-flood(calls=K): K calls with bearer tokens that prove nothing, as fast as it can",
                offences: &[],
                // A caller that fails has proven no identity, on any listener. One for tokens also counts
                // `tokens_refused`.
                shown_by: ShownBy::CountOfServer("NO_IDENTITY"),
            },
        }
    }

    /// Its name, as texts have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.spec().name
    }
}

/// An attack and its amount. Its text, which is also its form in JSON, is `name` or `name(key=count)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct WireAttack {
    kind: WireAttackKind,
    count: u32,
}

impl WireAttack {
    /// The names of all wire attacks.
    pub const ALL_NAMES: [&'static str; 13] = column!(WireAttackKind::ALL, |kind| kind.name());

    /// The attack with its default amount.
    #[must_use]
    pub const fn new(kind: WireAttackKind) -> Self {
        Self { kind, count: kind.spec().default }
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(self) -> WireAttackKind {
        self.kind
    }

    /// Its amount.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count
    }

    /// The name, without arguments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.kind.name()
    }

    /// How the attack of this name is written and what it does, in one line. `None` if there is no such.
    #[must_use]
    pub fn describe(name: &str) -> Option<&'static str> {
        Some(kind_of(name)?.spec().usage)
    }

    /// The offences of B2's list that a process commits with it. None where a correct process might do the
    /// same, or where the server cannot attribute it.
    #[must_use]
    pub const fn offences(self) -> &'static [OffenceKind] {
        self.kind.spec().offences
    }

    /// Whether the server's counts show that this process carried the attack out. A count that the server
    /// cannot attribute to a process shows it of every process that has this attack.
    #[must_use]
    pub fn is_shown_by(self, process: ProcessId, counted: &RunCounts) -> bool {
        match self.kind.spec().shown_by {
            ShownBy::CountOfProcess(names) => names.iter().any(|name| counted.of(process).get(name) > 0),
            ShownBy::CountOfServer(name) => counted.all.get(name) > 0,
        }
    }
}

const USAGES: [&str; 13] = column!(WireAttackKind::ALL, |kind| kind.spec().usage);
const VOCABULARY: Vocabulary = Vocabulary { names: &WireAttack::ALL_NAMES, usages: &USAGES };

fn kind_of(name: &str) -> Option<WireAttackKind> {
    WireAttackKind::ALL.into_iter().find(|kind| kind.name() == name)
}

/// Why a text is no wire attack. Each message says what is wrong and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireAttackError {
    /// There is no wire attack of this name.
    #[error("there is no wire attack {0:?}: give one of {names}", names = WireAttack::ALL_NAMES.join(", "))]
    UnknownName(String),
    /// The text is not of the form `name` or `name(key=count)`.
    #[error("{0:?} is no wire attack: write name or name(key=count)")]
    Malformed(String),
    /// Its arguments are wrong.
    #[error("{0}")]
    Arguments(StrategyError),
}

impl From<StrategyError> for WireAttackError {
    fn from(error: StrategyError) -> Self {
        match error {
            StrategyError::UnknownName { given, .. } => Self::UnknownName(given),
            StrategyError::Malformed(text) => Self::Malformed(text),
            error => Self::Arguments(error),
        }
    }
}

impl FromStr for WireAttack {
    type Err = WireAttackError;

    fn from_str(text: &str) -> Result<Self, WireAttackError> {
        let mut given = Arguments::parse(text, VOCABULARY, 0)?;
        let kind = kind_of(given.name());
        let kind = kind.ok_or_else(|| WireAttackError::UnknownName(given.name().to_owned()))?;
        let AttackSpec { key, default, max, .. } = kind.spec();
        let bounded = |count: &str| count.parse().ok().filter(|count| (1..=max).contains(count));
        let count = given.parsed(key, format!("a number from 1 to {max}"), bounded)?.unwrap_or(default);
        given.finish()?;
        Ok(Self { kind, count })
    }
}

impl fmt::Display for WireAttack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AttackSpec { name, key, .. } = self.kind.spec();
        write!(f, "{name}({key}={})", self.count)
    }
}

impl From<WireAttack> for String {
    fn from(attack: WireAttack) -> Self {
        attack.to_string()
    }
}

impl TryFrom<String> for WireAttack {
    type Error = WireAttackError;

    fn try_from(text: String) -> Result<Self, WireAttackError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    use crate::byzantine::Strategy;
    use crate::counts::Counts;
    use crate::detection::{Detection, detect};
    use crate::ground_truth::{Assignment, GroundTruth, Role};
    use crate::params::{Params, ParamsSpec};
    use crate::types::Value;

    fn refused(text: &str) -> String {
        text.parse::<WireAttack>().unwrap_err().to_string()
    }

    #[test]
    fn every_attack_is_described_and_its_canonical_text_reads_back() {
        for kind in WireAttackKind::ALL {
            let attack = WireAttack::new(kind);
            assert_eq!(attack.name().parse(), Ok(attack));
            let described = WireAttack::describe(attack.name()).unwrap();
            let usage = attack.to_string().replace(&attack.count().to_string(), "K");
            assert!(described.starts_with(&format!("{usage}: ")), "{described}");
            let AttackSpec { key, max, .. } = kind.spec();
            for count in [1, max] {
                let attack = WireAttack { kind, count };
                assert_eq!(attack.to_string().parse(), Ok(attack));
                let json = serde_json::to_string(&attack).unwrap();
                assert_eq!(serde_json::from_str::<WireAttack>(&json).unwrap(), attack);
            }
            assert!(
                refused(&format!("{}({key}={})", attack.name(), u64::from(max) + 1))
                    .ends_with(&format!(": give a number from 1 to {max}"))
            );
        }
    }

    #[test]
    fn no_name_is_that_of_a_strategy() {
        let attacks = BTreeSet::from(WireAttack::ALL_NAMES);
        assert_eq!(attacks.len(), 13);
        assert!(attacks.is_disjoint(&BTreeSet::from(Strategy::ALL_NAMES)));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_write() {
        assert!(refused("fload").starts_with("there is no wire attack \"fload\": give one of impersonate, "));
        assert_eq!(
            refused("flood(frames"),
            "\"flood(frames\" is no wire attack: write name or name(key=count)"
        );
        assert_eq!(refused("flood(frames=0)"), "flood: frames = \"0\": give a number from 1 to 1000000");
        assert!(
            refused("flood(calls=1)").starts_with("flood has no use for \"calls\": write flood(frames=K): ")
        );
    }
    /// Two processes have this attack: those of them that it is detected of, given these counts of the server
    /// and of process 2.
    fn attackers_detected(attack: &str, all: &str, of_2: &str) -> Vec<u32> {
        let assignment = || Assignment {
            role: Role::Attacker(attack.parse().unwrap()),
            proposal: Value::parse("a").unwrap(),
        };
        let truth = GroundTruth::new(vec![assignment(), assignment()]);
        let process = ProcessId::new(2).unwrap();
        let one = |name: &str| Counts::from_iter([(name.to_owned(), 1)]);
        let counted = RunCounts { all: one(all), processes: BTreeMap::from([(process, one(of_2))]) };
        let params = Params::try_new(ParamsSpec::new(2, 1, 1)).unwrap();
        let Detection { fired, attackers, .. } = detect(&params, &truth, 0, &[], &counted);
        assert_eq!(fired.into_values().collect::<Vec<_>>(), [attackers.len() as u64]);
        attackers.into_iter().map(ProcessId::get).collect()
    }

    #[test]
    fn an_attack_counts_only_when_the_server_counted_it() {
        assert_eq!(attackers_detected("impersonate", "NOT_CREATOR", "NOT_CREATOR"), [2]);
        assert_eq!(attackers_detected("impersonate", "NO_IDENTITY", "NOT_A_MEMBER"), [0; 0]);
        assert_eq!(attackers_detected("double", "", "ACCESS_CONTENT_DIFFERS"), [2]);
        assert_eq!(attackers_detected("double", "ACCESS_CONTENT_DIFFERS", "MALFORMED"), [0; 0]);
        assert_eq!(attackers_detected("flood", "", "TOO_MANY_WAITING"), [2]);
        assert_eq!(attackers_detected("flood", "TOO_MANY_WAITING", "RATE_EXCEEDED"), [0; 0]);
        assert_eq!(attackers_detected("oversize", "", "VALUE_TOO_LARGE"), [2]);
        assert_eq!(attackers_detected("oversize", "", "messages_oversized"), [2]);
        assert_eq!(attackers_detected("garbage", "", "messages_undecodable"), [2]);
        assert_eq!(attackers_detected("garbage", "messages_undecodable", "MALFORMED"), [0; 0]);
        assert_eq!(attackers_detected("out-of-turn", "", "NOT_YOUR_PHASE"), [2]);
        assert_eq!(attackers_detected("out-of-turn", "NOT_YOUR_PHASE", "RATE_EXCEEDED"), [0; 0]);
        assert_eq!(attackers_detected("slow-open", "connections_silent", ""), [1, 2]);
        assert_eq!(attackers_detected("handshake-flood", "connections_silent", ""), [1, 2]);
        assert_eq!(attackers_detected("frame-flood", "", "connections_paced"), [2]);
        assert_eq!(attackers_detected("frame-flood", "connections_paced", "connections_given_up"), [0; 0]);
        assert_eq!(attackers_detected("bad-token-flood", "NO_IDENTITY", ""), [1, 2]);
        assert_eq!(attackers_detected("bad-token-flood", "RATE_EXCEEDED", "NO_IDENTITY"), [0; 0]);
        assert_eq!(attackers_detected("slow-open", "connections_refused", "connections_silent"), [0; 0]);
    }
}
