//! The live page of a server: where it is, and a token with which a browser may look at it.

use std::fmt;
use std::time::SystemTime;

use stickycas_model::types::Phase;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1;

use crate::client::{Client, Idempotency};
use crate::connection::Connection;
use crate::error::Error;

/// What a browser needs to look at a server's live page as this client's principal.
#[derive(Clone)]
pub struct PageAccess {
    /// The address of the page, with a slash at its end.
    pub url: String,
    /// When the token expires, by the server's clock. `None`: the page needs none.
    pub expires: Option<SystemTime>,
    /// A secret.
    token: String,
}

/// Without the token.
impl fmt::Debug for PageAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageAccess")
            .field("url", &self.url)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

impl PageAccess {
    /// The link to open: to the table of all instances, or to one of them, at a phase. The token is in the fragment, which
    /// browsers keep to themselves: it is sent to no server and stands in no log. The link as a whole is a secret.
    #[must_use]
    pub fn link(&self, instance: Option<InstanceId>, phase: Option<Phase>) -> String {
        let path = instance.map_or_else(|| "/".to_owned(), |id| format!("/instance/{id}"));
        let phase = phase.filter(|_| instance.is_some()).map(|phase| format!("phase={phase}"));
        let token = (!self.token.is_empty()).then(|| format!("token={}", self.token));
        let query: Vec<String> = phase.into_iter().chain(token).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}#{path}{mark}{}", self.url, query.join("&"))
    }

    fn from_wire(wire: v1::CreateViewerTokenResponse, server: &str) -> Self {
        let host = if wire.host.is_empty() { host_of(server).to_owned() } else { wire.host };
        let expires = wire.expire_time.and_then(|time| SystemTime::try_from(time).ok());
        Self { url: format!("{}://{host}:{}/", wire.scheme, wire.port), expires, token: wire.token }
    }
}

/// The host of an authority, without its port.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

impl Client {
    /// What a browser needs to look at the server's live page as this principal: at the instances that
    /// [`watch`](Self::watch) shows it, for an hour at most.
    ///
    /// # Errors
    /// If the server has no page (NO_PAGE), or cannot be reached.
    #[expect(deprecated, reason = "it lasts as long as the server has a page")]
    pub async fn page_access(&self) -> Result<PageAccess, Error> {
        let mut route = self.cluster.route();
        let call = |connection: Connection| async move {
            connection.server().create_viewer_token(v1::CreateViewerTokenRequest {}).await
        };
        let made = self.call_along(&mut route, Idempotency::Repeatable, call).await?;
        Ok(PageAccess::from_wire(made, route.at().as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(host: &str, token: &str) -> PageAccess {
        let wire = v1::CreateViewerTokenResponse {
            token: token.to_owned(),
            expire_time: None,
            scheme: "https".to_owned(),
            host: host.to_owned(),
            port: 7_422,
        };
        PageAccess::from_wire(wire, "[::1]:7420")
    }

    #[test]
    fn a_link_has_its_token_in_the_fragment_alone() {
        let (id, phase) = (InstanceId::new(1), Phase::new(7));
        let shown = access("page.example", "a.b.c");
        let link = shown.link(Some(id), phase);
        assert_eq!(link, format!("https://page.example:7422/#/instance/{id}?phase=7&token=a.b.c"));
        assert_eq!(shown.link(None, phase), "https://page.example:7422/#/?token=a.b.c");
        assert_eq!(access("", "").link(None, None), "https://[::1]:7422/#/");
        assert!(!format!("{shown:?}").contains("a.b.c"));
    }
}
