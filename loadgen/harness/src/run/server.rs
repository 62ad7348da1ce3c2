//! A server of our own, for runs without another one.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use stickycas_model::params::Params;
use stickycas_model::types::ProcessId;
use stickycas_server::limits::Limits;
use stickycas_server::{AuthMode, Config, CredentialFolder, DevelopmentCas};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::identities::Identities;
use super::server_handle::{COORDINATOR, ServerHandle, principal};

/// The most processes that get certificates of their own: each has a connection of its own then, with two open files in
/// this process, and its certificate is written to disk.
pub const MOST_CERTIFICATES: u32 = 128;

/// The trust domain of our own certificates.
const TRUST_DOMAIN: &str = "stickycas";
/// How long our own certificates are valid: longer than a run takes.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// The real server, in this process, on a free port that only this machine reaches.
#[derive(Debug)]
pub struct OwnServer {
    url: String,
    identities: Identities,
    /// Where the credentials are as long as it serves.
    _folder: Option<TempDir>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl OwnServer {
    /// Starts it. It accepts connections when this returns. It believes names.
    ///
    /// # Errors
    /// If there is no port to be had.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(Limits::default()).await
    }

    /// Starts it with these limits. It believes names.
    ///
    /// # Errors
    /// If there is no port to be had.
    pub async fn start_with(limits: Limits) -> anyhow::Result<Self> {
        Self::serve(limits, AuthMode::InsecurePrincipals, Identities::Names, None).await
    }

    /// Starts it for runs of instances with these parameters. It knows the coordinator and every process by certificates,
    /// which are made for it, unless there are more than [`MOST_CERTIFICATES`] processes: then it believes names.
    ///
    /// # Errors
    /// If there is no port to be had, or the certificates cannot be made.
    pub async fn start_for(params: &Params, limits: Limits) -> anyhow::Result<Self> {
        if params.processes() > MOST_CERTIFICATES {
            return Self::start_with(limits).await;
        }
        Self::start_certified(ProcessId::all(params.processes()).map(principal), limits).await
    }

    /// Starts it with these limits. It knows the coordinator and these principals by certificates, which are made for it.
    ///
    /// # Errors
    /// If there is no port to be had, or the certificates cannot be made.
    pub async fn start_certified(
        principals: impl IntoIterator<Item = String>,
        limits: Limits,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("no folder for credentials")?;
        let (path, principals) = (folder.path().to_owned(), principals.into_iter().collect::<Vec<_>>());
        let made = tokio::task::spawn_blocking(move || make_credentials(&path, &principals));
        made.await.context("credentials cannot be made")?.context("credentials cannot be made")?;
        let auth_mode = AuthMode::Certificates(CredentialFolder {
            path: folder.path().join("server"),
            trust_domain: TRUST_DOMAIN.to_owned(),
            allow_missing_revocation_list: false,
        });
        let identities = Identities::Folders(folder.path().join("clients"));
        Self::serve(limits, auth_mode, identities, Some(folder)).await
    }

    async fn serve(
        limits: Limits,
        auth_mode: AuthMode,
        identities: Identities,
        folder: Option<TempDir>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no free port")?;
        let scheme = if folder.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let shutdown = async { drop(stopped.await) };
            let config = Config { limits, auth_mode, ..Config::insecure([COORDINATOR.to_owned()]) };
            stickycas_server::run(listener, config, shutdown).await.context("the server failed")?;
            Ok(())
        });
        Ok(Self { url, identities, _folder: folder, stop, task })
    }

    /// Connects to it as the coordinator.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub async fn connect(&self) -> anyhow::Result<ServerHandle> {
        ServerHandle::open_with(&self.url, COORDINATOR, self.identities.clone()).await
    }

    /// How principals prove who they are to it.
    #[must_use]
    pub fn identities(&self) -> &Identities {
        &self.identities
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

/// A folder for the server, and one for each principal with its own key alone.
fn make_credentials(folder: &Path, principals: &[String]) -> anyhow::Result<()> {
    let mut cas = DevelopmentCas::new(TRUST_DOMAIN, LIFETIME)?;
    let server = cas.server(&[Ipv4Addr::LOCALHOST.to_string()])?;
    cas.write_server(&folder.join("server"), &server)?;
    for principal in principals.iter().map(String::as_str).chain([COORDINATOR]) {
        let client = cas.client(principal)?;
        cas.write_client(&folder.join("clients").join(principal), &client)?;
    }
    Ok(())
}
