//! Placement: which server should own which shard. Pure: every server computes the same from the same state.
//!
//! Shards are spread evenly, and as few as possible move. A server owns only shards whose rules it can
//! replay; a server that replays a version replays all older ones. So the shards with the newest rules, which
//! have the fewest possible owners, are dealt first, each version evenly on top of what is dealt already.
//! With one version, the loads of two servers differ by 1 at most.

use std::cmp::Reverse;

use crate::keys::RulesVersion;

/// A server that may own shards. A server that drains is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its name; no two are equal.
    pub name: &'a str,
    /// The newest rules it can replay.
    pub replays: RulesVersion,
}

/// A shard as it is. Its number is its index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed<'a> {
    /// The name of its owner.
    pub owner: Option<&'a str>,
    /// The rules that its log needs.
    pub rules: RulesVersion,
}

/// The desired owner of each shard, as an index into `servers`, which are sorted by name; `None`: no server
/// can replay it.
///
/// Takes O(n log n) for n servers and shards.
pub fn placement(servers: &[Candidate<'_>], shards: &[Placed<'_>]) -> Vec<Option<usize>> {
    debug_assert!(servers.is_sorted_by(|a, b| a.name < b.name), "servers are sorted by name");
    let owners: Vec<Option<usize>> = shards
        .iter()
        .map(|shard| {
            let owner = shard.owner?;
            servers.binary_search_by(|server| server.name.cmp(owner)).ok()
        })
        .collect();
    let mut by_rules: Vec<usize> = (0..shards.len()).collect();
    by_rules.sort_by_key(|&shard| Reverse(shards[shard].rules));
    let mut by_version: Vec<usize> = (0..servers.len()).collect();
    by_version.sort_by_key(|&server| Reverse(servers[server].replays));

    let mut desired = vec![None; shards.len()];
    let mut load = vec![0; servers.len()];
    for class in by_rules.chunk_by(|&a, &b| shards[a].rules == shards[b].rules) {
        let rules = shards[class[0]].rules;
        let able = by_version.partition_point(|&server| servers[server].replays >= rules);
        let mut eligible = by_version[..able].to_vec();
        eligible.sort_unstable();
        deal(class, &eligible, &owners, &mut load, &mut desired);
    }
    desired
}

/// Deals the shards of one version among those who can replay it.
fn deal(
    class: &[usize],
    eligible: &[usize],
    owners: &[Option<usize>],
    load: &mut [usize],
    desired: &mut [Option<usize>],
) {
    if eligible.is_empty() {
        return;
    }
    let mut owned = vec![0_usize; load.len()];
    for server in class.iter().filter_map(|&shard| owners[shard]) {
        owned[server] += 1;
    }
    let mut room = shares(class.len(), eligible, &owned, load);
    for &shard in class {
        if let Some(server) = owners[shard]
            && room[server] > 0
        {
            room[server] -= 1;
            desired[shard] = Some(server);
        }
    }
    let left = class.iter().filter(|&&shard| desired[shard].is_none()).copied().collect::<Vec<_>>();
    let takers = eligible.iter().flat_map(|&server| std::iter::repeat_n(server, room[server]));
    for (shard, server) in left.into_iter().zip(takers) {
        desired[shard] = Some(server);
    }
}

