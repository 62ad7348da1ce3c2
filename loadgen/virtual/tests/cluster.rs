//! Three servers over the model of etcd: seeds repeated exactly, everything that is to happen, and nothing
//! found.

use super::{finds_nothing, is_long, played};

const CLUSTER: [&str; 2] = ["--cluster", "3"];

#[test]
fn seeds_of_a_cluster_are_repeated_and_everything_that_is_to_happen_happens() {
    let seeds = if is_long() { 1..=10 } else { 7..=8 };
    let (results, traces) = played(&CLUSTER, seeds, 2);
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
        "reset: ",
        " ToServer for ",
        " ToClient for ",
        " Both for ",
    ];
    for what in happenings {
        assert!(all.contains(what), "{what}");
    }
    let refused: u64 = all
        .lines()
        .filter_map(|line| line.split_once("etcd has room again; writes that it has refused: "))
        .map(|(_, refused)| refused.parse::<u64>().unwrap())
        .sum();
    assert!(refused > 0, "etcd was full, and refused a write");
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
    // Planted bugs are caught by these.
    let seeds = if is_long() { 20 } else { 5 };
    let result = finds_nothing(&CLUSTER, 100, seeds);
    let count = |what: &str| result["rounds"][what].as_u64().unwrap() / seeds;
    assert!(count("accesses") > 300 && count("decisions") > 100 && count("asked_deposed") > 20, "{result}");
}
