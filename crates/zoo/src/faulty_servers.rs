//! The servers with one vice that the demonstration does not show, one file each, and their table.

mod announces_lists;
mod answers_after_cancel;
mod answers_twice;
mod asks_late;
mod batch_answers;
mod both_outcomes;
mod busy_not_hung;
mod changes_lists;
mod closes_stdin;
mod closes_stdout;
mod conformance_fixture;
mod crlf;
mod dies_at_start;
mod dies_idle;
mod dies_on_garbage;
mod era_ambiguous;
mod era_locked;
mod exits_on_first_request;
mod exits_zero_after_each_answer;
mod faulty_tools;
mod floods_requests_to_client;
mod forks_forever;
mod giant_answer;
mod giant_line_no_newline;
mod glued_text;
mod half_line;
mod hangs_idle;
mod ignores_everything;
mod ignores_stdin_close;
mod invalid_utf8;
mod json_logs;
mod late_discover;
mod leaves_daemon_empty_env;
mod leaves_grandchild;
mod leaves_setsid_child;
mod leaves_three_sessions;
mod many_on_a_line;
mod modern_only;
mod nan_result;
mod nested_deep;
mod never_reads_stdin;
mod no_jsonrpc;
mod no_outcome;
mod notification_before_each_answer;
mod notification_flood;
mod null_id;
mod offers_extensions;
mod one_at_a_time;
mod progress_after_cancel;
mod progress_flood;
mod remembers;
mod requests_to_client;
mod restarts_broken;
mod server_error;
mod sigint_deaf;
mod silent_at_start;
mod slow_start;
mod slow_writer;
mod stderr_giant_line;
mod steers_terminal;
mod stopped;
mod stops_reading_after;
mod string_id;
mod tasks_legacy;
mod tasks_modern;
mod wrong_id;
mod wrong_version;

use unhang_demo_servers::entry::{FaultyProgram, table};

pub(crate) use unhang_demo_servers::faulty_servers::well_behaved;

/// Every one of them, sorted by name.
pub(crate) const ALL: &[FaultyProgram] = table!(
    Server in "faulty_servers":
    announces_lists,
    answers_after_cancel,
    answers_twice,
    asks_late,
    batch_answers,
    both_outcomes,
    busy_not_hung,
    changes_lists,
    closes_stdin,
    closes_stdout,
    conformance_fixture,
    crlf,
    dies_at_start,
    dies_idle,
    dies_on_garbage,
    era_ambiguous,
    era_locked,
    exits_on_first_request,
    exits_zero_after_each_answer,
    faulty_tools,
    floods_requests_to_client,
    forks_forever,
    giant_answer,
    giant_line_no_newline,
    glued_text,
    half_line,
    hangs_idle,
    ignores_everything,
    ignores_stdin_close,
    invalid_utf8,
    json_logs,
    late_discover,
    leaves_daemon_empty_env,
    leaves_grandchild,
    leaves_setsid_child,
    leaves_three_sessions,
    many_on_a_line,
    modern_only,
    nan_result,
    nested_deep,
    never_reads_stdin,
    no_jsonrpc,
    no_outcome,
    notification_before_each_answer,
    notification_flood,
    null_id,
    offers_extensions,
    one_at_a_time,
    progress_after_cancel,
    progress_flood,
    remembers,
    requests_to_client,
    restarts_broken,
    server_error,
    sigint_deaf,
    silent_at_start,
    slow_start,
    slow_writer,
    stderr_giant_line,
    steers_terminal,
    stopped,
    stops_reading_after,
    string_id,
    tasks_legacy,
    tasks_modern,
    wrong_id,
    wrong_version,
);
