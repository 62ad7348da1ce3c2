//! How a client begins, and what it does at one instance: calls for people and for programs that set up and
//! close instances, watches, reports.

use stickycas_model::access::{Answer, AppendAnswer, ReadAnswer};
use stickycas_model::history::Event;
use stickycas_model::judge::Outcome;
use stickycas_model::machine::State;
use stickycas_model::params::Params;
use stickycas_model::types::{AccessNumber, Phase, Position, Value};
use stickycas_proto::convert::answer::AnswerData;
use stickycas_proto::convert::report::{ProcessReport, verdict_from_wire};
use stickycas_proto::names::{InstanceId, InstanceRef};
use stickycas_proto::v1;
use stickycas_proto::v1::RefusalReason;

use crate::builder::ClientBuilder;
use crate::client::{ANSWER_TIMEOUT, Client, Idempotency};
use crate::cluster::Route;
use crate::connection::Connection;
use crate::convert::{IntoInstance, value_of};
use crate::create::CreateInstance;
use crate::error::Error;
use crate::info::InstanceView;
use crate::watch::{Watch, WatchFrom, Watched};

/// Whether an access waits for its phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitMode {
    /// The access waits until its phase has come.
    #[default]
    UntilPhase,
    /// The access is refused at once unless its phase is open, or would open with it (F7).
    NoWait,
}

impl WaitMode {
    const fn idempotency(self) -> Idempotency {
        match self {
            Self::NoWait => Idempotency::NoWait,
            Self::UntilPhase => Idempotency::Waits,
        }
    }
}

/// An append that was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// In which phase.
    pub phase: Phase,
    /// Its answer (A1).
    pub answer: AppendAnswer,
}

/// The result of a read (R1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// In which phase it was executed; `None`: outside phases, because the instance is over (F10).
    pub phase: Option<Phase>,
    /// The first position asked for.
    pub start: Position,
    /// The entries from there on.
    pub values: Vec<Value>,
    /// Length of the whole list.
    pub length: u32,
    /// Whether the list takes no more entries.
    pub sealed: bool,
}

/// How an instance ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum InstanceEnd {
    /// Every process has left.
    Finished,
    /// Its creator has closed it.
    Closed,
    /// The server does not know it any more (SPEC F11).
    Unknown(Error),
}

