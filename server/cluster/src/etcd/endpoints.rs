//! A channel to each endpoint, and which one is asked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

use super::config::{Config, ConfigError, Reader};

/// The time without a byte after which a connection with open requests is asked for a sign of life. A member
/// ends connections that ask more often than every 5 s (`--grpc-keepalive-min-time`).
const PING_AFTER: Duration = Duration::from_secs(10);
/// The time for that sign; then the connection is closed, and the next request opens another one.
const PING_LIMIT: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Endpoints {
    reader: Reader,
    list: Vec<Listed>,
    /// The one that is asked.
    current: AtomicUsize,
    /// Why the files could not be read the last time.
    unreadable: Mutex<Option<String>>,
}

#[derive(Debug)]
struct Listed {
    url: String,
    channel: Mutex<Numbered>,
}

/// A channel, and how many there were before it.
#[derive(Clone, Debug)]
struct Numbered {
    number: u64,
    channel: Channel,
}

/// The one that a request goes to.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    index: usize,
    number: u64,
    pub(super) channel: Channel,
}

impl Endpoints {
    pub(super) fn new(config: &Config) -> Result<Self, ConfigError> {
        let tls = config.tls.as_ref().map(super::Tls::load).transpose()?;
        let list = config.endpoints.iter().map(|url| {
            let channel = endpoint(config, url, tls.as_ref())?.connect_lazy();
            Ok(Listed { url: url.clone(), channel: Mutex::new(Numbered { number: 0, channel }) })
        });
        let list: Vec<_> = list.collect::<Result<_, ConfigError>>()?;
        // Many servers with one configuration spread over the members.
        let first = config.first.unwrap_or_else(|| rand::random_range(0..list.len()));
        let current = AtomicUsize::new(first % list.len());
        Ok(Self { reader: Reader::new(config), list, current, unreadable: Mutex::default() })
    }

    /// Where the next request goes.
    pub(super) fn choose(&self) -> Chosen {
        self.at(self.current.load(Ordering::Relaxed))
    }

    fn at(&self, index: usize) -> Chosen {
        let Numbered { number, channel } = lock(&self.list[index].channel).clone();
        Chosen { index, number, channel }
    }

    /// All addresses, in the order of the configuration.
    pub(super) fn urls(&self) -> Vec<String> {
        self.list.iter().map(|listed| listed.url.clone()).collect()
    }

    /// This one; `None`: it is not in the configuration.
    pub(super) fn named(&self, url: &str) -> Option<Chosen> {
        self.list.iter().position(|listed| listed.url == url).map(|index| self.at(index))
    }

    /// This one has failed: the next request goes to the next one, unless another failure has led there
    /// already.
    pub(super) fn failed(&self, chosen: &Chosen) {
        let next = (chosen.index + 1) % self.list.len();
        // If it fails, another request has moved it.
        let _moved = self.current.compare_exchange(chosen.index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Makes a new channel in place of this one, with what the files hold now: behind a proxy it may lead to
    /// another member. Requests that are under way on the old one go on. If the files cannot be used, the old
    /// one stays.
    async fn renew(&self, chosen: &Chosen) {
        let listed = &self.list[chosen.index];
        if lock(&listed.channel).number != chosen.number {
            return;
        }
        let url = listed.url.clone();
        let load = move |config: Config| {
            let tls = config.tls.as_ref().map(super::Tls::load).transpose()?;
            endpoint(&config, &url, tls.as_ref())
        };
        let made = self.reader.read(load).await.map(|endpoint| endpoint.connect_lazy());
        let why = made.as_ref().err().map(ToString::to_string);
        if let Some(error) = &why
            && lock(&self.unreadable).as_ref() != Some(error)
        {
            tracing::error!(
                error,
                "the credentials for etcd cannot be read again: those that were read before are used"
            );
        }
        *lock(&self.unreadable) = why;
        let mut current = lock(&listed.channel);
        if let Ok(channel) = made
            && current.number == chosen.number
        {
            *current = Numbered { number: chosen.number + 1, channel };
        }
    }

    /// Makes a new channel in place of one that has failed, unless one is being made.
    pub(super) async fn replace(&self, failed: &Chosen) {
        if !self.reader.is_busy() {
            self.renew(failed).await;
        }
    }

    /// Makes new channels to all.
    pub(super) async fn renew_all(&self) {
        for index in 0..self.list.len() {
            self.renew(&self.at(index)).await;
        }
    }
}

impl Config {
    /// Reads all files, and checks the rest.
    ///
    /// # Errors
    /// Why no client can be made of it.
    pub fn verify(&self) -> Result<(), ConfigError> {
        self.check()?;
        let tls = self.tls.as_ref().map(super::Tls::load).transpose()?;
        self.user.as_ref().map(super::User::load).transpose()?;
        self.endpoints.iter().try_for_each(|url| endpoint(self, url, tls.as_ref()).map(drop))
    }
}

/// How a member is reached.
fn endpoint(config: &Config, url: &str, tls: Option<&ClientTlsConfig>) -> Result<Endpoint, ConfigError> {
    let refuse = |reason: &str| ConfigError::Endpoint { endpoint: url.to_owned(), reason: reason.to_owned() };
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| refuse(&error.to_string()))?;
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
    let endpoint = endpoint
        .connect_timeout(config.connect_limit)
        .http2_keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_LIMIT);
    match tls {
        Some(tls) => endpoint.tls_config(tls.clone()).map_err(|error| refuse(&with_causes(&error))),
        None => Ok(endpoint),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
