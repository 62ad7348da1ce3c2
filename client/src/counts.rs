//! A server's counts of the conduct of its callers: they show that an attack has fired (SPEC B3).
//!
//! A count is no accusation. Offences stand in the record of the instance that they were committed at
//! ([`Client::get`](crate::Client::get), [`Client::watch`](crate::watch)).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use stickycas_proto::convert::WireError;
use stickycas_proto::v1;
use stickycas_proto::v1::RefusalReason;

use crate::info::{optional_duration, optional_time};

/// The counts of a server since it started; of a cluster, the sums over its servers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerCounts {
    /// When it started, by its own clock; of several servers, the first of them.
    #[serde(serialize_with = "optional_time", skip_serializing_if = "Option::is_none")]
    pub started: Option<SystemTime>,
    /// The time since then, by a clock that nobody sets. `None`: the server is too old to tell.
    #[serde(serialize_with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub uptime: Option<Duration>,
    /// The counts of all callers together. Zeros for a caller who may not see them: one without a role.
    pub all: Counts,
    /// The counts of each principal. Principals without any are left out.
    pub principals: BTreeMap<String, Counts>,
    /// How many more principals there are; of several servers, that many at most.
    pub left_out: u32,
    /// The facts of the server. `None`: it does not tell, or these are the counts of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerFacts>,
}

/// The build of a server, its machine, and its load at this moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerFacts {
    /// Its version.
    pub version: String,
    /// The commit it was built from, if the build was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Whether it was built with debug assertions: its figures then say little.
    pub debug_assertions: bool,
    /// Operating system.
    pub os: String,
    /// Processor architecture.
    pub architecture: String,
    /// Processors that it may use.
    pub cpus: u32,
    /// Bytes of memory that it takes, if its system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// For which share of their time, 0 to 1, its threads have lately had work.
    pub busy: f64,
    /// Instances that are neither finished nor closed.
    pub instances_under_way: u64,
}

impl ServerFacts {
    fn from_wire(wire: &v1::ServerFacts) -> Self {
        Self {
            version: wire.version.clone(),
            commit: (!wire.commit.is_empty()).then(|| wire.commit.clone()),
            debug_assertions: wire.debug_assertions,
            os: wire.os.clone(),
            architecture: wire.architecture.clone(),
            cpus: wire.cpus,
            resident_bytes: (wire.resident_bytes > 0).then_some(wire.resident_bytes),
            busy: wire.busy,
            instances_under_way: wire.instances_under_way,
        }
    }
}

/// [`Counts`] with these fields, each of which is told, added and named alike.
macro_rules! counts {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// How often what happened. The fields are those of the wire's `Counts`, where each is explained.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Counts {
            /// Refusals by the name of their reason, such as `NOT_YOUR_PHASE`.
            pub refusals: BTreeMap<&'static str, u64>,
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Counts {
            /// Everything but the refusals, under the names of the fields.
            #[must_use]
            pub const fn others(&self) -> [(&'static str, u64); [$(stringify!($field)),*].len()] {
                [$((stringify!($field), self.$field)),*]
            }

            fn from_wire(wire: &v1::Counts) -> Self {
                let mut refusals = BTreeMap::new();
                for row in &wire.refusals {
                    // Reasons that are not known here yet share one row.
                    *refusals.entry(row.reason().name()).or_default() += row.count;
                }
                Self { refusals, $($field: wire.$field),* }
            }

            fn add(&mut self, other: &Self) {
                for (reason, count) in &other.refusals {
                    *self.refusals.entry(reason).or_default() += count;
                }
                $(self.$field += other.$field;)*
            }
        }
    };
}

counts! {
    /// Connections that found the server full.
    connections_refused,
    /// Connections on which nobody was named in time.
    connections_silent,
    /// Connections read more slowly because of too many stream resets.
    connections_reset_flooded,
    /// Connections cut because answers were left unread for too long.
    connections_unread,
    /// Messages that do not decode.
    messages_undecodable,
    /// Messages above the size limit.
    messages_oversized,
    /// Calls whose client went before they were answered.
    calls_abandoned,
    /// Attach streams that the client's side broke off.
    streams_abandoned,
    /// Times that an Attach stream was not listened to because too much was unread.
    streams_stalled,
    /// Sessions that a newer one has replaced.
    sessions_replaced,
    /// Accesses that were sent again.
    accesses_repeated,
    /// Handshakes of TLS that failed.
    handshakes_failed,
    /// Calls whose token proved nothing.
    tokens_refused,
    /// Connections read more slowly because of too many frames of HTTP/2 without a request.
    connections_paced,
    /// Connections that HTTP/2 closed with `ENHANCE_YOUR_CALM`.
    connections_given_up,
    /// Connections that their client closed before it had begun HTTP/2.
    connections_closed_early,
}

