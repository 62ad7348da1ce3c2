//! All clients of a server in step: they send together, to a server that stands still until all has arrived.
//!
//! So what comes together in one read, wake-up or commit of the server depends on no timing, and counts of
//! its instructions repeat.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::Barrier;

/// How often it is looked whether a program is idle.
const POLL: Duration = Duration::from_millis(2);
/// How often in a row all of its threads have to sleep.
const IDLE: u32 = 5;
/// All clients have begun to send after this time.
const BEGUN: Duration = Duration::from_millis(40);

/// See the module.
#[derive(Debug)]
pub(crate) struct Steps {
    server: u32,
    clients: Barrier,
}

impl Steps {
    /// So many clients of the server with this process id.
    pub(crate) fn new(server: u32, clients: usize) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self { server, clients: Barrier::new(clients) }))
    }

    /// Returns when all clients have called it and the server stands still. What they send then, at once, is
    /// there when the server goes on.
    pub(crate) async fn next(&self) -> anyhow::Result<()> {
        let server = self.server;
        let is_first = self.clients.wait().await.is_leader();
        if is_first {
            idle(server, 0).await?;
            let server = i32::try_from(server).ok().and_then(Pid::from_raw).context("no process id")?;
            kill_process(server, Signal::STOP)?;
            tokio::spawn(async move {
                tokio::time::sleep(BEGUN).await;
                // What this program has written to a socket of this machine has arrived.
                let _idle = idle(std::process::id(), 1).await;
                // Fails if the server has ended, which its clients notice.
                let _gone = kill_process(server, Signal::CONT);
            });
        }
        self.clients.wait().await;
        Ok(())
    }
}

/// Returns when all threads of this process wait but for so many, such as the one that looks.
pub(crate) async fn idle(process: u32, but: usize) -> anyhow::Result<()> {
    let mut idle = 0;
    while idle < IDLE {
        tokio::time::sleep(POLL).await;
        idle = if awake(process)? <= but { idle + 1 } else { 0 };
    }
    Ok(())
}

fn awake(process: u32) -> anyhow::Result<usize> {
    let mut awake = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
        // The state stands behind the name, which is in parentheses.
        awake += usize::from(!stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S")));
    }
    Ok(awake)
}
