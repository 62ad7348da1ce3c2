//! Single operations: one call each, for people and for programs that set up and close instances.

use stickycas_model::access::{Answer, AppendAnswer, ReadAnswer};
use stickycas_model::params::Params;
use stickycas_model::types::{AccessNumber, Phase, Position, Value};
use stickycas_proto::convert::answer::AnswerData;
use stickycas_proto::names::{InstanceId, InstanceRef};
use stickycas_proto::v1;

use crate::client::{ANSWER_TIMEOUT, Client, Idempotency};
use crate::connection::Connection;
use crate::convert::{IntoInstance, IntoValue};
use crate::error::Error;
use crate::info::InstanceView;

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
    /// How it ended (A1).
    pub answer: AppendAnswer,
}

/// What a read returned (R1).
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

impl Client {
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
        let request = v1::GetRequest { instance: Some(named) };
        let call = |connection: Connection| {
            let request = request.clone();
            async move { connection.instances().get(request).await }
        };
        let response = self.call_along(&mut route, Idempotency::Repeatable, call).await?;
        Ok(InstanceView::from_wire(&response)?)
    }

    /// A client that asks the owner of an instance first: the server that has just answered for it. Where there is one
    /// server, the same client.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    #[doc(hidden)]
    pub async fn at_owner(&self, instance: InstanceId) -> Result<Self, Error> {
        if !self.cluster.has_several() {
            return Ok(self.clone());
        }
        let mut route = self.cluster.route_to(instance);
        let request =
            v1::GetRequest { instance: Some(v1::get_request::Instance::InstanceId(instance.to_string())) };
        let call = |connection: Connection| {
            let request = request.clone();
            async move { connection.instances().get(request).await }
        };
        self.call_along(&mut route, Idempotency::Repeatable, call).await?;
        Ok(Self::on(route.connection().await?, self.retry_policy()))
    }

    /// The id of an instance. Accesses carry ids, never names (F11), so a name is looked up once, here; an id is
    /// taken as it is.
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
        let call = |connection: Connection| {
            let request = v1::CloseRequest { instance_id: instance.to_string() };
            async move { connection.instances().close(request).await }
        };
        self.call_owner(instance, Idempotency::Repeatable, call).await.map(|v1::CloseResponse {}| ())
    }

    /// Appends once, under this access number.
    ///
    /// # Errors
    /// See the service. After one that may have happened, ask again with the same number.
    pub async fn append(
        &self,
        instance: impl IntoInstance,
        number: AccessNumber,
        value: impl IntoValue,
        wait: WaitMode,
    ) -> Result<Appended, Error> {
        let (instance, value) = (instance.into_instance()?, value.into_value()?);
        let instance = self.find(instance).await?;
        let request = v1::AppendRequest {
            instance_id: instance.to_string(),
            access_number: number.get(),
            value: value.to_bytes(),
            no_wait: wait == WaitMode::NoWait,
        };
        let call = |connection: Connection| {
            let request = request.clone();
            async move { connection.list().append(request).await }
        };
        let response = self.call_owner(instance, wait.idempotency(), call).await?;
        match AnswerData::from_append(&response)? {
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
        let call = |connection: Connection| {
            let request = request.clone();
            async move { connection.list().read(request).await }
        };
        let response = self.call_owner(instance, wait.idempotency(), call).await?;
        match AnswerData::from_read(&response, params)? {
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
    pub async fn decide(&self, instance: impl IntoInstance, value: impl IntoValue) -> Result<(), Error> {
        let (instance, value) = (instance.into_instance()?, value.into_value()?);
        let instance = self.find(instance).await?;
        let request = v1::DecideRequest { instance_id: instance.to_string(), value: value.to_bytes() };
        let call = |connection: Connection| {
            let request = request.clone();
            async move { connection.list().decide(request).await }
        };
        self.call_owner(instance, Idempotency::Repeatable, call).await.map(|v1::DecideResponse {}| ())
    }
}
impl Connection {
    /// An instance as this server tells it: it is asked once, and no other server is, whatever it says of an owner.
    ///
    /// # Errors
    /// What the server refuses, or why there is no answer.
    pub async fn get(&self, id: InstanceId) -> Result<InstanceView, Error> {
        let instance = Some(v1::get_request::Instance::InstanceId(id.to_string()));
        let mut client = self.instances();
        let call = client.get(v1::GetRequest { instance });
        let response = Idempotency::Repeatable.one_try(self, ANSWER_TIMEOUT, call).await?;
        Ok(InstanceView::from_wire(&response)?)
    }
}
