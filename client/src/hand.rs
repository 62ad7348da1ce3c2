//! Operations by hand: one call each, for people and for whoever sets up and closes instances.

use stickycas_model::access::{Answer, AppendAnswer, ReadAnswer};
use stickycas_model::params::Params;
use stickycas_model::types::{AccessNumber, Phase, Position, Value};
use stickycas_proto::convert::WireError;
use stickycas_proto::convert::answer::AnswerData;
use stickycas_proto::convert::member_state::MemberState;
use stickycas_proto::names::{InstanceId, InstanceName, InstanceRef};
use stickycas_proto::v1;

use crate::client::{Client, Manner};
use crate::error::Error;
use crate::info::{InstanceInfo, Looked, Summary};

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
    /// Creates an instance; also says whether this call did. With a name it may be repeated and is retried:
    /// the same name and content give the same instance (F11). Without, it is retried only if it did not
    /// happen.
    ///
    /// `parameters` may leave out what has a default, and the seed, which the server then draws.
    ///
    /// # Errors
    /// See the service: bad parameters, no coordinator, name taken, too many instances.
    pub async fn create(
        &self,
        name: Option<&InstanceName>,
        parameters: v1::Parameters,
        roster: Vec<String>,
    ) -> Result<(InstanceInfo, bool), Error> {
        let name = name.map_or_else(String::new, |name| name.as_str().to_owned());
        let repeatable = !name.is_empty();
        let request = v1::CreateRequest { name, parameters: Some(parameters), roster };
        let call = || {
            let (mut instances, request) = (self.connection.instances(), request.clone());
            async move { instances.create(request).await }
        };
        let response = self.call(if repeatable { Manner::Repeatable } else { Manner::Once }, call).await?;
        let instance = response.instance.as_ref().ok_or(WireError::Missing("instance"))?;
        Ok((instance.try_into()?, response.created))
    }

    /// How an instance stands (F12).
    ///
    /// # Errors
    /// When there is none, or the caller may not look at it (F13).
    pub async fn get(&self, instance: &InstanceRef) -> Result<Looked, Error> {
        use v1::get_request::Instance;
        let named = match instance {
            InstanceRef::Id(id) => Instance::InstanceId(id.to_string()),
            InstanceRef::Name(name) => Instance::Name(name.as_str().to_owned()),
        };
        let request = v1::GetRequest { instance: Some(named) };
        let call = || {
            let (mut instances, request) = (self.connection.instances(), request.clone());
            async move { instances.get(request).await }
        };
        let response = self.call(Manner::Repeatable, call).await?;
        let instance: InstanceInfo =
            response.instance.as_ref().ok_or(WireError::Missing("instance"))?.try_into()?;
        let status = response.status.as_ref().ok_or(WireError::Missing("status"))?.try_into()?;
        let own =
            response.own.as_ref().map(|own| MemberState::from_wire(own, &instance.parameters)).transpose()?;
        Ok(Looked { instance, status, own })
    }

    /// The id of the instance that somebody names by this text, an id or a name. Accesses carry ids, never
    /// names (F11), so a name is looked up once, here.
    ///
    /// # Errors
    /// As for [`get`](Self::get); an id is taken as it is.
    pub async fn find(&self, text: &str) -> Result<InstanceId, Error> {
        match instance_ref(text)? {
            InstanceRef::Id(id) => Ok(id),
            name => Ok(self.get(&name).await?.instance.id),
        }
    }

    /// All living instances that the caller may look at, in the order of their ids.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn list(&self) -> Result<Vec<Summary>, Error> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let call = || {
                let mut instances = self.connection.instances();
                let request = v1::ListRequest { page_size: 0, page_token: page_token.clone() };
                async move { instances.list(request).await }
            };
            let page = self.call(Manner::Repeatable, call).await?;
            for summary in &page.instances {
                all.push(summary.try_into()?);
            }
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            page_token = page.next_page_token;
        }
    }

    /// Closes an instance for good (F10). Again changes nothing.
    ///
    /// # Errors
    /// When there is none, or the caller did not create it.
    pub async fn close(&self, instance: InstanceId) -> Result<(), Error> {
        let call = || {
            let mut instances = self.connection.instances();
            let request = v1::CloseRequest { instance_id: instance.to_string() };
            async move { instances.close(request).await }
        };
        self.call(Manner::Repeatable, call).await.map(|v1::CloseResponse {}| ())
    }

    /// Appends once, under this access number, and waits for the phase; or, with `no_wait`, is refused at once
    /// if it is another warp's (F7).
    ///
    /// # Errors
    /// See the service. After one that may have happened, ask again with the same number.
    pub async fn append(
        &self,
        instance: InstanceId,
        number: AccessNumber,
        value: &Value,
        no_wait: bool,
    ) -> Result<Appended, Error> {
        let request = v1::AppendRequest {
            instance_id: instance.to_string(),
            access_number: number.get(),
            value: value.to_bytes(),
            no_wait,
        };
        let call = || {
            let (mut list, request) = (self.connection.list(), request.clone());
            async move { list.append(request).await }
        };
        let response = self.call(Manner::of_access(no_wait), call).await?;
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
        no_wait: bool,
    ) -> Result<Read, Error> {
        let request = v1::ReadRequest {
            instance_id: instance.to_string(),
            access_number: number.get(),
            start: start.get(),
            no_wait,
        };
        let call = || {
            let (mut list, request) = (self.connection.list(), request.clone());
            async move { list.read(request).await }
        };
        let response = self.call(Manner::of_access(no_wait), call).await?;
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
    pub async fn decide(&self, instance: InstanceId, value: &Value) -> Result<(), Error> {
        let request = v1::DecideRequest { instance_id: instance.to_string(), value: value.to_bytes() };
        let call = || {
            let (mut list, request) = (self.connection.list(), request.clone());
            async move { list.decide(request).await }
        };
        self.call(Manner::Repeatable, call).await.map(|v1::DecideResponse {}| ())
    }
}

/// The instance that somebody names by this text: an id if it looks like one, else a name.
///
/// # Errors
/// [`Error::Usage`] if it is neither.
pub(crate) fn instance_ref(text: &str) -> Result<InstanceRef, Error> {
    if let Ok(id) = text.parse() {
        return Ok(InstanceRef::Id(id));
    }
    text.parse().map(InstanceRef::Name).map_err(|_| {
        Error::Usage(format!(
            "instance {text:?}: give its id (32 lowercase hex digits) or its name (1 to 64 letters, digits, \
             '.', '_' or '-')"
        ))
    })
}
