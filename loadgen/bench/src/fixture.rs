//! A server, principals with a connection each, and instances of them.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::metrics::Commits;
use crate::principal::{Creator, Principal};
use crate::results::Figures;
use crate::servers::{Launch, Server, allow_files};
use crate::stopwatch::{Programs, Sample, Stopwatch};
use crate::workload::{Observation, Shape, agree, judge};

/// See the module. The server ends when this is dropped.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) shape: Shape,
    /// By number; the first ones are the processes of the first instances.
    pub(crate) principals: Vec<Principal>,
    /// `None`: the server is the floor, which knows no instances.
    pub(crate) creator: Option<Creator>,
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
        Self::groups(launch.start().await?, shape, 1, instances).await
    }

    /// The same on this server. Each group of principals has as many members as instances have processes; the
    /// instances are of one group after the other, `per_group` at most of each.
    pub(crate) async fn groups(
        server: Server,
        shape: Shape,
        groups: usize,
        instances: usize,
    ) -> anyhow::Result<Self> {
        let principals = connect(&server, 0..groups * shape.processes as usize).await?;
        let creator = Some(Creator::connect(&server, shape).await?);
        let mut fixture = Self { server, shape, principals, creator, ids: Arc::new([]) };
        fixture.ids = fixture.create(instances, instances.div_ceil(groups.max(1))).await?;
        Ok(fixture)
    }

    /// The floor, with ids that belong to no instance.
    pub(crate) async fn floor(shape: Shape, instances: usize) -> anyhow::Result<Self> {
        let server = Server::floor().await?;
        let principals = connect(&server, 0..shape.processes as usize).await?;
        let ids = (0..instances).map(|number| format!("{number:032x}")).collect();
        Ok(Self { server, shape, principals, creator: None, ids })
    }

    /// The floor does not know instances.
    pub(crate) fn is_real(&self) -> bool {
        self.creator.is_some()
    }

    /// The roster of a group.
    pub(crate) fn roster(&self, group: usize) -> Vec<String> {
        let size = self.shape.processes as usize;
        (group * size..(group + 1) * size).map(principal).collect()
    }

    /// Creates so many instances, several at a time, so that a log commits many of them at once; so many of
    /// each group of principals. Returns their ids in order.
    pub(crate) async fn create(&self, instances: usize, per_group: usize) -> anyhow::Result<Arc<[String]>> {
        const AT_ONCE: usize = 64;
        let mut creating = JoinSet::new();
        for first in 0..AT_ONCE.min(instances) {
            let mut creator = self.creator.clone().ok_or_else(|| anyhow::anyhow!("no creator"))?;
            let own = (first..instances).step_by(AT_ONCE);
            let own: Vec<_> = own.map(|number| (number, self.roster(number / per_group))).collect();
            creating.spawn(async move {
                let mut ids = Vec::new();
                for (number, roster) in own {
                    ids.push((number, creator.create(roster).await?));
                }
                anyhow::Ok(ids)
            });
        }
        let mut ids = vec![String::new(); instances];
        while let Some(created) = creating.join_next().await {
            created??.into_iter().for_each(|(number, id)| ids[number] = id);
        }
        Ok(ids.into())
    }

    /// Judges the observations, by process and then by instance. Those of the floor only have to be equal.
    pub(crate) fn judge(&self, observations: &[Vec<Observation>]) -> anyhow::Result<()> {
        if self.is_real() { judge(self.shape, observations) } else { agree(observations) }
    }

    /// Measures `play`, which plays the instances, and judges its observations.
    pub(crate) async fn measure(
        &self,
        play: impl Future<Output = anyhow::Result<Vec<Vec<Observation>>>>,
    ) -> anyhow::Result<Figures> {
        let before = self.commits().await?;
        let watch = Stopwatch::of(Programs { servers: vec![self.server.pid()], etcd: Vec::new() });
        let observations = play.await?;
        let sample = watch.stop(self.ids.len(), self.ids.len() * self.shape.accesses());
        let after = self.commits().await?;
        self.judge(&observations)?;
        let log = after.zip(before).map(|(after, before)| after.plus(-1.0, before));
        Ok(with_commits(sample, log.filter(|log| log.commits > 0.0)))
    }

    /// The commits of the server's log; `None` of the floor.
    async fn commits(&self) -> anyhow::Result<Option<Commits>> {
        match &self.server.operators {
            // Without a log there are no such metrics.
            Some(operators) => Ok(Commits::read(operators).await.ok()),
            None => Ok(None),
        }
    }
}

/// The figures of a turn, with those of the log if it has one.
#[allow(clippy::cast_precision_loss)]
fn with_commits(sample: Sample, log: Option<Commits>) -> Figures {
    let figures = sample.figures();
    let Some(log) = log else { return figures };
    let accesses = sample.accesses as f64;
    figures
        .with("commits_per_s", log.commits / sample.wall.as_secs_f64())
        .with("accesses_per_commit", accesses / log.commits)
        .with("commit_us", log.sync_s * 1e6 / log.commits)
        .with("log_bytes_per_access", log.bytes / accesses)
}

/// Connects the principals with these numbers.
pub(crate) async fn connect(
    server: &Server,
    numbers: std::ops::Range<usize>,
) -> anyhow::Result<Vec<Principal>> {
    allow_files(numbers.len())?;
    let mut principals = Vec::with_capacity(numbers.len());
    for number in numbers {
        principals.push(Principal::of(server, &principal(number)).await?);
    }
    Ok(principals)
}
