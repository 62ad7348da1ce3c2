//! The table of all instances, as the page asks for it.

use http::StatusCode;
use stickycas_model::types::{Phase, ProcessId};
use stickycas_page::frame::state_name;
use stickycas_page::source::{ListQuery, Page as Listed, Refused, Row};

use super::Page;
use super::viewer::{Viewer, refusal};
use crate::auth::Principal;
use crate::service::instance_table::{Filter, Line, Order, Place, Query, STATES};

/// Lines of a page of the table.
const LINES: usize = 100;

impl Page {
    /// The lines that a viewer asks for, of the instances that it may look at.
    ///
    /// # Errors
    /// If the query is wrong.
    pub(super) async fn list(&self, viewer: &Viewer, query: &ListQuery) -> Result<Listed, Refused> {
        let query = self.check(viewer, query)?;
        let found = {
            let viewer = viewer.clone();
            let may_see = move |instance: &_| viewer.sees_all() || viewer.basis(instance).is_ok();
            self.service.tables().find(query, may_see).await.map_err(|refused| refusal(&refused))?
        };
        let next = found.next.map(|place| self.page_tokens.seal(&place.to_bytes(), name(viewer)));
        Ok(Listed {
            rows: found.lines.iter().map(row).collect(),
            total: viewer.sees_all().then_some(found.total).flatten(),
            next: next.transpose().map_err(|refused| refusal(&refused))?,
        })
    }

    fn check(&self, viewer: &Viewer, query: &ListQuery) -> Result<Query, Refused> {
        let bad = |why: String| Refused { status: StatusCode::BAD_REQUEST, why };
        let state = STATES.into_iter().find(|state| state_name(*state) == query.state);
        if state.is_none() && !query.state.is_empty() {
            let names = STATES.map(state_name).join(", ");
            return Err(bad(format!("{:?} is no state: give one of {names}", query.state)));
        }
        let filter = Filter::new(state.into_iter().collect(), &query.text);
        let order = order_of_name(&query.sort).ok_or_else(|| {
            bad(format!("{:?} is no column to sort by: give created, phase, length or awaited", query.sort))
        })?;
        let after = match query.page.as_str() {
            "" => None,
            token => Some(
                self.page_tokens
                    .open(token, name(viewer), Place::from_bytes)
                    .map_err(|refused| refusal(&refused))?,
            ),
        };
        let filter = filter.map_err(|refused| refusal(&refused))?;
        Ok(Query { filter, order, descending: query.descending, after, limit: LINES })
    }
}

fn order_of_name(name: &str) -> Option<Order> {
    Some(match name {
        "" | "created" => Order::Created,
        "phase" => Order::Phase,
        "length" => Order::Length,
        "awaited" => Order::Awaited,
        _ => return None,
    })
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

/// Under which page tokens are sealed.
fn name(viewer: &Viewer) -> &str {
    viewer.principal().map_or("", Principal::as_str)
}
