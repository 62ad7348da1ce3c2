//! `serve`: the server as a program.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio_util::task::AbortOnDropHandle;

use super::{LOG_FAILED, Signals};
use crate::auth::CredentialStore;
use crate::logging::LineForm;
use crate::settings::{Effective, Origin, Settings};
use crate::storage::Storage;
use crate::transport::listen;
use crate::{AuthMode, Listeners, PRINCIPAL_KEY, ServerParts, Stopped, logging, open_files, serve_in};

/// Serves until it is told to stop.
pub(super) async fn serve(
    effective: Effective,
    (signals, hang_ups): (Signals, Signal),
) -> anyhow::Result<ExitCode> {
    let asked_for = *effective.origin("http") != Origin::Default;
    let (mut settings, memory) = (effective.settings, effective.memory);
    // Declared first, so that it writes the last lines of the log when everything else has ended.
    let Settings { log, log_json, log_lines_per_second, otlp_endpoint, .. } = &settings;
    let form = if *log_json { LineForm::Json } else { LineForm::Text };
    let _log = logging::init(log, form, *log_lines_per_second, otlp_endpoint.as_deref())?;
    memory.adopt();
    open_files::fit_connections(&mut settings.limits, open_files::allow_all_files());
    let (listen_on, config) = (settings.clone(), settings.into_config()?);
    // Nothing listens if the folder of the log or the credentials cannot be used.
    let storage = Storage::new(&config)?;
    let credentials = CredentialStore::of(&config)?;
    let listeners = listeners(&listen_on, asked_for)?;
    let address = listeners.grpc.local_addr().context("the listener has no address")?;
    let operators = listeners.http.as_ref().map(TcpListener::local_addr).transpose()?;
    match &config.auth_mode {
        AuthMode::Certificates(folder) => {
            tracing::info!(credentials = %folder.path.display(), "callers are known by their certificates");
        }
        AuthMode::InsecurePrincipals => tracing::warn!(
            "principals are not checked: a caller is the principal that it names in {PRINCIPAL_KEY}"
        ),
    }
    tracing::info!(%address, version = stickycas_program::VERSION, "serving");
    if let Some(address) = operators {
        tracing::info!(%address, "serving operators: /livez, /readyz, /metrics");
    }
    let tokens = listeners.tokens.as_ref().map(TcpListener::local_addr).transpose()?;
    if let Some(address) = tokens {
        tracing::info!(%address, "serving callers that are known by their tokens");
    }
    if let Err(error) = announce(address, tokens, operators.filter(|_| asked_for)) {
        // The program that reads the output may have ended, as `head` does.
        tracing::warn!(%error, "standard output does not take the addresses");
    }

    let (first, second) = signals.split();
    let (store, logs) = (credentials.clone(), storage.clone());
    let reload = AbortOnDropHandle::new(tokio::spawn(reload_on(hang_ups, store, logs)));
    match (&config.cluster, &config.data) {
        (Some(_), _) => tracing::info!("the logs are kept in etcd"),
        (None, Some(folder)) => tracing::info!(folder = %folder.display(), "the log is kept on disk"),
        (None, None) => tracing::info!("in memory: every instance is lost when the server stops"),
    }
    let Listeners { grpc, tokens, http } = listeners;
    let serving = serve_in(ServerParts { grpc, tokens, http, credentials, storage }, config, first);
    let served = tokio::select! {
        stopped = serving => Ok(match stopped? {
            Stopped::Clean => ExitCode::SUCCESS,
            Stopped::Forced => ExitCode::FAILURE,
            Stopped::LogFailed => LOG_FAILED.into(),
        }),
        () = second => Ok(ExitCode::FAILURE),
    };
    // It has the log too, which is closed in order when nobody has it any more.
    reload.abort();
    let _ = reload.await;
    served
}

/// Listens for clients, and for operators unless that is off. `asked_for`: the address for operators is not
/// only the default, so the server must not go on without it.
fn listeners(settings: &Settings, asked_for: bool) -> anyhow::Result<Listeners> {
    let bind = |address: SocketAddr| listen(address).with_context(|| format!("cannot listen on {address}"));
    let grpc = bind(settings.listen)?;
    let http = match settings.http {
        None => None,
        Some(address) => match bind(address) {
            Ok(listener) => Some(listener),
            Err(error) if asked_for => return Err(error),
            Err(error) => {
                tracing::warn!("nothing for operators: {error:#}; give --http another address, or --no-http");
                None
            }
        },
    };
    let tokens = match settings.token_listen {
        None => None,
        Some(address) => Some(bind(address)?),
    };
    Ok(Listeners { grpc, tokens, http })
}

/// Has the credentials read again on each SIGHUP, for ever.
async fn reload_on(mut hang_ups: Signal, credentials: Option<Arc<CredentialStore>>, storage: Storage) {
    while hang_ups.recv().await.is_some() {
        match &credentials {
            Some(store) => store.reload_now(),
            None => tracing::info!("SIGHUP: there are no credentials to be read again"),
        }
        storage.read_credentials_again().await;
    }
}

/// Prints the addresses on standard output, for programs that start the server on port 0.
fn announce(
    address: SocketAddr,
    tokens: Option<SocketAddr>,
    http: Option<SocketAddr>,
) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "listening on {address}")?;
    if let Some(address) = tokens {
        writeln!(out, "tokens on {address}")?;
    }
    if let Some(address) = http {
        writeln!(out, "http on {address}")?;
    }
    out.flush()
}
