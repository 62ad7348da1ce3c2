//! The page of all bounds, `docs/operate/limits.md`: of each its default, its reason, its flag unless it is a
//! constant, the metric that shows its use, and the test that fills it. A bound without a row fails a test,
//! and so does a row whose metric or test does not exist.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::table::{LIMITS, Setting};

/// Of each bound: its name, the metric, and the test that fills it or needs it.
const EVIDENCE: &str = r#"
connections: stickycas_limit_used{limit="connections"}: a_connection_above_the_limit_is_closed_and_no_other
connections_per_principal: stickycas_quota_used_max{quota="connections"}: connections_are_limited_per_principal
unclaimed_connections: stickycas_limit_used{limit="unclaimed_connections"}: the_oldest_unclaimed_connection_makes_room
unclaimed_connections_per_address: stickycas_limit_used{limit="unclaimed_connections_per_address"}: addresses_are_limited_each_and_forgotten_in_turn
known_addresses: stickycas_limit_used{limit="known_addresses"}: addresses_are_limited_each_and_forgotten_in_turn
preface_timeout: stickycas_client_faults{kind="connection_silent"}: a_connection_without_preface_is_closed_and_no_other
first_call_timeout: stickycas_client_faults{kind="connection_silent"}: a_connection_without_a_first_call_in_time_is_closed
streams_per_connection: stickycas_calls_open: the_streams_of_a_connection_are_limited
pending_reset_streams: stickycas_client_faults{kind="connection_reset_flooded"}: a_client_may_cancel_all_of_its_calls_at_once
local_reset_streams: stickycas_client_faults{kind="connection_given_up"}: late_content_of_refused_calls_keeps_the_connection
connection_window_bytes: stickycas_connections: small_messages_that_wait_never_close_a_connection
window_bytes: stickycas_limit_used{limit="window_bytes"}: the_windows_of_all_connections_share_a_bound
stream_window_bytes: stickycas_connections: small_messages_that_wait_never_close_a_connection
send_buffer_bytes: stickycas_connections: unread_responses_hold_the_permits_of_their_calls
control_frames_per_second: stickycas_client_faults{kind="connection_paced"}: control_frames_are_paced_on_all_connections_of_a_principal
anonymous_control_frames_per_second: stickycas_client_faults{kind="connection_paced"}: clients_without_identity_share_one_rate_of_control_frames
headers_per_second: stickycas_client_faults{kind="connection_paced"}: requests_are_paced_on_all_connections_of_a_principal
anonymous_headers_per_second: stickycas_client_faults{kind="connection_paced"}: clients_without_identity_share_one_rate_of_requests
resets_per_second: stickycas_client_faults{kind="connection_reset_flooded"}: a_reset_flood_is_paced_and_counted_for_its_principal
cached_tokens: stickycas_credentials_cached_tokens: tokens_that_are_used_stay_and_others_make_room
header_bytes: stickycas_connections: too_large_headers_are_refused_and_the_connection_goes_on
message_bytes: stickycas_client_faults{kind="message_oversized"}: undecodable_and_oversized_messages_are_counted
call_bytes: stickycas_client_faults{kind="message_oversized"}: call_bytes_are_limited_except_in_creates_of_coordinators
request_timeout: stickycas_refusals{reason="REQUEST_TOO_SLOW"}: a_request_that_is_not_complete_in_time_is_refused
incomplete_request_bytes: stickycas_limit_used{limit="incomplete_request_bytes"}: half_sent_requests_share_a_bound_and_known_principals_have_a_reserve
unread_answer_bytes: stickycas_limit_used{limit="unread_answer_bytes"}: unread_answers_of_all_share_a_bound
read_bytes: stickycas_refusals{reason="BAD_PARAMETERS"}: a_read_that_would_be_too_long_is_refused_at_create
frames_per_message: stickycas_refusals{reason="MALFORMED"}: a_message_with_too_many_frames_ends_the_stream_unexecuted
frames_per_answer: stickycas_unread_frames: the_frames_of_a_server_message_are_limited
bytes_per_answer: stickycas_unread_frames: large_answers_are_split_below_the_client_message_limit
principals: stickycas_limit_used{limit="principals"}: invented_names_do_not_lock_out_those_who_are_known
requests_per_second: stickycas_bound_exceeded{bound="requests_per_second"}: calls_above_the_rate_are_refused_per_principal
anonymous_requests_per_second: stickycas_bound_exceeded{bound="requests_per_second"}: calls_without_identity_have_one_small_rate
offences_per_second: stickycas_offences: repeated_refusals_are_counted_and_filed_at_a_rate
calls_per_principal: stickycas_quota_used_max{quota="calls"}: unanswered_calls_are_limited_per_principal
calls: stickycas_limit_used{limit="calls"}: calls_and_streams_of_all_share_a_bound
anonymous_calls: stickycas_bound_exceeded{bound="calls"}: streams_without_identity_share_one_small_portion
attach_streams_per_principal: stickycas_quota_used_max{quota="attach_streams"}: attach_streams_are_limited_per_principal
attach_streams: stickycas_limit_used{limit="attach_streams"}: calls_and_streams_of_all_share_a_bound
channels_per_stream: stickycas_refusals{reason="TOO_MANY_STREAMS"}: the_channels_of_a_stream_are_limited
unread_frames: stickycas_unread_frames_max: too_many_unread_frames_end_the_stream_and_accesses_stand
unread_frames_to_pause: stickycas_client_faults{kind="stream_stalled"}: repeated_reads_are_taken_only_as_fast_as_answers_are_read
unread_for: stickycas_client_faults{kind="connection_unread"}: unread_answers_end_their_connection_in_time_and_no_other
watch_streams_per_principal: stickycas_quota_used_max{quota="watch_streams"}: a_disconnected_watch_gives_its_permit_back
watch_streams: stickycas_limit_used{limit="watch_streams"}: calls_and_streams_of_all_share_a_bound
events_per_message: stickycas_calls_open: a_snapshot_comes_in_parts_and_the_events_after_it
events: stickycas_limit_used{limit="event_bytes"}: a_slow_watcher_is_told_where_to_resume
events_per_process: stickycas_limit_used{limit="event_bytes"}: a_slow_watcher_is_told_where_to_resume
event_bytes: stickycas_limit_used{limit="event_bytes"}: records_above_the_budget_drop_their_oldest_events
callers_per_access: stickycas_limit_used{limit="calls"}: callers_of_one_access_are_limited_and_answered_alike
uncommitted_bytes: stickycas_limit_used{limit="uncommitted_bytes"}: refusals_of_an_instance_that_wait_are_bounded
log_share_bytes: stickycas_limit_used{limit="log_share_bytes"}: who_floods_the_log_is_refused_and_others_are_not
log_tail_bytes: stickycas_limit_used{limit="log_bytes"}: checkpoints_and_the_log_behind_them_are_the_instances
log_bytes: stickycas_limit_used{limit="log_bytes"}: one_coordinator_cannot_take_what_others_need
log_bytes_per_creator: stickycas_limit_used{limit="log_bytes"}: a_bound_that_can_never_be_met_is_named
live_instances: stickycas_limit_used{limit="live_instances"}: instances_and_processes_of_the_server_are_limited
live_instances_per_creator: stickycas_refusals{reason="TOO_MANY_INSTANCES"}: live_instances_are_limited_per_creator_until_they_end
instances: stickycas_limit_used{limit="instances"}: instances_and_processes_of_the_server_are_limited
instances_per_creator: stickycas_refusals{reason="TOO_MANY_INSTANCES"}: held_instances_are_limited_per_creator_even_when_ended
processes: stickycas_limit_used{limit="processes"}: instances_and_processes_of_the_server_are_limited
instance_bytes: stickycas_limit_used{limit="instance_bytes"}: one_coordinator_cannot_take_what_others_need
instances_when_busy: stickycas_busy_ratio: a_saturated_server_refuses_new_instances_above_the_quota
page: stickycas_calls: instances_are_listed_in_pages
status_rows: stickycas_calls: the_rows_of_a_status_are_limited_and_the_rest_counted
retention: stickycas_instances: a_finished_instance_is_dropped_after_its_retention
idle_lifetime: stickycas_instances: waiting_accesses_of_an_expired_instance_are_refused
rejoin: stickycas_instances: an_instance_goes_on_where_it_was
retry_after: stickycas_refusals: connections_are_limited_per_principal
"#;

