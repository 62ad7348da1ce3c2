//! The live page of a server, made from the answers that a client gets: List, Get, Watch and GetCounts. The
//! server knows nothing of the page; its viewers see the data that the credential of its client shows, and no
//! more.
//!
//! | to read about | look into |
//! | --- | --- |
//! | connections, TLS, clients that do not read | `listener`, `tls`, `stalled` |
//! | viewers: the validity of their links, and their number | `links`, `permits` |
//! | one instance as a stream: one Watch, one encoder, the same bytes for all viewers | `feeds`, `feed`, `frames`, `encoder` |
//! | its state, which no call tells each moment, and what stands for events that are not sent | `known`, `status`, `snapshot` |
//! | all instances | `table`, `overview` with `metrics` and `offences` |
//! | the seam to the page itself, crate `stickycas_page` | `source` with `instances`, `refusal` |

mod encoder;
mod feed;
mod feeds;
mod frames;
mod instances;
mod known;
mod links;
mod listener;
mod metrics;
mod offences;
mod overview;
mod permits;
mod refusal;
mod snapshot;
mod source;
mod stalled;
mod status;
mod table;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use stickycas_client::{Client, InstanceId, Phase};
use stickycas_page::Hosts;
use tokio::net::TcpListener;
use tokio::time::sleep;

pub use self::listener::serve_plain;
pub use self::permits::Bounds;

use self::links::Links;
use self::permits::Permits;
use self::source::Server;
use self::tls::PageCertificate;

/// How the page of a server is served.
#[derive(Clone, Debug, Default)]
pub struct PageOptions {
    /// Names of this machine by which browsers may ask for the page, beside its address. The first one stands
    /// in links.
    pub hosts: Vec<String>,
    /// The folder of the certificate of a page beyond this machine: `tls.crt` and `tls.key`.
    pub certificate: Option<PathBuf>,
    /// Whether viewers on this machine need a link with a token too. Those of other machines always do.
    pub needs_token: bool,
    /// Host and port of each server's listener for operators.
    pub metrics: Vec<String>,
    /// The bounds for viewers.
    pub bounds: Bounds,
}

/// Why a page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// Plain HTTP is for this machine alone.
    #[error(
        "a page beyond this machine needs a certificate: give the folder of tls.crt and tls.key, or a loopback address"
    )]
    NoCertificate,
    /// On a loopback address the page is plain.
    #[error("a page on a loopback address is plain: leave the certificate out, or give another address")]
    NoUseForCertificate,
    /// The certificate cannot be used.
    #[error("{0}")]
    Certificate(String),
    /// It has no name by which a browser could ask for it.
    #[error("a page on all addresses of this machine needs a name by which browsers ask for it: give one")]
    NoHost,
}

/// The page of a server.
#[derive(Debug)]
pub struct ServerPage {
    server: Arc<Server>,
    listener: TcpListener,
    certificate: Option<Arc<PageCertificate>>,
    hosts: Hosts,
    /// With a slash at its end.
    url: String,
}

impl ServerPage {
    /// The page of what this client may see, on this listener.
    ///
    /// # Errors
    /// If it may not be served there.
    pub fn new(client: Client, listener: TcpListener, options: PageOptions) -> Result<Self, PageError> {
        let address = listener.local_addr().map_err(|error| PageError::Certificate(error.to_string()))?;
        let is_local = address.ip().is_loopback();
        let certificate = match (is_local, &options.certificate) {
            (true, None) => None,
            (true, Some(_)) => return Err(PageError::NoUseForCertificate),
            (false, Some(folder)) => {
                Some(Arc::new(PageCertificate::read(folder).map_err(PageError::Certificate)?))
            }
            (false, None) => return Err(PageError::NoCertificate),
        };
        if address.ip().is_unspecified() && options.hosts.is_empty() {
            return Err(PageError::NoHost);
        }
        let links = (options.needs_token || !is_local).then(Links::default);
        let permits = Permits::new(options.bounds);
        Ok(Self {
            server: Arc::new(Server::new(client, links, options.metrics, permits)),
            hosts: hosts(address, &options.hosts),
            url: url(address, &options.hosts),
            listener,
            certificate,
        })
    }

    /// A link to open: to the table of all instances, or to one of them, at a phase. Where viewers need a
    /// token it is valid for an hour; the token is in the fragment, which browsers keep to themselves. The
    /// link as a whole is a secret then.
    #[must_use]
    pub fn link(&self, instance: Option<InstanceId>, phase: Option<Phase>) -> String {
        let path = instance.map_or_else(|| "/".to_owned(), |id| format!("/instance/{id}"));
        let phase = phase.filter(|_| instance.is_some()).map(|phase| format!("phase={phase}"));
        let token = self.server.links.as_ref().map(|links| format!("token={}", links.token()));
        let query: Vec<String> = phase.into_iter().chain(token).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}#{path}{mark}{}", self.url, query.join("&"))
    }

    /// Serves the page for ever. `renewed` is called each half hour if links have an end: to show a new one.
    /// Dropping the future ends all connections.
    pub async fn serve(self, renewed: impl Fn(&Self)) {
        let this = &self;
        let pages = stickycas_page::router(this.server.clone(), this.hosts.clone());
        let follow = async {
            match &this.certificate {
                Some(certificate) => certificate.follow().await,
                None => std::future::pending().await,
            }
        };
        let renew = async {
            while this.server.links.is_some() {
                sleep(links::RENEWED).await;
                renewed(this);
            }
        };
        let connections =
            listener::serve(&this.listener, this.certificate.clone(), pages, &this.server.permits);
        tokio::join!(connections, this.server.overview.run(), follow, renew);
    }
}

/// The address of a listener, as it stands in a URL.
fn literal(listener: SocketAddr) -> String {
    match listener {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// Where the page of this listener is, with these further names.
fn url(listener: SocketAddr, names: &[String]) -> String {
    let scheme = if listener.ip().is_loopback() { "http" } else { "https" };
    let host = names.first().cloned().unwrap_or_else(|| literal(listener));
    format!("{scheme}://{host}:{}/", listener.port())
}

/// The names by which the page on this listener may be asked for.
fn hosts(listener: SocketAddr, names: &[String]) -> Hosts {
    if listener.ip().is_loopback() {
        return Hosts::with(names);
    }
    let own = (!listener.ip().is_unspecified()).then(|| literal(listener));
    let all: Vec<String> = names.iter().cloned().chain(own).collect();
    Hosts::only(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_by_its_first_name_or_its_address() {
        let of = |listener: &str, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            url(listener.parse().unwrap(), &names)
        };
        assert_eq!(of("127.0.0.1:1", &[]), "http://127.0.0.1:1/");
        assert_eq!(of("[::1]:2", &[]), "http://[::1]:2/");
        assert_eq!(of("0.0.0.0:3", &["page.example", "x"]), "https://page.example:3/");
        assert_eq!(of("10.0.0.1:4", &[]), "https://10.0.0.1:4/");
    }
}
