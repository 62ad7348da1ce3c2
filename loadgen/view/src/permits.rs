//! The bounds for viewers, and their use at a moment.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::StatusCode;
use stickycas_page::source::Refused;

/// The bounds of a page.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Open connections. The next one is closed at once. A browser has some six.
    pub connections: usize,
    /// Those of one network. All of a page on a loopback address are of one.
    pub connections_per_network: usize,
    /// Streams of events that are open, of an instance or of all.
    pub viewers: usize,
    /// Those of one network.
    pub viewers_per_network: usize,
    /// Instances that are looked at. Each has a Watch and an encoder, which makes the frames for all of its
    /// viewers.
    pub instances: usize,
    /// Bytes of the latest frames that are kept of one such instance. A viewer that falls behind them loses
    /// its stream.
    pub frame_bytes: usize,
    /// Requests of one network in a second that need work: lists, explanations, streams that begin.
    pub requests_per_second: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 1_024,
            connections_per_network: 256,
            viewers: 1_024,
            viewers_per_network: 128,
            instances: 32,
            frame_bytes: 8 * 1024 * 1024,
            requests_per_second: 200,
        }
    }
}

/// The network of a viewer: an address; of IPv6 the network of 64 bits, as one client has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network(IpAddr);

impl Network {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        })
    }

    /// Whether it is this machine, where all viewers are of one network.
    pub(crate) fn is_loopback(self) -> bool {
        match self.0 {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => u128::from(address) == 0,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Permits {
    pub(crate) bounds: Bounds,
    taken: Mutex<Taken>,
    began: Instant,
}

#[derive(Debug, Default)]
struct Taken {
    connections: usize,
    viewers: usize,
    networks: HashMap<Network, OfNetwork>,
}

#[derive(Debug, Default)]
struct OfNetwork {
    connections: usize,
    viewers: usize,
    /// Requests in this second since the program started.
    second: u64,
    requests: u32,
}

/// From how many networks on those are forgotten that have nothing.
const REMEMBERED: usize = 1_024;

impl Permits {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, taken: Mutex::default(), began: Instant::now() })
    }

    /// A connection from this network, if there may be one more.
    pub(crate) fn connection(self: &Arc<Self>, network: Network) -> Option<Permit> {
        let mut taken = self.taken();
        let own = taken.networks.get(&network).map_or(0, |of| of.connections);
        if taken.connections >= self.bounds.connections || own >= self.bounds.connections_per_network {
            return None;
        }
        taken.networks.entry(network).or_default().connections += 1;
        taken.connections += 1;
        Some(Permit { permits: self.clone(), network, what: What::Connection })
    }

    /// A stream to this network, if there may be one more.
    ///
    /// # Errors
    /// If there are too many.
    pub(crate) fn viewer(self: &Arc<Self>, network: Network) -> Result<Permit, Refused> {
        let mut taken = self.taken();
        if taken.viewers >= self.bounds.viewers {
            return Err(too_many("so many look that nobody else may for now"));
        }
        let of = taken.networks.entry(network).or_default();
        if of.viewers >= self.bounds.viewers_per_network {
            return Err(too_many("you look at too much at a time"));
        }
        of.viewers += 1;
        taken.viewers += 1;
        Ok(Permit { permits: self.clone(), network, what: What::Viewer })
    }

    /// Charges a request that needs work to this network.
    ///
    /// # Errors
    /// If it sends too many.
    pub(crate) fn request(&self, network: Network) -> Result<(), Refused> {
        let now = self.began.elapsed().as_secs();
        let mut taken = self.taken();
        if taken.networks.len() >= REMEMBERED {
            taken.networks.retain(|_, of| of.viewers > 0 || of.connections > 0 || of.second == now);
        }
        let of = taken.networks.entry(network).or_default();
        if of.second != now {
            (of.second, of.requests) = (now, 0);
        }
        if of.requests >= self.bounds.requests_per_second {
            return Err(too_many("you ask too often"));
        }
        of.requests += 1;
        Ok(())
    }

    /// Viewers at this moment.
    pub(crate) fn viewers(&self) -> usize {
        self.taken().viewers
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The refusal of what is above a bound.
pub(crate) fn too_many(why: &str) -> Refused {
    Refused { status: StatusCode::TOO_MANY_REQUESTS, why: format!("{why}: try again") }
}

#[derive(Clone, Copy, Debug)]
enum What {
    Connection,
    Viewer,
}

/// Counts a connection or a stream until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<Permits>,
    network: Network,
    what: What,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let taken = &mut *self.permits.taken();
        let of = taken.networks.entry(self.network).or_default();
        let (all, own) = match self.what {
            What::Connection => (&mut taken.connections, &mut of.connections),
            What::Viewer => (&mut taken.viewers, &mut of.viewers),
        };
        *all -= 1;
        *own -= 1;
        if of.connections == 0 && of.viewers == 0 && of.second != self.permits.began.elapsed().as_secs() {
            taken.networks.remove(&self.network);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(change: impl FnOnce(&mut Bounds)) -> Arc<Permits> {
        let mut bounds = Bounds::default();
        change(&mut bounds);
        Permits::new(bounds)
    }

    fn network(address: &str) -> Network {
        Network::of(address.parse().unwrap())
    }

    #[test]
    fn connections_to_the_page_are_limited_by_network_and_in_all() {
        let permits = permits(|bounds| (bounds.connections, bounds.connections_per_network) = (3, 2));
        let connect = |address: &str| permits.connection(network(address));
        let mine = [connect("::ffff:10.0.0.1").unwrap(), connect("10.0.0.1").unwrap()];
        assert!(connect("10.0.0.1").is_none(), "the network has its share");
        let other = connect("fe80::1").unwrap();
        assert!(connect("10.0.0.3").is_none(), "all have");
        let [one, _two] = mine;
        drop(one);
        assert!(connect("10.0.0.1").is_some());
        drop(other);
        let one = connect("fe80::2").unwrap();
        assert!(connect("10.0.0.3").is_some());
        drop(one);
    }

    #[test]
    fn viewers_of_the_page_are_limited_by_network_and_in_all() {
        let permits = permits(|bounds| (bounds.viewers, bounds.viewers_per_network) = (3, 2));
        let (ann, bob) = (network("fe80::1"), network("10.0.0.1"));
        let one = permits.viewer(ann).unwrap();
        let _two = permits.viewer(network("fe80::2")).unwrap();
        let refused = permits.viewer(ann).unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        let _three = permits.viewer(bob).unwrap();
        assert!(permits.viewer(bob).is_err(), "all");
        assert_eq!(permits.viewers(), 3);
        drop(one);
        assert!(permits.viewer(bob).is_ok());
    }

    #[test]
    fn requests_to_the_page_are_limited_by_network() {
        let permits = permits(|bounds| bounds.requests_per_second = 2);
        let refused = || (0..9).filter(|_| permits.request(network("10.0.0.1")).is_err()).count();
        // At most in three different seconds, unless the machine stands still.
        assert!((0..9).map(|_| refused()).sum::<usize>() > 0);
        assert!(permits.request(network("10.0.0.2")).is_ok(), "others do not notice");
    }
}
