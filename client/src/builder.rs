//! [`ClientBuilder`]: the settings of a client, checked before the first connection.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::client::Client;
use crate::connection::{ClientConfig, Connection, DEFAULT_KEEP_ALIVE};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::retry::{Backoff, RetryPolicy};

/// The settings of a [`Client`]. Made by [`Client::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before it connects"]
pub struct ClientBuilder {
    url: String,
    principal: String,
    credentials: Option<Credentials>,
    retry: RetryPolicy,
    keep_alive: Duration,
}

impl Client {
    /// A client of the server at this address (`http://host:port`); name its principal next.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), stickycas_client::Error> {
    /// let client = stickycas_client::Client::builder("http://127.0.0.1:7420").principal("ann").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(url.into())
    }
}

impl ClientBuilder {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            principal: String::new(),
            credentials: None,
            retry: RetryPolicy::default(),
            keep_alive: DEFAULT_KEEP_ALIVE,
        }
    }

    /// The principal that every request names (SPEC section 10): 1 to 128 letters, digits, `.`, `_` or `-`. Required without [credentials](Self::credentials).
    pub fn principal(mut self, principal: impl Into<String>) -> Self {
        self.principal = principal.into();
        self
    }

    /// The certificate or the token that names the principal, and the CAs of servers that are trusted. The address begins with
    /// `https://` then. With credentials of many principals, name [the principal](Self::principal) too.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// The retries of the client, [`RetryPolicy::default`] without it.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// The silence on an open stream after which the client pings the server; the connection counts as broken
    /// after half as long again without an answer. More than 0; [`DEFAULT_KEEP_ALIVE`] without it.
    pub fn keep_alive(mut self, interval: Duration) -> Self {
        self.keep_alive = interval;
        self
    }

    /// Connects to the server, with retries.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a setting is not well formed; [`Error::GaveUp`] if there is no connection
    /// after all retries.
    pub async fn connect(self) -> Result<Client, Error> {
        let config = self.config()?;
        let mut backoff = Backoff::new(self.retry);
        loop {
            match Connection::open(config.clone()).await {
                Ok(connection) => return Ok(Client::on(connection, self.retry)),
                Err(error) => tokio::time::sleep(backoff.failed(error)?).await,
            }
        }
    }

    /// A client that connects when it is first used. Needs a tokio runtime around it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a setting is not well formed.
    pub fn connect_lazy(self) -> Result<Client, Error> {
        let config = self.config()?;
        Ok(Client::on(Connection::lazy(config), self.retry))
    }

    /// The same over byte streams that `connect` opens, in place of TCP: a Unix socket, a tunnel, a simulated network. It
    /// is called for the first connection, and again after each that broke.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a setting is not well formed.
    pub fn connect_lazy_over<F, T>(self, connect: impl FnMut() -> F + Send + 'static) -> Result<Client, Error>
    where
        F: Future<Output = io::Result<T>> + Send + 'static,
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let config = self.config()?;
        Ok(Client::on(Connection::lazy_over(config, connect), self.retry))
    }

    fn config(&self) -> Result<ClientConfig, Error> {
        if self.keep_alive.is_zero() {
            return Err(Error::InvalidArgument("keep-alive of 0: give more, such as 2 s".to_owned()));
        }
        let config = match &self.credentials {
            None => ClientConfig::new(&self.url, &self.principal)?,
            Some(credentials) => {
                let credentials = match &*self.principal {
                    "" if credentials.are_of_many() => {
                        let why = "the credentials are those of many: say which principal it is";
                        return Err(Error::InvalidArgument(why.to_owned()));
                    }
                    "" => credentials.clone(),
                    principal => credentials.of(principal)?,
                };
                ClientConfig::with_credentials(&self.url, &credentials)?
            }
        };
        Ok(config.with_keep_alive(self.keep_alive))
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
        assert!(
            refused(builder().principal("ann").keep_alive(Duration::ZERO)).starts_with("keep-alive of 0")
        );
    }
}
