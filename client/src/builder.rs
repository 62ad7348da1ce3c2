//! [`ClientBuilder`]: the settings of a client, checked before the first connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::client::Client;
use crate::cluster::Cluster;
use crate::connection::{
    CONNECT_TIMEOUT, ClientConfig, Connection, DEFAULT_KEEP_ALIVE, KEEP_ALIVE_OF_CLUSTER,
};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::retry::{Backoff, RetryPolicy};

/// Pings come no faster than this for the sake of a short time to give up after: servers punish that.
const LEAST_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// The settings of a [`Client`]. Made by [`Client::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before it connects"]
pub struct ClientBuilder {
    /// Never empty.
    urls: Vec<String>,
    any_server: bool,
    principal: String,
    credentials: Option<Credentials>,
    /// `None`: the default for so many servers.
    retry: Option<RetryPolicy>,
    /// `None`: the default for so many servers.
    keep_alive: Option<Duration>,
}

impl ClientBuilder {
    pub(crate) fn new(url: String) -> Self {
        Self {
            urls: vec![url],
            any_server: false,
            principal: String::new(),
            credentials: None,
            retry: None,
            keep_alive: None,
        }
    }

    /// One more server of the same cluster, for the same credentials. A client needs one that is up; the
    /// others are found by [GetCluster](Client::cluster).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), stickycas_client::Error> {
    /// let client = stickycas_client::Client::builder("http://cas-1:7420").server("http://cas-2:7420").principal("ann");
    /// let client = client.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn server(mut self, url: impl Into<String>) -> Self {
        self.urls.push(url.into());
        self
    }

    /// Whether to go to any server that is told to be the owner of an instance. Without it, only to the given
    /// ones and to those that one of them names in GetCluster: a server that is wrong cannot send this client
    /// anywhere else.
    pub fn any_server(mut self, any: bool) -> Self {
        self.any_server = any;
        self
    }

    /// The principal that every request names (SPEC section 10): 1 to 128 letters, digits, `.`, `_` or `-`.
    /// Required without [credentials](Self::credentials).
    pub fn principal(mut self, principal: impl Into<String>) -> Self {
        self.principal = principal.into();
        self
    }

    /// The certificate or the token that names the principal, and the CAs of servers that are trusted. The
    /// address begins with `https://` then. With credentials of many principals, name [the
    /// principal](Self::principal) too.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// The retries of the client. Without it [`RetryPolicy::default`], or with several servers
    /// [`RetryPolicy::of_cluster`].
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// The silence on an open stream after which the client pings the server; the connection counts as broken
    /// after half as long again without an answer. More than 0. Without it [`DEFAULT_KEEP_ALIVE`], or with
    /// several servers [`KEEP_ALIVE_OF_CLUSTER`].
    pub fn keep_alive(mut self, interval: Duration) -> Self {
        self.keep_alive = Some(interval);
        self
    }

    /// Connects to the server, or to one of several, with retries.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a setting is not well formed; [`Error::GaveUp`] if there is no
    /// connection after all retries.
    pub async fn connect(self) -> Result<Client, Error> {
        let configs = self.configs()?;
        let mut backoff = Backoff::new(self.policy(), Arc::default());
        loop {
            backoff.begin();
            let (mut failed, mut faults) = (None, 0);
            for config in &configs {
                let open = Connection::open(config.clone());
                let opened = timeout(backoff.limit(CONNECT_TIMEOUT, configs.len() > 1), open).await;
                match opened.unwrap_or_else(|_| {
                    Err(Error::unreachable(config.server(), "no connection in time", false))
                }) {
                    Ok(connection) => return Ok(self.client(connection, &configs)),
                    Err(error) => {
                        let fault = config.fault().await;
                        faults += usize::from(fault.is_some());
                        let fault =
                            fault.map(|fault| Error::faulty(config.server(), fault, backoff.names_come()));
                        failed = Some(fault.unwrap_or(error));
                    }
                }
            }
            let mut error = failed.expect("a server is given");
            if faults < configs.len() {
                error = error.of_one_of_several();
            }
            tokio::time::sleep(backoff.failed(error)?).await;
        }
    }

    /// A client that connects when it is first used. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a setting is not well formed.
    pub fn connect_lazy(self) -> Result<Client, Error> {
        let configs = self.configs()?;
        Ok(self.client(Connection::lazy(configs[0].clone()), &configs))
    }

    /// The same over byte streams that `connect` opens, in place of TCP: Unix sockets, tunnels, a simulated
    /// network. It is given the address of a server, host and port, and called for the first connection to
    /// it, and again after each that broke.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a setting is not well formed.
    pub fn connect_lazy_over<F, T>(
        self,
        connect: impl Fn(String) -> F + Clone + Send + Sync + 'static,
    ) -> Result<Client, Error>
    where
        F: Future<Output = io::Result<T>> + Send + 'static,
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let configs = self.configs()?;
        Ok(self.client(Connection::lazy_over(configs[0].clone(), connect), &configs))
    }

    fn client(&self, connection: Connection, configs: &[ClientConfig]) -> Client {
        let given = configs.iter().map(ClientConfig::address).collect();
        Client::of(Cluster::new(connection, given, self.any_server), self.policy())
    }

    fn policy(&self) -> RetryPolicy {
        let several = self.urls.len() > 1;
        self.retry.unwrap_or_else(|| if several { RetryPolicy::of_cluster() } else { RetryPolicy::default() })
    }

    /// One for each server.
    fn configs(&self) -> Result<Vec<ClientConfig>, Error> {
        self.urls.iter().map(|url| self.config(url)).collect()
    }

    fn config(&self, url: &str) -> Result<ClientConfig, Error> {
        let several = self.urls.len() > 1;
        let keep_alive =
            self.keep_alive.unwrap_or(if several { KEEP_ALIVE_OF_CLUSTER } else { DEFAULT_KEEP_ALIVE });
        if keep_alive.is_zero() {
            return Err(Error::InvalidArgument("keep-alive of 0: give more, such as 2 s".to_owned()));
        }
        let credentials = match (&self.credentials, &*self.principal) {
            (Some(credentials), "") if credentials.are_of_many() => {
                let why = "the credentials are those of many: say which principal it is";
                return Err(Error::InvalidArgument(why.to_owned()));
            }
            (Some(credentials), "") => Some(credentials.clone()),
            (Some(credentials), principal) => Some(credentials.of(principal)?),
            (None, _) => None,
        };
        let principal = credentials.as_ref().map_or(&*self.principal, Credentials::principal);
        let config = ClientConfig::to(url, principal, credentials.as_ref())?;
        // Silence is noticed, a ping and half as long again, within the time after which the user wants to
        // give up.
        let noticed = (self.policy().give_up_after / 3 * 2).max(LEAST_KEEP_ALIVE);
        Ok(config.with_keep_alive(keep_alive.min(noticed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_setting_that_is_wrong_is_refused_before_connecting() {
        let refused = |builder: ClientBuilder| builder.connect_lazy().unwrap_err().to_string();
        let builder = || Client::builder("http://127.0.0.1:7420");
        assert!(builder().principal("ann").connect_lazy().is_ok());
        assert!(refused(builder()).starts_with("principal \"\": give 1 to 128 letters"));
        assert!(refused(Client::builder("nowhere").principal("ann")).starts_with("server \"nowhere\""));
        let several = builder().principal("ann").server("https://127.0.0.1:7421");
        assert!(refused(several).starts_with("server \"https://127.0.0.1:7421\""), "each server is checked");
        assert!(
            refused(builder().principal("ann").keep_alive(Duration::ZERO)).starts_with("keep-alive of 0")
        );
    }

    #[test]
    fn with_several_servers_a_silent_one_is_noticed_sooner() {
        let one = || Client::builder("http://127.0.0.1:7420").principal("ann");
        let several = || one().server("http://127.0.0.1:7421");
        let intervals = |builder: ClientBuilder| {
            builder.configs().unwrap().iter().map(ClientConfig::keep_alive).collect::<Vec<_>>()
        };
        assert_eq!(intervals(one()), [DEFAULT_KEEP_ALIVE]);
        assert_eq!(intervals(several()), [KEEP_ALIVE_OF_CLUSTER; 2]);
        let chosen = Duration::from_secs(7);
        assert_eq!(intervals(several().keep_alive(chosen)), [chosen; 2]);
    }
}