impl Counts {
    /// How often something was refused for this reason.
    #[must_use]
    pub fn refused(&self, reason: RefusalReason) -> u64 {
        self.refusals.get(reason.name()).copied().unwrap_or_default()
    }
}

impl ServerCounts {
    /// These counts and those of another server.
    pub(crate) fn merged(mut self, other: Self) -> Self {
        self.started = self.started.into_iter().chain(other.started).min();
        self.uptime = self.uptime.max(other.uptime);
        self.all.add(&other.all);
        for (principal, counts) in other.principals {
            self.principals.entry(principal).or_default().add(&counts);
        }
        self.left_out = self.left_out.saturating_add(other.left_out);
        self.server = None;
        self
    }

    pub(crate) fn from_wire(wire: &v1::GetCountsResponse) -> Result<Self, WireError> {
        let counts = |counts: &Option<v1::Counts>| {
            counts.as_ref().map(Counts::from_wire).ok_or(WireError::Missing("counts"))
        };
        let named = |row: &v1::PrincipalCounts| Ok((row.principal.clone(), counts(&row.counts)?));
        Ok(Self {
            started: wire.start_time.and_then(|time| SystemTime::try_from(time).ok()),
            uptime: wire.uptime.and_then(|time| Duration::try_from(time).ok()),
            // Not told to everybody.
            all: wire.all.as_ref().map(Counts::from_wire).unwrap_or_default(),
            principals: wire.principals.iter().map(named).collect::<Result<_, WireError>>()?,
            left_out: wire.principals_left_out,
            server: wire.server.as_ref().map(ServerFacts::from_wire),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_back_and_unknown_reasons_share_a_row() {
        let refusals = [(RefusalReason::NotYourPhase.into(), 3), (1_000, 1), (2_000, 1)];
        let refusals = refusals.map(|(reason, count)| v1::RefusalCount { reason, count }).to_vec();
        let counts = Counts::from_wire(&v1::Counts { refusals, streams_stalled: 2, ..v1::Counts::default() });
        assert_eq!(counts.refused(RefusalReason::NotYourPhase), 3);
        assert_eq!(counts.refused(RefusalReason::Unspecified), 2);
        assert_eq!(counts.refused(RefusalReason::RateExceeded), 0);
        assert_eq!(counts.others().iter().map(|(_, count)| count).sum::<u64>(), counts.streams_stalled);
    }

    #[test]
    fn counts_of_several_servers_are_added() {
        let time = |seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let counts = |of: &str, at, refused| {
            let refusals = BTreeMap::from([("NOT_YOUR_PHASE", refused), (of, 1)].map(|(name, count)| {
                (RefusalReason::from_name(name).map_or("", RefusalReason::name), count)
            }));
            let all = Counts { refusals, calls_abandoned: refused, ..Counts::default() };
            let principals = BTreeMap::from([("p".to_owned(), all.clone()), (of.to_owned(), all.clone())]);
            ServerCounts {
                started: time(at),
                uptime: Some(Duration::from_secs(100 - at)),
                all,
                principals,
                left_out: 1,
                server: Some(ServerFacts::default()),
            }
        };
        let merged = counts("DRAINING", 7, 2).merged(counts("INTERNAL", 5, 3));
        let expected = BTreeMap::from([("DRAINING", 1), ("INTERNAL", 1), ("NOT_YOUR_PHASE", 5)]);
        assert_eq!((merged.started, merged.left_out, merged.server), (time(5), 2, None));
        assert_eq!(merged.uptime, Some(Duration::from_secs(95)));
        assert_eq!((&merged.all.refusals, merged.all.calls_abandoned), (&expected, 5));
        assert_eq!(merged.principals["p"], merged.all);
        assert_eq!(merged.principals["DRAINING"].calls_abandoned, 2);
        assert_eq!(merged.principals.len(), 3);
    }

    #[test]
    fn every_count_is_added() {
        let one = v1::Counts {
            connections_refused: 1,
            connections_silent: 1,
            connections_reset_flooded: 1,
            connections_unread: 1,
            messages_undecodable: 1,
            messages_oversized: 1,
            calls_abandoned: 1,
            streams_abandoned: 1,
            streams_stalled: 1,
            sessions_replaced: 1,
            accesses_repeated: 1,
            handshakes_failed: 1,
            tokens_refused: 1,
            connections_paced: 1,
            connections_given_up: 1,
            connections_closed_early: 1,
            refusals: Vec::new(),
        };
        let mut counts = Counts::from_wire(&one);
        counts.add(&counts.clone());
        assert!(counts.others().iter().all(|(_, count)| *count == 2), "{counts:?}");
    }

    #[test]
    fn a_row_without_counts_is_an_error() {
        let principals = vec![v1::PrincipalCounts { principal: "p1".to_owned(), counts: None }];
        let answer = v1::GetCountsResponse { principals, ..v1::GetCountsResponse::default() };
        assert_eq!(ServerCounts::from_wire(&answer), Err(WireError::Missing("counts")));
    }
}
