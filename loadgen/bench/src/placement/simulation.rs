//! Servers, shards and clusters of etcd on simulated time.
//!
//! The state of etcd and the servers' view of it are two states: servers receive a change later. All servers
//! receive it at the same moment, when the last of them does. A server acts upon its view, so claims of one
//! shard can compete, and etcd lets the first one win.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use anyhow::ensure;
use stickycas_cluster::keys::RulesVersion;
use stickycas_cluster::placement::{Candidate, Placed, placement};
use stickycas_model::random::SplitMix64;

use super::model::{Event, EventQueue, Line, Times, time_of};

/// The wait of a server before it claims a shard again that it has not got.
const CLAIM_AGAIN: Duration = Duration::from_millis(100);
/// etcd looks for leases that are over in this interval (`server/lease/lessor.go`).
const LEASE_CHECK: Duration = Duration::from_millis(500);

/// The part of its shards that a server hands over at once, if that is more than [`Times::hand_overs`].
const HAND_OVER_PART: usize = 16;

/// The time in which a change must be over.
const SETTLES_WITHIN: Duration = Duration::from_hours(24);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Simulation {
    times: Times,
    shards_per_etcd: usize,
    random: SplitMix64,
    now: Duration,
    events: EventQueue,
    servers: Vec<Server>,
    shards: Vec<Shard>,
    etcds: Vec<Etcd>,
    /// When the next placement is computed, if it is.
    pass: Option<Duration>,
    last_pass: Option<Duration>,
    /// When the servers last learned that a server has come or gone.
    servers_changed: Option<Duration>,
    tally: Tally,
}

#[derive(Clone, Debug)]
struct Server {
    name: String,
    /// It runs.
    up: bool,
    /// The others know that it can own shards.
    takes: bool,
    /// Shards to claim, when fewer are in flight.
    claims: VecDeque<usize>,
    in_flight: u32,
    /// Shards that etcd says it owns.
    owned: usize,
    /// Shards to hand over, when fewer are being handed over.
    hand_overs: VecDeque<usize>,
    handing_over: u32,
    reads: Line,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    /// The owner that etcd holds.
    owner: Option<usize>,
    /// The owner that the servers know.
    known: Option<usize>,
    /// The server that has served it last.
    served_by: Option<usize>,
    /// Since when nobody serves it.
    paused: Option<Duration>,
    /// Its owner is to hand it over.
    release_requested: bool,
    /// Its owner serves it no more.
    releasing: bool,
    /// The server that hands it over, until another one has it.
    handed_over_by: Option<usize>,
    /// Servers that have a claim of it in flight, or in their queue.
    claimants: BTreeSet<usize>,
}

#[derive(Clone, Debug, Default)]
struct Etcd {
    transactions: Line,
    reads: Line,
    telling: Line,
}

/// The counts since [`Simulation::take_tally`] was last called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Shards that another server serves than before.
    pub(super) moves: usize,
    /// Claims of a shard that another server has got first.
    pub(super) claims_lost: usize,
    /// How often every server has computed the placement.
    pub(super) placements: usize,
    /// How long each shard was served by nobody, each time.
    pub(super) pauses: Vec<Duration>,
    /// When a shard was served last that was not before.
    pub(super) last_served: Duration,
}

impl Simulation {
    /// Servers that do not run yet, and shards that nobody has owned.
    pub(super) fn new(
        servers: usize,
        shards: usize,
        shards_per_etcd: usize,
        times: Times,
        seed: u64,
    ) -> Self {
        let server = |number| Server {
            name: format!("server-{number:09}"),
            up: false,
            takes: false,
            claims: VecDeque::new(),
            in_flight: 0,
            owned: 0,
            hand_overs: VecDeque::new(),
            handing_over: 0,
            reads: Line::default(),
        };
        Self {
            times,
            shards_per_etcd,
            random: SplitMix64::new(seed),
            now: Duration::ZERO,
            events: EventQueue::default(),
            servers: (0..servers).map(server).collect(),
            shards: vec![Shard { paused: Some(Duration::ZERO), ..Shard::default() }; shards],
            etcds: vec![Etcd::default(); shards.div_ceil(shards_per_etcd)],
            pass: None,
            last_pass: None,
            servers_changed: None,
            tally: Tally::default(),
        }
    }

    /// The moment.
    pub(super) fn now(&self) -> Duration {
        self.now
    }

