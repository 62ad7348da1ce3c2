//! Three servers over the model of etcd: nothing found, everything that is to happen, and a seed repeated
//! exactly.

use super::{Happening, Run, check_happens, check_repeated, clean, is_long};

const CLUSTER: [&str; 2] = ["--cluster", "3"];

// Planted bugs are caught by this.
#[test]
fn no_seed_of_a_cluster_finds_anything_and_all_happens() {
    let seeds = if is_long() { 100..120 } else { 100..105 };
    let runs = clean(&CLUSTER, seeds.clone());
    check_repeated(&CLUSTER, seeds.start, &runs[0]);
    let in_trace = [
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
    let in_trace = in_trace.map(|what| (what, move |run: &Run| run.says(what)));
    let deposing = [
        "server_killed",
        "server_paused",
        "server_cut_from_etcd",
        "server_deposed",
        "server_receives_nothing",
    ];
    let deposed =
        deposing.map(|what| (what, move |run: &Run| run.result["round"]["deposed"][what].as_u64() > Some(0)));
    let full = |run: &Run| {
        let refused = |line: &str| Some(line.split_once("writes that it has refused: ")?.1 != "0");
        run.trace.lines().filter_map(refused).any(|refused| refused)
    };
    let mut happenings: Vec<Happening<'_>> = vec![("etcd is full, and refuses", &full)];
    happenings.extend(in_trace.iter().map(|(what, has)| (*what, has as _)));
    happenings.extend(deposed.iter().map(|(what, has)| (*what, has as _)));
    check_happens(&CLUSTER, &runs, seeds.end, &happenings);

    assert!(runs.iter().map(|run| check_paused(&run.trace)).sum::<u64>() > 0, "others read meanwhile");
    let each = |what: &str| runs.iter().map(|run| run.count("round", what)).sum::<u64>() / runs.len() as u64;
    assert!(each("accesses") > 300 && each("decisions") > 100 && each("asked_deposed") > 20);
}

/// How many messages others read while a server is paused, which reads nothing then, whatever its clients
/// send.
fn check_paused(trace: &str) -> u64 {
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
    sent
}
