//! Links for viewers: each has a token, which is valid for an hour, by the system clock and by the monotonic
//! one: the latter stands still while a machine sleeps, the former may be set back.
//!
//! A token is a random number, which is kept nowhere but in the memory of this program: when it ends, its
//! links do.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use stickycas_page::source::Refused;
use tokio::time::Instant;

/// How long a link is valid.
const LIFETIME: Duration = Duration::from_secs(3_600);
/// After how long a new link is there.
pub(crate) const RENEWED: Duration = Duration::from_secs(1_800);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<Vec<Link>>);

struct Link {
    token: [u8; 32],
    expires: Expiry,
}

/// The end of a link, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Expiry {
    pub(crate) at: Instant,
    time: SystemTime,
}

impl Expiry {
    fn after(lifetime: Duration) -> Self {
        Self { at: Instant::now() + lifetime, time: SystemTime::now() + lifetime }
    }

    /// Whether it is over, by either clock.
    pub(crate) fn is_over(self) -> bool {
        self.at <= Instant::now() || self.time <= SystemTime::now()
    }
}

/// Without the token.
impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl Links {
    /// A new token, as it stands in a link.
    pub(crate) fn token(&self) -> String {
        let token: [u8; 32] = rand::random();
        let mut links = self.links();
        links.retain(|link| !link.expires.is_over());
        links.push(Link { token, expires: Expiry::after(LIFETIME) });
        URL_SAFE_NO_PAD.encode(token)
    }

    /// Until when the viewer with this head of a request may look.
    ///
    /// # Errors
    /// If there is no token, or it is not valid any more.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<Expiry, Refused> {
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let (Some(given), None) = (given.next(), given.next()) else {
            return Err(refused("this page is shown to those with a link that has a token"));
        };
        let token = given.as_bytes().strip_prefix(b"Bearer ");
        let token = token.and_then(|token| URL_SAFE_NO_PAD.decode(token).ok()).unwrap_or_default();
        let links = self.links();
        let known = links.iter().find(|link| !link.expires.is_over() && is_same(&link.token, &token));
        known.map(|link| link.expires).ok_or_else(over)
    }

    fn links(&self) -> MutexGuard<'_, Vec<Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes as long wherever they differ.
fn is_same(token: &[u8], given: &[u8]) -> bool {
    token.len() == given.len()
        && token.iter().zip(given).fold(0, |differ, (one, other)| differ | (one ^ other)) == 0
}

/// The refusal of a viewer whose link is not valid any more.
pub(crate) fn over() -> Refused {
    refused("the link is not valid any more")
}

fn refused(what: &str) -> Refused {
    let why = format!("{what}: `stickycas-loadgen view` prints a new link every half hour, each for an hour");
    Refused { status: StatusCode::UNAUTHORIZED, why }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn head(token: &str) -> HeaderMap {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_counts_for_an_hour_at_its_own_page() {
        let (links, others) = (Links::default(), Links::default());
        let token = links.token();
        assert_eq!(links.check(&head(&token)).unwrap().at, Instant::now() + LIFETIME);
        let status = |links: &Links, headers: &HeaderMap| links.check(headers).unwrap_err().status;
        assert_eq!(status(&others, &head(&token)), StatusCode::UNAUTHORIZED);
        let (mut twice, shorter) = (head(&token), &token[..token.len() - 4]);
        twice.append(AUTHORIZATION, twice[AUTHORIZATION].clone());
        for headers in [HeaderMap::new(), twice, head(""), head(shorter), head("!")] {
            assert_eq!(status(&links, &headers), StatusCode::UNAUTHORIZED, "{headers:?}");
        }
        tokio::time::advance(RENEWED).await;
        let next = links.token();
        assert!(links.check(&head(&token)).is_ok() && next != token);
        tokio::time::advance(RENEWED).await;
        assert_eq!(status(&links, &head(&token)), StatusCode::UNAUTHORIZED);
        assert!(links.check(&head(&next)).is_ok());
        links.token();
        assert_eq!(links.links().len(), 2);
        assert!(!format!("{links:?}").contains(&next));
    }

    #[test]
    fn a_link_ends_by_either_clock() {
        let hour = Expiry::after(LIFETIME);
        assert!(!hour.is_over());
        assert!(Expiry { time: SystemTime::now(), ..hour }.is_over(), "the machine has slept");
        assert!(Expiry { at: Instant::now(), ..hour }.is_over(), "its clock was set back");
    }
}