    /// The number of clusters of etcd.
    pub(super) fn etcds(&self) -> usize {
        self.etcds.len()
    }

    /// The counts since the last call.
    pub(super) fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// Draws from this seed from now on.
    pub(super) fn draw_from(&mut self, seed: u64) {
        self.random = SplitMix64::new(seed);
    }

    /// An index into something of this length, drawn.
    pub(super) fn draw_index(&mut self, length: usize) -> usize {
        self.random.index(length)
    }

    /// A server starts.
    pub(super) fn join(&mut self, server: usize) {
        self.servers[server].up = true;
        self.tell_server(server, true);
    }

    /// A server dies.
    pub(super) fn kill(&mut self, server: usize) {
        self.servers[server].up = false;
        self.servers[server].claims.clear();
        for shard in std::mem::take(&mut self.servers[server].hand_overs) {
            self.shards[shard].release_requested = false;
        }
        self.servers[server].handing_over = 0;
        for shard in self.shards.iter_mut().filter(|shard| shard.owner == Some(server)) {
            shard.paused.get_or_insert(self.now);
        }
        // It was kept alive less than a third of its time ago.
        let kept_alive = self.draw(self.times.lease / 3);
        let check = self.draw(LEASE_CHECK);
        self.events.set(self.now + self.times.lease - kept_alive + check, Event::LeaseEnd { server });
    }

    /// A server hands its shards over.
    pub(super) fn drain(&mut self, server: usize) {
        self.tell_server(server, false);
    }

    /// A server that was drained stops.
    pub(super) fn stop(&mut self, server: usize) -> anyhow::Result<()> {
        ensure!(self.loads()[server] == 0, "server {server} still owns shards");
        self.servers[server].up = false;
        Ok(())
    }

