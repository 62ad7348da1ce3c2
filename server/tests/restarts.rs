//! Restarts on a log: what was told stands, and everybody goes on.

use std::path::Path;
use std::time::Duration;

use stickycas_proto::v1::event::What;
use stickycas_proto::v1::parameters::PatienceChoice;
use stickycas_proto::v1::{Event, GetResponse, Parameters, State, WatchRequest, watch_response};
use stickycas_server::{Config, PRINCIPAL_KEY, Stopped};
use tempfile::TempDir;
use tonic::Code;

use crate::harness::fixtures::{
    alone, append, create_request, instance_with, parameters, play, play_one, principal,
};
use crate::harness::raw::{RawClient, prefixed};
use crate::harness::stream::{Stream, append as append_frame, decision, hello, read};
use crate::harness::{OBSERVER, Server, assert_refused, with_timeout};

/// A folder that only its owner may look into.
pub(crate) fn private_folder() -> TempDir {
    let mut folder = tempfile::Builder::new();
    #[cfg(unix)]
    folder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    folder.tempdir().unwrap()
}

async fn server_on(data: &Path) -> Server {
    Server::with(|config| {
        config.data = Some(data.to_owned());
        // Far longer than a clean end takes.
        config.drain = Duration::from_secs(60);
    })
    .await
}

/// Ends the server as a kill would: nothing is drained. What is in flight may be committed or not.
async fn kill_and_restart(server: Server, data: &Path) -> Server {
    server.kill().await;
    server_on(data).await
}

async fn history(server: &Server, id: &str) -> Vec<Event> {
    let mut observer = server.client(OBSERVER).await;
    let status = observer.status(id).await;
    let request = WatchRequest { instance_id: id.to_owned(), ..WatchRequest::default() };
    let mut stream = observer.instances.watch(request).await.unwrap().into_inner();
    let mut events = Vec::new();
    let ended = matches!(status.state(), State::Finished | State::Closed);
    while ended || events.is_empty() {
        let Some(message) = with_timeout(stream.message()).await.unwrap() else { break };
        if let Some(watch_response::Content::Events(batch)) = message.content {
            events.extend(batch.events);
        }
    }
    events
}

#[tokio::test]
async fn an_instance_goes_on_where_it_was() {
    let data = private_folder();
    let server = server_on(data.path()).await;
    let id = instance_with(&server, parameters()).await;
    let mut first = server.client(&principal(1)).await;
    let waiting = first.append_and_wait(&id, "yes").await;
    let before = first.get(&id).await.unwrap();
    assert_eq!(before.instance.as_ref().unwrap().rejoin.unwrap().seconds, 5);

    let server = kill_and_restart(server, data.path()).await;
    waiting.await.unwrap().unwrap_err();
    let mut first = server.client(&principal(1)).await;
    let after = first.get(&id).await.unwrap();
    assert_eq!((&after.instance, &after.own), (&before.instance, &before.own), "the append waits on");
    play(&server, &id, "yes").await;
    let told = history(&server, &id).await;

    let server = kill_and_restart(server, data.path()).await;
    assert_eq!(history(&server, &id).await, told, "a finished instance is what it was");
    let restarts = told.iter().filter(|event| matches!(event.what, Some(What::Restarted(_)))).count();
    assert_eq!(restarts, 1);
    let mut second = server.client(&principal(2)).await;
    assert_eq!(play_one(&mut second, &id).await, "yes");
}

/// Two append rounds: who has won and who has lost, and the value that another append has to have, outlive
/// it.
#[tokio::test]
async fn append_rounds_go_on_after_a_restart() {
    let data = private_folder();
    let mut server = server_on(data.path()).await;
    let id = instance_with(&server, Parameters { warp_size: 3, append_rounds: 2, ..parameters() }).await;
    let given = server.client(&principal(1)).await.facts(&id).await.parameters.unwrap();
    assert_eq!(given.append_rounds, 2);
    for number in 1..=2 {
        let mut clients = Vec::new();
        for process in 1..=3 {
            clients.push(server.client(&principal(process)).await);
        }
        let [one, two, three] = clients.as_mut_slice() else { unreachable!("there are three") };
        let other = if number == 1 { "two" } else { "other" };
        let appended = tokio::join!(
            one.append(&id, number, "one"),
            two.append(&id, number, other),
            three.append(&id, number, "three")
        );
        let appended = [appended.0, appended.1, appended.2].map(|it| it.unwrap().into_inner());
        assert!(appended.iter().all(|it| it.phase == number), "{appended:?}");
        let winners = appended.iter().filter(|it| it.result.unwrap().position.is_some()).count();
        assert_eq!(winners, 1);
        let before = clients[0].get(&id).await.unwrap().own;
        server = match number {
            1 => kill_and_restart(server, data.path()).await,
            _ => {
                assert_eq!(server.stop().await, Stopped::Clean);
                server_on(data.path()).await
            }
        };
        assert_eq!(server.client(&principal(1)).await.get(&id).await.unwrap().own, before);
    }
    let status = server.client(OBSERVER).await.status(&id).await;
    assert_eq!((status.list_length, status.sealed), (2, true));
    let accused: Vec<u32> = status.offences.iter().map(|offence| offence.process).collect();
    assert_eq!(accused, [2], "it appended another value");
    let told = history(&server, &id).await;
    let winners: Vec<u32> = told
        .iter()
        .filter_map(|event| match &event.what {
            Some(What::Added(added)) => Some(added.process),
            _ => None,
        })
        .collect();
    assert!(winners.len() == 2 && winners[0] != winners[1], "{winners:?}");
}

