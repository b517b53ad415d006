//! The clients that misbehave, one file each, and their table.

mod answers_what_nobody_asked;
mod batches;
mod cancels_in_a_loop;
mod closes_stdin_in_mid_call;
mod comes_and_goes;
mod ends_with_half_a_request;
mod floods_notifications;
mod floods_requests;
mod floods_while_server_dies;
mod garbage_between_requests;
mod ignores_questions;
mod initializes_twice;
mod killed_in_mid_call;
mod leaves_without_a_word;
mod never_reads_stderr;
mod never_reads_stdout;
mod nonblocking_pipes;
mod reads_byte_by_byte;
mod reads_only_at_the_end;
mod same_id_twice;
mod sends_giant_line;
mod stops_listening;
mod terminates_in_mid_call;
mod writes_byte_by_byte;

use unhang_demo_servers::entry::{FaultyProgram, table};

/// Every one of them, sorted by name.
pub(crate) const ALL: &[FaultyProgram] = table!(
    Client in "clients":
    answers_what_nobody_asked,
    batches,
    cancels_in_a_loop,
    closes_stdin_in_mid_call,
    comes_and_goes,
    ends_with_half_a_request,
    floods_notifications,
    floods_requests,
    floods_while_server_dies,
    garbage_between_requests,
    ignores_questions,
    initializes_twice,
    killed_in_mid_call,
    leaves_without_a_word,
    never_reads_stderr,
    never_reads_stdout,
    nonblocking_pipes,
    reads_byte_by_byte,
    reads_only_at_the_end,
    same_id_twice,
    sends_giant_line,
    stops_listening,
    terminates_in_mid_call,
    writes_byte_by_byte,
);
