//! The token that goes with each request where etcd wants a user.

use tokio::sync::Mutex;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;

use super::config::{Config, Reader};
use super::failure::{self, Meaning};
use super::wire::AuthenticateRequest;
use super::wire::auth_client::AuthClient;
use crate::store::StoreError;

/// The token of the moment of the user, if there is one. Its name and password are read for each new token.
#[derive(Debug)]
pub(super) struct Auth {
    reader: Reader,
    token: Mutex<Token>,
}

/// The metadata `token` of requests.
#[derive(Clone, Default)]
pub(super) struct Token {
    /// Counts them; 0: none was fetched yet.
    number: u64,
    /// `None`: etcd wants none, since authentication is not enabled.
    pub(super) value: Option<MetadataValue<Ascii>>,
}

impl Auth {
    pub(super) fn new(config: &Config) -> Self {
        Self { reader: Reader::new(config), token: Mutex::default() }
    }

    /// The token of the moment, or a new one if etcd has refused that one. Those who come while it is fetched
    /// wait, and take it too.
    ///
    /// # Errors
    /// None was given. Then the request was not sent: never [`StoreError::Unknown`].
    pub(super) async fn token(
        &self,
        channel: &Channel,
        refused: Option<&Token>,
    ) -> Result<Token, StoreError> {
        let mut token = self.token.lock().await;
        if token.number == 0 || refused.is_some_and(|refused| refused.number == token.number) {
            let value = self.fetch(channel).await?;
            *token = Token { number: token.number + 1, value };
        }
        Ok(token.clone())
    }

    async fn fetch(&self, channel: &Channel) -> Result<Option<MetadataValue<Ascii>>, StoreError> {
        // The user as the files name it now, and its password.
        let load = |config: Config| {
            config.user.map(|user| user.load().map(|password| (user.name, password))).transpose()
        };
        let user = self.reader.read(load).await.map_err(|error| StoreError::NotDone(error.to_string()))?;
        let Some((name, password)) = user else { return Ok(None) };
        let request = AuthenticateRequest { name: name.clone(), password: password.0 };
        match AuthClient::new(channel.clone()).authenticate(request).await {
            Ok(answer) => {
                let mut value: MetadataValue<Ascii> = answer
                    .into_inner()
                    .token
                    .parse()
                    .map_err(|_| StoreError::NotDone("the token is no text".to_owned()))?;
                value.set_sensitive(true);
                Ok(Some(value))
            }
            Err(status) if failure::meaning(&status) == Meaning::NoAuth => Ok(None),
            // Its password may be renewed in the file yet.
            Err(status) if failure::meaning(&status) == Meaning::Refused => {
                Err(StoreError::NotDone(format!(
                    "etcd does not take the user {name:?} with its password: {}",
                    failure::describe(&status)
                )))
            }
            Err(status) => Err(StoreError::NotDone(failure::describe(&status))),
        }
    }
}

impl Token {
    /// Puts it beside a request.
    pub(super) fn put<T>(&self, request: &mut Request<T>) {
        if let Some(value) = &self.value {
            request.metadata_mut().insert("token", value.clone());
        }
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token {}", self.number)
    }
}
