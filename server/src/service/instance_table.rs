//! All instances as a table, sorted and filtered, however many there are: for List.
//!
//! Those that run come first, then those that gather, that are finished, and that are closed; of one state
//! the newest first.
//!
//! The table is a sorted copy: a line for each instance. It is renewed in the background while somebody asks,
//! piece by piece and outside all locks, and takes a fiftieth of one processor at most: the longer it took to
//! make, the longer it is used. Nobody is shown uncommitted steps.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use stickycas_model::machine::State;
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::blocking_pool::BlockingPool;
use crate::instances::{Instance, Instances, SharedConfig};

/// Instances that are looked at for a page; behind them the next one begins, however few there were.
const LOOKED_AT: usize = 100_000;
/// Instances that are copied in one piece.
const PIECE: usize = 1_024;
/// The time for which a table is used at least.
const USED: Duration = Duration::from_secs(1);
/// A table is used so many times as long as it took to make.
const TIMES: u32 = 50;
/// A table that is so many times older than it should be is not shown any more.
const TOO_OLD: u32 = 4;
/// After how long a table that nobody asks for is dropped.
const UNUSED: Duration = Duration::from_secs(30);
/// Searches that are made at a time.
const SEARCHES: usize = 2;
/// The most bytes of a text that is searched for.
const TEXT: usize = 256;

/// The tables, one after the other.
#[derive(Debug)]
pub(crate) struct Tables {
    instances: Arc<Instances>,
    latest: ArcSwapOption<Table>,
    /// Held by the task that makes one.
    making: tokio::sync::Mutex<()>,
    /// To look through a million lines is no work for a thread that serves.
    searches: BlockingPool,
    began: Instant,
    /// The moment of the last request, in milliseconds since `began`.
    asked: AtomicU64,
}

/// See the module.
#[derive(Debug)]
struct Table {
    /// In the order in which they are shown.
    lines: Vec<Line>,
    made: Instant,
    took: Duration,
}

/// An instance as the table has it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) instance: Arc<Instance>,
    pub(crate) place: Place,
    state: State,
}

/// A place in the table, in the order of states, then of ages, then of ids: behind it the next page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    key: u64,
    id: u128,
}

impl Place {
    /// Of an instance in this state that was created at this moment, in nanoseconds since 1970.
    fn new(state: State, created: u64, id: InstanceId) -> Self {
        /// Nanoseconds since 1970 until the year 2116.
        const AGE: u64 = u64::MAX >> 2;
        let state = match state {
            State::Running => 0,
            State::Gathering => 1,
            State::Finished => 2,
            State::Closed => 3,
        };
        Self { key: state << 62 | AGE.saturating_sub(created), id: id.get() }
    }

    /// As page tokens have it.
    pub(crate) fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.key.to_be_bytes());
        bytes[8..].copy_from_slice(&self.id.to_be_bytes());
        bytes
    }

    /// `None`: no place has these bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (key, id) = bytes.split_at_checked(8)?;
        let (key, id) = (u64::from_be_bytes(key.try_into().ok()?), u128::from_be_bytes(id.try_into().ok()?));
        Some(Self { key, id })
    }
}

/// The lines that a caller asks for.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) filter: Filter,
    pub(crate) after: Option<Place>,
    /// The most lines of a page.
    pub(crate) limit: usize,
}

/// The conditions for a line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// One of these states; empty: any.
    states: Vec<State>,
    /// In its name, in lower case, or at the beginning of its id.
    text: String,
}

/// The lines of a page.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) lines: Vec<Line>,
    /// Behind this place there may be more.
    pub(crate) next: Option<Place>,
}

impl Tables {
    pub(super) fn new(instances: Arc<Instances>) -> Arc<Self> {
        Arc::new(Self {
            instances,
            latest: ArcSwapOption::empty(),
            making: tokio::sync::Mutex::default(),
            searches: BlockingPool::new(SEARCHES),
            began: Instant::now(),
            asked: AtomicU64::new(0),
        })
    }

    /// The lines that this query takes, of the instances that the caller may look at.
    ///
    /// # Errors
    /// If nothing may be told, since the log has failed or other servers may own the instances.
    pub(crate) async fn find(
        self: &Arc<Self>,
        query: Query,
        may_see: impl Fn(&Instance) -> bool + Send + 'static,
    ) -> Result<Found, RpcRefusal> {
        let table = self.current().await?;
        self.searches.run(move || table.find(&query, may_see)).await.ok_or_else(RpcRefusal::internal)
    }

