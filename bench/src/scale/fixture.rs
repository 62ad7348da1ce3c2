//! A server, principals that are connected to it, and instances with them.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::parameters::PatienceChoice;
use stickycas_proto::v1::{CreateRequest, EndlessPatience, Parameters};
use stickycas_server::PRINCIPAL_KEY;
use tokio::task::JoinSet;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};

use super::server::ServerProcess;
use crate::serve::COORDINATOR;

/// n, the number of processes of an instance.
pub(super) const PROCESSES: u32 = 8;
/// p, the number of processes in a warp.
pub(super) const WARP_SIZE: u32 = 2;
/// W, the number of warps, and so the length of a list.
pub(super) const WARPS: u32 = PROCESSES / WARP_SIZE;

/// A connected principal.
#[derive(Clone)]
pub(super) struct Principal {
    pub(super) name: MetadataValue<Ascii>,
    pub(super) channel: Channel,
}

impl Principal {
    pub(super) async fn connect(url: &str, name: &str) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(url.to_owned())?.connect().await?;
        Ok(Self { name: name.parse()?, channel })
    }

    /// A request of this principal.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(PRINCIPAL_KEY, self.name.clone());
        request
    }
}

/// The name of a principal, by number.
pub(super) fn name(number: usize) -> String {
    format!("principal-{number}")
}

/// See the module.
pub(super) struct ScaleFixture {
    pub(super) server: ServerProcess,
    pub(super) principals: Vec<Principal>,
    pub(super) creator: Principal,
}

impl ScaleFixture {
    /// Starts a server with room for this many instances, and connects this many principals.
    pub(super) async fn start(program: &Path, instances: usize, principals: usize) -> anyhow::Result<Self> {
        super::server::allow_files(principals)?;
        let server = ServerProcess::start(program, instances)?;
        let creator = Principal::connect(&server.url, COORDINATOR).await?;
        let principals = connect(&server.url, principals).await?;
        Ok(Self { server, principals, creator })
    }

    /// Creates instances with these rosters, several at a time; returns their ids, in this order.
    pub(super) async fn create(
        &self,
        rosters: Vec<Vec<usize>>,
        pipeline: u32,
    ) -> anyhow::Result<Vec<String>> {
        const AT_ONCE: usize = 32;
        let rosters = Arc::new(rosters);
        let mut creating = JoinSet::new();
        for first in 0..AT_ONCE.min(rosters.len()) {
            let (creator, rosters) = (self.creator.clone(), rosters.clone());
            creating.spawn(async move {
                let mut client = InstanceServiceClient::new(creator.channel.clone());
                let mut ids = Vec::new();
                for (number, roster) in rosters.iter().enumerate().skip(first).step_by(AT_ONCE) {
                    let request = creator.request(create_request(roster, pipeline));
                    let created = client.create(request).await?.into_inner();
                    ids.push((number, created.instance.context("no instance in the answer")?.instance_id));
                }
                anyhow::Ok(ids)
            });
        }
        let mut ids = vec![String::new(); rosters.len()];
        while let Some(created) = creating.join_next().await {
            for (number, id) in created?? {
                ids[number] = id;
            }
        }
        Ok(ids)
    }
}

/// Connects this many principals, each over a connection of its own.
pub(super) async fn connect(url: &str, count: usize) -> anyhow::Result<Vec<Principal>> {
    let mut principals = Vec::with_capacity(count);
    for number in 0..count {
        principals.push(Principal::connect(url, &name(number)).await?);
    }
    Ok(principals)
}

fn create_request(roster: &[usize], pipeline: u32) -> CreateRequest {
    let parameters = Parameters {
        processes: PROCESSES,
        warp_size: WARP_SIZE,
        read_size: PROCESSES,
        patience_choice: Some(PatienceChoice::EndlessPatience(EndlessPatience {})),
        pipeline,
        ..Parameters::default()
    };
    let roster = roster.iter().map(|number| name(*number)).collect();
    CreateRequest { name: String::new(), parameters: Some(parameters), roster }
}

/// The roster of group `number`: eight principals.
pub(super) fn group(number: usize) -> Vec<usize> {
    let size = PROCESSES as usize;
    (number * size..(number + 1) * size).collect()
}
