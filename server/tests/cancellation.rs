//! Calls whose client drops them after any number of turns: nothing is half done, and nothing is left behind
//! (SPEC F8a).
//!
//! Each call is made on an instance of its own and dropped after k turns of the runtime, in which server and
//! client run, for every k up to its end; then correct processes play the instance to its end. Once all is
//! over, the gauges of the server must come to those of a server where nothing was dropped, in memory and
//! over a disk.

use std::collections::BTreeMap;
use std::pin::Pin;

use stickycas_proto::v1::{
    AttachRequest, CreateRequest, GetCountsRequest, ListRequest, Parameters, WatchRequest,
};
use tokio::task::yield_now;
use tonic::{Code, Status};

use crate::harness::fixtures::{self, PROPOSAL, create_request, parameters};
use crate::harness::slow_disk::SlowDisk;
use crate::harness::stream::{append, decision, hello, read};
use crate::harness::{COORDINATOR, Client, Server, assert_refused, with_timeout};

/// One call, to its end.
type Call = Pin<Box<dyn Future<Output = Result<(), Status>>>>;

/// The clients of the creator and of process 1, and the id of an instance.
type Site = (Client, Client, String);

/// The call of a test.
type Case = fn(Site) -> Call;

/// Two processes of one warp.
fn pair() -> Parameters {
    Parameters { processes: 2, warp_size: 2, read_size: 2, ..parameters() }
}

fn named(id: &str) -> CreateRequest {
    CreateRequest { name: format!("beside-{id}"), ..create_request(pair()) }
}

async fn server(durable: bool) -> Server {
    if durable { Server::on(SlowDisk::new(true)).await } else { Server::start().await }
}

/// Makes the call, and drops it after so many turns. Returns whether it had ended by then.
async fn drop_after(turns: usize, mut call: Call) -> bool {
    for _ in 0..turns {
        tokio::select! {
            biased;
            outcome = &mut call => return outcome.map(|()| true).unwrap(),
            () = yield_now() => {}
        }
    }
    false
}

/// What a test does with each instance behind the call.
enum Then {
    Play,
    /// The call has created an instance beside it.
    Create,
    Close,
}

/// One call on an instance of its own. Returns whether it had ended when it was dropped.
async fn once(server: &Server, site: &(Client, Client), case: Case, then: &Then, turns: usize) -> bool {
    let id = fixtures::instance_with(server, pair()).await;
    let (mut creator, mut p1) = site.clone();
    let mut p2 = server.client("p2").await;
    let plays = matches!(then, Then::Play);
    let (id2, mut other) = (id.clone(), p2.clone());
    let playing = tokio::spawn(async move {
        if plays { fixtures::play_one(&mut other, &id2).await } else { PROPOSAL.to_owned() }
    });
    let ended = drop_after(turns, case((creator.clone(), p1.clone(), id.clone()))).await;
    match then {
        Then::Play => {}
        Then::Create => {
            let created = creator.create(named(&id)).await.unwrap().into_inner().instance.unwrap();
            fixtures::play(server, &created.instance_id, PROPOSAL).await;
        }
        Then::Close => {
            creator.close(&id).await.unwrap();
            let late = p1.append(&id, 1, PROPOSAL).await;
            assert_refused(late, Code::FailedPrecondition, "INSTANCE_CLOSED");
            return ended;
        }
    }
    fixtures::play(server, &id, PROPOSAL).await;
    assert_eq!(with_timeout(playing).await.unwrap(), PROPOSAL);
    assert_eq!(p2.status(&id).await.list_length, 1, "one append of the warp has won");
    ended
}

/// Every gauge of what clients can fill, and its value; of the process, of the clock and of events none, of
/// which a call that was dropped may have caused fewer.
async fn gauges(server: &Server) -> BTreeMap<String, String> {
    const OTHERS: [&str; 9] = [
        "stickycas_start_time",
        "stickycas_busy",
        "stickycas_runtime_queue",
        "stickycas_log",
        "process_",
        "stickycas_limit_used{limit=\"event_bytes\"}",
        "stickycas_limit_used{limit=\"log_bytes\"}",
        "stickycas_limit_used{limit=\"instance_bytes\"}",
        "stickycas_processor",
    ];
    let (_, text) = crate::operators::get(server.http, "/metrics").await;
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" gauge"));
    let gauges: Vec<&str> = types.collect();
    let rows = text.lines().filter_map(|line| line.rsplit_once(' '));
    rows.filter(|(series, _)| gauges.contains(&series.split('{').next().unwrap_or_default()))
        .filter(|(series, _)| !OTHERS.iter().any(|other| series.starts_with(other)))
        .map(|(series, value)| (series.to_owned(), value.to_owned()))
        .collect()
}

