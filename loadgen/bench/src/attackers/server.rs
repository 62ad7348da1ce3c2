//! The server that is attacked: a program of its own, with certificates of both sides and every bound at its
//! default.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use stickycas_certificates::development::{DevelopmentCas, TokenIssuer};
use stickycas_client::{Client, Credentials};
use stickycas_server::limits::Limits;
use stickycas_server::{AuthMode, Config, CredentialFolder, Listeners, TokenConfig, listen};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::scale::server::peak_and_resident;
use crate::serve::{COORDINATOR, ServerProcess, TRUST_DOMAIN};
use crate::stopwatch::processor_time_of;

/// The principal that creates the instances of the attackers.
pub(super) const HOST: &str = "host";
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The principal of the attacker with this number, from 0.
pub(super) fn attacker(number: usize) -> String {
    format!("attacker-{}", number + 1)
}

/// The folders of credentials of a server and of its principals.
pub(super) struct AllCredentials(TempDir);

impl AllCredentials {
    /// For these principals, the coordinator and the host.
    pub(super) fn make(principals: impl IntoIterator<Item = String>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut cas = DevelopmentCas::new(TRUST_DOMAIN, LIFETIME)?;
        let server = cas.server(&[Ipv4Addr::LOCALHOST.to_string()])?;
        cas.write_server(&folder.path().join("server"), &server)?;
        TokenIssuer::new("bench")?.write_key_set(&folder.path().join("server"))?;
        for name in principals.into_iter().chain([COORDINATOR.to_owned(), HOST.to_owned()]) {
            let client = cas.client(&name)?;
            cas.write_client(&folder.path().join("clients").join(name), &client)?;
        }
        Ok(Self(folder))
    }

    /// The folder with a folder for each principal.
    pub(super) fn clients(&self) -> PathBuf {
        self.0.path().join("clients")
    }
}

/// A client of this principal, whose credentials are in its folder in `clients`. It connects when it is first
/// used.
pub(super) fn client(url: &str, clients: &Path, principal: &str) -> anyhow::Result<Client> {
    let credentials = Credentials::read(&clients.join(principal))?;
    Ok(Client::builder(url).credentials(credentials).connect_lazy()?)
}

/// A server that runs. Ends when this is dropped.
pub(super) struct AttackedServer {
    pub(super) url: String,
    /// Of its listener for tokens.
    pub(super) token_url: String,
    process: ServerProcess,
}

impl AttackedServer {
    /// Starts it on the processor of this program.
    pub(super) fn start(credentials: &AllCredentials) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve-attacked").arg("--credentials").arg(credentials.0.path().join("server"));
        // It serves until its standard input ends.
        command.stdin(Stdio::piped());
        let process = ServerProcess::start(command, |line| Some(line.to_owned()))?;
        let (url, token_url) = process.url.split_once(' ').context("a server with two listeners")?;
        Ok(Self { url: url.to_owned(), token_url: token_url.to_owned(), process })
    }

    /// The most memory that it has had, in bytes.
    pub(super) fn peak(&self) -> anyhow::Result<u64> {
        Ok(peak_and_resident(self.process.pid())?.0)
    }

    /// The processor time that it has taken.
    pub(super) fn processor_time(&self) -> anyhow::Result<Duration> {
        processor_time_of(self.process.pid())
    }
}

/// The subcommand `serve-attacked`: serves until standard input ends. Its first line has the addresses of its
/// two listeners. The server is arranged as `stickycas-server serve` is: connections are accepted on the main
/// thread, and there is a worker for each processor that the program may use.
pub(crate) fn serve(credentials: &Path) -> anyhow::Result<()> {
    let _files = stickycas_server::allow_all_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listeners = {
        let _inside = runtime.enter();
        Listeners { grpc: listen(local)?, tokens: Some(listen(local)?), http: None }
    };
    let config = Config {
        limits: Limits::default(),
        auth_mode: AuthMode::Certificates(CredentialFolder {
            path: credentials.to_owned(),
            trust_domain: TRUST_DOMAIN.to_owned(),
            allow_missing_revocation_list: false,
        }),
        tokens: Some(TokenConfig { issuer: "bench".to_owned(), audience: "bench".to_owned() }),
        ..Config::insecure([COORDINATOR.to_owned(), HOST.to_owned()])
    };
    let address = listeners.grpc.local_addr()?;
    let tokens = listeners.tokens.as_ref().context("a listener for tokens")?.local_addr()?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "https://{address} https://{tokens}")?;
    out.flush()?;
    let (stop, stopped) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ended = std::io::stdin().lock().read_to_end(&mut Vec::new());
        drop(stop);
    });
    runtime.block_on(async {
        tokio::select! {
            // An error shows in the calls of the clients, too.
            ended = stickycas_server::run(listeners, config, std::future::pending()) => ended.map(drop),
            _ = stopped => Ok(()),
        }
    })?;
    runtime.shutdown_background();
    Ok(())
}

/// Bytes of what all clients share and fill by requests and answers, and of the event logs: of the bounds of
/// a server those that do not depend on its memory or on the number of its connections.
pub(super) fn shared_bytes_bound() -> u64 {
    let limits = Limits::default();
    let bytes = 2 * limits.incomplete_request_bytes + limits.unread_answer_bytes + 2 * limits.event_bytes;
    bytes as u64
}
