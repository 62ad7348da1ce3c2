//! The live page: a listener of its own, on which browsers see the instances as they go on (SPEC F13).
//!
//! It shows what Watch shows, to whom Watch shows it, and takes no command. What it costs is bounded apart from everything
//! else: connections, viewers, viewed instances and the bytes of their frames have limits of their own, and nothing is
//! charged to the accounts of principals that play.
//!
//! | to read about | look into |
//! | --- | --- |
//! | connections, TLS, clients that do not read | [`listener`], [`stalled`] |
//! | who looks, and for how long | [`viewer`], [`permits`] |
//! | one instance as a stream: one encoder, the same bytes for all viewers | [`feeds`], [`feed`], [`encoder`], [`snapshot`] |
//! | all instances | [`table`], [`overview`] |
//! | what is too much for a thread that serves | [`heavy`] |
//! | the seam to the page itself, crate `stickycas_page` | [`source`] |

mod encoder;
mod feed;
mod feeds;
mod listener;
mod overview;
mod permits;
mod snapshot;
mod source;
mod stalled;
mod table;
mod viewer;

use std::net::SocketAddr;
use std::sync::Arc;

use stickycas_page::Hosts;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::auth::CredentialStore;
use crate::heavy::Heavy;
use crate::instances::Instances;
use crate::limits::Limits;
use crate::quota::Principals;
use crate::service::{PageTokens, Service};

pub(crate) use permits::{Bound, Permits};

use feeds::Feeds;
use overview::Overview;

/// What the page shows, and to how many.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) permits: Arc<Permits>,
    instances: Arc<Instances>,
    /// `None`: nobody proves anything, and everybody may look.
    credentials: Option<Arc<CredentialStore>>,
    service: Service,
    page_tokens: PageTokens,
    /// Cancelled when the server stops.
    drain: CancellationToken,
    feeds: Arc<Feeds>,
    overview: Arc<Overview>,
    /// Explanations take time and memory: few at a time.
    explains: Heavy,
}

/// Explanations that are made at a time.
const EXPLAINS: usize = 2;

/// What the page in use takes, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageUsage {
    pub(crate) connections: usize,
    /// Those of the address with most of them.
    pub(crate) of_one_address: usize,
    pub(crate) viewers: usize,
    /// Those of the principal with most of them.
    pub(crate) of_one_principal: usize,
    /// Instances that are looked at.
    pub(crate) instances: usize,
    /// Bytes of frames of the instance with most of them.
    pub(crate) frame_bytes: usize,
    /// Frames that were encoded since the server started.
    pub(crate) frames: u64,
}

/// Where a page is, as far as the server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageAddress {
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// Empty: a name of this machine that nobody has told.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl PageAddress {
    /// Of a listener here, with these further names.
    pub(crate) fn of(listener: SocketAddr, names: &[String]) -> Self {
        let scheme = if listener.ip().is_loopback() { "http" } else { "https" };
        let host = match names.first() {
            Some(name) => name.clone(),
            None if listener.ip().is_unspecified() => String::new(),
            None => literal(listener),
        };
        Self { scheme, host, port: listener.port() }
    }
}

/// The address of a listener, as it stands in a URL.
fn literal(listener: SocketAddr) -> String {
    match listener {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// The names by which a page on this listener may be asked for.
fn hosts(listener: SocketAddr, names: &[String]) -> Hosts {
    if listener.ip().is_loopback() {
        return Hosts::with(names);
    }
    let own = (!listener.ip().is_unspecified()).then(|| literal(listener));
    let all: Vec<String> = names.iter().cloned().chain(own).collect();
    Hosts::only(&all)
}

impl Page {
    pub(crate) fn new(
        instances: &Arc<Instances>,
        credentials: Option<Arc<CredentialStore>>,
        service: Service,
        principals: Principals,
        drain: CancellationToken,
        limits: &Limits,
    ) -> Arc<Self> {
        let permits = Arc::new(Permits::new(limits));
        Arc::new(Self {
            feeds: Feeds::new(limits, permits.clone()),
            overview: Overview::new(instances.clone(), principals, permits.clone()),
            permits,
            instances: instances.clone(),
            credentials,
            service,
            page_tokens: PageTokens::new(),
            drain,
            explains: Heavy::new(EXPLAINS),
        })
    }

    /// Serves the page on this listener for ever; by TLS unless the address is a loopback address. Dropping the future
    /// ends all connections.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener, names: &[String]) {
        let Ok(address) = listener.local_addr() else { return };
        let tls = if address.ip().is_loopback() { None } else { self.credentials.clone() };
        let router = stickycas_page::router(self.clone(), hosts(address, names));
        tokio::join!(listener::serve(listener, tls, router, &self.permits), self.overview.run(),);
    }

    /// What is in use.
    pub(crate) fn usage(&self) -> PageUsage {
        let (instances, frame_bytes) = self.feeds.usage();
        PageUsage { instances, frame_bytes, frames: self.feeds.frames(), ..self.permits.usage() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_by_its_first_name_or_its_address() {
        let of = |listener: &str, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            PageAddress::of(listener.parse().unwrap(), &names)
        };
        let address = |scheme, host: &str, port| PageAddress { scheme, host: host.to_owned(), port };
        assert_eq!(of("127.0.0.1:1", &[]), address("http", "127.0.0.1", 1));
        assert_eq!(of("[::1]:2", &[]), address("http", "[::1]", 2));
        assert_eq!(of("0.0.0.0:3", &["page.example", "x"]), address("https", "page.example", 3));
        assert_eq!(of("0.0.0.0:3", &[]), address("https", "", 3));
        assert_eq!(of("10.0.0.1:4", &[]), address("https", "10.0.0.1", 4));
    }
}
