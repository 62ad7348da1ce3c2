//! Instances that have finished: what they take, and that all which is promised of them still holds.

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
use super::play::{Line, hello, play, proposal};
use super::program::memory;
use super::town::{PROCESSES, Principal, Town, WARPS};
use super::verdict;

/// Instances that each principal plays at a time.
const IN_FLIGHT: usize = 128;
/// Instances that are created and played before the next are created.
const PORTION: usize = 4_000;
/// Finished instances that are looked at.
const SAMPLE: usize = 200;
/// Principals, if each instance has a roster of its own.
const CROWD: usize = 16;

/// Plays so many instances to their end, and then looks at some of them.
pub(super) async fn measure(program: &Path, count: usize, own_rosters: bool) -> anyhow::Result<Measurement> {
    let crowd = if own_rosters { CROWD } else { PROCESSES as usize };
    let town = Town::found(program, count + PORTION, crowd).await?;
    let town = Arc::new(town);
    // A first portion that does not count: what a server sets up once is not what an instance takes.
    let warm = portion(&town, 0..1_000.min(count), own_rosters).await?;
    drop(warm);
    let before = memory(town.server.pid()).await?;
    let started = Instant::now();
    let (mut done, mut kept) = (0, Vec::new());
    while done < count {
        let next = done..(done + PORTION).min(count);
        done = next.end;
        kept = portion(&town, next, own_rosters).await?;
    }
    let wall = started.elapsed();
    let after = memory(town.server.pid()).await?;
    let step = (kept.len() / SAMPLE).max(1);
    for played in kept.iter().step_by(step) {
        look(&town, played).await.with_context(|| format!("finished instance {}", played.id))?;
    }
    let what =
        if own_rosters { "finished instances, each with its own roster" } else { "finished instances" };
    Ok(Measurement::new(what, count, before, after, wall))
}

/// A finished instance as its players know it.
struct Played {
    id: String,
    /// Within its portion.
    number: usize,
    roster: Vec<usize>,
    decided: Bytes,
}

/// Creates, plays and judges some instances.
async fn portion(
    town: &Arc<Town>,
    numbers: std::ops::Range<usize>,
    own_rosters: bool,
) -> anyhow::Result<Vec<Played>> {
    let rosters: Vec<Vec<usize>> = numbers.map(|number| roster(number, own_rosters)).collect();
    let ids: Arc<[String]> = town.create(rosters.clone(), 16).await?.into();
    let mut playing = JoinSet::new();
    for number in 0..town.principals.len() {
        let mine: Vec<usize> =
            (0..ids.len()).filter(|instance| rosters[*instance].contains(&number)).collect();
        let (town, ids) = (town.clone(), ids.clone());
        playing.spawn(async move {
            let (_line, played) = play(&town.principals[number], number, &ids, &mine, IN_FLIGHT).await?;
            anyhow::Ok((number, played))
        });
    }
    let mut played = Vec::new();
    while let Some(one) = playing.join_next().await {
        played.push(one??);
    }
    let decided = verdict::judge(&rosters, played)?;
    let all = rosters.into_iter().zip(decided).enumerate();
    let all = all.map(|(number, (roster, decided))| Played {
        id: ids[number].clone(),
        number,
        roster,
        decided: decided.to_bytes(),
    });
    Ok(all.collect())
}

/// The members of an instance, by process: all principals, or some of them in an order that is hardly ever the same.
fn roster(number: usize, own: bool) -> Vec<usize> {
    if !own {
        return (0..PROCESSES as usize).collect();
    }
    let mut random = number as u64;
    let mut crowd: Vec<usize> = (0..CROWD).collect();
    for place in 0..PROCESSES as usize {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = place + (random >> 33) as usize % (CROWD - place);
        crowd.swap(place, other);
    }
    crowd.truncate(PROCESSES as usize);
    crowd
}

/// Asks for all that is promised of a finished instance: Get, Watch, Read outside phases, an answer once more, the
/// welcome of a hello.
async fn look(town: &Town, played: &Played) -> anyhow::Result<()> {
    let id = &played.id;
    let member = &town.principals[played.roster[0]];
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

    let mut line = Line::open(member, vec![hello(0, id)]).await?;
    let welcome = line.hear().await?;
    let Some(Frame::Welcome(welcome)) = welcome.into_iter().next() else { anyhow::bail!("no welcome") };
    ensure!(welcome.session == 2 && welcome.own.as_ref() == Some(&own), "{welcome:?}");
    Ok(())
}

/// Its whole record.
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

/// Nothing is missing; how the first process's append was answered.
fn check_history(history: &[Event], played: &Played) -> anyhow::Result<Answered> {
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
    ensure!(decided.clone().count() == processes, "not everybody has decided");
    ensure!(decided.into_iter().all(|it| it[..] == played.decided), "decided otherwise");
    let answer = history.iter().find_map(|it| match &it.what {
        Some(What::Answered(answered)) if answered.process == 1 && answered.number == 1 => Some(*answered),
        _ => None,
    });
    answer.context("the first append was not answered")
}
