//! [`CreateInstance`]: the parameters of a new instance, checked before they are sent.

use std::time::Duration;

use serde::Serialize;
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
use stickycas_model::types::Seed;
use stickycas_proto::convert::WireError;
use stickycas_proto::names::InstanceName;
use stickycas_proto::v1;

use crate::client::{Client, Idempotency};
use crate::error::Error;
use crate::info::InstanceInfo;

/// The answer of [`CreateInstance::send`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Created {
    /// The instance.
    pub instance: InstanceInfo,
    /// Whether this call created it. `false`: an instance of this name and content existed already (SPEC
    /// F11).
    pub created: bool,
}

/// A new instance, made by [`Client::create_instance`]. A setting that is not given has the default of SPEC
/// section 9; [`roster`](Self::roster) or [`processes`](Self::processes) is required.
#[derive(Clone, Debug)]
#[must_use = "the instance is created by `send`"]
pub struct CreateInstance {
    client: Client,
    name: Option<String>,
    processes: Option<u32>,
    read_size: Option<u32>,
    seed: Option<u64>,
    roster: Vec<String>,
    roster_prefix: String,
    /// The other parameters.
    spec: ParamsSpec,
}

impl CreateInstance {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            name: None,
            processes: None,
            read_size: None,
            seed: None,
            roster: Vec::new(),
            roster_prefix: "p".to_owned(),
            spec: ParamsSpec::new(0, 1, 0),
        }
    }

    /// A name, unique among the instances that the server keeps: 1 to 64 letters, digits, `.`, `_` or `-`.
    /// The same name with the same content gives the same instance (F11), so a create with a name is retried.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// n, the number of processes, 1 to 65,536. Taken from the roster if that is given.
    pub fn processes(mut self, processes: u32) -> Self {
        self.processes = Some(processes);
        self
    }

    /// The principals of processes 1, 2, 3, ..., n.
    pub fn roster(mut self, principals: impl IntoIterator<Item: Into<String>>) -> Self {
        self.roster = principals.into_iter().map(Into::into).collect();
        self
    }

    /// Without a roster, the principals are this prefix and the number of the process; `p` without it.
    pub fn roster_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.roster_prefix = prefix.into();
        self
    }

    /// p, the number of processes in a warp, 1 to n; 1 without it.
    pub fn warp_size(mut self, processes: u32) -> Self {
        self.spec.warp_size = processes;
        self
    }

    /// r, the most entries that one read returns; without it as many as there are warps, for each append
    /// round.
    pub fn read_size(mut self, entries: u32) -> Self {
        self.read_size = Some(entries);
        self
    }

    /// The order of warps in a round.
    pub fn order(mut self, order: Order) -> Self {
        self.spec.order = order;
        self
    }

    /// The rule that decides which of the appends of a phase wins.
    pub fn arbiter(mut self, arbiter: Arbiter) -> Self {
        self.spec.arbiter = arbiter;
        self
    }

    /// When appends count. With [`AppendWindow::Open`], the paper as printed, agreement is not promised.
    pub fn append_window(mut self, window: AppendWindow) -> Self {
        self.spec.append_window = window;
        self
    }

    /// q, the number of a warp's first phases in which it may append, 1 to p; 1 without it. More rounds take
    /// more phases and stand more Byzantine processes (K1 to K3).
    pub fn append_rounds(mut self, rounds: u32) -> Self {
        self.spec.append_rounds = rounds;
        self
    }

    /// The total time for which phases may be held open because of one process (F3).
    pub fn patience(mut self, patience: Patience) -> Self {
        self.spec.patience = patience;
        self
    }

    /// How long phase 1 waits, from the first join, for all to join.
    pub fn join_timeout(mut self, timeout: Duration) -> Self {
        self.spec.join_timeout = timeout;
        self
    }

    /// The least time between the last step and the opening of a phase.
    pub fn pace(mut self, pace: Duration) -> Self {
        self.spec.pace = pace;
        self
    }

    /// The most accesses of one process that may wait.
    pub fn pipeline(mut self, accesses: u32) -> Self {
        self.spec.pipeline = accesses;
        self
    }

    /// The most bytes of a value.
    pub fn max_value_bytes(mut self, bytes: u32) -> Self {
        self.spec.max_value_bytes = bytes;
        self
    }

    /// The seed of the shuffled order and the uniform arbiter. The server draws one without it.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// All of these parameters, the seed among them.
    pub fn params(mut self, params: &Params) -> Self {
        self.spec = params.spec().clone();
        self.processes = Some(self.spec.processes);
        self.read_size = Some(self.spec.read_size);
        self.seed = Some(self.spec.seed.get());
        self
    }

    /// Checks the settings without sending anything; [`send`](Self::send) does so too.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] says which setting is wrong and what it may be.
    pub fn check(&self) -> Result<(), Error> {
        self.checked().map(drop)
    }

    /// Creates the instance. With a name it is retried; without one, only if it did not happen.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a setting is wrong; [`Error::Refused`] if the caller is no coordinator,
    /// the name is taken by other content, or there are too many instances; [`Error::Protocol`] if the server
    /// is so old that it knows no append rounds.
    pub async fn send(self) -> Result<Created, Error> {
        let request = self.checked()?;
        let asked = request.parameters.as_ref().map_or(1, |parameters| parameters.append_rounds.max(1));
        let idempotency = if request.name.is_empty() { Idempotency::Once } else { Idempotency::Repeatable };
        // A server draws ids of its own shards.
        let mut route = self.client.cluster.route_in_turn();
        let response =
            self.client.call_along(&mut route, idempotency, request, |server, request| async move {
                server.instances().create(request).await
            });
        let response = response.await?;
        let instance = response.instance.as_ref().ok_or(WireError::Missing("instance"))?;
        let instance = InstanceInfo::from_wire(instance)?;
        let given = instance.parameters.append_rounds();
        if given != asked {
            let why =
                format!("the server knows no append rounds: {given} are given, and {asked} were asked for");
            return Err(Error::Protocol(why));
        }
        Ok(Created { instance, created: response.created })
    }

    fn checked(&self) -> Result<v1::CreateRequest, Error> {
        let invalid = |error: &dyn std::fmt::Display| Error::InvalidArgument(error.to_string());
        let name = self.name.as_deref().map(str::parse::<InstanceName>).transpose();
        let name = name.map_err(|error| invalid(&error))?.map_or_else(String::new, |name| name.to_string());
        let given = u32::try_from(self.roster.len()).unwrap_or(u32::MAX);
        let processes = self.processes.unwrap_or(given);
        if !self.roster.is_empty() && given != processes {
            return Err(invalid(&format_args!("the roster names {given} principals, but n = {processes}")));
        }
        let warps = processes.div_ceil(self.spec.warp_size.max(1));
        let whole_list = warps.saturating_mul(self.spec.append_rounds).clamp(1, processes.max(1));
        let spec = ParamsSpec {
            processes,
            read_size: self.read_size.unwrap_or(whole_list),
            seed: Seed::new(self.seed.unwrap_or(0)),
            ..self.spec.clone()
        };
        let params = Params::try_new(spec).map_err(|error| invalid(&error))?;
        let roster = if self.roster.is_empty() {
            (1..=processes).map(|number| format!("{}{number}", self.roster_prefix)).collect()
        } else {
            self.roster.clone()
        };
        let parameters = v1::Parameters { seed: self.seed, ..v1::Parameters::from(&params) };
        Ok(v1::CreateRequest { name, parameters: Some(parameters), roster })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create() -> CreateInstance {
        let client = Client::builder("http://127.0.0.1:1").principal("ann").connect_lazy();
        client.unwrap().create_instance()
    }

    fn wrong(create: &CreateInstance) -> String {
        create.check().unwrap_err().to_string()
    }

    #[tokio::test]
    async fn the_number_of_processes_alone_is_enough() {
        let checked = create().processes(3).checked().unwrap();
        assert_eq!(checked.roster, ["p1", "p2", "p3"]);
        let parameters = checked.parameters.unwrap();
        assert_eq!((parameters.processes, parameters.warp_size, parameters.read_size), (3, 1, 3));
        assert_eq!(parameters.seed, None, "the server draws it");
    }

    #[tokio::test]
    async fn a_roster_gives_the_number_of_processes() {
        assert_eq!(create().roster(["ann", "bob"]).checked().unwrap().parameters.unwrap().processes, 2);
        let error = wrong(&create().roster(["ann", "bob"]).processes(3));
        assert_eq!(error, "the roster names 2 principals, but n = 3");
    }

    #[tokio::test]
    async fn a_parameter_out_of_range_is_an_invalid_argument() {
        assert_eq!(wrong(&create()), "n = 0 processes: give 1 to 65536");
        assert_eq!(wrong(&create().processes(2).warp_size(3)), "warp size p = 3: give 1 to n = 2");
        assert!(wrong(&create().processes(2).name("a b")).starts_with("name:"));
    }

    #[tokio::test]
    async fn given_params_are_sent_with_their_seed() {
        let spec = ParamsSpec { seed: Seed::new(7), pipeline: 3, ..ParamsSpec::new(4, 2, 1) };
        let params = Params::try_new(spec).unwrap();
        let sent = create().params(&params).checked().unwrap().parameters.unwrap();
        assert_eq!(sent, v1::Parameters::from(&params));
        assert_eq!(sent.seed, Some(7));
        let spec = ParamsSpec { append_rounds: 2, ..params.spec().clone() };
        let params = Params::try_new(spec).unwrap();
        assert_eq!(
            create().params(&params).checked().unwrap().parameters,
            Some(v1::Parameters::from(&params))
        );
    }

    #[tokio::test]
    async fn append_rounds_are_1_to_p_and_make_the_reads_larger() {
        let pairs = create().processes(5).warp_size(2);
        let sent = pairs.clone().append_rounds(2).checked().unwrap().parameters.unwrap();
        assert_eq!((sent.append_rounds, sent.read_size), (2, 5));
        assert_eq!(wrong(&pairs.clone().append_rounds(3)), "append rounds q = 3: give 1 to p = 2");
        let open = pairs.append_window(AppendWindow::Open).append_rounds(2);
        assert!(wrong(&open).ends_with("give 1, or the append window first_access"));
    }
}
