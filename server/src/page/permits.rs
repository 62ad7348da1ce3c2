//! How much viewers of the page may have at a time, apart from all other limits of the server.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::StatusCode;
use stickycas_page::source::Refused;

use super::PageUsage;
use crate::auth::Principal;
use crate::limits::Limits;

/// A bound of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Connections,
    ConnectionsPerAddress,
    Viewers,
    ViewersPerPrincipal,
    Instances,
    FrameBytes,
    RequestsPerSecond,
}

impl Bound {
    pub(crate) const ALL: [Self; 7] = [
        Self::Connections,
        Self::ConnectionsPerAddress,
        Self::Viewers,
        Self::ViewersPerPrincipal,
        Self::Instances,
        Self::FrameBytes,
        Self::RequestsPerSecond,
    ];

    /// The name, that of the limit.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connections => "page_connections",
            Self::ConnectionsPerAddress => "page_connections_per_address",
            Self::Viewers => "page_viewers",
            Self::ViewersPerPrincipal => "page_viewers_per_principal",
            Self::Instances => "page_instances",
            Self::FrameBytes => "page_frame_bytes",
            Self::RequestsPerSecond => "page_requests_per_second",
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Permits {
    connections: usize,
    connections_per_address: usize,
    viewers: usize,
    viewers_per_principal: usize,
    requests_per_second: u32,
    taken: Mutex<Taken>,
    refused: [AtomicU64; Bound::ALL.len()],
    began: Instant,
}

#[derive(Debug, Default)]
struct Taken {
    connections: HashMap<IpAddr, usize>,
    all_connections: usize,
    /// `None`: whoever looks where nobody proves anything, or has not proven anything yet.
    principals: HashMap<Option<Principal>, OfPrincipal>,
    all_viewers: usize,
}

#[derive(Debug, Default)]
struct OfPrincipal {
    viewers: usize,
    /// Requests in this second since the server started.
    second: u64,
    requests: u32,
}

/// From how many principals on those are forgotten that have nothing.
const REMEMBERED: usize = 1_024;

impl Permits {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            connections: limits.page_connections,
            connections_per_address: limits.page_connections_per_address,
            viewers: limits.page_viewers,
            viewers_per_principal: limits.page_viewers_per_principal,
            requests_per_second: limits.page_requests_per_second,
            taken: Mutex::default(),
            refused: Default::default(),
            began: Instant::now(),
        }
    }

    /// A connection from this address, if there may be one more.
    pub(super) fn connection(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let network = network_of(address);
        let mut taken = self.taken();
        let of_address = taken.connections.get(&network).copied().unwrap_or_default();
        let bound = if taken.all_connections >= self.connections {
            Bound::Connections
        } else if of_address >= self.connections_per_address {
            Bound::ConnectionsPerAddress
        } else {
            taken.all_connections += 1;
            taken.connections.insert(network, of_address + 1);
            return Some(ConnectionPermit { permits: self.clone(), network });
        };
        self.count(bound);
        None
    }

    /// A stream of this principal, if there may be one more.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn viewer(self: &Arc<Self>, principal: Option<&Principal>) -> Result<ViewerPermit, Refused> {
        let mut taken = self.taken();
        if taken.all_viewers >= self.viewers {
            return Err(self.refuse(Bound::Viewers, "so many look that nobody else may for now"));
        }
        let of_principal = taken.principals.entry(principal.cloned()).or_default();
        if of_principal.viewers >= self.viewers_per_principal {
            return Err(self.refuse(Bound::ViewersPerPrincipal, "you look at too much at a time"));
        }
        of_principal.viewers += 1;
        taken.all_viewers += 1;
        Ok(ViewerPermit { permits: self.clone(), principal: principal.cloned() })
    }

    /// Charges a request that needs work to this principal.
    ///
    /// # Errors
    /// If it sends too many.
    pub(super) fn request(&self, principal: Option<&Principal>) -> Result<(), Refused> {
        let now = self.began.elapsed().as_secs();
        let mut taken = self.taken();
        if taken.principals.len() >= REMEMBERED {
            taken.principals.retain(|_, of| of.viewers > 0 || of.second == now);
        }
        let of = taken.principals.entry(principal.cloned()).or_default();
        if of.second != now {
            (of.second, of.requests) = (now, 0);
        }
        if of.requests >= self.requests_per_second {
            return Err(self.refuse(Bound::RequestsPerSecond, "you ask too often"));
        }
        of.requests += 1;
        Ok(())
    }

    /// The refusal of what is above this bound.
    pub(super) fn refuse(&self, bound: Bound, why: &str) -> Refused {
        self.count(bound);
        Refused { status: StatusCode::TOO_MANY_REQUESTS, why: format!("{why} ({}): try again", bound.name()) }
    }

    fn count(&self, bound: Bound) {
        self.refused[bound as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often something was refused because of this bound.
    pub(crate) fn refused(&self, bound: Bound) -> u64 {
        self.refused[bound as usize].load(Ordering::Relaxed)
    }

    /// Viewers at this moment.
    pub(super) fn viewers(&self) -> usize {
        self.taken().all_viewers
    }

    pub(super) fn usage(&self) -> PageUsage {
        let taken = self.taken();
        PageUsage {
            connections: taken.all_connections,
            of_one_address: taken.connections.values().copied().max().unwrap_or_default(),
            viewers: taken.all_viewers,
            of_one_principal: taken.principals.values().map(|of| of.viewers).max().unwrap_or_default(),
            ..PageUsage::default()
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of IPv6 the network of 64 bits, as one client has it.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
    }
}

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    permits: Arc<Permits>,
    network: IpAddr,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = self.permits.taken();
        taken.all_connections -= 1;
        if let Some(of_address) = taken.connections.get_mut(&self.network) {
            *of_address -= 1;
            if *of_address == 0 {
                taken.connections.remove(&self.network);
            }
        }
    }
}

