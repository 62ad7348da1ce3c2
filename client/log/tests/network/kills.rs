//! Members, the coordinator and a durable server are killed while members append, or elect.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stickycas_log::{Elected, Election, LogError, Member, Place, Reader, SeriesSpec};
use stickycas_model::random::SplitMix64;
use tokio::task::{AbortHandle, JoinSet};

use crate::support::{attack, check, coordinate, read_to, series, spec};

/// Kills of a test run; `STICKYCAS_LOG_KILLS` gives another number.
const KILLS: u64 = 30;

/// The program of the server, on a folder.
pub struct Server {
    child: Child,
    pub address: String,
}

impl Server {
    pub fn start(data: &Path, listen: &str) -> Self {
        let tests = std::env::current_exe().unwrap();
        let program = tests.parent().and_then(Path::parent).unwrap().join("stickycas-server");
        assert!(program.is_file(), "the program of the server is missing: cargo build -p stickycas-server");
        let flags = "--insecure-principals --coordinator coordinator --no-http --log error --rejoin 200ms --retention 1d";
        let mut child = Command::new(program)
            .arg("serve")
            .args(flags.split(' '))
            .args(["--listen", listen, "--data"])
            .arg(data.join("log"))
            // It takes no variable that it does not know.
            .env_clear()
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let address = line.split_whitespace().last().expect("it prints where it listens");
        let address = address.trim_start_matches("http://").to_owned();
        Self { child, address }
    }

    /// Kills it, and starts it again at the same address.
    pub fn kill(&mut self, data: &Path) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        *self = Self::start(data, &self.address);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A durable server, the coordinator and three correct members beside a Byzantine one, to be killed.
struct Killed {
    folder: tempfile::TempDir,
    server: Server,
    spec: SeriesSpec,
    tasks: JoinSet<()>,
    coordinator: AbortHandle,
    members: Vec<AbortHandle>,
    attacked: Arc<AtomicU64>,
    random: SplitMix64,
}

impl Killed {
    /// Starts all; `live` makes a life of the member with this number, from 1, at this server.
    fn start<L: Future<Output = ()> + Send + 'static>(
        seed: u64,
        window: u64,
        live: impl Fn(String, u32, u64) -> L,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path(), "127.0.0.1:0");
        let (address, mut tasks) = (server.address.clone(), JoinSet::new());
        let spec = SeriesSpec { window, ..spec(4, 2) };
        let coordinator = coordinate(&mut tasks, &address, spec.clone());
        let attacked = attack(&mut tasks, &address, 4);
        let members = (1..=3).map(|number| tasks.spawn(live(address.clone(), number, 0))).collect();
        Self { folder, server, spec, tasks, coordinator, members, attacked, random: SplitMix64::new(seed) }
    }

    /// Waits a moment. Nobody ends without being killed.
    async fn wait(&mut self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
        while let Some(ended) = self.tasks.try_join_next() {
            assert!(ended.is_err_and(|error| error.is_cancelled()), "a task has ended by itself");
        }
    }

    /// Kills one after the other, each when something has happened since the last kill. How often the server,
    /// a member and the coordinator were killed.
    async fn kill<L: Future<Output = ()> + Send + 'static>(
        &mut self,
        progress: &AtomicU64,
        live: impl Fn(String, u32, u64) -> L,
    ) -> [u64; 3] {
        let kills = std::env::var("STICKYCAS_LOG_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
        let (address, mut killed) = (self.server.address.clone(), [0_u64; 3]);
        for kill in 1..=kills {
            let until = progress.load(Ordering::SeqCst) + 1 + self.random.below(6);
            while progress.load(Ordering::SeqCst) < until {
                self.wait().await;
            }
            let kind = self.random.index(3);
            killed[kind] += 1;
            match kind {
                0 => self.server.kill(self.folder.path()),
                1 => {
                    let index = self.random.index(self.members.len());
                    self.members[index].abort();
                    let number = u32::try_from(index).unwrap() + 1;
                    self.members[index] = self.tasks.spawn(live(address.clone(), number, kill));
                }
                _ => {
                    self.coordinator.abort();
                    self.coordinator = coordinate(&mut self.tasks, &address, self.spec.clone());
                }
            }
        }
        assert!(self.attacked.load(Ordering::Relaxed) > 0);
        killed
    }
}

/// How often a life may be replaced by requests of those killed before it.
const MOST_REPLACED: usize = 8;

/// What the appends of all lives have come to, by value.
#[derive(Clone, Default)]
struct Appends {
    begun: Arc<Mutex<Vec<String>>>,
    answered: Arc<Mutex<BTreeMap<String, Place>>>,
}

