//! Answers of all servers of a cluster together: lists of instances, the table, counts, owners of shards.
//!
//! A server answers for itself and names the others; this client asks each of them and merges what they say.
//! A server that does not answer makes all of it begin again, since by then others may own its instances and
//! know which servers there are. A shard that no server serves at the moment is in none of the lists, and its
//! instances may be missing: that is told.
//!
//! A server that has just started, or has lost its lease, is not named by the others. It lists nothing, but
//! it has counts: if its address was given, it is asked for them, too, and the servers that it names.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stickycas_model::machine::State;
use stickycas_proto::v1::{self, RefusalReason};
use tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::client::{Client, Idempotency};
use crate::cluster::Route;
use crate::cluster_info::ClusterInfo;
use crate::counts::ServerCounts;
use crate::error::Error;
use crate::info::Summary;
use crate::table::{self, PageOfServer, PlaceAtServer, TablePage, TablePlace, TableQuery};

/// How long a server that nobody names may take to tell its counts.
const UNNAMED_TIMEOUT: Duration = Duration::from_millis(500);

/// The instances of all servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The instances, in the order of their ids.
    pub instances: Vec<Summary>,
    /// The number of shards of which no server has told all instances: they are being taken over or handed
    /// over, or have no owner. More instances may be in them; a later list has them.
    pub shards_left_out: usize,
}

/// The instances of one server.
#[derive(Debug, Default)]
struct InstancesOfServer {
    instances: Vec<Summary>,
    /// The shards that every page is of.
    shards: Option<BTreeSet<u32>>,
    /// The number of shards of the cluster; 0: the server does not tell.
    of_cluster: u32,
}

impl InstancesOfServer {
    fn add(&mut self, page: &v1::ListResponse) -> Result<(), Error> {
        for summary in &page.instances {
            self.instances.push(Summary::from_wire(summary)?);
        }
        let mut shards: BTreeSet<u32> = page.listed_shards.iter().copied().collect();
        if let Some(before) = &self.shards {
            shards.retain(|shard| before.contains(shard));
        }
        (self.shards, self.of_cluster) = (Some(shards), page.shards);
        Ok(())
    }
}

/// An answer of one server, and the servers that it names.
struct Part<T>(T, Vec<String>);

/// A question that each server answers for itself.
trait Question: Sync {
    type Answer: Send;

    /// Asks the server at the beginning of this route.
    fn ask(
        &self,
        client: &Client,
        route: &mut Route,
    ) -> impl Future<Output = Result<Part<Self::Answer>, Error>> + Send;

    /// Asks servers that no server has named, where these have an answer. Returns the servers that they name,
    /// each with the one that names it.
    fn ask_unnamed(
        &self,
        _client: &Client,
        _parts: &mut BTreeMap<Address, Self::Answer>,
    ) -> impl Future<Output = Vec<(String, Address)>> + Send {
        async { Vec::new() }
    }

    /// Whether this is an answer of a server that has answered at another address.
    fn is_another_of(_answer: &Self::Answer, _parts: &BTreeMap<Address, Self::Answer>) -> bool {
        false
    }
}

/// Which instances there are.
struct Instances {
    /// Only those with this text in their names or at the beginning of their ids.
    text: String,
}

impl Question for Instances {
    type Answer = InstancesOfServer;

    async fn ask(&self, client: &Client, route: &mut Route) -> Result<Part<InstancesOfServer>, Error> {
        /// How often it begins again at most.
        const AGAIN: u32 = 8;
        let (mut all, mut page_token, mut begun_again) = (InstancesOfServer::default(), String::new(), 0);
        loop {
            let is_first = page_token.is_empty();
            let request =
                v1::ListRequest { page_token, text: self.text.clone(), ..v1::ListRequest::default() };
            let page = match client.page(route, request).await {
                // The server was started anew meanwhile, and knows its earlier tokens no more.
                Err(error)
                    if error.reason() == Some(RefusalReason::Malformed)
                        && !is_first
                        && begun_again < AGAIN =>
                {
                    begun_again += 1;
                    (all, page_token) = (InstancesOfServer::default(), String::new());
                    continue;
                }
                page => page?,
            };
            all.add(&page)?;
            if page.next_page_token.is_empty() {
                return Ok(Part(all, page.other_servers));
            }
            // A token is of use at its server alone.
            route.pin();
            page_token = page.next_page_token;
        }
    }
}

impl Question for v1::GetCountsRequest {
    type Answer = ServerCounts;

    async fn ask(&self, client: &Client, route: &mut Route) -> Result<Part<ServerCounts>, Error> {
        let answer = client.call_along(route, Idempotency::Repeatable, self, |server, request| async move {
            server.server().get_counts(request.clone()).await
        });
        let answer = answer.await?;
        Ok(Part(ServerCounts::from_wire(&answer)?, answer.other_servers))
    }

