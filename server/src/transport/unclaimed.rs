//! The open connections that belong to no principal yet: in their handshake, or without a first call.
//!
//! They are few. If there are too many, the address that holds most of them loses its oldest: a client that
//! opens many takes no place from clients elsewhere. An address is that of IPv4, or the network of 64 bits of
//! IPv6, of which one machine usually has all. Half of the places are kept for addresses from which
//! principals were identified lately, so that strangers, from however many addresses they come, leave room
//! for them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use crate::quota::Rounds;

/// The origin of a client: its address, or the network of its IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(address: SocketAddr) -> Self {
        /// The bits of an address that tell its network.
        const NETWORK: u128 = !0 << 64;
        Self(match address.ip().to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & NETWORK).into(),
            ip @ IpAddr::V4(_) => ip,
        })
    }
}

/// The bounds of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolLimits {
    pub(crate) connections: usize,
    pub(crate) per_address: usize,
    /// Addresses that are remembered.
    pub(crate) known_addresses: usize,
}

/// See the module. A `C` ends a connection.
#[derive(Debug)]
pub(crate) struct Pool<C> {
    limits: PoolLimits,
    /// The number of the next connection.
    next: u64,
    sources: HashMap<Source, Held<C>>,
    strangers: Class,
    known: Class,
    lately: LatelyIdentified,
}

/// The connections of one address, by age.
#[derive(Debug)]
struct Held<C> {
    known: bool,
    rounds: Arc<Rounds>,
    connections: BTreeMap<u64, C>,
}

impl<C> Held<C> {
    /// The number of its connections, and the number of the oldest one.
    fn rank(&self) -> Option<(usize, Reverse<u64>)> {
        let (oldest, _) = self.connections.first_key_value()?;
        Some((self.connections.len(), Reverse(*oldest)))
    }
}

/// The addresses of one kind that hold connections.
#[derive(Debug, Default)]
struct Class {
    connections: usize,
    /// By how many they hold; of those that hold as many, the one with the oldest connection comes last.
    by_count: BTreeSet<(usize, Reverse<u64>, Source)>,
}

impl Class {
    fn add<C>(&mut self, held: &Held<C>, source: Source) {
        if let Some((count, oldest)) = held.rank() {
            self.connections += count;
            self.by_count.insert((count, oldest, source));
        }
    }

    fn remove<C>(&mut self, held: &Held<C>, source: Source) {
        if let Some((count, oldest)) = held.rank()
            && self.by_count.remove(&(count, oldest, source))
        {
            self.connections -= count;
        }
    }

    /// The address that holds most, and how many.
    fn most(&self) -> Option<(usize, Source)> {
        self.by_count.last().map(|(count, _, source)| (*count, *source))
    }
}

impl<C> Pool<C> {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        Self {
            limits,
            next: 0,
            sources: HashMap::new(),
            strangers: Class::default(),
            known: Class::default(),
            lately: LatelyIdentified::default(),
        }
    }

    /// The number of the next connection from this address, which is to be added, and the rounds of the
    /// address.
    pub(crate) fn next_number(&mut self, source: Source) -> (u64, Arc<Rounds>) {
        self.next += 1;
        let rounds = self.sources.get(&source).map(|held| held.rounds.clone());
        (self.next, rounds.unwrap_or_default())
    }

    /// Adds a connection; returns the one that has to make room for it, if there is one.
    pub(crate) fn add(
        &mut self,
        source: Source,
        (number, rounds): (u64, Arc<Rounds>),
        connection: C,
    ) -> Option<C> {
        let known = self.lately.contains(source);
        self.sources.entry(source).or_insert_with(|| Held { known, rounds, connections: BTreeMap::new() });
        self.change(source, |held| held.connections.insert(number, connection));
        let loser = self.overfull(source)?;
        self.change(loser, |held| held.connections.pop_first()).flatten().map(|(_, oldest)| oldest)
    }

    /// The address that has to lose a connection after this one has got one more.
    fn overfull(&self, source: Source) -> Option<Source> {
        let held = self.sources.get(&source).map_or(0, |held| held.connections.len());
        let PoolLimits { connections, per_address, .. } = self.limits;
        let class = if held > per_address {
            return Some(source);
        } else if self.strangers.connections > connections.div_ceil(2) {
            &self.strangers
        } else if self.strangers.connections + self.known.connections > connections {
            // Strangers hold half at most, so others hold more than none.
            &self.known
        } else {
            return None;
        };
        class.most().map(|(_, source)| source)
    }

    /// Removes a connection, if it is still there.
    pub(crate) fn remove(&mut self, source: Source, number: u64) {
        self.change(source, |held| held.connections.remove(&number));
    }

    /// A principal was identified on a connection from this address.
    pub(super) fn identified(&mut self, source: Source) {
        self.lately.note(source, self.limits.known_addresses);
        self.change(source, |held| held.known = true);
    }

    /// The most connections that one address holds, and the addresses that are remembered.
    pub(super) fn usage(&self) -> (usize, usize) {
        let most = self.strangers.most().max(self.known.most());
        (most.map_or(0, |(count, _)| count), self.lately.stamps.len())
    }

    /// Changes what an address holds, and the classes with it.
    fn change<R>(&mut self, source: Source, change: impl FnOnce(&mut Held<C>) -> R) -> Option<R> {
        let held = self.sources.get_mut(&source)?;
        let classes = [&mut self.strangers, &mut self.known];
        classes.into_iter().for_each(|class| class.remove(held, source));
        let changed = change(held);
        let class = if held.known { &mut self.known } else { &mut self.strangers };
        class.add(held, source);
        if held.connections.is_empty() {
            self.sources.remove(&source);
        }
        Some(changed)
    }
}