impl Appends {
    /// One life of a member, which appends one value after the other, and of its driver. A request of a
    /// killed life may reach the server after this one has begun, and replace it: then the member joins
    /// again.
    async fn live(self, address: String, number: u32, life: u64) {
        let mut values = 0_u64..;
        for _ in 0..=MOST_REPLACED {
            let (member, driver) = Member::join(&series(&address, &format!("m{number}"))).await.unwrap();
            let mut own = JoinSet::new();
            own.spawn(driver.run());
            for value in &mut values {
                let text = format!("value {value} of life {life} of {number}");
                self.begun.lock().unwrap().push(text.clone());
                match member.append(text.as_str()).await {
                    Ok(place) => drop(self.answered.lock().unwrap().insert(text, place)),
                    Err(LogError::Ended) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let ended = own.join_next().await.unwrap().unwrap();
            assert!(life > 0 && matches!(ended, Err(LogError::Replaced(_))), "{ended:?}");
        }
        panic!("life {life} of {number} was replaced more than {MOST_REPLACED} times");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_make_no_gap_no_duplicate_and_no_two_values() {
    let (seed, appends) = (rand::random(), Appends::default());
    println!("seed {seed}");
    let live = |address, number, life| appends.clone().live(address, number, life);
    let mut killed = Killed::start(seed, spec(4, 2).window, live);
    let address = killed.server.address.clone();
    // A reader that reads all along, through every kill.
    let (read, values) = (Arc::new(AtomicU64::new(1)), Arc::new(Mutex::new(Vec::new())));
    killed.tasks.spawn({
        let (mut reader, read, values) =
            (Reader::new(&series(&address, "m1"), 1), read.clone(), values.clone());
        async move {
            loop {
                let next = reader.next().await.unwrap();
                values.lock().unwrap().extend(next);
                read.store(reader.slot(), Ordering::SeqCst);
            }
        }
    });
    let kills = killed.kill(&read, live).await;
    // Nobody is stuck: each member has another append answered.
    let before = appends.begun.lock().unwrap().len();
    let is_stuck = |number: u32| {
        let (begun, answered) = (appends.begun.lock().unwrap(), appends.answered.lock().unwrap());
        let own = format!(" of {number}");
        !begun[before..].iter().any(|text| text.ends_with(&own) && answered.contains_key(text))
    };
    while (1..=3).any(is_stuck) {
        killed.wait().await;
    }
    killed.members.iter().for_each(AbortHandle::abort);
    let answered = appends.answered.lock().unwrap().clone();
    let begun = appends.begun.lock().unwrap().clone();
    let last = *answered.values().max().unwrap();
    let log = read_to(&mut Reader::new(&series(&address, "m2"), 1), last).await.unwrap();
    check(&log, &answered, &begun);
    let mut values = values.lock().unwrap().clone();
    values.retain(|it| it.place.slot <= last.slot);
    assert!(log.starts_with(&values) && !values.is_empty(), "the reader has read something else");
    println!("{} values in {} slots, {kills:?} kills of server, members, coordinator", log.len(), last.slot);
}

/// The outcomes of all epochs, as all lives of all members have learnt them.
#[derive(Clone, Default)]
struct Outcomes {
    of_epoch: Arc<Mutex<BTreeMap<u64, Elected>>>,
    newest: Arc<AtomicU64>,
}

impl Outcomes {
    fn learn(&self, elected: &Elected) {
        self.newest.fetch_max(elected.epoch, Ordering::SeqCst);
        let mut outcomes = self.of_epoch.lock().unwrap();
        let first = outcomes.entry(elected.epoch).or_insert_with(|| elected.clone());
        assert_eq!(first, elected, "two leaders of an epoch");
    }

    /// One life of a member, which supports somebody else in each epoch. A request of a killed life may reach
    /// the server after this one has begun, and replace it: then it supports again.
    async fn live(self, address: String, number: u32, life: u64) {
        let election = Election::new(&series(&address, &format!("m{number}")));
        let current = match election.current().await {
            // The coordinator has created none yet.
            Err(LogError::Nothing(_)) => None,
            current => current.unwrap(),
        };
        let next = current.as_ref().map_or(1, |elected| elected.epoch + 1);
        current.iter().for_each(|elected| self.learn(elected));
        let mut replaced = 0;
        for epoch in next.. {
            let elected = loop {
                match election.support(epoch, &format!("m{}", 1 + epoch % 3)).await {
                    Err(LogError::Replaced(_)) if life > 0 && replaced < MOST_REPLACED => replaced += 1,
                    elected => break elected.unwrap(),
                }
            };
            self.learn(&elected);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_make_no_two_leaders_of_an_epoch() {
    let (seed, outcomes) = (rand::random(), Outcomes::default());
    println!("seed {seed}");
    let live = |address, number, life| outcomes.clone().live(address, number, life);
    let mut killed = Killed::start(seed, 1, live);
    let kills = killed.kill(&outcomes.newest, live).await;
    // Each epoch has an outcome, the same for whoever asks later.
    let observer = Election::new(&series(&killed.server.address, "m2"));
    let newest = outcomes.newest.load(Ordering::SeqCst);
    let mut leaders = 0;
    for epoch in 1..=newest {
        let elected = observer.outcome(epoch).await.unwrap();
        leaders += u32::from(elected.leader.is_some());
        outcomes.learn(&elected);
    }
    println!("{leaders} leaders in {newest} epochs, {kills:?} kills of server, members, coordinator");
    assert!(leaders > 0);
}