    /// A table that is new enough. One that is a little older is renewed meanwhile.
    async fn current(self: &Arc<Self>) -> Result<Arc<Table>, RpcRefusal> {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.asked.store(now, Ordering::Relaxed);
        if let Some(table) = self.latest.load_full() {
            let (age, used) = (table.made.elapsed(), table.used());
            if age < used {
                return Ok(table);
            }
            if age < used * TOO_OLD {
                let tables = self.clone();
                tokio::spawn(async move {
                    if let Ok(_making) = tables.making.try_lock() {
                        let _ = tables.make().await;
                    }
                });
                return Ok(table);
            }
        }
        let tables = self.clone();
        // A task of its own: requests that are cancelled would otherwise have one made beside the other.
        let made = tokio::spawn(async move {
            let _making = tables.making.lock().await;
            match tables.latest.load_full() {
                // Somebody else has made one meanwhile.
                Some(table) if table.made.elapsed() < table.used() => Ok(table),
                _ => tables.make().await,
            }
        });
        made.await.map_err(|_| RpcRefusal::internal())?
    }

    async fn make(self: &Arc<Self>) -> Result<Arc<Table>, RpcRefusal> {
        let instances = self.instances.clone();
        let made = tokio::task::spawn_blocking(move || Table::of(&instances)).await;
        let table = Arc::new(made.map_err(|_| RpcRefusal::internal())?);
        // Everything in it is committed when this is.
        let gates = self.instances.gates();
        gates.everything_committed().and(gates.ownership()).await?;
        self.latest.store(Some(table.clone()));
        Ok(table)
    }

    /// Drops the table when nobody asks for it, for ever: it keeps what was removed.
    pub(super) async fn forget_unused(&self) {
        loop {
            tokio::time::sleep(UNUSED / 3).await;
            let asked = Duration::from_millis(self.asked.load(Ordering::Relaxed));
            if self.began.elapsed().saturating_sub(asked) > UNUSED {
                self.latest.store(None);
            }
        }
    }
}

impl Table {
    fn of(instances: &Instances) -> Self {
        let began = Instant::now();
        let mut lines = Vec::with_capacity(instances.held());
        let mut after: Option<InstanceId> = None;
        loop {
            let piece = instances.after(after, PIECE);
            let Some(last) = piece.last() else { break };
            after = Some(last.config().id);
            lines.extend(piece.into_iter().filter_map(Line::of));
            std::thread::yield_now();
        }
        lines.sort_unstable_by_key(|line| line.place);
        Self { lines, made: Instant::now(), took: began.elapsed() }
    }

    /// The time for which it is used.
    fn used(&self) -> Duration {
        USED.max(self.took * TIMES)
    }

    fn find(&self, query: &Query, may_see: impl Fn(&Instance) -> bool) -> Found {
        let start = query.after.map_or(0, |after| self.lines.partition_point(|line| line.place <= after));
        // It is found out once for all instances with the same configuration.
        let mut seen: HashMap<*const SharedConfig, bool> = HashMap::new();
        let mut found = Found { lines: Vec::new(), next: None };
        for (at, line) in (1..).zip(&self.lines[start..]) {
            let Line { instance, place, state } = line;
            if query.filter.takes(instance, *state)
                && *seen.entry(Arc::as_ptr(&instance.config().shared)).or_insert_with(|| may_see(instance))
            {
                found.lines.push(line.clone());
            }
            if found.lines.len() == query.limit || at == LOOKED_AT {
                found.next = (start + at < self.lines.len()).then_some(*place);
                break;
            }
        }
        found
    }
}

impl Filter {
    /// States: empty for any.
    ///
    /// # Errors
    /// MALFORMED, if the text is too long.
    pub(crate) fn new(states: Vec<State>, text: &str) -> Result<Self, RpcRefusal> {
        if text.len() > TEXT {
            let why = format!("the text has {} bytes: give at most {TEXT}", text.len());
            return Err(RpcRefusal::new(RefusalReason::Malformed, why));
        }
        Ok(Self { states, text: text.to_lowercase() })
    }