/// Counts a stream until it is dropped.
#[derive(Debug)]
pub(super) struct ViewerPermit {
    permits: Arc<Permits>,
    principal: Option<Principal>,
}

impl Drop for ViewerPermit {
    fn drop(&mut self) {
        let mut taken = self.permits.taken();
        taken.all_viewers -= 1;
        if let Some(of) = taken.principals.get_mut(&self.principal) {
            of.viewers -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(change: impl FnOnce(&mut Limits)) -> Arc<Permits> {
        let mut limits = Limits::default();
        change(&mut limits);
        Arc::new(Permits::new(&limits))
    }

    #[test]
    fn connections_to_the_page_are_limited_by_address_and_in_all() {
        let permits =
            permits(|limits| (limits.page_connections, limits.page_connections_per_address) = (3, 2));
        let connect = |address: &str| permits.connection(address.parse().unwrap());
        let mine = [connect("::ffff:10.0.0.1").unwrap(), connect("10.0.0.1").unwrap()];
        assert!(connect("10.0.0.1").is_none(), "the address has its share");
        let other = connect("fe80::1").unwrap();
        assert!(connect("10.0.0.3").is_none(), "all have");
        assert_eq!((permits.usage().connections, permits.usage().of_one_address), (3, 2));
        let [one, _two] = mine;
        drop(one);
        drop(other);
        assert!(connect("10.0.0.1").is_some());
        assert_eq!(Bound::ALL.map(|bound| permits.refused(bound)), [1, 1, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn viewers_of_the_page_are_limited_by_principal_and_in_all() {
        let permits = permits(|limits| (limits.page_viewers, limits.page_viewers_per_principal) = (3, 2));
        let (ann, bob) = (Principal::new("ann"), Principal::new("bob"));
        let one = permits.viewer(Some(&ann)).unwrap();
        let _two = permits.viewer(Some(&ann)).unwrap();
        let refused = permits.viewer(Some(&ann)).unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        let _three = permits.viewer(Some(&bob)).unwrap();
        assert!(permits.viewer(Some(&bob)).is_err());
        assert_eq!((permits.usage().viewers, permits.usage().of_one_principal), (3, 2));
        drop(one);
        assert!(permits.viewer(None).is_ok());
        assert_eq!((permits.refused(Bound::Viewers), permits.refused(Bound::ViewersPerPrincipal)), (1, 1));
    }

    #[test]
    fn requests_to_the_page_are_limited_by_principal() {
        let permits = permits(|limits| limits.page_requests_per_second = 2);
        let refused = || (0..9).filter(|_| permits.request(None).is_err()).count();
        // At most in three different seconds, unless the machine stands still.
        assert!((0..9).map(|_| refused()).sum::<usize>() > 0);
        assert!(permits.refused(Bound::RequestsPerSecond) > 0);
        assert!(permits.request(Some(&Principal::new("ann"))).is_ok(), "others do not notice");
    }
}
