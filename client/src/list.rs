//! Lists of instances and counts, each of all servers of a cluster.
//!
//! A server answers for itself and names the others; this client asks each of them and merges what they say. A server that
//! does not answer makes all of it begin again, since by then others may own its instances and know which servers there are.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use stickycas_proto::v1;

use crate::client::{Client, Idempotency};
use crate::cluster::{Address, Route};
use crate::connection::Connection;
use crate::counts::ServerCounts;
use crate::error::Error;
use crate::info::Summary;

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
}

/// Which instances there are.
struct Instances;

impl Question for Instances {
    type Answer = Vec<Summary>;

    async fn ask(&self, client: &Client, route: &mut Route) -> Result<Part<Vec<Summary>>, Error> {
        client.list_of(route).await
    }
}

impl Question for v1::GetCountsRequest {
    type Answer = ServerCounts;

    async fn ask(&self, client: &Client, route: &mut Route) -> Result<Part<ServerCounts>, Error> {
        client.counts_of(route, self).await
    }
}

impl Client {
    /// All living instances that the caller may see, in the order of their ids. Of a cluster, those of all servers; one that
    /// moves to another server meanwhile may be missing.
    ///
    /// # Errors
    /// When a server cannot be reached.
    pub async fn list(&self) -> Result<Vec<Summary>, Error> {
        let parts = self.ask_all(&Instances).await?;
        let all: BTreeMap<_, _> =
            parts.into_values().flatten().map(|summary| (summary.id, summary)).collect();
        Ok(all.into_values().collect())
    }

    /// What the server has counted: of these principals, or of all if none is named. A principal sees
    /// its own counts, a coordinator also those of the processes of its instances, an observer or admin those of all. Of a
    /// cluster, the sums of what [all servers](Self::counts_of_servers) have counted.
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

    /// The same of each server, by its address.
    ///
    /// # Errors
    /// When a server cannot be reached.
    pub async fn counts_of_servers(
        &self,
        principals: &[String],
    ) -> Result<BTreeMap<String, ServerCounts>, Error> {
        let request = v1::GetCountsRequest { principals: principals.to_vec() };
        let parts = self.ask_all(&request).await?;
        Ok(parts.into_iter().map(|(address, counts)| (address.to_string(), counts)).collect())
    }

    /// Asks a server, and all that it names.
    async fn ask_all<Q: Question>(&self, question: &Q) -> Result<BTreeMap<Address, Q::Answer>, Error> {
        let mut backoff = self.backoff();
        loop {
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
        for name in names.into_iter().collect::<BTreeSet<_>>() {
            let other = self.cluster.admit(&name, &by).await?;
            if let Entry::Vacant(part) = parts.entry(other) {
                let mut route = Route::pinned(&self.cluster, part.key().clone());
                let Part(told, _) = question.ask(self, &mut route).await?;
                part.insert(told);
            }
        }
        Ok(parts)
    }

    /// The instances of one server, page by page.
    async fn list_of(&self, route: &mut Route) -> Result<Part<Vec<Summary>>, Error> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let call = |connection: Connection| {
                let request = v1::ListRequest { page_size: 0, page_token: page_token.clone() };
                async move { connection.instances().list(request).await }
            };
            let page = self.call_along(route, Idempotency::Repeatable, call).await?;
            for summary in &page.instances {
                all.push(Summary::from_wire(summary)?);
            }
            if page.next_page_token.is_empty() {
                return Ok(Part(all, page.other_servers));
            }
            // A token is of use at its server alone.
            route.pin();
            page_token = page.next_page_token;
        }
    }

    async fn counts_of(
        &self,
        route: &mut Route,
        request: &v1::GetCountsRequest,
    ) -> Result<Part<ServerCounts>, Error> {
        let call = |connection: Connection| {
            let request = request.clone();
            async move { connection.server().get_counts(request).await }
        };
        let answer = self.call_along(route, Idempotency::Repeatable, call).await?;
        Ok(Part(ServerCounts::from_wire(&answer)?, answer.other_servers))
    }
}
