//! `view` and `play`: a run folder, the instances of a server, or runs that a viewer makes up, on the live
//! page in a browser.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use clap::Args;
use stickycas_client::{Client, ClientBuilder, Credentials, Phase, RetryPolicy};
use stickycas_harness::exit::{Exit, UsageError};
use stickycas_harness::play;
use stickycas_harness::report::folder::Folder;
use stickycas_harness::view::{self, ViewedRun};
use stickycas_program::asked_to_stop;
use stickycas_view::{PageOptions, ServerPage, serve_plain};
use tokio::net::TcpListener;

use super::output::{show, tell, warnings_and};
use super::scenario::run_folder;
use super::small_runtime;

/// After how long without an answer viewers are told so. Their browsers ask again.
const GIVE_UP_AFTER: Duration = Duration::from_secs(5);
/// The same while there was none.
const REACH_WITHIN: Duration = Duration::from_secs(2);

/// The arguments of `view`.
#[derive(Debug, Args)]
pub(super) struct ViewArgs {
    /// The folder that a run wrote, or a folder with several of them: then the newest
    #[arg(value_name = "RUN_FOLDER", required_unless_present = "server")]
    folder: Option<PathBuf>,
    /// Show the instances of this server while they run. Of a cluster, several of its servers, separated by
    /// commas
    #[arg(long, value_name = "URL", value_delimiter = ',', conflicts_with = "folder")]
    server: Vec<String>,
    #[command(flatten)]
    of_server: ServerArgs,
    #[command(flatten)]
    at: PageArgs,
}

/// With --server: as whom, and for whom.
#[derive(Debug, Args)]
struct ServerArgs {
    /// See what this principal may see, at a server that believes names. An observer sees every instance
    #[arg(long, value_name = "NAME", requires = "server")]
    principal: Option<String>,
    /// Folder of the certificate that proves the principal (tls.crt, tls.key) or of a bearer token (token),
    /// and of the CAs of servers (ca.crt). The server's address begins with https:// then, and viewers need a
    /// link with a token
    #[arg(long, env = "STICKYCAS_CLIENT_CREDENTIALS", value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// Show the page at this address of this machine. One that other machines reach needs
    /// --listen-credentials, and viewers a link with a token
    #[arg(long, value_name = "ADDRESS", requires = "server", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    /// Folder of a server's certificate (tls.crt, tls.key), for --listen
    #[arg(long, env = "STICKYCAS_LISTEN_CREDENTIALS", value_name = "DIR")]
    listen_credentials: Option<PathBuf>,
    /// A name of this machine by which browsers may ask for the page, beside its address; the first one
    /// stands in links. May be given many times
    #[arg(long, value_name = "NAME", requires = "server")]
    host: Vec<String>,
    /// Where the server tells its metrics: host and port of --http. Of a cluster those of all its servers,
    /// separated by commas. Accesses, the time of calls, ended instances and kinds of offences are shown then
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', requires = "server")]
    metrics: Vec<String>,
    /// Link to this instance (id or name); without it, to the table of all
    #[arg(long, value_name = "ID|NAME", requires = "server")]
    instance: Option<String>,
    /// Link to this phase
    #[arg(long, value_name = "PHASE", requires = "instance", value_parser = parse_phase)]
    phase: Option<Phase>,
}

/// The arguments of `play`.
#[derive(Debug, Args)]
pub(super) struct PlayArgs {
    /// Begin with so many append rounds in the form: 1 to p
    #[arg(long, value_name = "Q")]
    append_rounds: Option<NonZeroU32>,
    #[command(flatten)]
    at: PageArgs,
}

/// Where the page is.
#[derive(Debug, Args)]
struct PageArgs {
    /// The port where the page is, of 127.0.0.1 if nothing else is said; without it, a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
}

