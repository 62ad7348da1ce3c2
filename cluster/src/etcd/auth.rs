//! The token that goes with each request where etcd wants a user.

use tokio::sync::Mutex;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::config::{Password, User};
use super::failure::{self, Meaning};
use super::wire::AuthenticateRequest;
use super::wire::auth_client::AuthClient;
use crate::store::StoreError;

/// A user, and its token of the moment.
#[derive(Debug)]
pub(super) struct Auth {
    name: String,
    password: Password,
    token: Mutex<Token>,
}

/// What goes as metadata `token`.
#[derive(Clone, Default)]
pub(super) struct Token {
    /// Counts them; 0: none was fetched yet.
    number: u64,
    /// `None`: etcd wants none, since authentication is not enabled.
    pub(super) value: Option<MetadataValue<Ascii>>,
}

impl Auth {
    pub(super) fn new(user: &User) -> Result<Self, super::ConfigError> {
        Ok(Self { name: user.name.clone(), password: user.load()?, token: Mutex::default() })
    }

    /// The token of the moment, or a new one if etcd has refused that one. Those who come while it is fetched wait, and
    /// take it too.
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
        let request = AuthenticateRequest { name: self.name.clone(), password: self.password.0.clone() };
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
            Err(status) => match refusal(&status) {
                None => Ok(None),
                Some(error) => Err(error),
            },
        }
    }
}

/// What becomes of a request whose user was refused; `None`: it needs no user.
fn refusal(status: &Status) -> Option<StoreError> {
    match failure::meaning(status) {
        Meaning::NoAuth => None,
        Meaning::Refused => Some(StoreError::Refused(failure::describe(status))),
        _ => Some(StoreError::NotDone(failure::describe(status))),
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
