//! Finished instances: their memory, and that they still answer what is promised.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use stickycas_proto::v1::event::{Answered, What, answered};
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::watch_response::Content;
use stickycas_proto::v1::{AppendRequest, Event, GetRequest, ReadRequest, State, WatchRequest, get_request};
use tokio::task::JoinSet;

use super::Measurement;
use super::fixture::{PROCESSES, ScaleFixture, WARPS};
use super::process::{AccessTimes, play, proposal};
use super::server::memory;
use super::verdict;
use crate::attach_stream::{AttachStream, hello};
use crate::principal::Principal;

/// Instances that each principal plays at a time.
pub(crate) const IN_FLIGHT: usize = 128;
/// Instances that are created and played before the next are created.
pub(crate) const PORTION: usize = 4_000;
/// Finished instances that are checked.
const SAMPLE: usize = 200;
/// Principals, if each instance has a roster of its own.
const PRINCIPALS: usize = 16;

/// Plays this many instances to their end, and then checks some of them.
pub(super) async fn measure(program: &Path, count: usize, own_rosters: bool) -> anyhow::Result<Measurement> {
    let principals = if own_rosters { PRINCIPALS } else { PROCESSES as usize };
    let fixture = ScaleFixture::start(program, count + PORTION, principals).await?;
    let fixture = Arc::new(fixture);
    // A first portion that does not count: it includes what a server allocates once.
    play_portions(&fixture, 1_000.min(count), own_rosters).await?;
    let before = memory(fixture.server.pid()).await?;
    let started = Instant::now();
    let kept = play_portions(&fixture, count, own_rosters).await?;
    let wall = started.elapsed();
    let after = memory(fixture.server.pid()).await?;
    let step = (kept.len() / SAMPLE).max(1);
    for played in kept.iter().step_by(step) {
        check(&fixture, played).await.with_context(|| format!("finished instance {}", played.id))?;
    }
    let what =
        if own_rosters { "finished instances, each with its own roster" } else { "finished instances" };
    Ok(Measurement::new(what, count, before, after, wall))
}

/// A finished instance, as its processes know it.
#[derive(Debug)]
pub(crate) struct FinishedInstance {
    id: String,
    /// Its number within its portion.
    number: usize,
    roster: Vec<usize>,
    decided: Bytes,
}

/// Creates, plays and judges so many instances, portion after portion. Returns the last portion.
pub(crate) async fn play_portions(
    fixture: &Arc<ScaleFixture>,
    count: usize,
    own_rosters: bool,
) -> anyhow::Result<Vec<FinishedInstance>> {
    let (mut done, mut kept) = (0, Vec::new());
    while done < count {
        let next = done..(done + PORTION).min(count);
        done = next.end;
        kept = portion(fixture, next, own_rosters, IN_FLIGHT).await?.instances;
    }
    Ok(kept)
}

/// Instances that were created and played together.
#[derive(Debug)]
pub(crate) struct Portion {
    instances: Vec<FinishedInstance>,
    /// Of all their accesses.
    pub(crate) times: Vec<AccessTimes>,
}

/// Creates, plays and judges these instances; each principal plays `in_flight` of them at a time.
pub(crate) async fn portion(
    fixture: &Arc<ScaleFixture>,
    numbers: std::ops::Range<usize>,
    own_rosters: bool,
    in_flight: usize,
) -> anyhow::Result<Portion> {
    let rosters: Vec<Vec<usize>> = numbers.map(|number| roster(number, own_rosters)).collect();
    let ids: Arc<[String]> = fixture.create(rosters.clone(), 16).await?.into();
    let mut playing = JoinSet::new();
    for number in 0..fixture.principals.len() {
        let own: Vec<usize> =
            (0..ids.len()).filter(|instance| rosters[*instance].contains(&number)).collect();
        let (fixture, ids) = (fixture.clone(), ids.clone());
        playing.spawn(async move {
            let (_stream, played) = play(&fixture.principals[number], number, &ids, &own, in_flight).await?;
            anyhow::Ok((number, played))
        });
    }
    let mut played = Vec::new();
    while let Some(one) = playing.join_next().await {
        played.push(one??);
    }
    let times = played.iter().flat_map(|(_, own)| own.iter().map(|one| one.times)).collect();
    let decided = verdict::judge(&rosters, played)?;
    let all = rosters.into_iter().zip(decided).enumerate();
    let all = all.map(|(number, (roster, decided))| FinishedInstance {
        id: ids[number].clone(),
        number,
        roster,
        decided: decided.to_bytes(),
    });
    Ok(Portion { instances: all.collect(), times })
}

/// The roster of an instance: all principals, or (`own`) some of them in an order of its own.
fn roster(number: usize, own: bool) -> Vec<usize> {
    if !own {
        return (0..PROCESSES as usize).collect();
    }
    let mut random = number as u64;
    let mut principals: Vec<usize> = (0..PRINCIPALS).collect();
    for place in 0..PROCESSES as usize {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = place + (random >> 33) as usize % (PRINCIPALS - place);
        principals.swap(place, other);
    }
    principals.truncate(PROCESSES as usize);
    principals
}