/// Serves the page of a run, or of a server, until the program is stopped.
pub(super) fn run(args: &ViewArgs) -> anyhow::Result<Exit> {
    let Some(folder) = &args.folder else {
        // As a server logs: strangers can call, and nobody may read standard error.
        let _log = stickycas_server::log_to_stderr(&warnings_and("RUST_LOG"))?;
        return small_runtime()?.block_on(serve_server(args));
    };
    let place = run_folder(folder);
    let run = ViewedRun::new(Folder::read(&place)?.judged_again());
    let fragment = run.fragment();
    serve(view::router(run), &fragment, &args.at)
}

/// Serves the page of runs that are made up.
pub(super) fn run_play(args: &PlayArgs) -> anyhow::Result<Exit> {
    let rounds = args.append_rounds.map_or_else(String::new, |rounds| format!("?append_rounds={rounds}"));
    serve(play::router(), &format!("#/play{rounds}"), &args.at)
}

fn serve(pages: Router, fragment: &str, at: &PageArgs) -> anyhow::Result<Exit> {
    small_runtime()?.block_on(async {
        let listener = listen(IpAddr::V4(Ipv4Addr::LOCALHOST), at).await?;
        show(&format!("http://{}/{fragment}\n", listener.local_addr()?))?;
        until_stopped(serve_plain(listener, pages)).await
    })
}

async fn serve_server(args: &ViewArgs) -> anyhow::Result<Exit> {
    let ServerArgs { listen_credentials, host, metrics, instance, phase, .. } = &args.of_server;
    let client = args.client()?;
    let instance = match instance {
        Some(instance) => Some(client.find(instance.as_str()).await?),
        None => None,
    };
    let listener = listen(args.of_server.listen, &args.at).await?;
    let options = PageOptions {
        hosts: host.clone(),
        certificate: listen_credentials.clone(),
        needs_token: args.of_server.credentials.is_some(),
        metrics: metrics.clone(),
        ..PageOptions::default()
    };
    let page = ServerPage::new(client, listener, options).map_err(|error| UsageError(error.to_string()))?;
    let link = |page: &ServerPage| show(&format!("{}\n", page.link(instance, *phase)));
    link(&page)?;
    until_stopped(page.serve(|page| {
        // A user who has closed standard output wants no further link.
        let _ = link(page);
    }))
    .await
}

impl ViewArgs {
    fn client(&self) -> anyhow::Result<Client> {
        let ServerArgs { principal, credentials, .. } = &self.of_server;
        let (first, others) = self.server.split_first().context("--server: give the address of a server")?;
        let builder = others.iter().fold(Client::builder(first), ClientBuilder::server);
        let policy = if others.is_empty() { RetryPolicy::default() } else { RetryPolicy::of_cluster() };
        let policy = RetryPolicy { give_up_after: GIVE_UP_AFTER, reach_within: REACH_WITHIN, ..policy };
        let builder = match (credentials, principal) {
            (None, None) => {
                let why =
                    "say who you are: --credentials DIR, or --principal NAME to a server that believes names";
                return Err(UsageError(why.to_owned()).into());
            }
            (Some(folder), _) => builder.credentials(Credentials::read(folder)?),
            (None, Some(_)) => builder,
        };
        Ok(principal.iter().fold(builder.retry(policy), ClientBuilder::principal).connect_lazy()?)
    }
}

async fn listen(address: IpAddr, at: &PageArgs) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::from((address, at.port));
    TcpListener::bind(address).await.with_context(|| format!("no page at {address}: give another --port"))
}

async fn until_stopped(serving: impl Future<Output = ()>) -> anyhow::Result<Exit> {
    tell("the page is at this address until this program is stopped (Ctrl-C)");
    tokio::select! {
        () = serving => {}
        () = asked_to_stop() => {}
    }
    Ok(Exit::Done)
}

fn parse_phase(text: &str) -> Result<Phase, String> {
    let phase = text.parse().ok().and_then(Phase::new);
    phase.ok_or_else(|| "give a whole number from 1 on".to_owned())
}
