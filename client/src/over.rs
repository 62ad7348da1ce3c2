//! Noticing that an instance is over, for a process that waits for nothing there.
//!
//! A process that acts is told by the answer to its next access. One that is silent, or never joins, hears nothing:
//! it watches the instance, and looks at nothing but its end.

use stickycas_model::history::Event;
use stickycas_model::machine::State;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;

use crate::client::Client;
use crate::error::Error;
use crate::watch::{WatchFrom, Watched};

/// How an instance is over.
#[derive(Clone, Debug)]
pub(crate) enum Over {
    /// Every process has left.
    Finished,
    /// Its creator has closed it.
    Closed,
    /// The server does not know it any more (SPEC F11).
    Unknown(Error),
}

impl Client {
    /// Returns when the instance is over; never if the caller may not look at it.
    pub(crate) async fn over(&self, instance: InstanceId) -> Over {
        let mut watch = self.watch(instance, WatchFrom::Snapshot);
        loop {
            match watch.next().await {
                Ok(Some(Watched::Snapshot(snapshot))) => match snapshot.status.state {
                    State::Finished => return Over::Finished,
                    State::Closed => return Over::Closed,
                    State::Gathering | State::Running => {}
                },
                Ok(Some(Watched::Event(_, recorded))) => match recorded.event {
                    Event::Finished => return Over::Finished,
                    Event::Closed => return Over::Closed,
                    _ => {}
                },
                Err(error) if error.reason() == Some(RefusalReason::InstanceUnknown) => {
                    return Over::Unknown(error);
                }
                // How it ended is not told, or the watch was refused: the process itself will be.
                Ok(None) | Err(_) => return std::future::pending().await,
            }
        }
    }
}
