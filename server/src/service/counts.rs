//! `ServerService`: the counts since the server started.

use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::server_service_server::ServerService;
use stickycas_proto::v1::{GetCountsRequest, GetCountsResponse, RefusalReason};
use tonic::{Request, Response, Status};

use super::Service;
use crate::server_info;

#[tonic::async_trait]
impl ServerService for Service {
    async fn get_counts(
        &self,
        request: Request<GetCountsRequest>,
    ) -> Result<Response<GetCountsResponse>, Status> {
        let caller = self.caller(request.extensions())?;
        if !caller.coordinator && !caller.observer {
            let why = format!("{:?} is neither a coordinator nor an observer", caller.principal.as_str());
            return Err(RpcRefusal::new(RefusalReason::NotObserver, why).into());
        }
        let rows = self.0.limits.page;
        let counts = self.0.principals.counts(&request.get_ref().principals, rows);
        let server = Some(server_info::server_info(self.0.instances.load()));
        Ok(Response::new(GetCountsResponse { server, ..counts }))
    }
}
