//! All instances as a table, sorted and filtered, however many there are.
//!
//! The table is a copy: a line for each instance, sorted when somebody asks for an order. It is renewed in the background
//! while somebody asks, piece by piece and outside all locks, and takes a fiftieth of one processor at most: the longer it
//! took to make, the longer it is used. Nobody is shown what is not committed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use http::StatusCode;
use stickycas_model::machine::{Brief, State};
use stickycas_model::types::{Phase, ProcessId};
use stickycas_page::frame::state_name;
use stickycas_page::source::{ListQuery, Page, Refused, Row};
use stickycas_proto::names::InstanceId;

use super::heavy::Heavy;
use super::viewer::{Viewer, refusal};
use crate::auth::Principal;
use crate::instances::{Instance, Instances, SharedConfig};
use crate::service::PageTokens;

/// Lines of a page.
const LINES: usize = 100;
/// Instances that are looked at for a page; behind them the next one begins, however few there were.
const LOOKED_AT: usize = 100_000;
/// Instances that are copied in one piece.
const PIECE: usize = 1_024;
/// How long a table is used at least.
const USED: Duration = Duration::from_secs(1);
/// A table is used so many times as long as it took to make.
const TIMES: u32 = 50;
/// A table that is so many times older than it should be is not shown any more.
const TOO_OLD: u32 = 4;
/// After how long a table that nobody asks for is dropped.
const UNUSED: Duration = Duration::from_secs(30);
/// Searches that are made at a time.
const SEARCHES: usize = 2;
/// The longest text that is searched for.
const TEXT: usize = 256;

/// The tables, one after the other.
#[derive(Debug)]
pub(super) struct Tables {
    instances: Arc<Instances>,
    latest: ArcSwapOption<Table>,
    /// Held by whoever makes one.
    making: tokio::sync::Mutex<()>,
    /// To sort a million lines, or to look through them, is no work for a thread that serves.
    searches: Heavy,
    page_tokens: PageTokens,
    began: Instant,
    /// When somebody asked last, in milliseconds since `began`.
    asked: AtomicU64,
}

/// See the module.
#[derive(Debug)]
struct Table {
    /// In the order of ids.
    lines: Vec<Line>,
    made: Instant,
    took: Duration,
    /// The places of the lines in each order.
    orders: [OnceLock<Vec<u32>>; Order::ALL.len()],
    /// How many there are of each state.
    states: [u64; STATES.len()],
}

#[derive(Debug)]
struct Line {
    instance: Arc<Instance>,
    /// In nanoseconds since 1970.
    created: u64,
    brief: Brief,
}

const STATES: [State; 4] = [State::Gathering, State::Running, State::Finished, State::Closed];

/// By what lines are sorted; then by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Created,
    Phase,
    Length,
    Awaited,
}

impl Order {
    const ALL: [Self; 4] = [Self::Created, Self::Phase, Self::Length, Self::Awaited];

    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "" | "created" => Self::Created,
            "phase" => Self::Phase,
            "length" => Self::Length,
            "awaited" => Self::Awaited,
            _ => return None,
        })
    }

    fn key(self, line: &Line) -> u64 {
        match self {
            Self::Created => line.created,
            Self::Phase => line.brief.phase.map_or(0, Phase::get),
            Self::Length => line.brief.length.into(),
            Self::Awaited => line.brief.awaited.into(),
        }
    }
}

/// A query, checked.
#[derive(Clone, Debug)]
struct Wanted {
    state: Option<State>,
    text: String,
    order: Order,
    descending: bool,
    /// Behind this key and id.
    after: Option<(u64, u128)>,
}

impl Tables {
    pub(super) fn new(instances: Arc<Instances>) -> Arc<Self> {
        Arc::new(Self {
            instances,
            latest: ArcSwapOption::empty(),
            making: tokio::sync::Mutex::default(),
            searches: Heavy::new(SEARCHES),
            page_tokens: PageTokens::new(),
            began: Instant::now(),
            asked: AtomicU64::new(0),
        })
    }