/// Drops the call after one turn more each time, until it comes to its end before.
async fn drop_at_every_turn(case: Case, then: Then) {
    for durable in [false, true] {
        let (disturbed, undisturbed) = (server(durable).await, server(durable).await);
        let mut turns = 0;
        for server in [&disturbed, &undisturbed] {
            let site = (server.client(COORDINATOR).await, server.client("p1").await);
            if turns == 0 {
                while !with_timeout(once(server, &site, case, &then, turns)).await {
                    turns += 1;
                }
                assert!(turns > 0, "a call that is never polled does nothing");
            } else {
                for _ in 0..=turns {
                    assert!(with_timeout(once(server, &site, case, &then, usize::MAX)).await);
                }
            }
        }
        let equal = async {
            loop {
                let (found, expected) = (gauges(&disturbed).await, gauges(&undisturbed).await);
                assert!(expected.len() > 20, "{expected:?}");
                if found == expected {
                    return;
                }
                yield_now().await;
            }
        };
        if tokio::time::timeout(std::time::Duration::from_secs(30), equal).await.is_err() {
            let (found, expected) = (gauges(&disturbed).await, gauges(&undisturbed).await);
            let differ = found.iter().filter(|(series, value)| expected.get(*series) != Some(value));
            panic!("after {turns} turns: left behind: {:?}", differ.collect::<Vec<_>>());
        }
    }
}

#[tokio::test]
async fn an_append() {
    let call: Case = |(_, mut p1, id)| Box::pin(async move { p1.append(&id, 1, PROPOSAL).await.map(drop) });
    drop_at_every_turn(call, Then::Play).await;
}

#[tokio::test]
async fn a_read_and_a_decision() {
    let call: Case = |(_, mut p1, id)| {
        Box::pin(async move {
            p1.append(&id, 1, PROPOSAL).await?;
            p1.read(&id, 2).await?;
            p1.decide(&id, PROPOSAL).await.map(drop)
        })
    };
    drop_at_every_turn(call, Then::Play).await;
}

#[tokio::test]
async fn an_attach_stream() {
    let call: Case = |(_, mut p1, id)| {
        Box::pin(async move {
            let frames = [hello(0, &id), append(0, 1, PROPOSAL), read(0, 2), decision(0, PROPOSAL)];
            let requests = tokio_stream::iter(frames.map(|frame| AttachRequest { frames: vec![frame] }));
            let mut responses = p1.list.attach(requests).await?.into_inner();
            while responses.message().await?.is_some() {}
            Ok(())
        })
    };
    drop_at_every_turn(call, Then::Play).await;
}

#[tokio::test]
async fn a_watch() {
    let call: Case = |(mut creator, mut p1, id)| {
        Box::pin(async move {
            let request = WatchRequest { instance_id: id.clone(), ..WatchRequest::default() };
            let watch = async {
                let mut events = creator.instances.watch(request).await?.into_inner();
                while events.message().await?.is_some() {}
                Ok(())
            };
            let (_, watched) = tokio::join!(fixtures::play_one(&mut p1, &id), watch);
            watched
        })
    };
    drop_at_every_turn(call, Then::Play).await;
}

#[tokio::test]
async fn a_create() {
    let call: Case =
        |(mut creator, _, id)| Box::pin(async move { creator.create(named(&id)).await.map(drop) });
    drop_at_every_turn(call, Then::Create).await;
}

#[tokio::test]
async fn a_close() {
    let call: Case = |(mut creator, _, id)| Box::pin(async move { creator.close(&id).await });
    drop_at_every_turn(call, Then::Close).await;
}

#[tokio::test]
async fn calls_that_only_look() {
    let get: Case = |(mut creator, _, id)| Box::pin(async move { creator.get(&id).await.map(drop) });
    let list: Case = |(mut creator, ..)| {
        Box::pin(async move { creator.instances.list(ListRequest::default()).await.map(drop) })
    };
    let counts: Case = |(mut creator, ..)| {
        Box::pin(async move { creator.server.get_counts(GetCountsRequest::default()).await.map(drop) })
    };
    for case in [get, list, counts] {
        drop_at_every_turn(case, Then::Play).await;
    }
}
