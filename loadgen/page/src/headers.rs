//! The headers of every response, and the checks of a request before it is answered.

use http::header::{
    CONTENT_SECURITY_POLICY, HOST, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Uri};

/// Scripts, styles and data come from here alone; nothing inline, no `eval`, no frames, no forms that are
/// sent.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// The headers of every response.
pub(crate) fn of_response(headers: &mut HeaderMap) {
    let all: [(HeaderName, &'static str); 6] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // Links name an instance, and the fragment may have held a token.
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in all {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Whether a browser sends this for a page of another site. Such a page sees no answer, but would spend what
/// everybody may ask for. Programs that are no browsers say nothing.
pub(crate) fn of_another_site(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    sites.any(|site| site == "cross-site" || site == "same-site")
}

/// The names by which the page may be asked for. A page of another site whose name is made to lead here (DNS
/// rebinding) has another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// `localhost`, the loopback addresses, and these.
    #[must_use]
    pub fn with(others: &[String]) -> Self {
        let own = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
        Self(own.into_iter().chain(others.iter().map(|name| name.to_ascii_lowercase())).collect())
    }

    /// These alone: those of a page that other machines may reach.
    #[must_use]
    pub fn only(names: &[String]) -> Self {
        Self(names.iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Whether a request with these headers is for one of them, on whatever port.
    #[must_use]
    pub fn allow(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let name = match (uri.authority(), hosts.next(), hosts.next()) {
            (None, Some(host), None) => host.to_str().unwrap_or_default(),
            (Some(authority), None, None) => authority.as_str(),
            (Some(authority), Some(host), None) if host == authority.as_str() => authority.as_str(),
            _ => return false,
        };
        let name = name.to_ascii_lowercase();
        let without_port = match name.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &name,
        };
        self.0.iter().any(|allowed| allowed == without_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(host: &'static str) -> bool {
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
        Hosts::with(&["page.example".to_owned()]).allow(&Uri::from_static("/"), &headers)
    }

    #[test]
    fn only_names_of_the_list_are_answered() {
        assert!(
            [
                "localhost",
                "localhost:80",
                "LOCALHOST",
                "127.0.0.1:7424",
                "[::1]:1",
                "[::1]",
                "page.example:1"
            ]
            .into_iter()
            .all(allowed)
        );
        assert!(
            !["", "evil.example", "localhost.evil.example", "evil.example:localhost", "127.0.0.2", "::1"]
                .into_iter()
                .any(allowed)
        );
        assert!(!Hosts::with(&[]).allow(&Uri::from_static("/"), &HeaderMap::new()));
    }

    #[test]
    fn two_names_are_none() {
        let mut headers = HeaderMap::new();
        headers.append(HOST, HeaderValue::from_static("localhost"));
        headers.append(HOST, HeaderValue::from_static("evil.example"));
        assert!(!Hosts::with(&[]).allow(&Uri::from_static("/"), &headers));
        headers.remove(HOST);
        headers.append(HOST, HeaderValue::from_static("localhost"));
        assert!(!Hosts::with(&[]).allow(&Uri::from_static("http://evil.example/"), &headers));
    }
}
