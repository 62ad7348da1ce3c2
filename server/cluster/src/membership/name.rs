//! The name of a server, which belongs to one process at a time.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::Command;
use super::driver::{Driver, End};
use crate::keys::ServerInfo;
use crate::store::{KeyRange, Store};

/// A server that waits for its name looks after this part of a lease whether it is free.
const LOOK_PART: u32 = 20;
/// The time of a lease, so often, in which a server that is not there any more has left its name.
const LEFT_WITHIN: u32 = 2;
/// Between two lines of a server that waits for its name.
const SAY_EVERY: Duration = Duration::from_mins(1);

impl<S: Store + Clone> Driver<S> {
    /// Waits as long as another process has the server's name. There is no lease meanwhile that would have to
    /// be kept alive.
    pub(super) async fn await_name(
        &mut self,
        commands: &mut mpsc::UnboundedReceiver<Command>,
    ) -> Result<(), End> {
        let (began, mut said) = (Instant::now(), None::<Instant>);
        let key = self.keys.server(&self.config.name);
        while let Some(found) = self.store.range(KeyRange::one(key.clone()), 1).await?.found.first() {
            let holder = ServerInfo::decode(&found.value)?;
            if holder.incarnation == self.config.info.incarnation {
                // Of an earlier session of this process.
                if let Some(lease) = found.lease {
                    self.store.revoke(lease).await?;
                }
                return Ok(());
            }
            if said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
                said = Some(Instant::now());
                self.say_name_in_use(&holder, began.elapsed());
            }
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(Command::Leave(done)) => {
                        let _ = done.send(());
                        return Err(End::Over);
                    }
                    None => return Err(End::Over),
                    Some(Command::Drain) => self.config.info.draining = true,
                    // Of an epoch that has ended.
                    Some(Command::Release { .. } | Command::Keep { .. }) => {}
                },
                () = sleep(self.config.time_to_live / LOOK_PART) => {}
            }
        }
        Ok(())
    }

    fn say_name_in_use(&self, holder: &ServerInfo, waits: Duration) {
        let (name, address) = (self.config.name.as_str(), holder.address.as_str());
        if waits < self.config.time_to_live * LEFT_WITHIN {
            tracing::warn!(
                name,
                address,
                "another process has this server's name in the cluster: this one waits until that one's lease has ended"
            );
        } else {
            tracing::error!(
                name,
                address,
                waits = ?waits,
                "another server that lives has this server's name in the cluster: this one takes no part until that one has \
                 ended; give each a name of its own (--server-name)"
            );
        }
    }
}
