//! `health`: asks a server whether it serves.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use http::Request;
use http::header::HOST;
use http_body_util::{BodyExt as _, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use stickycas_certificates::{Fault, FileError, SERVER_CAS, fault, identity, missing, roots};
use tokio::net::TcpStream;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::UsageError;

/// Bytes of an answer of `/readyz`, which is a line or two.
const LONGEST_BODY: usize = 16 * 1024;

#[derive(Debug, Args)]
pub(super) struct Health {
    /// The server to ask. http://127.0.0.1:7420, or https://localhost:7420 with credentials, unless given.
    #[arg(long, value_name = "URL", env = "STICKYCAS_SERVER")]
    server: Option<String>,
    /// Folder with the CAs of servers (ca.crt) and, for the listener that takes certificates, a certificate
    /// and its key (tls.crt, tls.key).
    #[arg(long, env = "STICKYCAS_CLIENT_CREDENTIALS", value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// Ask the listener of operators at this address (its /readyz), which needs no credentials, in place of
    /// --server.
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// The time that it may take to answer.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = stickycas_program::parse_duration)]
    timeout: Duration,
}

impl Health {
    /// The server's address. TLS needs credentials, and the reverse.
    fn endpoint(&self) -> anyhow::Result<Endpoint> {
        let (scheme, usual) = match self.credentials {
            None => ("http", "http://127.0.0.1:7420"),
            Some(_) => ("https", "https://localhost:7420"),
        };
        let server = self.server.as_deref().filter(|server| !server.is_empty()).unwrap_or(usual);
        let endpoint = Endpoint::from_shared(server.to_owned())
            .ok()
            .filter(|endpoint| endpoint.uri().scheme_str() == Some(scheme) && endpoint.uri().host().is_some())
            .ok_or_else(|| UsageError(format!("--server {server}: give a URL such as {usual}")))?;
        match &self.credentials {
            None => Ok(endpoint),
            Some(folder) => endpoint.tls_config(tls(folder)?).map_err(|error| {
                let folder = folder.display();
                UsageError(format!("{folder}: the credentials cannot be used: {error:?}")).into()
            }),
        }
    }

    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(operators) = self.http {
            return self.ask_operators(operators).await;
        }
        let endpoint = self.endpoint()?;
        let check = async {
            let channel = endpoint.connect().await?;
            let response = HealthClient::new(channel).check(HealthCheckRequest::default()).await?;
            anyhow::Ok(response.into_inner().status())
        };
        let uri = endpoint.uri().to_string();
        let server = uri.trim_end_matches('/');
        let checked = tokio::time::timeout(self.timeout, check)
            .await
            .with_context(|| format!("{server} did not answer in {:?}", self.timeout))?;
        let status = match checked {
            Ok(status) => status,
            Err(error) => match fault(server, self.credentials.as_deref()).await {
                Some(Fault::UnknownHost(why) | Fault::WrongServer(why)) => anyhow::bail!("{server}: {why}"),
                None => anyhow::bail!("{server} does not answer: {}", error.root_cause()),
            },
        };
        writeln!(std::io::stdout(), "{}", status.as_str_name())?;
        Ok(if status == ServingStatus::Serving { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Asks `/readyz`; the body says why not.
    async fn ask_operators(self, address: SocketAddr) -> anyhow::Result<ExitCode> {
        let ask = async {
            let stream =
                TcpStream::connect(address).await.with_context(|| format!("{address} does not answer"))?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            let connection = tokio::spawn(connection);
            let request = Request::get("/readyz").header(HOST, address.to_string()).body(String::new())?;
            let other = |_| {
                anyhow::anyhow!("{address} is no listener for operators: give the address of serve --http")
            };
            let response = sender.send_request(request).await.map_err(other)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LONGEST_BODY).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
            connection.abort();
            anyhow::Ok((status, String::from_utf8_lossy(&body).trim_end().to_owned()))
        };
        let (status, body) = tokio::time::timeout(self.timeout, ask)
            .await
            .with_context(|| format!("{address} did not answer in {:?}", self.timeout))??;
        writeln!(std::io::stdout(), "{body}")?;
        Ok(if status.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// TLS with the files of this folder. Without a certificate none is shown.
fn tls(folder: &Path) -> Result<ClientTlsConfig, UsageError> {
    let file = |name: &str| folder.join(name);
    let unusable = |error: FileError| UsageError(error.to_string());
    if let Some(missing) = missing(folder, SERVER_CAS) {
        return Err(UsageError(missing));
    }
    let cas = roots(&file(SERVER_CAS)).map_err(unusable)?;
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(cas));
    if !file("tls.crt").exists() {
        return Ok(tls);
    }
    let (certificate, key) = identity(&file("tls.crt"), &file("tls.key")).map_err(unusable)?;
    Ok(tls.identity(Identity::from_pem(certificate, key)))
}
