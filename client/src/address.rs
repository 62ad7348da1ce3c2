//! [`Address`]: by what servers of a cluster are told apart.

use std::fmt;
use std::sync::Arc;

use tonic::transport::Uri;

/// More bytes than the longest name of a host and a port have.
const LONGEST: usize = 300;

/// Host and port of a server, in lower case. Two names of one host are two addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address(Arc<str>);

impl Address {
    /// The address that a server gives for a server; `None` if it is not a host and a port.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = Some(text).filter(|text| text.len() <= LONGEST)?.parse().ok()?;
        let authority = uri.authority()?;
        let is_host_and_port = authority.as_str() == text
            && !text.contains('@')
            && !authority.host().is_empty()
            && authority.port_u16().is_some_and(|port| port > 0);
        is_host_and_port.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// That of a URL which has a host; a port that is not given is that of its scheme.
    pub(crate) fn of(url: &Uri) -> Self {
        let host = url.host().unwrap_or_default();
        let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("https") { 443 } else { 80 });
        Self(format!("{host}:{port}").to_ascii_lowercase().into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port_and_nothing_else() {
        for good in ["localhost:7420", "127.0.0.1:1", "[::1]:7420", "cas-2.example:65535"] {
            assert_eq!(Address::parse(good).unwrap().as_str(), good);
        }
        let long = format!("{}:1", "a".repeat(LONGEST));
        for bad in [
            "",
            "localhost",
            ":7420",
            "localhost:0",
            "localhost:99999",
            "a@b:1",
            "http://a:1",
            "a:1/b",
            "a b:1",
            "*",
            &long,
        ] {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_url_and_what_servers_call_its_address_are_one() {
        let of = |url: &'static str| Address::of(&Uri::from_static(url));
        assert_eq!(Some(of("http://LocalHost:7420")), Address::parse("localhost:7420"));
        assert_eq!(Some(of("https://[::1]")), Address::parse("[::1]:443"));
        assert_eq!(Some(of("http://h")), Address::parse("H:80"));
    }
}
