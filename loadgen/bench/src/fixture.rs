//! A server, principals with a connection each, and instances of them.

use std::sync::Arc;

use anyhow::Context as _;
use stickycas_client::Client;
use stickycas_client::raw::Connection;

use crate::metrics::{self, Metrics};
use crate::results::Figures;
use crate::servers::{COORDINATOR, Launch, Server};
use crate::stopwatch::Stopwatch;
use crate::tasks::in_parallel;
use crate::workload::{Observation, Shape, agree, judge};

/// See the module. The server ends when this is dropped.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) shape: Shape,
    /// By number; the first ones are the processes of the first instances.
    pub(crate) principals: Vec<Connection>,
    /// `None`: the server is the floor, which knows no instances.
    pub(crate) creator: Option<Client>,
    /// The ids of the instances.
    pub(crate) ids: Arc<[String]>,
}

/// The principal with this number, from 0.
pub(crate) fn principal(number: usize) -> String {
    format!("process-{}", number + 1)
}

impl Fixture {
    /// StickyCAS with this many instances of one group of principals.
    pub(crate) async fn start(launch: &Launch, shape: Shape, instances: usize) -> anyhow::Result<Self> {
        let mut fixture = Self::groups(launch.start().await?, shape, 1).await?;
        fixture.ids = fixture.create(instances, instances).await?;
        Ok(fixture)
    }

    /// This server, without instances. Each group of principals has as many members as instances have
    /// processes.
    pub(crate) async fn groups(server: Server, shape: Shape, groups: usize) -> anyhow::Result<Self> {
        let principals = connect(&server, 0..groups * shape.processes as usize).await?;
        let creator = server.client(COORDINATOR)?;
        Ok(Self { server, shape, principals, creator: Some(creator), ids: Arc::new([]) })
    }

    /// The floor, with ids that belong to no instance.
    pub(crate) async fn floor(shape: Shape, instances: usize) -> anyhow::Result<Self> {
        let server = Server::floor()?;
        let principals = connect(&server, 0..shape.processes as usize).await?;
        let ids = (0..instances).map(|number| format!("{number:032x}")).collect();
        Ok(Self { server, shape, principals, creator: None, ids })
    }

    /// The floor does not know instances.
    pub(crate) fn is_real(&self) -> bool {
        self.creator.is_some()
    }

    /// Creates so many instances, several at a time, so that a log commits many of them at once; so many of
    /// each group of principals. Returns their ids in order.
    pub(crate) async fn create(&self, instances: usize, per_group: usize) -> anyhow::Result<Arc<[String]>> {
        const AT_ONCE: usize = 64;
        let (params, size) = (self.shape.params()?, self.shape.processes as usize);
        let create = self.creator.as_ref().context("no creator")?.create_instance().params(&params);
        let ids = in_parallel(instances, AT_ONCE, move |number| {
            let group = number / per_group;
            let create = create.clone().roster((group * size..(group + 1) * size).map(principal));
            async move { Ok(create.send().await?.instance.id.to_string()) }
        });
        Ok(ids.await?.into())
    }

    /// Creates an instance with this name, of the first principals.
    pub(crate) async fn create_named(&self, name: &str) -> anyhow::Result<Arc<[String]>> {
        let create = self.creator.as_ref().context("no creator")?.create_instance();
        let roster = (0..self.shape.processes as usize).map(principal);
        let create = create.params(&self.shape.params()?).name(name).roster(roster);
        Ok(Arc::new([create.send().await?.instance.id.to_string()]))
    }

    /// Judges the observations, by process and then by instance. Those of the floor only have to be equal.
    pub(crate) fn judge(&self, observations: &[Vec<Observation>]) -> anyhow::Result<()> {
        if self.is_real() { judge(self.shape, observations) } else { agree(observations) }
    }

    /// Measures `play`, which plays the instances, and judges its observations.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) async fn measure(
        &self,
        play: impl Future<Output = anyhow::Result<Vec<Vec<Observation>>>>,
    ) -> anyhow::Result<Figures> {
        let before = self.metrics().await;
        let watch = Stopwatch::start(vec![self.server.pid()], Vec::new());
        let observations = play.await?;
        let accesses = self.ids.len() * self.shape.accesses();
        let (wall, figures) = watch.stop(self.ids.len(), accesses);
        let log = self.metrics().await.plus(-1.0, &before);
        self.judge(&observations)?;
        let Some(commits) = log.value(metrics::COMMITS).ok().filter(|commits| *commits > 0.0) else {
            return Ok(figures);
        };
        Ok(figures
            .with("commits_per_s", commits / wall.as_secs_f64())
            .with("accesses_per_commit", accesses as f64 / commits)
            .with("commit_us", log.value(metrics::SYNC_S)? * 1e6 / commits)
            .with("log_bytes_per_access", log.value(metrics::BYTES)? / accesses as f64))
    }

    /// The metrics of the server; the floor has none, and without a log there are none of its commits.
    async fn metrics(&self) -> Metrics {
        match &self.server.operators {
            Some(operators) => Metrics::read(operators).await.unwrap_or_default(),
            None => Metrics::default(),
        }
    }
}

/// Connects the principals with these numbers.
pub(crate) async fn connect(
    server: &Server,
    numbers: std::ops::Range<usize>,
) -> anyhow::Result<Vec<Connection>> {
    let mut principals = Vec::with_capacity(numbers.len());
    for number in numbers {
        let connected = server.connect(&principal(number)).await;
        principals.push(connected.context("if files are missing, raise the hard limit (ulimit -Hn)")?);
    }
    Ok(principals)
}
