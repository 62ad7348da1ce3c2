//! The candidates.

use anyhow::Context as _;

use super::codec::{Generated, HandWritten};
use super::{attach, unary};
use crate::etcd::{self, Program};
use crate::fixture::Fixture;
use crate::serve::Launch;
use crate::stopwatch::Sample;

/// A client, and the server that it is played against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    UnaryBaseline,
    Unary { durable: bool },
    StreamBaseline { in_flight: usize },
    Attach { in_flight: usize, batch: bool, durable: bool },
    Etcd { in_flight: usize, fsync: bool },
}

use Variant::{Attach, Etcd, StreamBaseline, Unary, UnaryBaseline};

/// In the order of their turns: each next to its floor. etcd has none with 256 instances in flight: it
/// refuses requests while more than 5,000 are not applied yet.
pub(crate) const VARIANTS: [Variant; 22] = [
    UnaryBaseline,
    Unary { durable: false },
    Unary { durable: true },
    StreamBaseline { in_flight: 1 },
    Attach { in_flight: 1, batch: false, durable: false },
    StreamBaseline { in_flight: 16 },
    Attach { in_flight: 16, batch: false, durable: false },
    Attach { in_flight: 16, batch: false, durable: true },
    Attach { in_flight: 16, batch: true, durable: false },
    Attach { in_flight: 16, batch: true, durable: true },
    StreamBaseline { in_flight: 64 },
    Attach { in_flight: 64, batch: false, durable: false },
    Attach { in_flight: 64, batch: false, durable: true },
    Attach { in_flight: 64, batch: true, durable: false },
    Attach { in_flight: 64, batch: true, durable: true },
    StreamBaseline { in_flight: 256 },
    Attach { in_flight: 256, batch: false, durable: false },
    Attach { in_flight: 256, batch: true, durable: false },
    Etcd { in_flight: 16, fsync: true },
    Etcd { in_flight: 64, fsync: true },
    Etcd { in_flight: 16, fsync: false },
    Etcd { in_flight: 64, fsync: false },
];

/// Instances in flight over unary calls: so many that some keep the connection busy while others wait for a
/// phase.
const UNARY_IN_FLIGHT: usize = 16;

impl Variant {
    pub(crate) fn name(self) -> String {
        match self {
            UnaryBaseline => "unary-floor".to_owned(),
            Unary { durable } => format!("unary{}", suffix(durable)),
            StreamBaseline { in_flight } => format!("stream-floor/{in_flight}"),
            Attach { in_flight, batch, durable } => {
                let batch = if batch { "-batch" } else { "" };
                format!("attach{batch}{}/{in_flight}", suffix(durable))
            }
            Etcd { in_flight, fsync: true } => format!("etcd/{in_flight}"),
            Etcd { in_flight, fsync: false } => format!("etcd-no-fsync/{in_flight}"),
        }
    }

    /// The candidate that it is compared with.
    pub(crate) fn baseline(self) -> Option<Self> {
        match self {
            UnaryBaseline | StreamBaseline { .. } | Etcd { .. } => None,
            Unary { .. } => Some(UnaryBaseline),
            Attach { in_flight, .. } => Some(StreamBaseline { in_flight }),
        }
    }

    /// Whether the server keeps its log on a disk.
    pub(crate) fn is_durable(self) -> bool {
        matches!(self, Unary { durable: true } | Attach { durable: true, .. })
    }

    /// The same with a server that keeps everything in memory; `None` for those without a log.
    pub(crate) fn in_memory(self) -> Option<Self> {
        match self {
            Unary { durable: true } => Some(Unary { durable: false }),
            Attach { in_flight, batch, durable: true } => Some(Attach { in_flight, batch, durable: false }),
            _ => None,
        }
    }

    /// Instances that are played at the same time.
    pub(crate) fn in_flight(self) -> usize {
        match self {
            UnaryBaseline | Unary { .. } => UNARY_IN_FLIGHT,
            StreamBaseline { in_flight } | Attach { in_flight, .. } | Etcd { in_flight, .. } => in_flight,
        }
    }

    /// Whether it is StickyCAS, and not what it is compared with.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Unary { .. } | Attach { .. })
    }

    pub(crate) fn is_etcd(self) -> bool {
        matches!(self, Etcd { .. })
    }

    /// Instances in one turn, for about a second of work on two slow cores.
    pub(crate) fn instances(self) -> usize {
        match self {
            UnaryBaseline | Unary { .. } => 800,
            StreamBaseline { in_flight: 1 } => 3_000,
            Attach { in_flight: 1, .. } => 1_000,
            StreamBaseline { .. } => 8_000,
            Attach { .. } => 4_000,
            Etcd { in_flight, .. } => in_flight.max(64) * 4,
        }
    }

    /// The missing requirement of this variant, if any.
    pub(crate) fn lacks(self, etcd: Option<&Program>) -> Option<String> {
        let Etcd { fsync, .. } = self else { return None };
        match etcd {
            None => {
                Some("there is no etcd (Debian: apt-get install etcd-server), or give --etcd PATH".to_owned())
            }
            Some(etcd) if !fsync && !etcd.can_leave_fsync => {
                let version = &etcd.version;
                Some(format!("etcd {version} has no --unsafe-no-fsync; --disk /dev/shm does without a disk"))
            }
            Some(_) => None,
        }
    }

    /// One turn, on a server of its own.
    pub(crate) async fn turn(
        self,
        instances: usize,
        launch: &Launch,
        etcd: Option<Program>,
    ) -> anyhow::Result<Sample> {
        match self {
            UnaryBaseline => {
                unary::run(&Fixture::start_baseline(instances, launch).await?, self.in_flight()).await
            }
            Unary { .. } => {
                let fixture = Fixture::start(instances, launch).await?;
                fixture.with_commits(unary::run(&fixture, self.in_flight())).await
            }
            StreamBaseline { in_flight } => {
                attach::run::<Generated>(&Fixture::start_baseline(instances, launch).await?, in_flight, false)
                    .await
            }
            Attach { in_flight, batch, .. } => {
                let fixture = Fixture::start(instances, launch).await?;
                fixture.with_commits(attach::run::<HandWritten>(&fixture, in_flight, batch)).await
            }
            Etcd { in_flight, fsync } => {
                let etcd = etcd.context("there is no etcd")?;
                etcd::run(&etcd, fsync, instances, in_flight).await
            }
        }
    }
}

fn suffix(durable: bool) -> &'static str {
    if durable { "-durable" } else { "" }
}
