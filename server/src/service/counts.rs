//! `ServerService`: the counts since the server started, as far as the caller may see them.

use std::sync::Arc;

use stickycas_proto::v1::server_service_server::ServerService;
use stickycas_proto::v1::{GetCountsRequest, GetCountsResponse};
use tonic::{Request, Response, Status};

use super::Service;
use crate::auth::Principal;
use crate::call_layer::Caller;
use crate::instances::SharedConfig;
use crate::server_info;

/// How many different rosters of a coordinator are looked at for the principals whose counts it may see.
const ROSTERS: usize = 1_024;

#[tonic::async_trait]
impl ServerService for Service {
    async fn get_counts(
        &self,
        request: Request<GetCountsRequest>,
    ) -> Result<Response<GetCountsResponse>, Status> {
        let caller = self.caller(request.extensions())?;
        let rows = self.0.limits.page;
        let rosters = self.rosters_of(&caller);
        let sees = |principal: &Principal| may_see(&caller, &rosters, principal);
        let mut counts = self.0.principals.counts(&request.get_ref().principals, rows, sees);
        if caller.rights.coordinator || sees_every_principal(&caller) {
            counts.server = Some(server_info::server_info(self.0.instances.load()));
        } else {
            counts.all = None;
        }
        if !sees_every_principal(&caller) {
            // How many others there are is not for the caller to know.
            counts.principals_left_out = 0;
        }
        Ok(Response::new(counts))
    }
}

impl Service {
    fn rosters_of(&self, caller: &Caller) -> Vec<Arc<SharedConfig>> {
        if !caller.rights.coordinator || sees_every_principal(caller) {
            return Vec::new();
        }
        self.0.instances.configs_of_creator(&caller.principal, ROSTERS)
    }
}

/// Who may look at every instance may see what every principal did.
fn sees_every_principal(caller: &Caller) -> bool {
    caller.rights.observer || caller.rights.admin
}

/// A principal sees its own counts, a coordinator those of the processes of its instances.
fn may_see(caller: &Caller, rosters: &[Arc<SharedConfig>], principal: &Principal) -> bool {
    sees_every_principal(caller)
        || *principal == caller.principal
        || rosters.iter().any(|config| config.roster.process_of(principal.as_str()).is_some())
}
