//! The table of all instances, as the page asks for it: pages of List, each asked for once for all viewers.
//!
//! The server is asked for one page at a time, and at such a pace that it works for the table a fiftieth of
//! the time at most, whatever viewers ask for.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use http::StatusCode;
use stickycas_client::info::Summary;
use stickycas_client::{Client, TablePlace, TableQuery};
use stickycas_model::machine::State;
use stickycas_model::types::{Phase, ProcessId};
use stickycas_page::cut::cut;
use stickycas_page::frame::state_name;
use stickycas_page::source::{ListQuery, Page, Refused, Row};
use tokio::time::{Instant, sleep};

use crate::refusal::refusal;

/// Rows of a page.
const ROWS: u32 = 100;
/// The longest text that is looked for, in bytes.
const TEXT: usize = 256;
/// For how long a page is shown before it is asked for again.
const SHOWN: Duration = Duration::from_secs(2);
/// After how long it is not shown any more, though the server is asked too much to be asked again.
const TOO_OLD: Duration = Duration::from_secs(60);
/// The pages that are kept, and the places behind pages that were shown.
const PAGES: usize = 256;
const PLACES: usize = 4_096;
/// The part of the time for which the server works for the table, and for how long it may at once after a
/// pause.
const SHARE: f64 = 0.02;
const AT_ONCE: f64 = 2.0;

/// All states.
const STATES: [State; 4] = [State::Gathering, State::Running, State::Finished, State::Closed];

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    client: Client,
    pages: Mutex<HashMap<Asked, (Instant, Page)>>,
    /// Behind pages that were shown, by what viewers name them. The latest at the end.
    places: Mutex<VecDeque<(String, TablePlace)>>,
    /// Held by the request that asks the server.
    pace: tokio::sync::Mutex<Pace>,
}

