//! The flags that every subcommand takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use stickycas_client::{Client, ClientBuilder, Credentials, Error, RetryPolicy};

/// Where a server listens if nothing else is said.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7420";

/// How long to wait for a server that was never reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Two seconds, by which a server that is being started is there.
    Short,
    /// As long as for any other progress.
    Long,
    /// Until it is there, and its name known.
    Endless,
}

const SHORT_PATIENCE: Duration = Duration::from_secs(2);
const GIVE_UP_AFTER: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct GlobalArgs {
    /// The server's address; of a cluster, the addresses of several of its servers, separated by commas.
    #[arg(long, global = true, env = "STICKYCAS_SERVER", default_value = DEFAULT_SERVER, value_name = "URL",
          value_delimiter = ',')]
    server: Vec<String>,
    /// Of a cluster: go to any server that is told to be the owner of an instance. Without it, only to the
    /// servers of --server and to those that one of them names as servers of the cluster.
    #[arg(long, global = true)]
    any_server: bool,
    /// As whom: a process's principal, or a coordinator's or observer's.
    #[arg(long, global = true, env = "STICKYCAS_PRINCIPAL", value_name = "NAME")]
    principal: Option<String>,
    /// Folder of the certificate that proves the principal (tls.crt, tls.key) or of a bearer token (token;
    /// those of many: tokens), and of the CAs of servers (ca.crt). The server's address begins with https://
    /// then.
    #[arg(long, global = true, env = "STICKYCAS_CLIENT_CREDENTIALS", value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// Give up after this long without any progress. Waiting for one's phase is no lack of progress.
    /// [default: 30s; 2s while no server was reached, unless the command is propose]
    #[arg(long, global = true, value_name = "DURATION", value_parser = stickycas_program::parse_duration)]
    give_up_after: Option<Duration>,
    /// Notice a peer that vanished without a word after this much silence on an open stream, and half as long
    /// again without an answer to a ping [default: 20s, or 3s with several servers].
    #[arg(long, global = true, env = "STICKYCAS_KEEP_ALIVE", value_name = "DURATION", value_parser = parse_keep_alive)]
    keep_alive: Option<Duration>,
    /// Print JSON for programs instead of text for people.
    #[arg(long, global = true, help_heading = "Output")]
    pub(super) json: bool,
    /// Tell on stderr what happens on the way; twice: everything.
    #[arg(long, short, global = true, help_heading = "Output", action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
}

impl GlobalArgs {
    /// A client of the server, or of the cluster.
    pub(super) fn cluster_client(&self, patience: Patience) -> Result<Client, Error> {
        let (first, others) = self
            .server
            .split_first()
            .ok_or_else(|| Error::InvalidArgument("--server: give the address of a server".to_owned()))?;
        let builder = others.iter().fold(Client::builder(first), ClientBuilder::server);
        let policy = if others.is_empty() { RetryPolicy::default() } else { RetryPolicy::of_cluster() };
        self.client_of(builder.any_server(self.any_server), policy, patience)
    }

    /// A client of the server at this address.
    pub(super) fn client(&self, address: &str) -> Result<Client, Error> {
        self.client_of(Client::builder(address), RetryPolicy::default(), Patience::Endless)
    }

    fn client_of(
        &self,
        builder: ClientBuilder,
        policy: RetryPolicy,
        patience: Patience,
    ) -> Result<Client, Error> {
        let builder = match (&self.credentials, &self.principal) {
            (Some(folder), principal) => {
                let builder = builder.credentials(Credentials::read(folder)?);
                principal.iter().fold(builder, ClientBuilder::principal)
            }
            (None, Some(principal)) => builder.principal(principal),
            (None, None) => {
                let why =
                    "say who you are: --credentials DIR, or --principal NAME to a server that believes names";
                return Err(Error::InvalidArgument(why.to_owned()));
            }
        };
        let give_up_after = self.give_up_after.unwrap_or(GIVE_UP_AFTER);
        let reach_within = match patience {
            Patience::Short => self.give_up_after.unwrap_or(SHORT_PATIENCE),
            Patience::Long => give_up_after,
            Patience::Endless => Duration::MAX,
        };
        let policy = RetryPolicy { give_up_after, reach_within, ..policy };
        self.keep_alive.into_iter().fold(builder.retry(policy), ClientBuilder::keep_alive).connect_lazy()
    }
}

fn parse_keep_alive(text: &str) -> Result<Duration, String> {
    match stickycas_program::parse_duration(text) {
        Ok(Duration::ZERO) => Err("give more than 0, such as 2s".to_owned()),
        Ok(keep_alive) => Ok(keep_alive),
        Err(error) => Err(format!("{error}; give a duration such as 2s")),
    }
}