    /// Nothing happens for so long.
    pub(super) fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    /// Goes on until nothing more happens. Then every shard must be served.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        let until = self.now + SETTLES_WITHIN;
        while let Some((at, event)) = self.events.next() {
            ensure!(at < until, "shards still move after {SETTLES_WITHIN:?}");
            self.now = at;
            self.happen(event);
        }
        let paused = self.shards.iter().filter(|shard| shard.paused.is_some()).count();
        ensure!(paused == 0, "nobody serves {paused} shards, and nothing happens any more");
        Ok(())
    }

    /// Shards of each server, by what etcd holds.
    pub(super) fn loads(&self) -> Vec<usize> {
        let mut loads = vec![0; self.servers.len()];
        for owner in self.shards.iter().filter_map(|shard| shard.owner) {
            loads[owner] += 1;
        }
        loads
    }

    /// The most shards of a server less the fewest, of those that can own any.
    pub(super) fn spread(&self) -> usize {
        let loads = self.loads();
        let of_those =
            || loads.iter().zip(&self.servers).filter(|(_, server)| server.takes).map(|(load, _)| *load);
        of_those().max().unwrap_or(0) - of_those().min().unwrap_or(0)
    }

    /// The least moves with which these servers, and no others, own all shards evenly.
    pub(super) fn least_moves(&self, with: &[usize]) -> usize {
        if with.is_empty() {
            return 0;
        }
        let loads = self.loads();
        let stays: Vec<usize> = with.iter().map(|&server| loads[server]).collect();
        let orphans = self.shards.len() - stays.iter().sum::<usize>();
        let (base, extra) = (self.shards.len() / with.len(), self.shards.len() % with.len());
        let above: usize = stays.iter().map(|&load| load.saturating_sub(base)).sum();
        orphans + above - extra.min(stays.iter().filter(|&&load| load > base).count())
    }

    /// Servers that can own shards.
    pub(super) fn takers(&self) -> Vec<usize> {
        (0..self.servers.len()).filter(|&server| self.servers[server].takes).collect()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::LeaseEnd { server } => self.lease_end(server),
            Event::ServerTold { server, takes } => {
                self.servers[server].takes = takes;
                self.servers_changed = Some(self.now);
                self.ask_pass();
            }
            Event::OwnersTold { shards, owner } => {
                for shard in shards {
                    self.shards[shard].known = owner;
                    if let Some(owner) = owner {
                        self.shards[shard].claimants.remove(&owner);
                        self.handed_over(shard);
                    }
                }
                self.ask_pass();
            }
            Event::Pass => self.place(),
            Event::Claim { server, shard } => self.claim(server, shard),
            Event::ClaimAnswer { server, shard, won } => self.claim_answer(server, shard, won),
            Event::ClaimAgain { server, shard } => {
                self.shards[shard].claimants.remove(&server);
                self.ask_pass();
            }
            Event::Committed { shard } => {
                let at = self.transaction(shard);
                self.events.set(at, Event::Release { shard });
            }
            Event::Release { shard } => {
                self.shards[shard].releasing = false;
                self.shards[shard].release_requested = false;
                // It has died in the meantime: its lease has ended, or will.
                let owner = self.shards[shard].owner;
                if owner.is_some_and(|owner| self.servers[owner].up) {
                    self.set_owner(shard, None);
                    self.tell_owners(self.etcd_of(shard), vec![shard], None);
                }
            }
            Event::Serve { server, shard } => {
                let served = &mut self.shards[shard];
                if served.owner == Some(server) && self.servers[server].up && !served.releasing {
                    let since = served.paused.take().unwrap_or(self.now);
                    self.tally.pauses.push(self.now - since);
                    self.tally.last_served = self.now;
                    self.tally.moves += usize::from(served.served_by != Some(server));
                    served.served_by = Some(server);
                }
            }
        }
    }

    fn set_owner(&mut self, shard: usize, owner: Option<usize>) {
        if let Some(before) = std::mem::replace(&mut self.shards[shard].owner, owner) {
            self.servers[before].owned -= 1;
        }
        if let Some(owner) = owner {
            self.servers[owner].owned += 1;
        }
    }

    /// Its keys are deleted, all of one cluster of etcd at once.
    fn lease_end(&mut self, server: usize) {
        self.tell_server(server, false);
        for etcd in 0..self.etcds.len() {
            let first = etcd * self.shards_per_etcd;
            let last = self.shards.len().min(first + self.shards_per_etcd);
            let lost: Vec<usize> =
                (first..last).filter(|&shard| self.shards[shard].owner == Some(server)).collect();
            for &shard in &lost {
                self.set_owner(shard, None);
            }
            if !lost.is_empty() {
                self.tell_owners(etcd, lost, None);
            }
        }
    }

    /// The reaction of `Membership` to changes, for each server.
    fn place(&mut self) {
        self.pass = None;
        if self.settled_at() > self.now {
            return self.ask_pass();
        }
        self.last_pass = Some(self.now);
        self.tally.placements += 1;
        let takers = self.takers();
        let candidates: Vec<Candidate<'_>> = takers
            .iter()
            .map(|&server| Candidate { name: &self.servers[server].name, replays: RulesVersion::default() })
            .collect();
        let placed: Vec<Placed<'_>> = self
            .shards
            .iter()
            .map(|shard| Placed {
                owner: shard.known.map(|owner| self.servers[owner].name.as_str()),
                rules: RulesVersion::default(),
            })
            .collect();
        let desired = placement(&candidates, &placed);
        let mut claimants = BTreeSet::new();
        for (shard, desired) in desired.into_iter().enumerate() {
            let desired = desired.map(|at| takers[at]);
            match (self.shards[shard].known, desired) {
                (Some(owner), desired) if desired != Some(owner) => self.release(shard, owner),
                (None, Some(server))
                    if self.servers[server].up && self.shards[shard].claimants.insert(server) =>
                {
                    self.servers[server].claims.push_back(shard);
                    claimants.insert(server);
                }
                _ => {}
            }
        }
        for server in claimants {
            self.send_claims(server);
        }
    }

    fn release(&mut self, shard: usize, owner: usize) {
        let released = &mut self.shards[shard];
        if released.owner == Some(owner) && self.servers[owner].up && !released.release_requested {
            released.release_requested = true;
            self.servers[owner].hand_overs.push_back(shard);
            self.hand_over(owner);
        }
    }

    /// As many at once as may be: a part of the shards of a server that owns very many.
    fn hand_over(&mut self, owner: usize) {
        let most = u32::try_from(self.servers[owner].owned / HAND_OVER_PART)
            .unwrap_or(u32::MAX)
            .max(self.times.hand_overs);
        while self.servers[owner].handing_over < most
            && let Some(shard) = self.servers[owner].hand_overs.pop_front()
        {
            self.servers[owner].handing_over += 1;
            let released = &mut self.shards[shard];
            (released.releasing, released.handed_over_by) = (true, Some(owner));
            released.paused.get_or_insert(self.now);
            let commit = self.jitter(self.times.commit);
            self.events.set(self.now + commit, Event::Committed { shard });
        }
    }

    /// Another server has the shard.
    fn handed_over(&mut self, shard: usize) {
        if let Some(by) = self.shards[shard].handed_over_by.take() {
            self.servers[by].handing_over = self.servers[by].handing_over.saturating_sub(1);
            self.hand_over(by);
        }
    }

    fn send_claims(&mut self, server: usize) {
        while self.servers[server].in_flight < self.times.claims_in_flight
            && let Some(shard) = self.servers[server].claims.pop_front()
        {
            self.servers[server].in_flight += 1;
            let at = self.transaction(shard);
            self.events.set(at, Event::Claim { server, shard });
        }
    }

    fn claim(&mut self, server: usize, shard: usize) {
        let won = self.shards[shard].owner.is_none() && self.servers[server].up;
        if won {
            self.set_owner(shard, Some(server));
            self.tell_owners(self.etcd_of(shard), vec![shard], Some(server));
        } else {
            self.tally.claims_lost += usize::from(self.servers[server].up);
        }
        let back = self.jitter(self.times.transaction / 2);
        self.events.set(self.now + back, Event::ClaimAnswer { server, shard, won });
    }

    fn claim_answer(&mut self, server: usize, shard: usize, won: bool) {
        self.servers[server].in_flight -= 1;
        if won {
            let etcd = self.etcd_of(shard);
            let bytes = self.times.shard_bytes;
            let sent = self.etcds[etcd].reads.take(self.now, time_of(bytes, self.times.etcd_reads));
            let read = self.servers[server].reads.take(self.now, time_of(bytes, self.times.server_reads));
            let trip = self.jitter(self.times.transaction);
            self.events.set(sent.max(read) + trip, Event::Serve { server, shard });
        } else {
            self.events.set(self.now + CLAIM_AGAIN, Event::ClaimAgain { server, shard });
        }
        self.send_claims(server);
    }

    /// The time at which etcd executes a transaction that is sent now.
    fn transaction(&mut self, shard: usize) -> Duration {
        let there = self.jitter(self.times.transaction / 2);
        let etcd = self.etcd_of(shard);
        let takes = time_of(1, self.times.transactions_per_second);
        self.etcds[etcd].transactions.take(self.now, takes).max(self.now + there)
    }

    fn tell_server(&mut self, server: usize, takes: bool) {
        let at = (0..self.etcds.len()).map(|etcd| self.told(etcd, 1)).max().unwrap_or(self.now);
        self.events.set(at, Event::ServerTold { server, takes });
    }

    fn tell_owners(&mut self, etcd: usize, shards: Vec<usize>, owner: Option<usize>) {
        let at = self.told(etcd, shards.len());
        self.events.set(at, Event::OwnersTold { shards, owner });
    }

    /// The time at which the last server receives so many changes.
    fn told(&mut self, etcd: usize, changes: usize) -> Duration {
        let watches = self.servers.iter().filter(|server| server.up).count();
        let count = u64::try_from(watches * changes).unwrap_or(u64::MAX);
        let telling = time_of(count, self.times.told_per_second);
        self.etcds[etcd].telling.take(self.now, telling) + self.times.watch
    }

    fn ask_pass(&mut self) {
        if self.pass.is_none() {
            let at = self.last_pass.map_or(self.now, |last| self.now.max(last + self.times.pass));
            let at = at.max(self.settled_at());
            self.pass = Some(at);
            self.events.set(at, Event::Pass);
        }
    }

    /// The time until which servers wait for others that come or go at the same time.
    fn settled_at(&self) -> Duration {
        self.servers_changed.map_or(Duration::ZERO, |changed| changed + self.times.settle)
    }

    /// The cluster of etcd that holds a shard.
    fn etcd_of(&self, shard: usize) -> usize {
        shard / self.shards_per_etcd
    }

    /// Between half and one and a half of it.
    fn jitter(&mut self, time: Duration) -> Duration {
        time / 2 + self.draw(time)
    }

    /// Less than it.
    fn draw(&mut self, time: Duration) -> Duration {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.random.below(nanos))
    }
}
