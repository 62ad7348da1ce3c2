//! Instances of these tests, and correct processes that play them to their end by unary calls.

use stickycas_proto::v1::parameters::PatienceChoice;
use stickycas_proto::v1::waiting_access::Op;
use stickycas_proto::v1::{
    AppendRequest, AppendResponse, CloseRequest, CreateRequest, CreateResponse, DecideRequest,
    DecideResponse, EndlessPatience, GetRequest, GetResponse, Instance, Own, Parameters, ReadRequest,
    ReadResponse, Status as InstanceStatus, get_request,
};
use tonic::{Response, Status};

use super::{COORDINATOR, Client, Server, with_timeout};

/// The proposal of the correct processes of these tests.
pub(crate) const PROPOSAL: &str = "yes";

/// n = 3, p = 1, r = 3 and endless patience: nothing depends on time.
pub(crate) fn parameters() -> Parameters {
    Parameters {
        processes: 3,
        warp_size: 1,
        read_size: 3,
        patience_choice: Some(PatienceChoice::EndlessPatience(EndlessPatience {})),
        max_value_bytes: 64,
        pipeline: 4,
        ..Parameters::default()
    }
}

/// One process, each of whose accesses is executed at once.
pub(crate) fn alone() -> Parameters {
    Parameters { processes: 1, read_size: 1, ..parameters() }
}

/// The principal of a process.
pub(crate) fn principal(process: u32) -> String {
    format!("p{process}")
}

pub(crate) fn roster(processes: u32) -> Vec<String> {
    (1..=processes).map(principal).collect()
}

/// The request for an instance with these parameters and without a name.
pub(crate) fn create_request(parameters: Parameters) -> CreateRequest {
    CreateRequest { name: String::new(), roster: roster(parameters.processes), parameters: Some(parameters) }
}

/// An instance of the usual parameters; its id.
pub(crate) async fn instance(server: &Server) -> String {
    instance_with(server, parameters()).await
}

pub(crate) async fn instance_with(server: &Server, parameters: Parameters) -> String {
    let mut client = server.client(COORDINATOR).await;
    client.create(create_request(parameters)).await.unwrap().into_inner().instance.unwrap().instance_id
}

/// An append that waits for its phase.
pub(crate) type PendingAppend = tokio::task::JoinHandle<Result<Response<AppendResponse>, Status>>;

impl Client {
    pub(crate) async fn create(
        &mut self,
        request: CreateRequest,
    ) -> Result<Response<CreateResponse>, Status> {
        with_timeout(self.instances.create(request)).await
    }

    pub(crate) async fn append(
        &mut self,
        id: &str,
        number: u64,
        value: &str,
    ) -> Result<Response<AppendResponse>, Status> {
        with_timeout(self.list.append(append(id, number, value))).await
    }

    /// The caller's first append, in a task of its own, once it waits at the instance.
    pub(crate) async fn append_and_wait(&mut self, id: &str, value: &str) -> PendingAppend {
        let call = tokio::spawn({
            let (mut client, id, value) = (self.clone(), id.to_owned(), value.to_owned());
            async move { client.append(&id, 1, &value).await }
        });
        self.until_waiting(id, 1).await;
        call
    }

    pub(crate) async fn read(&mut self, id: &str, number: u64) -> Result<Response<ReadResponse>, Status> {
        with_timeout(self.list.read(read(id, number))).await
    }

    pub(crate) async fn decide(&mut self, id: &str, value: &str) -> Result<Response<DecideResponse>, Status> {
        let value = value.as_bytes().to_vec().into();
        with_timeout(self.list.decide(DecideRequest { instance_id: id.to_owned(), value })).await
    }

    pub(crate) async fn get(&mut self, id: &str) -> Result<GetResponse, Status> {
        let instance = Some(get_request::Instance::InstanceId(id.to_owned()));
        Ok(with_timeout(self.instances.get(GetRequest { instance })).await?.into_inner())
    }

    pub(crate) async fn close(&mut self, id: &str) -> Result<(), Status> {
        with_timeout(self.instances.close(CloseRequest { instance_id: id.to_owned() })).await.map(|_| ())
    }

