//! Three servers over the model of etcd: seeds repeated exactly, everything that is to happen, and nothing
//! found.

use super::{finds_nothing, one, repeats};

const CLUSTER: [&str; 2] = ["--cluster", "3"];

#[test]
fn the_same_seed_has_the_same_trace_in_a_cluster() {
    repeats(&CLUSTER, 1..=2);
}

#[test]
fn everything_that_is_to_happen_happens_in_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let (results, traces): (Vec<_>, Vec<_>) = (1..=3).map(|seed| one(&CLUSTER, seed, folder.path())).unzip();
    let all = traces.concat();
    let happenings = [
        " is gone: Process",
        " is gone: Power",
        ": it is told to stop",
        ": it is paused",
        ": it goes on",
        ": it is cut off from etcd",
        ": it is cut off from etcd, and its lease ends",
        ": it receives nothing from etcd",
        ": it is cut off from all",
        ": etcd is away",
        "etcd is full",
        "reset: ",
        " ToServer for ",
        " ToClient for ",
        " Both for ",
    ];
    for what in happenings {
        assert!(all.contains(what), "{what}");
    }
    let deposed = |fault: &str| -> u64 {
        results.iter().filter_map(|result| result["round"]["deposed"][fault].as_u64()).sum()
    };
    for fault in [
        "server_killed",
        "server_paused",
        "server_cut_from_etcd",
        "server_deposed",
        "server_receives_nothing",
    ] {
        assert!(deposed(fault) > 0, "{fault}: others had its shards: {results:?}");
    }
    traces.iter().for_each(|trace| check_paused(trace));
    assert!(results.iter().all(|result| result["round"]["asked_deposed"].as_u64() > Some(0)), "{results:?}");
}

/// A server that is paused reads nothing, whatever its clients send.
fn check_paused(trace: &str) {
    let (mut paused, mut sent) = (None, 0);
    for line in trace.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match (words.as_slice(), &paused) {
            ([_, server, "it", "is", "paused"], _) => paused = server.strip_suffix(':').map(str::to_owned),
            ([_, server, "it", "goes", "on"], Some(is_paused)) => {
                assert_eq!(server.strip_suffix(':'), Some(is_paused.as_str()));
                paused = None;
            }
            ([_, _, "to", reader, ..], Some(is_paused)) => {
                assert_ne!(reader.strip_suffix(':'), Some(is_paused.as_str()), "{line}");
                sent += 1;
            }
            _ => {}
        }
    }
    assert!(sent > 0, "others read meanwhile");
}

#[test]
fn no_seed_of_a_cluster_finds_anything() {
    let result = finds_nothing(&CLUSTER, 100, 5);
    let count = |what: &str| result["rounds"][what].as_u64().unwrap();
    assert!(count("accesses") > 1_500 && count("decisions") > 500, "{result}");
    assert!(count("asked_deposed") > 100, "{result}");
}
