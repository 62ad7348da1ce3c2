//! Waiting for the end of an instance, without an access.
//!
//! A process that acts learns the end from the answer to its next access. A process that is silent, or that never
//! joins, gets no answer: it watches the instance for its end.

use stickycas_model::history::Event;
use stickycas_model::machine::State;
use stickycas_proto::v1::RefusalReason;

use crate::client::Client;
use crate::convert::IntoInstance;
use crate::error::Error;
use crate::watch::{WatchFrom, Watched};

/// How an instance ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum InstanceEnd {
    /// Every process has left.
    Finished,
    /// Its creator has closed it.
    Closed,
    /// The server does not know it any more (SPEC F11).
    Unknown(Error),
}

impl Client {
    /// Waits for the end of an instance.
    ///
    /// # Errors
    /// When the caller may not watch the instance (F13), and when retries did not help. That the server does
    /// not know the instance is no error: [`InstanceEnd::Unknown`].
    pub async fn wait_for_end(&self, instance: impl IntoInstance) -> Result<InstanceEnd, Error> {
        let mut watch = self.watch(instance, WatchFrom::Snapshot);
        loop {
            match watch.try_next().await {
                Ok(Some(Watched::Snapshot(snapshot))) => match snapshot.status.state {
                    State::Finished => return Ok(InstanceEnd::Finished),
                    State::Closed => return Ok(InstanceEnd::Closed),
                    State::Gathering | State::Running => {}
                },
                Ok(Some(Watched::Event(_, recorded))) => match recorded.event {
                    Event::Finished => return Ok(InstanceEnd::Finished),
                    Event::Closed => return Ok(InstanceEnd::Closed),
                    _ => {}
                },
                Ok(None) => {
                    return Err(Error::Protocol("a watch ended before its instance".to_owned()));
                }
                Err(error) if error.reason() == Some(RefusalReason::InstanceUnknown) => {
                    return Ok(InstanceEnd::Unknown(error));
                }
                Err(error) => return Err(error),
            }
        }
    }
}