    /// The given servers that nobody has named, all at once.
    async fn ask_unnamed(
        &self,
        client: &Client,
        parts: &mut BTreeMap<Address, ServerCounts>,
    ) -> Vec<(String, Address)> {
        let deadline = Instant::now() + UNNAMED_TIMEOUT;
        let unnamed = client.cluster.given().iter().filter(|given| !parts.contains_key(given)).cloned();
        let asked: Vec<_> = unnamed
            .filter_map(|address| {
                let connection = client.cluster.connection(&address).ok()?;
                let request = self.clone();
                // To its end: a call that is broken off counts against this client.
                let call = async move { connection.server().get_counts(request).await };
                Some((address, tokio::spawn(call)))
            })
            .collect();
        let mut named = Vec::new();
        for (address, asked) in asked {
            let Ok(Ok(Ok(answer))) = timeout_at(deadline, asked).await else { continue };
            let answer = answer.into_inner();
            let Ok(counts) = ServerCounts::from_wire(&answer) else { continue };
            if !Self::is_another_of(&counts, parts) {
                named.extend(answer.other_servers.into_iter().map(|name| (name, address.clone())));
                parts.insert(address, counts);
            }
        }
        named
    }

    /// No two servers start in the same nanosecond.
    fn is_another_of(answer: &ServerCounts, parts: &BTreeMap<Address, ServerCounts>) -> bool {
        answer.started.is_some() && parts.values().any(|known| known.started == answer.started)
    }
}

impl Client {
    /// All living instances that the caller may see, in the order of their ids. Of a cluster, those of all
    /// servers; one that moves to another server meanwhile may be missing, and then its shard counts as left
    /// out. Of one that two servers list, the later state is told.
    ///
    /// # Errors
    /// When a server cannot be reached.
    pub async fn list(&self) -> Result<Listed, Error> {
        self.list_named("").await
    }

    /// Those of them with this text in their names, upper and lower case alike, or at the beginning of their
    /// ids.
    ///
    /// # Errors
    /// As for [`list`](Self::list).
    pub async fn list_named(&self, text: &str) -> Result<Listed, Error> {
        let instances = Instances { text: text.to_owned() };
        let parts: Vec<_> = self.ask_all(&instances).await?.into_values().collect();
        let shards_left_out = left_out(&parts);
        let instances = merged(parts.into_iter().flat_map(|part| part.instances));
        Ok(Listed { instances, shards_left_out })
    }

    /// The counts of the server: of these principals, or of all if none is named. A principal sees its own
    /// counts, a coordinator also those of the processes of its instances, an observer or admin those of all.
    /// Of a cluster, the sums of the counts of [all servers](Self::counts_of_servers).
    ///
    /// # Errors
    /// When a server cannot be reached.
    pub async fn counts(&self, principals: &[String]) -> Result<ServerCounts, Error> {
        let parts = self.counts_of_servers(principals).await?;
        parts
            .into_values()
            .reduce(ServerCounts::merged)
            .ok_or_else(|| Error::Protocol("no counts".to_owned()))
    }

    /// The same of each server, by its address: of all servers of the cluster that the asked ones know, and
    /// of those that were given to this client and do not belong to it, if they answer at once.
    ///
    /// # Errors
    /// When a server of the cluster cannot be reached.
    pub async fn counts_of_servers(
        &self,
        principals: &[String],
    ) -> Result<BTreeMap<String, ServerCounts>, Error> {
        let request = v1::GetCountsRequest { principals: principals.to_vec() };
        let parts = self.ask_all(&request).await?;
        Ok(parts.into_iter().map(|(address, counts)| (address.to_string(), counts)).collect())
    }

    /// The servers of the cluster and what each of them owns, as one server knows it. A server that belongs
    /// to no cluster names itself alone.
    ///
    /// # Errors
    /// When no server can be reached, or it is older than this call ([`Error::UnexpectedPeer`]).
    pub async fn cluster(&self) -> Result<ClusterInfo, Error> {
        Ok(self.cluster_as_told().await?.0)
    }

    /// The same, and the address of the server that has told it.
    async fn cluster_as_told(&self) -> Result<(ClusterInfo, Address), Error> {
        let mut route = self.cluster.route();
        let request = v1::GetClusterRequest {};
        let asked =
            self.call_along(&mut route, Idempotency::Repeatable, request, |server, request| async move {
                server.server().get_cluster(request).await
            });
        let answer = asked.await?;
        Ok((ClusterInfo::from_wire(answer, route.at().as_str())?, route.at().clone()))
    }

    /// A page of the table of the instances that the caller may see, from this place on; `None`: the first
    /// one.
    ///
    /// # Errors
    /// When a server cannot be reached, or does not know the place any more (`MALFORMED`).
    pub async fn table(&self, query: &TableQuery, after: Option<&TablePlace>) -> Result<TablePage, Error> {
        let places = match after {
            Some(place) => place.0.clone(),
            None => self.first_places().await?,
        };
        let mut pages = Vec::new();
        for (server, place) in places {
            let mut route = Route::pinned(&self.cluster, server.clone());
            let page = self.page(&mut route, query.request(&place.token)).await?;
            let rows: Result<Vec<_>, _> = page.instances.iter().map(Summary::from_wire).collect();
            let rows = rows?.into_iter().skip(place.shown).collect();
            pages.push(PageOfServer { server, place, rows, next: page.next_page_token });
        }
        Ok(table::merged(pages, query.rows as usize))
    }