/// The addresses from which principals were identified last.
#[derive(Debug, Default)]
struct LatelyIdentified {
    stamps: HashMap<Source, u64>,
    by_stamp: BTreeMap<u64, Source>,
    next: u64,
}

impl LatelyIdentified {
    fn contains(&self, source: Source) -> bool {
        self.stamps.contains_key(&source)
    }

    fn note(&mut self, source: Source, limit: usize) {
        if let Some(stamp) = self.stamps.insert(source, self.next) {
            self.by_stamp.remove(&stamp);
        }
        self.by_stamp.insert(self.next, source);
        self.next += 1;
        if self.stamps.len() > limit
            && let Some((_, oldest)) = self.by_stamp.pop_first()
        {
            self.stamps.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> Source {
        Source::of(SocketAddr::from(([127, 0, 0, last], 9)))
    }

    fn pool(connections: usize, per_address: usize) -> Pool<()> {
        Pool::new(PoolLimits { connections, per_address, known_addresses: 2 })
    }

    /// Adds a connection from this address; whether one had to make room.
    fn add(pool: &mut Pool<()>, last: u8) -> bool {
        let number = pool.next_number(source(last));
        pool.add(source(last), number, ()).is_some()
    }

    fn held(pool: &Pool<()>, last: u8) -> usize {
        pool.sources.get(&source(last)).map_or(0, |held| held.connections.len())
    }

    #[test]
    fn the_address_that_holds_most_loses_its_oldest() {
        let mut pool = pool(8, 9);
        (0..3).for_each(|_| assert!(!add(&mut pool, 1)));
        assert!(!add(&mut pool, 2));
        assert!(add(&mut pool, 3), "strangers have half of the places");
        assert_eq!([1, 2, 3].map(|last| held(&pool, last)), [2, 1, 1]);
        assert_eq!(pool.sources[&source(1)].connections.keys().copied().collect::<Vec<_>>(), [2, 3]);
        (0..100).for_each(|_| assert!(add(&mut pool, 1)));
        assert_eq!([1, 2, 3].map(|last| held(&pool, last)), [2, 1, 1], "it takes no place from others");
    }

    #[test]
    fn half_is_kept_for_addresses_identified_lately() {
        let mut pool = pool(8, 9);
        pool.identified(source(9));
        (1..=8).for_each(|last| _ = add(&mut pool, last));
        assert_eq!(pool.strangers.connections, 4);
        (0..4).for_each(|_| assert!(!add(&mut pool, 9)));
        assert!(add(&mut pool, 9));
        assert_eq!((held(&pool, 9), pool.strangers.connections), (4, 4));
        // One that is identified while it has connections changes sides.
        let stranger = pool.strangers.most().unwrap().1;
        pool.identified(stranger);
        assert_eq!((pool.strangers.connections, pool.known.connections), (3, 5));
    }

    #[test]
    fn addresses_are_limited_each_and_forgotten_in_turn() {
        let mut pool = pool(100, 2);
        (0..2).for_each(|_| assert!(!add(&mut pool, 1)));
        assert!(add(&mut pool, 1));
        assert_eq!(pool.usage(), (2, 0));
        [1, 2, 1, 3].into_iter().for_each(|last| pool.identified(source(last)));
        assert_eq!([1, 2, 3].map(|last| pool.lately.contains(source(last))), [true, false, true]);
        assert_eq!(pool.usage(), (2, 2));
    }

    #[test]
    fn removed_connections_leave_nothing_behind() {
        let mut pool = pool(8, 9);
        (1..=4).for_each(|last| _ = add(&mut pool, last));
        (1..=4).for_each(|number| pool.remove(source(u8::try_from(number).unwrap()), number));
        pool.remove(source(1), 1);
        assert!(pool.sources.is_empty() && pool.strangers.by_count.is_empty());
        assert_eq!(pool.strangers.connections + pool.known.connections, 0);
    }

    #[test]
    fn connections_of_one_address_share_their_rounds() {
        let mut pool = pool(8, 9);
        assert!(!add(&mut pool, 1));
        let [(_, one), (_, same), (_, other)] = [1, 1, 2].map(|last| pool.next_number(source(last)));
        assert_eq!([one.take(0), same.take(0), other.take(0)], [0, 1, 0]);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let of = |ip: &str| Source::of(SocketAddr::new(ip.parse().unwrap(), 1));
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::"), of("2001:db8:1:3::"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