impl Client {
    /// A client of the server at this address (`http://host:port`); name its principal next, and [the other
    /// servers](ClientBuilder::server) of a cluster.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), stickycas_client::Error> {
    /// let client = stickycas_client::Client::builder("http://127.0.0.1:7420").principal("ann").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(url.into())
    }

    /// The parameters and the status of an instance (F12).
    ///
    /// # Errors
    /// When there is none, or the caller may not see it (F13).
    pub async fn get(&self, instance: impl IntoInstance) -> Result<InstanceView, Error> {
        use v1::get_request::Instance;
        let (named, mut route) = match instance.into_instance()? {
            InstanceRef::Id(id) => (Instance::InstanceId(id.to_string()), self.cluster.route_to(id)),
            InstanceRef::Name(name) => (Instance::Name(name.as_str().to_owned()), self.cluster.route()),
        };
        Ok(InstanceView::from_wire(&self.get_along(&mut route, named).await?)?)
    }

    async fn get_along(
        &self,
        route: &mut Route,
        named: v1::get_request::Instance,
    ) -> Result<v1::GetResponse, Error> {
        let request = v1::GetRequest { instance: Some(named) };
        self.call_along(route, Idempotency::Repeatable, request, |server, request| async move {
            server.instances().get(request).await
        })
        .await
    }

    /// A client that asks the owner of an instance first: the server that has just answered for it. Where
    /// there is one server, the same client.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    #[doc(hidden)]
    pub async fn at_owner(&self, instance: InstanceId) -> Result<Self, Error> {
        if !self.cluster.has_several() {
            return Ok(self.clone());
        }
        let mut route = self.cluster.route_to(instance);
        self.get_along(&mut route, v1::get_request::Instance::InstanceId(instance.to_string())).await?;
        Ok(Self::on(route.connection().await?, self.retry_policy()))
    }

    /// The id of an instance. Accesses carry ids, never names (F11), so a name is looked up once, here; an id
    /// is taken as it is.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub async fn find(&self, instance: impl IntoInstance) -> Result<InstanceId, Error> {
        match instance.into_instance()? {
            InstanceRef::Id(id) => Ok(id),
            name @ InstanceRef::Name(_) => Ok(self.get(name).await?.instance.id),
        }
    }

    /// Closes an instance for good (F10). Again changes nothing.
    ///
    /// # Errors
    /// When there is none, or the caller did not create it.
    pub async fn close(&self, instance: impl IntoInstance) -> Result<(), Error> {
        let instance = self.find(instance.into_instance()?).await?;
        let request = v1::CloseRequest { instance_id: instance.to_string() };
        let closed =
            self.call_owner(instance, Idempotency::Repeatable, request, |server, request| async move {
                server.instances().close(request).await
            });
        closed.await.map(|v1::CloseResponse {}| ())
    }

    /// Appends once, under this access number.
    ///
    /// # Errors
    /// See the service. After one that may have happened, ask again with the same number.
    pub async fn append(
        &self,
        instance: impl IntoInstance,
        number: AccessNumber,
        value: impl AsRef<[u8]>,
        wait: WaitMode,
    ) -> Result<Appended, Error> {
        let (instance, value) = (instance.into_instance()?, value_of(value)?);
        let instance = self.find(instance).await?;
        let request = v1::AppendRequest {
            instance_id: instance.to_string(),
            access_number: number.get(),
            value: value.to_bytes(),
            no_wait: wait == WaitMode::NoWait,
        };
        let answer = self.call_owner(instance, wait.idempotency(), request, |server, request| async move {
            server.list().append(request).await
        });
        match AnswerData::from_append(&answer.await?)? {
            AnswerData { phase: Some(phase), answer: Answer::Append(answer), .. } => {
                Ok(Appended { phase, answer })
            }
            _ => Err(Error::Protocol("the answer of an append is none".to_owned())),
        }
    }

    /// Reads once from this position on, under this access number; `params` are those of the instance.
    ///
    /// # Errors
    /// As for [`append`](Self::append).
    pub async fn read(
        &self,
        instance: InstanceId,
        params: &Params,
        number: AccessNumber,
        start: Position,
        wait: WaitMode,
    ) -> Result<Read, Error> {
        let request = v1::ReadRequest {
            instance_id: instance.to_string(),
            access_number: number.get(),
            start: start.get(),
            no_wait: wait == WaitMode::NoWait,
        };
        let answer = self.call_owner(instance, wait.idempotency(), request, |server, request| async move {
            server.list().read(request).await
        });
        match AnswerData::from_read(&answer.await?, params)? {
            AnswerData { phase, answer: Answer::Read(answer), entries } => {
                let ReadAnswer { start, count: _, length, sealed } = answer;
                Ok(Read { phase, start, values: entries, length, sealed })
            }
            _ => Err(Error::Protocol("the answer of a read is none".to_owned())),
        }
    }

    /// Reports a decision, by which the process leaves (F10). The same again is answered the same.
    ///
    /// # Errors
    /// See the service.
    pub async fn decide(&self, instance: impl IntoInstance, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let (instance, value) = (instance.into_instance()?, value_of(value)?);
        let instance = self.find(instance).await?;
        let request = v1::DecideRequest { instance_id: instance.to_string(), value: value.to_bytes() };
        let taken =
            self.call_owner(instance, Idempotency::Repeatable, request, |server, request| async move {
                server.list().decide(request).await
            });
        taken.await.map(|v1::DecideResponse {}| ())
    }

    /// A new instance. Needs the coordinator role (F13).
    pub fn create_instance(&self) -> CreateInstance {
        CreateInstance::new(self.clone())
    }

    /// Watches an instance. The first request leaves when the stream is polled.
    ///
    /// # Errors
    /// The items are errors when there is no such instance, the caller may not watch it (F13), or the phase
    /// to begin with is not kept any more; and when retries did not help.
    pub fn watch(&self, instance: impl IntoInstance, from: WatchFrom) -> Watch {
        Watch::new(self.clone(), instance.into_instance(), from)
    }

    /// Waits for the end of an instance, without an access. A process that acts learns the end from the
    /// answer to its next one; a process that is silent, or that never joins, gets no answer.
    ///
    /// # Errors
    /// When the caller may not watch the instance (F13), and when retries did not help. That the server does
    /// not know the instance is no error: [`InstanceEnd::Unknown`].
    pub async fn wait_for_end(&self, instance: impl IntoInstance) -> Result<InstanceEnd, Error> {
        let mut watch = self.watch(instance, WatchFrom::Snapshot);
        loop {
            match watch.try_next().await {
                Ok(Some(Watched::Snapshot(snapshot))) => match snapshot.status.state {
                    State::Finished => return Ok(InstanceEnd::Finished),
                    State::Closed => return Ok(InstanceEnd::Closed),
                    State::Gathering | State::Running => {}
                },
                Ok(Some(Watched::Event(_, recorded))) => match recorded.event {
                    Event::Finished => return Ok(InstanceEnd::Finished),
                    Event::Closed => return Ok(InstanceEnd::Closed),
                    _ => {}
                },
                Ok(None) => {
                    return Err(Error::Protocol("a watch ended before its instance".to_owned()));
                }
                Err(error) if error.reason() == Some(RefusalReason::InstanceUnknown) => {
                    return Ok(InstanceEnd::Unknown(error));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reports to the judge at the other end of this connection how a process has ended, and waits until the
    /// instance has been judged. Asked again until it is answered, since a judge that is restarted knows of
    /// no report.
    ///
    /// The judge is no part of the service: a program that runs many processes started elsewhere has one, see
    /// `judge_service.proto`.
    ///
    /// # Errors
    /// When the judge does not take the report, for example since it never saw the instance; when there was
    /// no judge for as long as is allowed.
    pub async fn report(&self, instance: InstanceId, said: &ProcessReport) -> Result<Outcome, Error> {
        let mut route = self.cluster.route();
        let request = said.to_wire(instance);
        let verdict =
            self.call_along(&mut route, Idempotency::Waits, request, |server, request| async move {
                server.judge().report(request).await
            });
        Ok(verdict_from_wire(&verdict.await?)?)
    }
}

impl Connection {
    /// An instance as this server tells it: it is asked once, and no other server is, whatever it says of an
    /// owner.
    ///
    /// # Errors
    /// The refusal of the server, or the reason why there is no answer.
    pub async fn get(&self, id: InstanceId) -> Result<InstanceView, Error> {
        let instance = Some(v1::get_request::Instance::InstanceId(id.to_string()));
        let mut client = self.instances();
        let call = client.get(v1::GetRequest { instance });
        let response = Idempotency::Repeatable.one_try(self, ANSWER_TIMEOUT, call).await?;
        Ok(InstanceView::from_wire(&response)?)
    }
}