/// Its clients are sent away, so nobody is served while a server drains, however long a client holds it up.
#[tokio::test]
async fn time_stands_still_while_a_server_drains() {
    const JOIN_TIMEOUT: Duration = Duration::from_secs(3);
    let data = private_folder();
    let durable = |config: &mut Config| {
        config.data = Some(data.path().to_owned());
        config.drain = JOIN_TIMEOUT * 2;
    };
    let server = Server::with(durable).await;
    let join_timeout = Some(JOIN_TIMEOUT.try_into().unwrap());
    let id = instance_with(&server, Parameters { join_timeout, ..parameters() }).await;
    let mut raw = RawClient::connect(server.address).await;
    let (_response, _send) = raw.begin("StickyCasService/Append", &[(PRINCIPAL_KEY, "p1")]).await;
    raw.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    // Gathering ends so long after this.
    let mut first = server.client(&principal(1)).await;
    let _waiting = first.append_and_wait(&id, "yes").await;
    assert_eq!(server.stop().await, Stopped::Forced);

    let server = server_on(data.path()).await;
    let told = history(&server, &id).await;
    let place = |is: fn(&What) -> bool| told.iter().position(|event| event.what.as_ref().is_some_and(is));
    let restarted = place(|what| matches!(what, What::Restarted(_))).expect("it has restarted");
    let ended = place(|what| matches!(what, What::GatheringEnded(_)));
    assert!(ended.is_none_or(|ended| ended > restarted), "{told:?}");
}

/// Of the process for which the instance waits.
fn patience_left(got: &GetResponse) -> Option<Duration> {
    let awaited = &got.status.as_ref().unwrap().awaited;
    awaited.first().map(|member| member.patience_left.unwrap().try_into().unwrap())
}

#[tokio::test]
async fn get_tells_no_more_patience_after_a_restart_than_before() {
    const PATIENCE: Duration = Duration::from_secs(300);
    let data = private_folder();
    let mut server = server_on(data.path()).await;
    let patience = Some(PatienceChoice::Patience(PATIENCE.try_into().unwrap()));
    let id =
        instance_with(&server, Parameters { patience_choice: patience, warp_size: 3, ..parameters() }).await;
    let mut streams = Vec::new();
    for process in 1..=3 {
        streams.push(Stream::open(&mut server.client(&principal(process)).await, &id).await);
    }
    streams[0].send([append_frame(0, 1, "yes")]);
    streams[1].send([append_frame(0, 1, "yes")]);
    let mut left = PATIENCE;
    for round in 0..4 {
        // The third process is silent. No patience drains before all are back.
        let mut client = server.client(&principal(1)).await;
        let before = client.until(&id, |got| patience_left(got).is_some_and(|it| it < left)).await;
        let before = patience_left(&before).unwrap();
        drop(streams.drain(..));
        assert_eq!(server.stop().await, Stopped::Clean);
        server = server_on(data.path()).await;
        let after = server.client(&principal(1)).await.get(&id).await.unwrap();
        left = patience_left(&after).unwrap();
        assert!(left <= before, "round {round}: {left:?} are left of {before:?}");
        for process in 1..=3 {
            streams.push(Stream::open(&mut server.client(&principal(process)).await, &id).await);
        }
    }
}

#[tokio::test]
async fn an_answer_that_was_told_is_told_again() {
    let data = private_folder();
    let mut server = server_on(data.path()).await;
    let id = instance_with(&server, alone()).await;
    let mut told = Vec::new();
    for number in 1..=6 {
        let mut client = server.client(&principal(1)).await;
        let answer = if number == 1 {
            format!("{:?}", client.append(&id, 1, "v").await.unwrap().into_inner())
        } else {
            format!("{:?}", client.read(&id, number).await.unwrap().into_inner())
        };
        told.push(answer);
        server = kill_and_restart(server, data.path()).await;
        let mut client = server.client(&principal(1)).await;
        let repeated = if number == 1 {
            format!("{:?}", client.append(&id, 1, "v").await.unwrap().into_inner())
        } else {
            format!("{:?}", client.read(&id, number).await.unwrap().into_inner())
        };
        assert_eq!(Some(&repeated), told.last(), "access {number}");
        assert_eq!(client.own(&id).await.next_access_number, number + 1);
    }
}

