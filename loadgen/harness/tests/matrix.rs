//! With nobody Byzantine or late the last decision falls exactly in phase W*(q+c) (D2, K2), for every shape
//! of an instance, over the real network; and the machine, given the same order of acceptance again, does and
//! answers exactly the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::num::NonZeroUsize;

use stickycas_harness::run::{self, OwnServer, RunOptions, ServerHandle};
use stickycas_harness::{Record, Scenario};
use stickycas_model::judge::Outcome;
use stickycas_model::process::mode;
use stickycas_model::sim;
use stickycas_model::types::Phase;
use tokio::task::JoinSet;

/// Instances at a time: as many Attach streams has each principal open at the one server.
const AT_A_TIME: usize = 8;

/// An instance with more processes than these takes much longer than the others.
const LARGE: u32 = 33;

/// n, p, r and q of the matrix, without repetition. With several append rounds all warps are full: else the
/// last one may have read its list before the others have.
fn shapes() -> Vec<(u32, u32, u32, u32)> {
    let mut shapes = Vec::new();
    for n in [1, 2, 3, 5, 12, 33, 100] {
        for p in [1, 2, 3, 32, n] {
            if p > n {
                continue;
            }
            let warps = u32::div_ceil(n, p);
            for q in [1, 2, p] {
                if q == 1 || (q <= p && n % p == 0 && n <= LARGE) {
                    shapes.extend([1, 2, warps * q].into_iter().filter(|r| *r <= n).map(|r| (n, p, r, q)));
                }
            }
        }
    }
    shapes.sort_unstable();
    shapes.dedup();
    shapes
}

fn scenario(shape: (u32, u32, u32, u32), order: &str, seed: u64) -> Scenario {
    let (n, p, r, q) = shape;
    let text = format!(
        "name = \"matrix\"\n\
         [instance]\nprocesses = {n}\nwarp_size = {p}\nread_size = {r}\nappend_rounds = {q}\norder = \"{order}\"\npatience = \"none\"\n\
         [proposals]\ndistinct = {}\n",
        n.min(3)
    );
    Scenario::parse("matrix.toml", &text, Some(seed)).unwrap()
}

fn is_exact(record: &Record) {
    let Record { scenario, verdict, history, .. } = record;
    let params = &scenario.params;
    let (n, p, r) = (params.processes(), params.warp_size(), params.read_size());
    let q = params.append_rounds();
    let at = format!("n={n} p={p} r={r} q={q} order={:?} seed={}", params.spec().order, scenario.seed);
    assert_eq!(verdict.verdict, Outcome::Valid, "{at}: {:?}", verdict.reasons);
    let exactly = u64::from(params.warps()) * u64::from(q + params.reads());
    assert_eq!(verdict.last_decision_phase.map(Phase::get), Some(exactly), "{at}");
    assert_eq!(verdict.list.len() as u64, u64::from(params.counted_entries()), "{at}");

    // Every event is compared, and so every answer and every report of a decision.
    let machine = sim::replay(params, history).unwrap_or_else(|difference| panic!("{at}: {difference}"));
    let list: Vec<_> = machine.list().iter().map(|entry| entry.value.clone()).collect();
    assert_eq!(list, verdict.list, "{at}");
    assert_eq!(mode(&list), verdict.decision.as_ref(), "{at}");
    assert_eq!(verdict.decisions.len(), n as usize, "{at}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_decision_falls_in_phase_w_times_1_plus_c() {
    let server = OwnServer::start().await.unwrap();
    let handle = std::sync::Arc::new(ServerHandle::open(server.url(), run::COORDINATOR).await.unwrap());
    let orders = ["ascending", "descending", "shuffled"];
    // The largest first, so that none is left to run alone at the end; in one of the orders each, unless
    // STICKYCAS_LONG is set.
    let long = std::env::var_os("STICKYCAS_LONG").is_some();
    let shapes = shapes().into_iter().rev().enumerate();
    let of_all = shapes.flat_map(|(number, shape)| {
        let taken = move |at: usize| long || (shape.0 <= LARGE && shape.3 == 1) || at == number % 3;
        orders.into_iter().enumerate().filter(move |(at, _)| taken(*at)).map(move |(_, order)| (shape, order))
    });
    let of_all: Vec<_> = of_all.collect();
    let expected = of_all.len();
    let mut waiting = of_all.into_iter().enumerate();
    let mut running = JoinSet::new();
    let mut judged = 0_usize;
    loop {
        while running.len() < AT_A_TIME
            && let Some((number, (shape, order))) = waiting.next()
        {
            let handle = handle.clone();
            running.spawn(async move {
                let scenario = scenario(shape, order, number as u64);
                run::run(&handle, &scenario, &RunOptions::in_process()).await.unwrap()
            });
        }
        let Some(record) = running.join_next().await else { break };
        is_exact(&record.unwrap());
        judged += 1;
    }
    assert_eq!(NonZeroUsize::new(judged).unwrap().get(), expected);
    drop(handle);
    server.stop().await.unwrap();
}