    /// The caller's own state at the instance.
    pub(crate) async fn own(&mut self, id: &str) -> Own {
        self.get(id).await.unwrap().own.unwrap()
    }

    pub(crate) async fn status(&mut self, id: &str) -> InstanceStatus {
        self.get(id).await.unwrap().status.unwrap()
    }

    pub(crate) async fn facts(&mut self, id: &str) -> Instance {
        self.get(id).await.unwrap().instance.unwrap()
    }

    /// Polls the instance until it meets the condition. Each poll lets the server go on.
    pub(crate) async fn until(&mut self, id: &str, condition: impl Fn(&GetResponse) -> bool) -> GetResponse {
        with_timeout(async {
            loop {
                let state = self.get(id).await.unwrap();
                if condition(&state) {
                    return state;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// Waits until the caller's access of this number waits at the instance.
    pub(crate) async fn until_waiting(&mut self, id: &str, number: u64) {
        self.until(id, |state| state.own.iter().flat_map(|own| &own.waiting).any(|it| it.number == number))
            .await;
    }
}

pub(crate) fn append(id: &str, access_number: u64, value: &str) -> AppendRequest {
    AppendRequest {
        instance_id: id.to_owned(),
        access_number,
        value: value.as_bytes().to_vec().into(),
        no_wait: false,
    }
}

pub(crate) fn read(id: &str, access_number: u64) -> ReadRequest {
    ReadRequest { instance_id: id.to_owned(), access_number, start: 0, no_wait: false }
}

/// Every process goes on from its present state as a correct one does, and decides. All of them decide
/// `expected`. Needs n = r, so that one read returns the whole list.
pub(crate) async fn play(server: &Server, id: &str, expected: &str) {
    let processes = server.client(COORDINATOR).await.facts(id).await.parameters.unwrap().processes;
    let playing: Vec<_> = (1..=processes)
        .map(|process| {
            let (address, id) = (server.address, id.to_owned());
            let channel = format!("http://{address}").parse::<tonic::transport::Endpoint>().unwrap();
            tokio::spawn(async move {
                let mut client = Client::on(channel.connect().await.unwrap(), &principal(process));
                play_one(&mut client, &id).await
            })
        })
        .collect();
    for task in playing {
        assert_eq!(with_timeout(task).await.unwrap(), expected);
    }
}

/// Plays one process to its end; its decision.
pub(crate) async fn play_one(client: &mut Client, id: &str) -> String {
    let decided = |own: &Own| own.decided.as_ref().map(|value| String::from_utf8(value.to_vec()).unwrap());
    let own = client.own(id).await;
    if let Some(decided) = decided(&own) {
        return decided;
    }
    let appended =
        own.append.is_some() || own.waiting.iter().any(|waiting| matches!(waiting.op, Some(Op::Append(_))));
    // Accesses that wait already come first: the pipeline may be full of them.
    client.until(id, |state| state.own.iter().all(|own| own.waiting.is_empty())).await;
    let mut number = own.next_access_number;
    if !appended {
        client.append(id, number, PROPOSAL).await.unwrap();
        number += 1;
    }
    let entries = loop {
        let read = match client.read(id, number).await {
            Ok(read) => read.into_inner().result.unwrap(),
            // Somebody else who plays it, or played it, was quicker.
            Err(refused) => return decided(&client.own(id).await).ok_or(refused).unwrap(),
        };
        number += 1;
        if read.sealed {
            break read.values;
        }
    };
    let value = mode(&entries);
    client.decide(id, &value).await.unwrap();
    value
}

/// The most frequent value, of equally frequent ones the smallest (D1), in the obvious way.
fn mode(values: &[impl AsRef<[u8]>]) -> String {
    let count = |value: &[u8]| values.iter().filter(|it| it.as_ref() == value).count();
    let best = values.iter().map(AsRef::as_ref).max_by_key(|value| (count(value), std::cmp::Reverse(*value)));
    String::from_utf8(best.expect("the list has an entry").to_vec()).unwrap()
}