#[tokio::test]
async fn names_expiries_and_closings_survive() {
    let data = private_folder();
    let server = server_on(data.path()).await;
    let named = |name: &str| {
        let mut request = create_request(alone());
        request.name = name.to_owned();
        request
    };
    let mut coordinator = server.client("coordinator").await;
    let first = coordinator.create(named("a")).await.unwrap().into_inner().instance.unwrap().instance_id;
    coordinator.close(&first).await.unwrap();
    let second = coordinator.create(named("a")).await.unwrap().into_inner().instance.unwrap().instance_id;
    assert_ne!(first, second);

    let server = kill_and_restart(server, data.path()).await;
    let mut coordinator = server.client("coordinator").await;
    let again = coordinator.create(named("a")).await.unwrap().into_inner();
    assert!(!again.created);
    assert_eq!(again.instance.unwrap().instance_id, second);
    assert_eq!(coordinator.status(&first).await.state(), State::Closed);
    let mut other = named("a");
    other.parameters.as_mut().unwrap().pipeline = 2;
    assert_refused(coordinator.create(other).await, Code::AlreadyExists, "NAME_TAKEN");
}

#[tokio::test]
async fn a_session_is_welcomed_with_all_that_was_accepted() {
    let data = private_folder();
    let server = server_on(data.path()).await;
    let id = instance_with(&server, parameters()).await;
    let mut stream = Stream::open(&mut server.client(&principal(1)).await, &id).await;
    stream.send([append_frame(0, 1, "yes"), read(0, 2), read(0, 3)]);
    server.client(&principal(1)).await.until_waiting(&id, 3).await;

    let server = kill_and_restart(server, data.path()).await;
    let mut stream = Stream::new(&mut server.client(&principal(1)).await).await;
    stream.send([hello(0, &id)]);
    let own = stream.welcome().await.own.unwrap();
    let waiting: Vec<u64> = own.waiting.iter().map(|access| access.number).collect();
    assert_eq!((own.next_access_number, waiting), (4, vec![1, 2, 3]));
    for process in 2..=3 {
        let mut client = server.client(&principal(process)).await;
        tokio::spawn({
            let id = id.clone();
            async move { play_one(&mut client, &id).await }
        });
    }
    for number in 1..=3 {
        assert_eq!(stream.answer().await.number, number);
    }
    stream.send([decision(0, "yes")]);
    assert!(stream.next().await.unwrap().is_some());
}

#[tokio::test]
async fn a_folder_serves_one_server_at_a_time() {
    let data = private_folder();
    let server = server_on(data.path()).await;
    let refused = Server::try_with(|config| config.data = Some(data.path().to_owned())).await.err().unwrap();
    assert!(refused.to_string().contains("is in use by another stickycas-server"), "{refused}");
    server.stop().await;
    let server = server_on(data.path()).await;
    server.stop().await;
}

#[tokio::test]
async fn refusals_above_their_bounds_are_counted_after_a_restart() {
    let data = private_folder();
    let server = server_on(data.path()).await;
    let id = instance_with(&server, parameters()).await;
    let mut client = server.client(&principal(1)).await;
    for _ in 0..40 {
        assert_refused(
            with_timeout(client.list.append(append(&id, 9, "x"))).await,
            Code::InvalidArgument,
            "ACCESS_NUMBER_OUT_OF_ORDER",
        );
    }
    let before = client.status(&id).await;
    let server = kill_and_restart(server, data.path()).await;
    let after = server.client(&principal(1)).await.status(&id).await;
    assert_eq!(after.offences, before.offences);
}

/// A server that writes checkpoints all the time.
async fn server_with_checkpoints(data: &Path) -> Server {
    Server::with(|config| {
        config.data = Some(data.to_owned());
        config.limits.log_tail_bytes = 1;
    })
    .await
}

#[tokio::test]
async fn checkpoints_and_the_log_behind_them_are_the_instances() {
    let data = private_folder();
    let mut server = server_with_checkpoints(data.path()).await;
    let mut ids = Vec::new();
    let mut told = Vec::new();
    for round in 0..6 {
        let finished = instance_with(&server, parameters()).await;
        play(&server, &finished, "yes").await;
        told.push((finished.clone(), history(&server, &finished).await));
        let begun = instance_with(&server, parameters()).await;
        let mut first = server.client(&principal(1)).await;
        let waiting = first.append_and_wait(&begun, "yes").await;
        waiting.abort();
        ids.push((begun, first.own(&finished).await));
        tokio::time::sleep(Duration::from_millis(300 * (round % 3))).await;
        if round % 2 == 0 {
            server.kill().await;
        } else {
            server.stop().await;
        }
        server = server_with_checkpoints(data.path()).await;
        for (id, told) in &told {
            assert_eq!(history(&server, id).await, *told, "round {round}");
        }
        for (id, _) in &ids {
            let own = server.client(&principal(1)).await.own(id).await;
            assert_eq!(own.waiting.len(), 1, "round {round}");
        }
    }
    for (id, _) in ids {
        play(&server, &id, "yes").await;
    }
}
