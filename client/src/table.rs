//! The instances as a table shows them, page by page: those that run first, of one state the newest first.
//!
//! Of a cluster each server has a table of its own. A page has the first rows of all tables, and a place in
//! each of them, from which the next page goes on.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::SystemTime;

use stickycas_model::machine::State;
use stickycas_proto::convert::state::state_to_wire;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1;

use crate::address::Address;
use crate::info::Summary;

/// Which rows of the table are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableQuery {
    /// Of instances in one of these states; empty: in any.
    pub states: Vec<State>,
    /// Of instances with this text in their name, upper and lower case alike, or at the beginning of their
    /// id.
    pub text: String,
    /// The most rows of a page.
    pub rows: u32,
}

/// A place in the table, behind which a page begins. It holds at the servers that it is of, until they start
/// again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePlace(pub(crate) BTreeMap<Address, PlaceAtServer>);

/// A place in the table of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlaceAtServer {
    /// Of the page.
    pub(crate) token: String,
    /// So many rows of it were shown.
    pub(crate) shown: usize,
}

/// Some rows of the table.
#[derive(Clone, Debug)]
pub struct TablePage {
    /// The rows, in order. There may be none, although more pages follow.
    pub rows: Vec<Summary>,
    /// Where the next page begins; `None`: this is the last one.
    pub next: Option<TablePlace>,
}

impl TableQuery {
    pub(crate) fn request(&self, page_token: &str) -> v1::ListRequest {
        v1::ListRequest {
            page_size: self.rows,
            page_token: page_token.to_owned(),
            order: v1::ListOrder::StateAndAge.into(),
            states: self.states.iter().map(|state| state_to_wire(*state).into()).collect(),
            text: self.text.clone(),
        }
    }
}

/// The answer of a server.
pub(crate) struct PageOfServer {
    pub(crate) server: Address,
    pub(crate) place: PlaceAtServer,
    /// Those that were not shown yet.
    pub(crate) rows: Vec<Summary>,
    /// The token of the next page; empty: there is none.
    pub(crate) next: String,
}

/// The first rows of all pages. Where a page ends and another one follows at its server, the next row is not
/// known: then there are fewer.
pub(crate) fn merged(pages: Vec<PageOfServer>, most: usize) -> TablePage {
    let mut taken = vec![0; pages.len()];
    let mut rows = Vec::new();
    while rows.len() < most
        && pages.iter().zip(&taken).all(|(page, taken)| *taken < page.rows.len() || page.next.is_empty())
    {
        let heads = pages.iter().zip(&taken).enumerate();
        let heads = heads.filter_map(|(at, (page, taken))| Some((order(page.rows.get(*taken)?), at)));
        let Some((_, at)) = heads.min() else { break };
        rows.push(pages[at].rows[taken[at]].clone());
        taken[at] += 1;
    }
    let mut next = BTreeMap::new();
    for (page, taken) in pages.into_iter().zip(taken) {
        if taken < page.rows.len() {
            let shown = page.place.shown + taken;
            next.insert(page.server, PlaceAtServer { shown, ..page.place });
        } else if !page.next.is_empty() {
            next.insert(page.server, PlaceAtServer { token: page.next, shown: 0 });
        }
    }
    TablePage { rows, next: (!next.is_empty()).then_some(TablePlace(next)) }
}

/// The order of the rows.
fn order(row: &Summary) -> (u8, Reverse<Option<SystemTime>>, InstanceId) {
    let state = match row.state {
        State::Running => 0,
        State::Gathering => 1,
        State::Finished => 2,
        State::Closed => 3,
    };
    (state, Reverse(row.created), row.id)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(id: u128, state: State, created: u64) -> Summary {
        Summary {
            id: InstanceId::new(id),
            name: None,
            creator: "c".to_owned(),
            processes: 1,
            state,
            created: SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(created)),
            decided: 0,
            decision: None,
            phase: None,
            length: 0,
            awaited: 0,
            first_awaited: None,
            offences: 0,
        }
    }

    fn page(server: &str, shown: usize, rows: Vec<Summary>, next: &str) -> PageOfServer {
        let place = PlaceAtServer { token: "this".to_owned(), shown };
        PageOfServer { server: Address::parse(server).unwrap(), place, rows, next: next.to_owned() }
    }

    #[test]
    fn the_tables_of_servers_are_one() {
        let a = || vec![row(1, State::Running, 9), row(2, State::Running, 3), row(3, State::Closed, 8)];
        let b = || vec![row(4, State::Running, 5), row(5, State::Finished, 1)];
        let ids = |page: &TablePage| page.rows.iter().map(|row| row.id.get()).collect::<Vec<_>>();
        let all = merged(vec![page("a:1", 0, a(), ""), page("b:1", 0, b(), "")], 9);
        assert_eq!((ids(&all), &all.next), (vec![1, 4, 2, 5, 3], &None));

        let some = merged(vec![page("a:1", 2, a(), ""), page("b:1", 0, b(), "next")], 3);
        assert_eq!(ids(&some), [1, 4, 2]);
        let next = some.next.unwrap().0;
        let places: Vec<_> = next.values().map(|place| (&*place.token, place.shown)).collect();
        assert_eq!(places, [("this", 4), ("this", 1)]);
    }

    #[test]
    fn what_comes_behind_a_page_is_not_passed_over() {
        let a = vec![row(1, State::Closed, 9)];
        let b = vec![row(2, State::Running, 5)];
        let some = merged(vec![page("a:1", 0, a, ""), page("b:1", 0, b, "next")], 9);
        assert_eq!(some.rows.len(), 1, "perhaps another one runs");
        let next = some.next.unwrap().0;
        let places: Vec<_> = next.values().map(|place| (&*place.token, place.shown)).collect();
        assert_eq!(places, [("this", 0), ("next", 0)]);
    }
}
