//! `ServerService`: the counts since the server started, as far as the caller may see them, and the servers
//! of the cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use stickycas_proto::v1::server_service_server::ServerService;
use stickycas_proto::v1::{self, GetClusterRequest, GetClusterResponse, GetCountsRequest, GetCountsResponse};
use tonic::{Request, Response, Status};

use super::{Service, caller};
use crate::call_layer::Caller;
use crate::instances::{Instances, LoadMonitor, SharedConfig};
use crate::metrics::resident_bytes;

/// The number of different rosters of a coordinator that are looked at for the principals whose counts it may
/// see, and of names in them.
const ROSTERS: usize = 1_024;
const NAMES: usize = 131_072;
/// Names that are looked up in the time of a frame.
const NAMES_PER_FRAME: usize = 8;

#[tonic::async_trait]
impl ServerService for Service {
    async fn get_counts(
        &self,
        request: Request<GetCountsRequest>,
    ) -> Result<Response<GetCountsResponse>, Status> {
        // Answered also while the log is read, for clients that compare with later counts. The single
        // processes that a coordinator may see depend on instances, and so on the log.
        self.check_open()?;
        let caller = caller(request.extensions())?;
        let (wanted, rows) = (&request.get_ref().principals, self.0.limits.page);
        let sees_all = sees_every_principal(&caller);
        let wanted = (!wanted.is_empty()).then(|| wanted.iter().map(String::as_str).collect::<BTreeSet<_>>());
        let mut counts = if sees_all {
            let names = wanted.as_ref().map_or_else(|| self.0.principals.accounts(), BTreeSet::len);
            caller.account.charge_work(names / NAMES_PER_FRAME)?;
            self.0.principals.counts(wanted, rows)
        } else {
            let rosters = rosters_of(&self.0.instances, &caller);
            let members: usize = rosters.iter().map(|config| config.roster.len()).sum();
            caller.account.charge_work(members / NAMES_PER_FRAME)?;
            let members = rosters.iter().flat_map(|config| config.roster.names());
            let visible = members.chain([caller.principal.as_str()]);
            let visible = visible.filter(|name| wanted.as_ref().is_none_or(|wanted| wanted.contains(name)));
            self.0.principals.counts(Some(visible.collect::<BTreeSet<_>>()), rows)
        };
        if caller.rights.coordinator || sees_all {
            counts.server = Some(server_facts(self.0.instances.load()));
        } else {
            counts.all = None;
        }
        if !sees_all {
            // How many others there are is not for the caller to know.
            counts.principals_left_out = 0;
        }
        counts.other_servers = self.0.instances.placement().other_servers();
        Ok(Response::new(counts))
    }

    async fn get_cluster(
        &self,
        request: Request<GetClusterRequest>,
    ) -> Result<Response<GetClusterResponse>, Status> {
        self.caller(request.extensions())?;
        Ok(Response::new(self.0.instances.placement().cluster()))
    }
}

/// The rosters of a coordinator who sees no others, as many as are looked at.
fn rosters_of(instances: &Instances, caller: &Caller) -> Vec<Arc<SharedConfig>> {
    if !caller.rights.coordinator {
        return Vec::new();
    }
    let mut rosters = instances.configs_of_creator(&caller.principal, ROSTERS);
    let mut names = 0;
    rosters.retain(|config| {
        names += config.roster.len();
        names <= NAMES
    });
    rosters
}

/// A caller that may look at every instance may see the counts of every principal.
fn sees_every_principal(caller: &Caller) -> bool {
    caller.rights.observer || caller.rights.admin
}

/// The build of this server, its machine and its memory now, for the comparison of measurements.
fn server_facts(load: &LoadMonitor) -> v1::ServerFacts {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    v1::ServerFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: stickycas_program::commit().unwrap_or_default().to_owned(),
        debug_assertions: cfg!(debug_assertions),
        os: std::env::consts::OS.to_owned(),
        architecture: std::env::consts::ARCH.to_owned(),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        resident_bytes: resident_bytes().unwrap_or_default(),
        busy: load.busy(),
        instances_under_way: load.live() as u64,
    }
}
