//! One request and its answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::auth::{Auth, Token};
use super::config::{Config, ConfigError};
use super::convert::Malformed;
use super::endpoints::{Chosen, Endpoints};
use super::failure::{self, Kind, Meaning};
use super::wire::kv_client::KvClient;
use crate::store::StoreError;

/// Bytes of an answer: etcd's own client takes as many.
const LARGEST_ANSWER: usize = i32::MAX as usize;

/// A client of etcd. Clones share connections and the token.
#[derive(Clone)]
pub struct Client {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) endpoints: Endpoints,
    auth: Auth,
    /// See [`Store::newest`](crate::store::Store::newest).
    pub(super) newest: AtomicU64,
}

impl Client {
    /// Checks the configuration and its files, and connects when something is asked for. Within a runtime of
    /// Tokio.
    ///
    /// # Errors
    /// [`ConfigError`].
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.verify()?;
        let shared = Shared {
            endpoints: Endpoints::new(config)?,
            auth: Auth::new(config),
            newest: AtomicU64::new(0),
            config: config.clone(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Connects anew with what the files hold now, from the next request on; if they cannot be read in time,
    /// as before.
    pub async fn read_again(&self) {
        let _ = timeout(self.shared.config.request_limit, self.shared.endpoints.renew_all()).await;
    }

    /// One of the endpoints of the configuration.
    pub(super) fn named(&self, endpoint: &str) -> Result<Chosen, StoreError> {
        let named = self.shared.endpoints.named(endpoint);
        named.ok_or_else(|| StoreError::Refused(format!("{endpoint} is no endpoint of the configuration")))
    }

    /// Sends a request to the endpoint of the moment, and goes on to the next one if it fails.
    pub(super) async fn call<T, A, F>(
        &self,
        kind: Kind,
        message: T,
        send: impl Fn(Channel, Request<T>) -> F,
    ) -> Result<A, StoreError>
    where
        T: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let chosen = self.shared.endpoints.choose();
        let send = |channel, mut request: Request<T>| {
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            send(channel, request)
        };
        let limit = match kind {
            // A third of a lease, and not a quarter: `etcd grpc-proxy` answers within half a second.
            Kind::KeepAlive => self.shared.config.request_limit * 4 / 3,
            Kind::Read | Kind::Write => self.shared.config.request_limit,
        };
        let answer = self.call_at(&chosen, limit, kind, message, send).await;
        if answer.as_ref().is_err_and(is_to_blame) {
            self.shared.endpoints.failed(&chosen);
        }
        answer
    }

    /// Sends a request to one endpoint. If that fails, the next one goes there on a new connection.
    pub(super) async fn call_at<T, A, F>(
        &self,
        chosen: &Chosen,
        limit: Duration,
        kind: Kind,
        message: T,
        send: impl Fn(Channel, Request<T>) -> F,
    ) -> Result<A, StoreError>
    where
        T: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let until = Instant::now() + limit;
        // Whether the last attempt may have left this process.
        let sent = AtomicBool::new(false);
        let attempts = async {
            let mut refused: Option<Token> = None;
            loop {
                let mut request = Request::new(message.clone());
                let token = self.shared.auth.token(&chosen.channel, refused.as_ref()).await?;
                token.put(&mut request);
                sent.store(true, Ordering::Relaxed);
                let status = match send(chosen.channel.clone(), request).await {
                    Ok(answer) => return Ok(answer.into_inner()),
                    Err(status) => status,
                };
                if refused.is_some() || failure::meaning(&status) != Meaning::Token {
                    return Err(failure::error(&status, kind));
                }
                sent.store(false, Ordering::Relaxed);
                refused = Some(token);
            }
        };
        let answer = timeout_at(until, attempts).await.unwrap_or_else(|_| {
            let description = format!("there was no answer within {limit:?}");
            if sent.load(Ordering::Relaxed) {
                Err(failure::error_of(Meaning::Unknown, kind, description))
            } else {
                Err(StoreError::NotDone(description))
            }
        });
        if answer.as_ref().is_err_and(is_to_blame) {
            let _ = timeout(self.shared.config.request_limit, self.shared.endpoints.replace(chosen)).await;
        }
        answer
    }
}

/// Whether an endpoint is to blame.
fn is_to_blame(error: &StoreError) -> bool {
    match error {
        StoreError::NotDone(_) | StoreError::Unknown(_) => true,
        StoreError::NoLease | StoreError::Compacted(_) | StoreError::NoSpace | StoreError::Refused(_) => {
            false
        }
    }
}

/// The error of a request whose answer cannot be read.
pub(super) fn malformed(kind: Kind) -> impl Fn(Malformed) -> StoreError {
    move |error| failure::error_of(Meaning::Unknown, kind, error.to_string())
}

pub(super) fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(LARGEST_ANSWER)
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoints", &self.shared.endpoints).finish_non_exhaustive()
    }
}
