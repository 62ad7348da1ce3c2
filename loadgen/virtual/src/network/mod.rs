//! A simulated network between one server and the connections of its clients. Every delay is drawn from the
//! seed.
//!
//! It is one of byte streams, as TCP makes them: in order and without loss as long as a connection stands.
//! Messages are split, delayed, and held back by a partition, one way or both; a connection can be reset; and
//! a server that is gone leaves connections that are reset, or, where its machine is gone, connections on
//! which nothing is heard any more.

mod pipe;
mod stream;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use stickycas_model::random::SplitMix64;
use stickycas_server::Listener;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::time::{Duration, Instant, sleep_until};

use crate::disk::Loss;
use crate::trace::Trace;
use pipe::after;
use stream::{Link, Side, Stream};

/// Pieces of a message that go at once, mostly.
const WHOLE: u64 = 8;
/// The port of the server.
const ADDRESS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 7420);

/// See the module. Clones are the same network.
#[derive(Clone, Debug)]
pub(crate) struct Network(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The name of the server in the trace.
    server: String,
    trace: Trace,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: SplitMix64,
    /// The longest delay of a message, in microseconds.
    slowest: u64,
    listening: Option<mpsc::UnboundedSender<(Stream, SocketAddr)>>,
    /// Whether the machine of the server is there, if the server is not.
    machine_up: bool,
    links: Vec<Weak<Link>>,
    /// For each host, the times until which data to the server and data from the server are held back.
    held: Vec<[Option<Instant>; 2]>,
}

/// The direction that a partition holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
    Both,
}

/// Accepts the connections of a simulated network.
#[derive(Debug)]
pub(crate) struct SimulatedListener(AsyncMutex<mpsc::UnboundedReceiver<(Stream, SocketAddr)>>);

impl Listener for SimulatedListener {
    type Io = Stream;

    async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match self.0.lock().await.recv().await {
            Some(accepted) => Ok(accepted),
            // The network has cut the server off, and the server does not know yet that it is gone.
            None => std::future::pending().await,
        }
    }
}

impl Network {
    /// A network with so many hosts, on which the server of this name does not listen yet. The last host has
    /// no delays.
    pub(crate) fn new(
        server: String,
        hosts: usize,
        slowest: Duration,
        random: SplitMix64,
        trace: Trace,
    ) -> Self {
        let state = State {
            random,
            slowest: micros(slowest),
            listening: None,
            machine_up: true,
            links: Vec::new(),
            held: vec![[None; 2]; hosts],
        };
        Self(Arc::new(Shared { server, trace, state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// The name of this side in the trace.
    fn name(&self, side: Side) -> &str {
        match side {
            Side::Client => "client",
            Side::Server => &self.0.server,
        }
    }

    /// The server listens from now on.
    pub(crate) fn listen(&self) -> SimulatedListener {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.state();
        (state.listening, state.machine_up) = (Some(sender), true);
        SimulatedListener(AsyncMutex::new(receiver))
    }

    /// A connection from this host.
    pub(crate) async fn connect(&self, host: usize) -> io::Result<Stream> {
        sleep_until(self.draw_arrival(host, Side::Server)).await;
        let stream = match self.accepted(host) {
            Ok(Some(stream)) => stream,
            // No server answers; the client gives up.
            Ok(None) => std::future::pending().await,
            Err(refused) => {
                sleep_until(self.draw_arrival(host, Side::Client)).await;
                return Err(refused);
            }
        };
        sleep_until(self.draw_arrival(host, Side::Client)).await;
        Ok(stream)
    }

    /// The client's end of a connection that the server accepts; `None`: its machine is gone.
    fn accepted(&self, host: usize) -> io::Result<Option<Stream>> {
        let mut state = self.state();
        let Some(listening) = state.listening.clone() else {
            return if state.machine_up { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(None) };
        };
        let link = Arc::new(Link::new(self.trace().number_connection(), host));
        state.links.retain(|link| link.strong_count() > 0);
        state.links.push(Arc::downgrade(&link));
        drop(state);
        let end = |side| Stream::new(self.clone(), link.clone(), side);
        // A server that has stopped listening in between resets it.
        let _ = listening.send((end(Side::Server), ADDRESS.into()));
        Ok(Some(end(Side::Client)))
    }

    fn links(&self) -> Vec<Arc<Link>> {
        self.state().links.iter().filter_map(Weak::upgrade).collect()
    }

    /// Nothing passes between this host and the server in this direction for so long; afterwards everything
    /// arrives.
    pub(crate) fn hold(&self, host: usize, direction: Direction, time: Duration) {
        self.0.trace.disturbance(format_args!("held: {host} {direction:?} for {time:?}, {}", self.0.server));
        let until = after(time);
        for side in [Side::Server, Side::Client] {
            let is_held = match direction {
                Direction::Both => true,
                Direction::ToServer => side == Side::Server,
                Direction::ToClient => side == Side::Client,
            };
            if is_held {
                self.state().held[host][side as usize] = Some(until);
                let links = self.links();
                links.iter().filter(|link| link.host == host).for_each(|link| link.to(side).delay(until));
            }
        }
    }

    /// All connections of this host are reset.
    pub(crate) fn reset(&self, host: usize) {
        self.0.trace.disturbance(format_args!("reset: {host}, {}", self.0.server));
        for link in self.links().iter().filter(|link| link.host == host) {
            for side in [Side::Server, Side::Client] {
                let arrives = self.draw_arrival(host, side);
                let mut pipe = link.to(side);
                if self.state().random.below(2) == 0 {
                    pipe.lose();
                }
                pipe.reset(arrives);
            }
        }
    }

    /// The server is gone from one moment to the next. Data that it has sent still arrive.
    pub(crate) fn cut_off(&self, loss: Loss) {
        self.0.trace.disturbance(format_args!("the {} is gone: {loss:?}", self.0.server));
        {
            let mut state = self.state();
            (state.listening, state.machine_up) = (None, loss == Loss::Process);
        }
        for link in self.links() {
            link.cut_off();
            let mut to_server = link.to(Side::Server);
            to_server.lose();
            to_server.silence();
            drop(to_server);
            let arrives = self.draw_arrival(link.host, Side::Client);
            let mut to_client = link.to(Side::Client);
            match loss {
                Loss::Process => to_client.reset(arrives),
                Loss::Power => to_client.silence(),
            }
        }
    }

    /// A server that has come back resets the connections of the one before it, when a client writes to them.
    fn answer_for_the_dead(&self, link: &Link) {
        if link.to(Side::Server).is_silent() && self.state().machine_up {
            let arrives = self.draw_arrival(link.host, Side::Client);
            link.to(Side::Client).reset(arrives);
        }
    }

    /// How many of so many bytes go on their way together.
    fn draw_piece(&self, bytes: usize) -> usize {
        let random = &mut self.state().random;
        if random.below(WHOLE) > 0 || bytes < 2 { bytes } else { 1 + random.index(bytes - 1) }
    }

    /// The arrival time of a message that is sent now.
    fn draw_arrival(&self, host: usize, to: Side) -> Instant {
        let mut state = self.state();
        let slowest = state.slowest;
        // Most are fast, a few are slow; of the last host all are fast.
        let bound = match state.random.below(10) {
            _ if host + 1 == state.held.len() => 1,
            0 => slowest,
            _ => slowest / 10,
        };
        let delay = Duration::from_micros(50 + state.random.below(bound));
        let arrives = after(delay);
        state.held[host][to as usize].map_or(arrives, |until| arrives.max(until + delay))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