    /// Whether it takes an instance that is in this state.
    pub(crate) fn takes(&self, instance: &Instance, state: State) -> bool {
        if !self.states.is_empty() && !self.states.contains(&state) {
            return false;
        }
        if self.text.is_empty() {
            return true;
        }
        let config = instance.config();
        let named =
            config.name.as_ref().is_some_and(|name| name.as_str().to_lowercase().contains(&self.text));
        named || config.id.to_string().starts_with(&self.text)
    }
}

impl Line {
    fn of(instance: Arc<Instance>) -> Option<Self> {
        let (state, config) = (instance.latest_state()?, instance.config());
        let created = config.created().duration_since(UNIX_EPOCH).unwrap_or_default();
        let place = Place::new(state, u64::try_from(created.as_nanos()).unwrap_or(u64::MAX), config.id);
        Some(Self { place, state, instance })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stickycas_model::params::{Params, ParamsSpec};

    use super::*;
    use crate::auth::Principal;
    use crate::commit_log::{CommitLog, MemoryLog};
    use crate::instances::CreateSpec;
    use crate::limits::Limits;

    /// So many instances of one process each, every tenth of which is named.
    async fn instances(count: usize) -> Arc<Instances> {
        let log: Arc<dyn CommitLog> = Arc::<MemoryLog>::default();
        let limits = Limits {
            live_instances: usize::MAX,
            live_instances_per_creator: usize::MAX,
            instances_when_busy: usize::MAX,
            instance_bytes: usize::MAX,
            ..Limits::default()
        };
        let instances = Instances::new(limits, &log);
        let params = Params::try_new(ParamsSpec { max_value_bytes: 8, ..ParamsSpec::new(1, 1, 1) }).unwrap();
        for number in 0..count {
            let name = (number % 10 == 0).then(|| format!("n-{number}").parse().unwrap());
            let roster = vec!["p1".to_owned()];
            let spec = CreateSpec { name, params: params.clone(), seed_given: false, roster };
            let created = instances.create(&Principal::new("creator"), spec).await;
            created.unwrap().committed().await.unwrap();
        }
        instances
    }

    const LINES: usize = 100;

    fn query(after: Option<Place>, text: &str) -> Query {
        let filter = Filter::new(Vec::new(), text).unwrap();
        Query { filter, after, limit: LINES }
    }

    #[tokio::test]
    async fn pages_follow_each_other_without_gap_or_repetition() {
        let instances = instances(250).await;
        let table = Table::of(&instances);
        let mut seen = BTreeSet::new();
        let mut after = None;
        for lines in [LINES, LINES, 50] {
            let found = table.find(&query(after, ""), |_| true);
            assert_eq!(found.lines.len(), lines);
            seen.extend(found.lines.iter().map(|line| line.instance.config().id));
            after = found.next;
        }
        assert_eq!((seen.len(), after), (250, None));
        assert_eq!(table.find(&query(None, "N-1"), |_| true).lines.len(), 11, "10, and 100 to 190");
        assert_eq!(table.find(&query(None, ""), |_| false).lines.len(), 0);
    }

    #[tokio::test]
    async fn those_that_run_come_first_and_of_one_state_the_newest() {
        let instances = instances(4).await;
        let mut table = Table::of(&instances);
        let states = [State::Closed, State::Running, State::Gathering, State::Running];
        let ids: Vec<_> = table.lines.iter().map(|line| line.instance.config().id).collect();
        for ((line, state), created) in table.lines.iter_mut().zip(states).zip(1..) {
            (line.state, line.place) = (state, Place::new(state, created, line.instance.config().id));
        }
        table.lines.sort_unstable_by_key(|line| line.place);
        let states = vec![State::Running, State::Closed];
        let filter = Filter::new(states, "").unwrap();
        let query = Query { filter, after: None, limit: LINES };
        let number = |line: &Line| 1 + ids.iter().position(|id| *id == line.instance.config().id).unwrap();
        let created = |found: Found| found.lines.iter().map(number).collect::<Vec<_>>();
        assert_eq!(created(table.find(&query, |_| true)), [4, 2, 1]);
        let all = Query { filter: Filter::default(), ..query };
        assert_eq!(created(table.find(&all, |_| true)), [4, 2, 3, 1]);
    }

    #[test]
    fn a_place_is_the_same_after_its_bytes() {
        let place = Place { key: 7, id: u128::MAX - 1 };
        assert_eq!(Place::from_bytes(&place.to_bytes()), Some(place));
        assert_eq!(Place::from_bytes(&place.to_bytes()[1..]), None);
        assert_eq!(Place::from_bytes(&[]), None);
    }
}
