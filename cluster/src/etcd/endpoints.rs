//! A channel to each endpoint, and which one is asked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use super::config::{Config, ConfigError};

/// The time without a byte after which a connection with open requests is asked for a sign of life. A member ends
/// connections that ask more often than every 5 s (`--grpc-keepalive-min-time`).
const PING_AFTER: Duration = Duration::from_secs(10);
/// The time for that sign; then the connection is closed, and the next request opens another one.
const PING_LIMIT: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Endpoints {
    list: Vec<(String, Channel)>,
    /// The one that is asked.
    current: AtomicUsize,
}

/// The one that a request goes to.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    index: usize,
    pub(super) channel: Channel,
}

impl Endpoints {
    pub(super) fn new(config: &Config) -> Result<Self, ConfigError> {
        let tls = config.tls.as_ref().map(super::Tls::load).transpose()?;
        let list = config.endpoints.iter().map(|url| {
            let refuse =
                |reason: &str| ConfigError::Endpoint { endpoint: url.clone(), reason: reason.to_owned() };
            let endpoint = Endpoint::from_shared(url.clone()).map_err(|error| refuse(&error.to_string()))?;
            let uri = endpoint.uri();
            match uri.scheme_str() {
                Some("https") if tls.is_none() => {
                    return Err(refuse("https needs certificates of authorities"));
                }
                Some("http") if tls.is_some() => return Err(refuse("http, though there are keys for https")),
                Some("https" | "http") => {}
                _ => return Err(refuse("it begins neither with https:// nor with http://")),
            }
            if uri.host().is_none_or(str::is_empty) || !matches!(uri.path(), "" | "/") {
                return Err(refuse("it is not SCHEME://HOST:PORT"));
            }
            let mut endpoint = endpoint
                .connect_timeout(config.connect_limit)
                .http2_keep_alive_interval(PING_AFTER)
                .keep_alive_timeout(PING_LIMIT);
            if let Some(tls) = tls.clone() {
                endpoint = endpoint.tls_config(tls).map_err(|error| refuse(&with_causes(&error)))?;
            }
            Ok((url.clone(), endpoint.connect_lazy()))
        });
        let list: Vec<_> = list.collect::<Result<_, _>>()?;
        // Many servers with one configuration spread over the members.
        let first = config.first.unwrap_or_else(|| rand::random_range(0..list.len()));
        let current = AtomicUsize::new(first % list.len());
        Ok(Self { list, current })
    }

    /// Where the next request goes.
    pub(super) fn choose(&self) -> Chosen {
        let index = self.current.load(Ordering::Relaxed);
        Chosen { index, channel: self.list[index].1.clone() }
    }

    /// All addresses, in the order of the configuration.
    pub(super) fn urls(&self) -> Vec<String> {
        self.list.iter().map(|(url, _)| url.clone()).collect()
    }

    /// The channel to this one; `None`: it is not in the configuration.
    pub(super) fn named(&self, url: &str) -> Option<Channel> {
        self.list.iter().find(|(listed, _)| listed == url).map(|(_, channel)| channel.clone())
    }

    /// This one has failed: the next request goes to the next one, unless another failure has led there already.
    pub(super) fn failed(&self, chosen: &Chosen) {
        let next = (chosen.index + 1) % self.list.len();
        // If it fails, another request has moved it.
        let _moved = self.current.compare_exchange(chosen.index, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The error and its causes, in one line.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let part = cause.to_string();
        if !part.is_empty() && !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn many_failures_at_one_endpoint_move_to_the_next_one_only() {
        let config = Config { first: Some(0), ..Config::new(["http://a:1", "http://b:1", "http://c:1"]) };
        let endpoints = Endpoints::new(&config).unwrap();
        let (first, also) = (endpoints.choose(), endpoints.choose());
        endpoints.failed(&first);
        endpoints.failed(&also);
        assert_eq!(endpoints.choose().index, 1);
        endpoints.failed(&endpoints.choose());
        endpoints.failed(&endpoints.choose());
        assert_eq!(endpoints.choose().index, 0);
    }

    #[tokio::test]
    async fn clients_of_one_configuration_begin_at_different_endpoints() {
        let config = Config::new(["http://a:1", "http://b:1", "http://c:1"]);
        let begun: std::collections::BTreeSet<usize> =
            (0..100).map(|_| Endpoints::new(&config).unwrap().choose().index).collect();
        assert_eq!(begun, [0, 1, 2].into());
    }

    #[tokio::test]
    async fn addresses_that_lead_nowhere_or_would_send_in_the_clear_are_refused() {
        for (url, told) in [
            ("https://a:1", "certificates"),
            ("ftp://a:1", "neither"),
            ("a:1", "neither"),
            ("http://a:1/path", "SCHEME"),
            ("http://a b", "a b"),
        ] {
            let error = Endpoints::new(&Config::new([url])).unwrap_err().to_string();
            assert!(error.contains(told), "{url}: {error}");
        }
    }
}
