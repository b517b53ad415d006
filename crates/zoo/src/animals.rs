//! The animals, one file each, and their table.

mod answers_after_cancel;
mod answers_twice;
mod batch_answers;
mod both_outcomes;
mod busy_not_hung;
mod closes_stdin;
mod closes_stdout;
mod crlf;
mod dies_at_start;
mod dies_every_call;
mod dies_idle;
mod era_ambiguous;
mod era_locked;
mod exits_on_first_request;
mod exits_zero_after_each_answer;
mod floods_requests_to_client;
mod forks_forever;
mod giant_answer;
mod giant_line_no_newline;
mod glued_text;
mod half_line;
mod half_line_then_dies;
mod hangs_idle;
mod ignores_everything;
mod ignores_stdin_close;
mod invalid_utf8;
mod json_logs;
mod late_discover;
mod leaves_daemon;
mod leaves_daemon_empty_env;
mod leaves_grandchild;
mod leaves_setsid_child;
mod leaves_three_sessions;
mod many_on_a_line;
mod modern_only;
mod nested_deep;
mod never_answers;
mod never_reads_stdin;
mod no_jsonrpc;
mod no_outcome;
mod notification_before_each_answer;
mod notification_flood;
mod null_id;
mod progress_after_cancel;
mod progress_flood;
mod requests_to_client;
mod restarts_broken;
mod server_error;
mod sigint_deaf;
mod silent_at_start;
mod slow_start;
mod slow_writer;
mod stderr_flood;
mod stderr_flood_while_dying;
mod stderr_giant_line;
mod stdin_thief;
mod stdout_noise;
mod stopped;
mod stops_reading_after;
mod string_id;
mod tee;
mod well_behaved;
mod wrong_id;
mod wrong_version;

use crate::Animal;

/// Every animal, sorted by name.
pub(crate) const ALL: &[Animal] = &[
    answers_after_cancel::ANIMAL,
    answers_twice::ANIMAL,
    batch_answers::ANIMAL,
    both_outcomes::ANIMAL,
    busy_not_hung::ANIMAL,
    closes_stdin::ANIMAL,
    closes_stdout::ANIMAL,
    crlf::ANIMAL,
    dies_at_start::ANIMAL,
    dies_every_call::ANIMAL,
    dies_idle::ANIMAL,
    era_ambiguous::ANIMAL,
    era_locked::ANIMAL,
    exits_on_first_request::ANIMAL,
    exits_zero_after_each_answer::ANIMAL,
    floods_requests_to_client::ANIMAL,
    forks_forever::ANIMAL,
    giant_answer::ANIMAL,
    giant_line_no_newline::ANIMAL,
    glued_text::ANIMAL,
    half_line::ANIMAL,
    half_line_then_dies::ANIMAL,
    hangs_idle::ANIMAL,
    ignores_everything::ANIMAL,
    ignores_stdin_close::ANIMAL,
    invalid_utf8::ANIMAL,
    json_logs::ANIMAL,
    late_discover::ANIMAL,
    leaves_daemon::ANIMAL,
    leaves_daemon_empty_env::ANIMAL,
    leaves_grandchild::ANIMAL,
    leaves_setsid_child::ANIMAL,
    leaves_three_sessions::ANIMAL,
    many_on_a_line::ANIMAL,
    modern_only::ANIMAL,
    nested_deep::ANIMAL,
    never_answers::ANIMAL,
    never_reads_stdin::ANIMAL,
    no_jsonrpc::ANIMAL,
    no_outcome::ANIMAL,
    notification_before_each_answer::ANIMAL,
    notification_flood::ANIMAL,
    null_id::ANIMAL,
    progress_after_cancel::ANIMAL,
    progress_flood::ANIMAL,
    requests_to_client::ANIMAL,
    restarts_broken::ANIMAL,
    server_error::ANIMAL,
    sigint_deaf::ANIMAL,
    silent_at_start::ANIMAL,
    slow_start::ANIMAL,
    slow_writer::ANIMAL,
    stderr_flood::ANIMAL,
    stderr_flood_while_dying::ANIMAL,
    stderr_giant_line::ANIMAL,
    stdin_thief::ANIMAL,
    stdout_noise::ANIMAL,
    stopped::ANIMAL,
    stops_reading_after::ANIMAL,
    string_id::ANIMAL,
    tee::ANIMAL,
    well_behaved::ANIMAL,
    wrong_id::ANIMAL,
    wrong_version::ANIMAL,
];
