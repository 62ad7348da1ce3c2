//! A server of our own, for runs without another one.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use stickycas_certificates::development::{DevelopmentCas, TokenIssuer};
use stickycas_model::params::Params;
use stickycas_model::types::ProcessId;
use stickycas_server::limits::Limits;
use stickycas_server::{AuthMode, Config, CredentialFolder, Listeners, TokenConfig};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::identities::Identities;
use super::server_handle::{COORDINATOR, ServerHandle, principal};

/// The most processes that get certificates of their own: each has a connection of its own then, with two
/// open files in this process, and its certificate is written to disk. More of them have tokens, and share
/// connections.
pub const MOST_CERTIFICATES: u32 = 128;

/// The trust domain of our own certificates.
const TRUST_DOMAIN: &str = "stickycas";
/// The issuer and the audience of our own tokens.
const TOKEN_CLAIM: &str = "stickycas";
/// How long our own certificates are valid: longer than a run takes.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// The real server, in this process, on free ports that only this machine reaches.
#[derive(Debug)]
pub struct OwnServer {
    url: String,
    /// Its listener for tokens, unless it believes names.
    token_url: Option<String>,
    identities: Identities,
    /// Where the credentials are as long as it serves.
    _folder: Option<TempDir>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

/// The bounds of a server that a run may attack: the usual ones, but for resets. A flood of them shows if it
/// exceeds the rate, and a machine on which much else runs must be fast enough for that.
#[must_use]
pub fn attacked_limits() -> Limits {
    Limits { resets_per_second: 512, ..Limits::default() }
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
        let listener = bind().await?;
        let url = format!("http://{}", listener.local_addr()?);
        let config = Config { limits, ..Config::insecure([COORDINATOR.to_owned()]) };
        Ok(Self::serve(listener.into(), config, (url, None), Identities::Names, None))
    }

    /// Starts it for runs of instances with these parameters. It knows the coordinator and every process by
    /// certificates, which are made for it, or by tokens, if there are more than [`MOST_CERTIFICATES`]
    /// processes.
    ///
    /// # Errors
    /// If there is no port to be had, or the credentials cannot be made.
    pub async fn start_for(params: &Params, limits: Limits) -> anyhow::Result<Self> {
        let principals = ProcessId::all(params.processes()).map(principal);
        let form = if params.processes() > MOST_CERTIFICATES { Form::Tokens } else { Form::Certificates };
        Self::start_knowing(form, principals, limits).await
    }

    /// Starts it with these limits. It knows the coordinator and these principals in this form, by what is
    /// made for it.
    ///
    /// # Errors
    /// If there is no port to be had, or the credentials cannot be made.
    pub async fn start_knowing(
        form: Form,
        principals: impl IntoIterator<Item = String>,
        limits: Limits,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("no folder for credentials")?;
        let path = folder.path().to_owned();
        let principals: Vec<String> = principals.into_iter().chain([COORDINATOR.to_owned()]).collect();
        let made = tokio::task::spawn_blocking(move || make_credentials(&path, &principals, form));
        let identities = made.await.context("credentials cannot be made")?;
        let identities = identities.context("credentials cannot be made")?;
        let auth_mode = AuthMode::Certificates(CredentialFolder {
            path: folder.path().join("server"),
            trust_domain: TRUST_DOMAIN.to_owned(),
            allow_missing_revocation_list: false,
        });
        let tokens = TokenConfig { issuer: TOKEN_CLAIM.to_owned(), audience: TOKEN_CLAIM.to_owned() };
        let config =
            Config { limits, auth_mode, tokens: Some(tokens), ..Config::insecure([COORDINATOR.to_owned()]) };
        let (grpc, tokens) = (bind().await?, bind().await?);
        let [url, token_url] = [grpc.local_addr()?, tokens.local_addr()?].map(|it| format!("https://{it}"));
        let url = if form == Form::Tokens { token_url.clone() } else { url };
        let listeners = Listeners { tokens: Some(tokens), ..Listeners::from(grpc) };
        Ok(Self::serve(listeners, config, (url, Some(token_url)), identities, Some(folder)))
    }

    fn serve(
        listeners: Listeners,
        config: Config,
        (url, token_url): (String, Option<String>),
        identities: Identities,
        folder: Option<TempDir>,
    ) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let shutdown = async { drop(stopped.await) };
            stickycas_server::run(listeners, config, shutdown).await.context("the server failed")?;
            Ok(())
        });
        Self { url, token_url, identities, _folder: folder, stop, task }
    }

    /// Connects to it as the coordinator.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub async fn connect(&self) -> anyhow::Result<ServerHandle> {
        let handle = ServerHandle::open_with(&self.url, COORDINATOR, self.identities.clone()).await?;
        Ok(handle.with_token_url(self.token_url.clone()))
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

    /// The address of its listener for tokens, unless it believes names.
    #[must_use]
    pub fn token_url(&self) -> Option<&str> {
        self.token_url.as_deref()
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

/// How principals prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By certificates. The server takes tokens too, and nobody has any.
    Certificates,
    /// By tokens: any number of principals can share a connection.
    Tokens,
}

async fn bind() -> anyhow::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no free port")
}

/// A folder for the server; and one for each principal with its own key alone, or one with the tokens of all.
fn make_credentials(folder: &Path, principals: &[String], form: Form) -> anyhow::Result<Identities> {
    let mut cas = DevelopmentCas::new(TRUST_DOMAIN, LIFETIME)?;
    let server = cas.server(&[Ipv4Addr::LOCALHOST.to_string()])?;
    cas.write_server(&folder.join("server"), &server)?;
    let issuer = TokenIssuer::new("development")?;
    issuer.write_key_set(&folder.join("server"))?;
    let clients = folder.join("clients");
    match form {
        Form::Certificates => {
            for principal in principals {
                let client = cas.client(principal)?;
                cas.write_client(&clients.join(principal), &client)?;
            }
        }
        Form::Tokens => {
            let tokens = principals.iter().map(|principal| {
                Ok((principal.as_str(), issuer.token(principal, TOKEN_CLAIM, TOKEN_CLAIM, LIFETIME)?))
            });
            cas.write_token_list(&clients, tokens)?;
        }
    }
    Ok(Identities::read(&clients)?)
}

#[cfg(test)]
mod tests {
    use stickycas_model::byzantine::WireAttack;

    use super::*;

    #[test]
    fn a_flood_of_resets_shows_where_few_are_read_in_a_second() {
        /// Resets that a machine with much else to do reads in a second.
        const READ: u32 = 1_000;
        let flood: WireAttack = "reset-flood".parse().unwrap();
        let allowed = attacked_limits().resets_per_second * (1 + flood.count() / READ);
        assert!(flood.count() > allowed, "{flood} is within the {allowed} that are allowed meanwhile");
    }
}