/// How many of `count` shards each server gets, so that loads are level; adds them to the loads. Where one
/// more or less is left to choose, those get it who already own most.
fn shares(count: usize, eligible: &[usize], owned: &[usize], load: &mut [usize]) -> Vec<usize> {
    let mut by_load = eligible.to_vec();
    by_load.sort_by_key(|&server| load[server]);
    // The first `filled` servers are raised to one level; the others have more already.
    let (mut filled, mut sum) = (0, 0);
    while let Some(&next) = by_load.get(filled) {
        if filled * load[next] >= sum + count && filled > 0 {
            break;
        }
        sum += load[next];
        filled += 1;
    }
    let level = (sum + count) / filled;
    let extra = (sum + count) % filled;
    let raised = &mut by_load[..filled];
    raised.sort_by_key(|&server| (Reverse(owned[server] + load[server]), server));
    let mut room = vec![0; load.len()];
    for (rank, &server) in raised.iter().enumerate() {
        let target = level + usize::from(rank < extra);
        room[server] = target.saturating_sub(load[server]);
        load[server] = load[server].max(target);
    }
    room
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("server-{number:04}")).collect()
    }

    fn alike(names: &[String]) -> Vec<Candidate<'_>> {
        names.iter().map(|name| Candidate { name, replays: RulesVersion(1) }).collect()
    }

    fn loads(servers: usize, desired: &[Option<usize>]) -> Vec<usize> {
        let mut loads = vec![0; servers];
        for server in desired.iter().flatten() {
            loads[*server] += 1;
        }
        loads
    }

    proptest! {
        #[test]
        fn shards_are_even_and_as_few_as_can_be_move(
            servers in 1_usize..12,
            gone in 0_usize..3,
            owners in prop::collection::vec(prop::option::of(0_usize..15), 1..100),
        ) {
            let all = names(servers + gone);
            let candidates = alike(&all[..servers]);
            let shards: Vec<_> = owners
                .iter()
                .map(|owner| Placed { owner: owner.and_then(|o| all.get(o)).map(String::as_str), ..Placed::default() })
                .collect();
            let desired = placement(&candidates, &shards);
            let loads_after = loads(servers, &desired);
            let (min, max) = (loads_after.iter().min().unwrap(), loads_after.iter().max().unwrap());
            prop_assert!(max - min <= 1);
            prop_assert_eq!(loads_after.iter().sum::<usize>(), shards.len());

            let before: Vec<Option<usize>> = owners.iter().map(|owner| owner.filter(|&o| o < servers)).collect();
            let moves = before.iter().zip(&desired).filter(|(a, b)| a.is_some() && a != b).count();
            let owned = loads(servers, &before);
            let (base, extra) = (shards.len() / servers, shards.len() % servers);
            let above: usize = owned.iter().map(|&owned| owned.saturating_sub(base)).sum();
            let least = above - extra.min(owned.iter().filter(|&&owned| owned > base).count());
            prop_assert_eq!(moves, least);
        }

        #[test]
        fn what_is_placed_stays_where_it_is(
            replays in prop::collection::vec(0_u32..4, 1..8),
            rules in prop::collection::vec(0_u32..4, 1..60),
        ) {
            let all = names(replays.len());
            let candidates: Vec<_> = all
                .iter()
                .zip(&replays)
                .map(|(name, &version)| Candidate { name, replays: RulesVersion(version) })
                .collect();
            let mut shards: Vec<_> =
                rules.iter().map(|&version| Placed { owner: None, rules: RulesVersion(version) }).collect();
            let desired = placement(&candidates, &shards);
            for (shard, server) in shards.iter().zip(&desired) {
                let able = candidates.iter().any(|candidate| candidate.replays >= shard.rules);
                prop_assert_eq!(server.is_some(), able);
                prop_assert!(server.is_none_or(|server| candidates[server].replays >= shard.rules));
            }
            for (shard, server) in shards.iter_mut().zip(&desired) {
                shard.owner = server.map(|server| candidates[server].name);
            }
            prop_assert_eq!(placement(&candidates, &shards), desired);
        }
    }

    #[test]
    fn who_can_replay_less_gets_the_older_shards() {
        let all = names(3);
        let replays = [2, 2, 1].map(RulesVersion);
        let candidates: Vec<_> =
            all.iter().zip(replays).map(|(name, replays)| Candidate { name, replays }).collect();
        let shards: Vec<_> =
            [2, 1, 1, 2, 1, 1].map(|rules| Placed { owner: None, rules: RulesVersion(rules) }).into();
        let desired = placement(&candidates, &shards);
        assert_eq!(loads(3, &desired), [2, 2, 2]);
        assert!(desired[0] != Some(2) && desired[3] != Some(2), "{desired:?}");
    }

    #[test]
    fn nobody_to_own_a_shard_is_no_error() {
        assert_eq!(placement(&[], &[Placed::default(); 2]), [None, None]);
        assert_eq!(placement(&alike(&names(2)), &[]), []);
    }

    #[test]
    fn a_thousand_servers_lose_one_and_only_its_shards_move() {
        let all = names(1000);
        let shards = vec![Placed::default(); 100_000];
        let desired = placement(&alike(&all), &shards);
        let owned: Vec<_> = desired
            .iter()
            .map(|server| Placed { owner: server.map(|server| all[server].as_str()), ..Placed::default() })
            .collect();
        let left = [&all[..500], &all[501..]].concat();
        let after = placement(&alike(&left), &owned);
        let moved =
            owned.iter().zip(&after).filter(|(shard, to)| shard.owner != to.map(|to| left[to].as_str()));
        assert_eq!(moved.count(), 100);
    }
}