    /// The lines that a viewer asks for, of the instances that it may look at.
    ///
    /// # Errors
    /// If the query is wrong.
    pub(super) async fn list(self: &Arc<Self>, viewer: &Viewer, query: &ListQuery) -> Result<Page, Refused> {
        let wanted = self.check(viewer, query)?;
        let table = self.current().await?;
        let found = {
            let (table, wanted, viewer) = (table.clone(), wanted.clone(), viewer.clone());
            self.searches.run(move || table.find(&wanted, may_see(&viewer))).await.ok_or_else(internal)?
        };
        let sealed = found.next.map(|(key, id)| {
            let bytes = [key.to_be_bytes().as_slice(), &id.to_be_bytes()].concat();
            self.page_tokens.seal(&bytes, name(viewer))
        });
        Ok(Page {
            rows: found.places.into_iter().map(|place| row(&table.lines[place as usize])).collect(),
            total: viewer.sees_all().then(|| table.total(&wanted)).flatten(),
            next: sealed.transpose().map_err(|refused| refusal(&refused))?,
        })
    }

    fn check(&self, viewer: &Viewer, query: &ListQuery) -> Result<Wanted, Refused> {
        let bad = |why: String| Refused { status: StatusCode::BAD_REQUEST, why };
        let state = STATES.into_iter().find(|state| state_name(*state) == query.state);
        if state.is_none() && !query.state.is_empty() {
            return Err(bad(format!("{:?} is no state: give one of {}", query.state, names().join(", "))));
        }
        if query.text.len() > TEXT {
            return Err(bad(format!("the text has {} bytes: give at most {TEXT}", query.text.len())));
        }
        let order = Order::from_name(&query.sort);
        let order = order.ok_or_else(|| {
            bad(format!("{:?} is no column to sort by: give created, phase, length or awaited", query.sort))
        })?;
        let after = match query.page.as_str() {
            "" => None,
            token => {
                let bytes =
                    self.page_tokens.open(token, name(viewer)).map_err(|refused| refusal(&refused))?;
                let (key, id) = bytes.split_at(8);
                let number =
                    |bytes: &[u8]| bytes.iter().fold(0_u128, |all, byte| all << 8 | u128::from(*byte));
                Some((u64::try_from(number(key)).unwrap_or(u64::MAX), number(id)))
            }
        };
        let text = query.text.to_lowercase();
        Ok(Wanted { state, text, order, descending: query.descending, after })
    }

    /// A table that is new enough. One that is a little older is renewed meanwhile.
    async fn current(self: &Arc<Self>) -> Result<Arc<Table>, Refused> {
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
        made.await.map_err(|_| internal())?
    }

    async fn make(self: &Arc<Self>) -> Result<Arc<Table>, Refused> {
        let instances = self.instances.clone();
        let made = tokio::task::spawn_blocking(move || Table::of(&instances)).await;
        let table = Arc::new(made.map_err(|_| internal())?);
        // Everything in it is committed when this is.
        if let Some(committed) = self.instances.refusal_barrier() {
            let _ = committed.await;
        }
        if let Some(failure) = self.instances.log_failure() {
            return Err(refusal(&failure));
        }
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

/// Places of lines, and the key and id behind which there may be more.
struct Found {
    places: Vec<u32>,
    next: Option<(u64, u128)>,
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
        let states = STATES.map(|state| lines.iter().filter(|line| line.brief.state == state).count() as u64);
        Self { lines, made: Instant::now(), took: began.elapsed(), orders: Default::default(), states }
    }

    /// How long it is used.
    fn used(&self) -> Duration {
        USED.max(self.took * TIMES)
    }

    fn in_order(&self, order: Order) -> &[u32] {
        self.orders[order as usize].get_or_init(|| {
            let mut places: Vec<u32> = (0..u32::try_from(self.lines.len()).unwrap_or(u32::MAX)).collect();
            // Places are in the order of ids, which the sort keeps.
            places.sort_by_cached_key(|place| order.key(&self.lines[*place as usize]));
            places
        })
    }

    fn position(&self, order: Order, place: u32) -> (u64, u128) {
        let line = &self.lines[place as usize];
        (order.key(line), line.instance.config().id.get())
    }

    fn find(&self, wanted: &Wanted, may_see: impl FnMut(&Instance) -> bool) -> Found {
        let places = self.in_order(wanted.order);
        let position = |place: &u32| self.position(wanted.order, *place);
        if wanted.descending {
            let end =
                wanted.after.map_or(places.len(), |after| places.partition_point(|it| position(it) < after));
            self.take(wanted, places[..end].iter().rev(), may_see)
        } else {
            let start = wanted.after.map_or(0, |after| places.partition_point(|it| position(it) <= after));
            self.take(wanted, places[start..].iter(), may_see)
        }
    }

    fn take<'a>(
        &self,
        wanted: &Wanted,
        mut places: impl ExactSizeIterator<Item = &'a u32>,
        mut may_see: impl FnMut(&Instance) -> bool,
    ) -> Found {
        let mut found = Found { places: Vec::new(), next: None };
        let mut looked_at = 0;
        while let Some(place) = places.next() {
            let line = &self.lines[*place as usize];
            looked_at += 1;
            if wanted.takes(line) && may_see(&line.instance) {
                found.places.push(*place);
            }
            if found.places.len() == LINES || looked_at == LOOKED_AT {
                found.next = (places.len() > 0).then(|| self.position(wanted.order, *place));
                break;
            }
        }
        found
    }

