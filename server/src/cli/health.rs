//! `health`: asks a server whether it serves.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::exit::UsageError;

#[derive(Debug, Args)]
pub(super) struct Health {
    /// The server to ask.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7420", env = "STICKYCAS_SERVER")]
    server: String,
    /// How long it may take to answer.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

impl Health {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let endpoint = Endpoint::from_shared(self.server.clone())
            .ok()
            .filter(|endpoint| endpoint.uri().scheme_str() == Some("http") && endpoint.uri().host().is_some())
            .ok_or_else(|| {
                UsageError(format!("--server {}: give a URL such as http://127.0.0.1:7420", self.server))
            })?;
        let check = async {
            let channel = endpoint.connect().await?;
            let response = HealthClient::new(channel).check(HealthCheckRequest::default()).await?;
            anyhow::Ok(response.into_inner().status())
        };
        let status = tokio::time::timeout(self.timeout, check)
            .await
            .with_context(|| format!("{} did not answer in {:?}", self.server, self.timeout))??;
        let mut out = std::io::stdout();
        writeln!(out, "{}", status.as_str_name())?;
        Ok(if status == ServingStatus::Serving { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
