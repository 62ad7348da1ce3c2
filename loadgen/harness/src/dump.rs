//! The instances in a dump of a server's log (`stickycas-server data dump`), as runs that can be replayed and
//! explained.
//!
//! A log has what happened at its instances. It does not have the ground truth, nor what processes read on
//! their own side. So a process with an offence on record counts as faulty, and every other one as correct,
//! with its first append as its proposal and with the decision that it reported to the server
//! ([`assumed_truth`]). [`ASSUMPTIONS`] says this to readers.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::Message as _;
use serde::Serialize;
use stickycas_model::counts::RunCounts;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::params::Params;
use stickycas_page::assumed::{ASSUMPTIONS, assumed_truth, reports_to_server};
use stickycas_proto::convert::WireError;
use stickycas_proto::convert::history::event_from_wire;
use stickycas_proto::convert::params::params_from_wire;
use stickycas_proto::delimited::read_message;
use stickycas_proto::log::v1 as log;
use stickycas_proto::names::InstanceId;

use crate::exit::UsageError;
use crate::record::{ExecutionMode, Record};
use crate::replay::{DifferentEvent, first_difference};
use crate::scenario::Scenario;

/// Bytes of the longest message that is read: more than that of any instance.
const LONGEST: u64 = 1 << 31;

/// An instance in a dump.
#[derive(Clone, Debug)]
pub struct DumpedInstance {
    /// Its id.
    pub id: InstanceId,
    /// Its name; `None` if it has none.
    pub name: Option<String>,
    /// The index of the first event that the log has kept: 0 if the history is whole.
    pub first_index: u64,
    /// The instance as a run. See the module.
    pub record: Record,
}

/// The instances of a dump, one after the other. Ends after the first error.
#[derive(Debug)]
pub struct Dump<R = BufReader<File>> {
    path: PathBuf,
    /// `None`: read to its end, or not readable any further.
    file: Option<R>,
    read: u64,
}

impl Dump {
    /// Opens a dump.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        Ok(Self::read_from(path, BufReader::new(file)))
    }
}

impl<R: BufRead> Dump<R> {
    /// A dump with this content. `path` stands in errors.
    pub fn read_from(path: &Path, content: R) -> Self {
        Self { path: path.to_owned(), file: Some(content), read: 0 }
    }

    fn read_next(&mut self) -> anyhow::Result<Option<DumpedInstance>> {
        let Some(file) = &mut self.file else { return Ok(None) };
        let message = match read_message(file, LONGEST) {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(None),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData) =>
            {
                return Err(self.no_dump(&error));
            }
            Err(error) => return Err(unreadable(&self.path, &error)),
        };
        self.read += 1;
        let dumped = log::DumpedInstance::decode(message.as_slice()).map_err(|error| self.no_dump(&error))?;
        DumpedInstance::from_wire(&dumped).map(Some).map_err(|error| self.no_dump(&error))
    }

    /// The file is no dump, or damaged.
    fn no_dump(&self, why: &dyn fmt::Display) -> anyhow::Error {
        let what = format!(
            "{}: no dump, or damaged at or behind instance {} of it: {why}; give a file that stickycas-server data dump has \
             written",
            self.path.display(),
            self.read
        );
        UsageError(what).into()
    }
}

/// The file cannot be read, which says nothing about what is in it.
fn unreadable(path: &Path, error: &io::Error) -> anyhow::Error {
    let what = format!("{} cannot be read: {error}", path.display());
    if error.kind() == io::ErrorKind::NotFound { UsageError(what).into() } else { anyhow::Error::msg(what) }
}

impl<R: BufRead> Iterator for Dump<R> {
    type Item = anyhow::Result<DumpedInstance>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read_next();
        if !matches!(read, Ok(Some(_))) {
            self.file = None;
        }
        read.transpose()
    }
}

impl DumpedInstance {
    fn from_wire(wire: &log::DumpedInstance) -> Result<Self, WireError> {
        let created = wire.created.as_ref().ok_or(WireError::Missing("created"))?;
        let params = created.parameters.as_ref().ok_or(WireError::Missing("created.parameters"))?;
        let params = Arc::new(params_from_wire(params)?);
        let id: [u8; 16] = created.id.as_ref().try_into().map_err(|_| WireError::InstanceId)?;
        let id = InstanceId::new(u128::from_be_bytes(id));
        let history = wire.events.iter().map(|event| Ok(event_from_wire(event)?.1));
        let history = history.collect::<Result<Vec<_>, WireError>>()?;
        let name = Some(created.name.clone()).filter(|name| !name.is_empty());
        let first_index = wire.first_index;
        let record = record(id, params, history, first_index == 0);
        Ok(Self { id, name, first_index, record })
    }

    /// Whether this is its id or name.
    #[must_use]
    pub fn is_called(&self, text: &str) -> bool {
        self.name.as_deref() == Some(text) || self.id.to_string() == text
    }

    /// Replays its history.
    #[must_use]
    pub fn replay(&self) -> DumpReplay {
        let Record { scenario, history, .. } = &self.record;
        let is_whole = self.first_index == 0;
        DumpReplay {
            instance: self.id.to_string(),
            name: self.name.clone(),
            events: history.len(),
            first_index: self.first_index,
            difference: is_whole.then(|| first_difference(&scenario.params, history)).flatten(),
        }
    }
}

/// The instance as a run.
fn record(id: InstanceId, params: Arc<Params>, history: Vec<Recorded>, is_whole: bool) -> Record {
    let over = history.iter().any(|recorded| matches!(recorded.event, Event::Finished | Event::Closed));
    let truth = assumed_truth(&params, &history);
    let reports = reports_to_server(&history);
    let scenario = Scenario {
        name: id.to_string(),
        about: ASSUMPTIONS.to_owned(),
        expect: None,
        params,
        truth,
        seed: 0,
    };
    Record::judged(scenario, ExecutionMode::Dumped, history, is_whole && over, RunCounts::default(), reports)
}

/// The result of a replay of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DumpReplay {
    /// Its id.
    pub instance: String,
    /// Its name.
    pub name: Option<String>,
    /// Events in the dump.
    pub events: usize,
    /// The index of the first of them. If it is not 0, the instance cannot be replayed.
    pub first_index: u64,
    /// The first event that came out differently.
    pub difference: Option<DifferentEvent>,
}

impl DumpReplay {
    /// Whether the machine did the same; `None`: the history does not begin with its first event.
    #[must_use]
    pub fn same(&self) -> Option<bool> {
        (self.first_index == 0).then_some(self.difference.is_none())
    }
}

/// In words.
impl fmt::Display for DumpReplay {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instance, name, events, first_index, difference } = self;
        write!(out, "instance {instance}")?;
        if let Some(name) = name {
            write!(out, " ({name})")?;
        }
        match difference {
            None if *first_index == 0 => {
                writeln!(out, ": the same: {events} events came out again one by one")
            }
            None => writeln!(
                out,
                ": not replayed: the log keeps its events from number {first_index} on, and a replay needs all"
            ),
            Some(difference) => {
                writeln!(out, ": different: the first event that differs is number {}", difference.index)?;
                difference.write_both(out)
            }
        }
    }
}