const HEAD: &str = "\
# Bounds

Everything that a client can fill has a bound. A bound with a flag is a setting ([configuration.md](configuration.md)); the others are
constants. Source: `server/src/limits.rs`.

- **Above a bound** a client is refused at once, with RetryInfo where waiting helps, and no other client is affected.
- **Shared bounds** are kept by half for known principals: a quarter of that half for those with a role, the rest in equal parts for the
  coordinators and the processes of their instances. Of the other half nobody takes more than is still free. Of what coordinators
  share (instances, processes, memory, log) each of C has a reserve of 1/(2C), and one alone may have all. Clients without identity,
  health and reflection included, share one small portion; `/livez` and `/readyz` do not.
- **Memory**: `memory` is the figure that is set, else the smallest limit of the cgroups, else the memory of the machine. Parts of it
  leave out 32 MiB for the program. A server whose bounds come to more does not start, and says how much would do; 96 MiB is the least.
- **Charges**: frames are charged to the principal of the connection, calls to their principal. Work that grows with an instance is
  charged as frames: a name in the roster of a Create 1/4, a process in a Get or a snapshot 1/16, 16 KiB of an ended instance 1, an
  instance on a page of List 1/4, a warp in an access with shuffled order 1/64, the verification of a token 60.
- **`admission`** decides about a request above a rate or a share of its principal: `off` serves it, `observe` serves, counts and logs it,
  `enforce` refuses it. Other bounds always hold. `stickycas_bound_exceeded_total` counts both outcomes.