    /// The beginning of the table of each server.
    async fn first_places(&self) -> Result<BTreeMap<Address, PlaceAtServer>, Error> {
        let (cluster, asked) = self.cluster_as_told().await?;
        let mut places = BTreeMap::new();
        for server in &cluster.servers {
            places.insert(self.cluster.admit(&server.address, &asked).await?, PlaceAtServer::default());
        }
        Ok(places)
    }

    async fn page(&self, route: &mut Route, request: v1::ListRequest) -> Result<v1::ListResponse, Error> {
        self.call_along(route, Idempotency::Repeatable, request, |server, request| async move {
            server.instances().list(request).await
        })
        .await
    }

    /// Asks a server, and all that it names.
    async fn ask_all<Q: Question>(&self, question: &Q) -> Result<BTreeMap<Address, Q::Answer>, Error> {
        let mut backoff = self.backoff();
        loop {
            backoff.begin();
            match self.ask_all_once(question).await {
                Ok(parts) => return Ok(parts),
                Err(error) => {
                    let delay = backoff.failed(error.clone())?;
                    tracing::info!(%error, ?delay, "a server of the cluster does not answer, asking all of them again");
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }

    async fn ask_all_once<Q: Question>(&self, question: &Q) -> Result<BTreeMap<Address, Q::Answer>, Error> {
        let mut route = self.cluster.route();
        let Part(first, names) = question.ask(self, &mut route).await?;
        let by = route.at().clone();
        let mut parts = BTreeMap::from([(by.clone(), first)]);
        let named = names.into_iter().map(|name| (name, by.clone())).collect();
        self.ask_named(question, named, &mut parts).await?;
        let named = question.ask_unnamed(self, &mut parts).await;
        self.ask_named(question, named, &mut parts).await?;
        Ok(parts)
    }

    /// Asks these servers that are not among the parts, each named by another one.
    async fn ask_named<Q: Question>(
        &self,
        question: &Q,
        named: Vec<(String, Address)>,
        parts: &mut BTreeMap<Address, Q::Answer>,
    ) -> Result<(), Error> {
        for (name, by) in named.into_iter().collect::<BTreeSet<_>>() {
            let other = self.cluster.admit(&name, &by).await?;
            if parts.contains_key(&other) {
                continue;
            }
            let mut route = Route::pinned(&self.cluster, other.clone());
            let Part(answer, _) = question.ask(self, &mut route).await?;
            if !Q::is_another_of(&answer, parts) {
                parts.insert(other, answer);
            }
        }
        Ok(())
    }
}

/// The number of shards that are in no server's list; 0 if a server is so old that it does not name the
/// shards of its list.
fn left_out(parts: &[InstancesOfServer]) -> usize {
    if parts.iter().any(|part| part.of_cluster == 0) {
        return 0;
    }
    let told: BTreeSet<u32> = parts.iter().flat_map(|part| &part.shards).flatten().copied().collect();
    let of_cluster = parts.iter().map(|part| part.of_cluster).max().unwrap_or(0) as usize;
    of_cluster.saturating_sub(told.len())
}

/// Each instance once, in the order of ids. Two servers may list one that moves between them, and the one
/// that was asked first knows less, whichever it is: of its states the latest counts, since none comes again.
fn merged(summaries: impl IntoIterator<Item = Summary>) -> Vec<Summary> {
    let mut all = BTreeMap::<_, Summary>::new();
    for summary in summaries {
        match all.entry(summary.id) {
            Entry::Vacant(entry) => {
                entry.insert(summary);
            }
            Entry::Occupied(mut entry) if age(entry.get().state) < age(summary.state) => {
                entry.insert(summary);
            }
            Entry::Occupied(_) => {}
        }
    }
    all.into_values().collect()
}

/// How late a state comes in the life of an instance.
const fn age(state: State) -> u8 {
    match state {
        State::Gathering => 0,
        State::Running => 1,
        State::Finished => 2,
        State::Closed => 3,
    }
}

#[cfg(test)]
mod tests {
    use stickycas_proto::names::InstanceId;

    use super::*;

    #[test]
    fn of_two_summaries_of_an_instance_the_later_state_counts() {
        let summary = |id, state| Summary {
            id: InstanceId::new(id),
            name: None,
            creator: "c".to_owned(),
            processes: 1,
            state,
            created: None,
            decided: 0,
            decision: None,
            phase: None,
            length: 0,
            awaited: 0,
            first_awaited: None,
            offences: 0,
        };
        let states = [State::Gathering, State::Running, State::Finished, State::Closed];
        for (earlier, later) in states.iter().zip(&states[1..]) {
            // Whichever server has the larger address.
            for [first, second] in [[earlier, later], [later, earlier]] {
                let listed = [summary(2, *first), summary(3, State::Running), summary(1, State::Running)];
                let all = merged(listed.into_iter().chain([summary(2, *second)]));
                let told: Vec<_> = all.iter().map(|summary| (summary.id.get(), summary.state)).collect();
                assert_eq!(told, [(1, State::Running), (2, *later), (3, State::Running)]);
            }
        }
    }
}