/// The query of a viewer: a state, a text, and a place.
type Asked = (Option<&'static str>, String, String);

impl Table {
    pub(crate) fn new(client: Client) -> Self {
        let pace = tokio::sync::Mutex::new(Pace { seconds: AT_ONCE, at: Instant::now() });
        Self { client, pages: Mutex::default(), places: Mutex::default(), pace }
    }

    /// The rows that a viewer asks for.
    ///
    /// # Errors
    /// If the query is wrong, or the server does not answer.
    pub(crate) async fn list(&self, query: &ListQuery) -> Result<Page, Refused> {
        let (asked, wanted, after) = self.check(query)?;
        if let Some(page) = self.shown(&asked, SHOWN) {
            return Ok(page);
        }
        let mut pace = match self.pace.try_lock() {
            Ok(pace) => pace,
            // While somebody waits, what is not too old is shown.
            Err(_) => match self.shown(&asked, TOO_OLD) {
                Some(page) => return Ok(page),
                None => self.pace.lock().await,
            },
        };
        let wait = pace.wait();
        // Somebody else may have asked meanwhile.
        let longest = if wait.is_zero() { SHOWN } else { TOO_OLD };
        if let Some(page) = self.shown(&asked, longest) {
            return Ok(page);
        }
        sleep(wait).await;
        let begun = Instant::now();
        let found = self.client.table(&wanted, after.as_ref()).await;
        // A server that did not answer has spent nothing.
        let found = found.map_err(|error| {
            let refused = refusal(&error);
            if refused.status == StatusCode::FORBIDDEN {
                // The rows that were shown before must not be seen any more.
                self.pages().clear();
            }
            refused
        })?;
        pace.spend(begun.elapsed());
        let is_whole = after.is_none() && found.next.is_none();
        let page = Page {
            total: is_whole.then_some(found.rows.len() as u64),
            rows: found.rows.iter().map(row).collect(),
            next: found.next.map(|place| self.name(place)),
        };
        let mut pages = self.pages();
        pages.retain(|_, (made, _)| made.elapsed() < TOO_OLD);
        if pages.len() < PAGES {
            pages.insert(asked, (Instant::now(), page.clone()));
        }
        Ok(page)
    }

    fn shown(&self, asked: &Asked, longest: Duration) -> Option<Page> {
        let pages = self.pages();
        pages.get(asked).filter(|(made, _)| made.elapsed() < longest).map(|(_, page)| page.clone())
    }

    fn check(&self, query: &ListQuery) -> Result<(Asked, TableQuery, Option<TablePlace>), Refused> {
        let bad = |why: String| Refused { status: StatusCode::BAD_REQUEST, why };
        let state = STATES.into_iter().find(|state| state_name(*state) == query.state);
        if state.is_none() && !query.state.is_empty() {
            let names = STATES.map(state_name).join(", ");
            return Err(bad(format!("{:?} is no state: give one of {names}", query.state)));
        }
        if query.text.len() > TEXT {
            return Err(bad(format!("the text has {} bytes: give at most {TEXT}", query.text.len())));
        }
        let after = match query.page.as_str() {
            "" => None,
            name => {
                let places = self.places();
                let known = places.iter().find(|(known, _)| known == name).map(|(_, place)| place.clone());
                Some(known.ok_or_else(|| bad("that page is not known any more: begin again".to_owned()))?)
            }
        };
        let asked = (state.map(state_name), query.text.clone(), query.page.clone());
        let wanted = TableQuery { states: state.into_iter().collect(), text: query.text.clone(), rows: ROWS };
        Ok((asked, wanted, after))
    }

    /// By what viewers name this place: a number that says nothing.
    fn name(&self, place: TablePlace) -> String {
        let mut places = self.places();
        if let Some((name, _)) = places.iter().find(|(_, known)| *known == place) {
            return name.clone();
        }
        let name = format!("{:032x}", rand::random::<u128>());
        if places.len() == PLACES {
            places.pop_front();
        }
        places.push_back((name.clone(), place));
        name
    }

    fn pages(&self) -> MutexGuard<'_, HashMap<Asked, (Instant, Page)>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn places(&self) -> MutexGuard<'_, VecDeque<(String, TablePlace)>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long the server may work for the table.
#[derive(Debug)]
struct Pace {
    /// So many seconds are left of what it may, as of that moment; below 0: it has worked for longer.
    seconds: f64,
    at: Instant,
}

impl Pace {
    /// How long it may not be asked.
    fn wait(&mut self) -> Duration {
        let now = Instant::now();
        self.seconds = (self.seconds + now.duration_since(self.at).as_secs_f64() * SHARE).min(AT_ONCE);
        self.at = now;
        Duration::from_secs_f64((-self.seconds / SHARE).clamp(0.0, TOO_OLD.as_secs_f64()))
    }

    fn spend(&mut self, time: Duration) {
        self.wait();
        self.seconds -= time.as_secs_f64();
    }
}

fn row(summary: &Summary) -> Row {
    Row {
        id: summary.id.to_string(),
        name: summary.name.as_ref().map_or(String::new(), ToString::to_string),
        state: state_name(summary.state),
        created: summary
            .created
            .and_then(|created| u64::try_from(created.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()),
        processes: summary.processes,
        decided: summary.decided,
        decision: summary.decision.as_ref().map(|value| cut(value.to_string())),
        phase: summary.phase.map(Phase::get),
        awaited: (summary.awaited as usize, summary.first_awaited.map(ProcessId::get)),
        offences: summary.offences.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_server_works_a_fiftieth_of_the_time_for_the_table() {
        let mut pace = Pace { seconds: AT_ONCE, at: Instant::now() };
        let mut worked = Duration::ZERO;
        let begun = Instant::now();
        for _ in 0..100 {
            let wait = pace.wait();
            tokio::time::advance(wait).await;
            let took = Duration::from_millis(300);
            tokio::time::advance(took).await;
            worked += took;
            pace.spend(took);
        }
        let least = (worked.as_secs_f64() - AT_ONCE - 0.3) / SHARE;
        assert!(begun.elapsed().as_secs_f64() > least, "{:?}", begun.elapsed());
    }
}
