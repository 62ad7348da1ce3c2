//! A server of our own, for runs without another one.

use std::net::Ipv4Addr;

use anyhow::Context;
use stickycas_server::Config;
use stickycas_server::limits::Limits;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::COORDINATOR;

/// The real server, in this process, on a free port that only this machine reaches.
#[derive(Debug)]
pub struct OwnServer {
    url: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl OwnServer {
    /// Starts it. It accepts connections when this returns.
    ///
    /// # Errors
    /// If there is no port to be had.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(Limits::default()).await
    }

    /// Starts it with these limits.
    ///
    /// # Errors
    /// If there is no port to be had.
    pub async fn start_with(limits: Limits) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no free port")?;
        let url = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let shutdown = async { drop(stopped.await) };
            let config = Config { limits, ..Config::insecure([COORDINATOR.to_owned()]) };
            stickycas_server::run(listener, config, shutdown).await.context("the server failed")?;
            Ok(())
        });
        Ok(Self { url, stop, task })
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops it and waits until it has ended.
    ///
    /// # Errors
    /// If it had failed.
    pub async fn stop(self) -> anyhow::Result<()> {
        // It is gone already if it failed, which the task tells.
        let _ = self.stop.send(());
        self.task.await.context("the server panicked")?
    }
}