    /// How many lines there are in all, if they were counted.
    fn total(&self, wanted: &Wanted) -> Option<u64> {
        match wanted.state {
            _ if !wanted.text.is_empty() => None,
            None => Some(self.lines.len() as u64),
            Some(state) => {
                STATES.iter().zip(self.states).find(|(it, _)| **it == state).map(|(_, count)| count)
            }
        }
    }
}

impl Wanted {
    fn takes(&self, line: &Line) -> bool {
        if self.state.is_some_and(|state| line.brief.state != state) {
            return false;
        }
        if self.text.is_empty() {
            return true;
        }
        let config = line.instance.config();
        let named =
            config.name.as_ref().is_some_and(|name| name.as_str().to_lowercase().contains(&self.text));
        named || config.id.to_string().starts_with(&self.text)
    }
}

impl Line {
    fn of(instance: Arc<Instance>) -> Option<Self> {
        let brief = instance.brief()?;
        let created = instance.config().created().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(Self { created: u64::try_from(created.as_nanos()).unwrap_or(u64::MAX), brief, instance })
    }
}

fn row(line: &Line) -> Row {
    let (config, brief) = (line.instance.config(), line.brief);
    Row {
        id: config.id.to_string(),
        name: config.name.as_ref().map_or(String::new(), ToString::to_string),
        state: state_name(brief.state),
        processes: config.shared.params.processes(),
        phase: brief.phase.map(Phase::get),
        length: brief.length,
        awaited: (brief.awaited as usize, brief.first_awaited.map(ProcessId::get)),
        offences: brief.offences.into(),
    }
}

/// Whether this viewer may look at an instance: it is found out once for all instances with the same configuration.
fn may_see(viewer: &Viewer) -> impl FnMut(&Instance) -> bool {
    let mut seen: HashMap<*const SharedConfig, bool> = HashMap::new();
    move |instance| {
        let shared = Arc::as_ptr(&instance.config().shared);
        viewer.sees_all() || *seen.entry(shared).or_insert_with(|| viewer.basis(instance).is_ok())
    }
}

/// Under which page tokens are sealed.
fn name(viewer: &Viewer) -> &str {
    viewer.principal().map_or("", Principal::as_str)
}

fn names() -> [&'static str; STATES.len()] {
    STATES.map(state_name)
}

fn internal() -> Refused {
    Refused { status: StatusCode::INTERNAL_SERVER_ERROR, why: "the table could not be made".to_owned() }
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
            created.committed().await.unwrap().unwrap();
        }
        instances
    }

    fn wanted(after: Option<(u64, u128)>, text: &str) -> Wanted {
        let order = Order::Length;
        Wanted { state: None, text: text.to_owned(), order, descending: true, after }
    }

    #[tokio::test]
    async fn pages_follow_each_other_without_gap_or_repetition() {
        let instances = instances(250).await;
        let table = Table::of(&instances);
        let mut seen = BTreeSet::new();
        let mut after = None;
        // All have the same length, so the id alone tells where a page ends.
        for lines in [LINES, LINES, 50] {
            let found = table.find(&wanted(after, ""), |_| true);
            assert_eq!(found.places.len(), lines);
            seen.extend(found.places);
            after = found.next;
        }
        assert_eq!((seen.len(), after), (250, None));
        assert_eq!(table.find(&wanted(None, "n-1"), |_| true).places.len(), 11, "10, and 100 to 190");
        assert_eq!(table.find(&wanted(None, ""), |_| false).places.len(), 0);
    }
}