";

/// The page `docs/operate/limits.md`.
fn bounds_page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("| bound | default | reason | shown by |\n| --- | --- | --- | --- |\n");
    for (bound, (metric, _)) in LIMITS.iter().map(|bound| (bound, evidence(bound.name()))) {
        let flag = if bound.is_constant { String::new() } else { format!(", `--{}`", bound.flag()) };
        let (name, default, text) = (bound.name(), bound.default(), bound.text());
        let _ = writeln!(page, "| `{name}`{flag} | `{default}` | {text} | `{metric}` |");
    }
    page
}

/// The metric and the test of a bound.
fn evidence(name: &str) -> (&'static str, &'static str) {
    let rows = EVIDENCE.lines().filter_map(|row| row.strip_prefix(name)?.strip_prefix(": "));
    let [row] = rows.collect::<Vec<_>>()[..] else { panic!("{name} has not one row in EVIDENCE") };
    row.split_once(": ").expect("a row has three parts")
}

/// The texts of all source files below a folder.
fn sources(folder: &Path) -> String {
    let (mut text, mut folders) = (String::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                text += &fs::read_to_string(path).unwrap();
            }
        }
    }
    text
}

fn crate_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_limit_has_a_metric_and_a_test_that_exist() {
    let tests = sources(&crate_folder().join("tests")) + &sources(&crate_folder().join("src"));
    let metrics = sources(&crate_folder().join("src/http"));
    for name in LIMITS.iter().map(Setting::name) {
        let (metric, test) = evidence(name);
        assert!(tests.contains(&format!("fn {test}()")), "{name}: there is no test {test}");
        let (series, label) = metric.split_once('{').unwrap_or((metric, ""));
        assert!(metrics.contains(&format!("\"{series}\"")), "{name}: there is no metric {series}");
        if series == "stickycas_limit_used" {
            let value = label.split('"').nth(1).unwrap();
            assert!(metrics.contains(&format!("(\"{value}\",")), "{name}: no limit {value} is shown");
        }
    }
    assert_eq!(EVIDENCE.trim().lines().count(), LIMITS.len(), "rows of limits that do not exist, or twice");
}

#[test]
fn the_page_of_bounds_is_the_one_in_the_documentation() {
    let path = crate_folder().join("../docs/operate/limits.md");
    if std::env::var_os("STICKYCAS_BLESS").is_some() {
        fs::write(&path, bounds_page()).unwrap();
    }
    assert!(
        fs::read_to_string(path).unwrap() == bounds_page(),
        "docs/operate/limits.md: bless it with STICKYCAS_BLESS=1"
    );
}