/// Checks the promises about a finished instance: Get, Watch, Read outside phases, a repeated answer, the
/// welcome of a hello.
async fn check(fixture: &ScaleFixture, played: &FinishedInstance) -> anyhow::Result<()> {
    let id = &played.id;
    let member = &fixture.principals[played.roster[0]];
    let history = history(member, id).await?;
    let first_answer = check_history(&history, played)?;

    let mut instances = InstanceServiceClient::new(member.channel.clone());
    let instance = Some(get_request::Instance::InstanceId(id.clone()));
    let got = instances.get(member.request(GetRequest { instance })).await?.into_inner();
    let (facts, status) = (got.instance.context("no facts")?, got.status.context("no status")?);
    let own = got.own.context("no own")?;
    ensure!(facts.roster.len() == PROCESSES as usize && facts.instance_id == *id, "{facts:?}");
    ensure!(status.state() == State::Finished && status.sealed && status.list_length == WARPS, "{status:?}");
    ensure!(status.left.len() == PROCESSES as usize && status.offences.is_empty(), "{status:?}");
    ensure!(own.next_access_number == 3 && own.decided.as_deref() == Some(&played.decided[..]), "{own:?}");

    let mut list = StickyCasServiceClient::new(member.channel.clone());
    let request = ReadRequest { instance_id: id.clone(), access_number: 3, start: 0, no_wait: false };
    let read = list.read(member.request(request)).await?.into_inner();
    let entries = read.result.context("no result")?.values;
    let added = history.iter().filter_map(|it| match &it.what {
        Some(What::Added(added)) => Some(&added.value),
        _ => None,
    });
    ensure!(read.phase == 0 && entries.iter().eq(added), "read outside phases: {entries:?}");

    let value = proposal(played.roster[0], played.number);
    let request = AppendRequest { instance_id: id.clone(), access_number: 1, value, no_wait: false };
    let again = list.append(member.request(request)).await?.into_inner();
    let Some(answered::Answer::Append(result)) = first_answer.answer else { anyhow::bail!("no append") };
    ensure!(again.phase == first_answer.phase && again.result == Some(result), "{again:?}");

    let mut stream = AttachStream::open(member, vec![hello(0, id)]).await?;
    let welcome = stream.receive().await?;
    let Some(Frame::Welcome(welcome)) = welcome.into_iter().next() else { anyhow::bail!("no welcome") };
    ensure!(welcome.session == 2 && welcome.own.as_ref() == Some(&own), "{welcome:?}");
    Ok(())
}

/// The whole history of an instance.
async fn history(member: &Principal, id: &str) -> anyhow::Result<Vec<Event>> {
    let mut instances = InstanceServiceClient::new(member.channel.clone());
    let request = WatchRequest { instance_id: id.to_owned(), from_phase: 0, snapshot_first: false };
    let mut stream = instances.watch(member.request(request)).await?.into_inner();
    let mut history = Vec::new();
    while let Some(message) = stream.message().await? {
        let Some(Content::Events(batch)) = message.content else { anyhow::bail!("no events: {message:?}") };
        history.extend(batch.events);
    }
    Ok(history)
}

/// Checks that no event is missing. Returns the answer to the append of the first process.
fn check_history(history: &[Event], played: &FinishedInstance) -> anyhow::Result<Answered> {
    let indices = history.iter().map(|event| event.index);
    ensure!(indices.eq(0..history.len() as u64), "the history has gaps");
    ensure!(history.is_sorted_by_key(|event| event.at_nanos), "the history is out of order");
    let count = |what: fn(&What) -> bool| {
        history.iter().filter_map(|it| it.what.as_ref()).filter(|it| what(it)).count()
    };
    let processes = PROCESSES as usize;
    let counts = [
        (count(|it| matches!(it, What::Joined(_))), processes),
        (count(|it| matches!(it, What::Session(_))), processes),
        (count(|it| matches!(it, What::Accepted(_))), 2 * processes),
        (count(|it| matches!(it, What::Answered(_))), 2 * processes),
        (count(|it| matches!(it, What::Stepped(_))), 2 * WARPS as usize),
        (count(|it| matches!(it, What::Added(_))), WARPS as usize),
        (count(|it| matches!(it, What::Finished(_))), 1),
    ];
    ensure!(counts.iter().all(|(seen, expected)| seen == expected), "the history lacks events: {counts:?}");
    let decided = history.iter().filter_map(|it| match &it.what {
        Some(What::Decided(decided)) => Some(&decided.value),
        _ => None,
    });
    ensure!(decided.clone().count() == processes, "some process has not decided");
    ensure!(decided.into_iter().all(|it| it[..] == played.decided), "decided otherwise");
    let answer = history.iter().find_map(|it| match &it.what {
        Some(What::Answered(answered)) if answered.process == 1 && answered.number == 1 => Some(*answered),
        _ => None,
    });
    answer.context("the first append was not answered")
}
