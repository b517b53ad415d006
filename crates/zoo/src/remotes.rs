//! The servers over HTTP, one file each, and their table.

mod auth_server;
mod http_accepts_and_is_mute;
mod http_answers_html;
mod http_asks_client;
mod http_changes_headers;
mod http_drips_comments;
mod http_endless_body;
mod http_endless_event;
mod http_forgets_session;
mod http_half_answer;
mod http_hangs_up_on_reuse;
mod http_ignores_delete;
mod http_initialized_unanswered;
mod http_never_answers;
mod http_odd_headers;
mod http_redirects_elsewhere;
mod http_redirects_in_a_loop;
mod http_refuses_after_initialize;
mod http_refuses_calls;
mod http_replays;
mod http_resumes;
mod http_stream_ends_at_once;
mod http_swaps_answers;
mod http_tasks_modern;
mod http_wants_login;
mod http_well_behaved;
mod http_wrong_ids;

use unhang_demo_servers::entry::{FaultyProgram, table};

/// Every one of them, sorted by name.
pub(crate) const ALL: &[FaultyProgram] = table!(
    Remote in "remotes":
    auth_server,
    http_accepts_and_is_mute,
    http_answers_html,
    http_asks_client,
    http_changes_headers,
    http_drips_comments,
    http_endless_body,
    http_endless_event,
    http_forgets_session,
    http_half_answer,
    http_hangs_up_on_reuse,
    http_ignores_delete,
    http_initialized_unanswered,
    http_never_answers,
    http_odd_headers,
    http_redirects_elsewhere,
    http_redirects_in_a_loop,
    http_refuses_after_initialize,
    http_refuses_calls,
    http_replays,
    http_resumes,
    http_stream_ends_at_once,
    http_swaps_answers,
    http_tasks_modern,
    http_wants_login,
    http_well_behaved,
    http_wrong_ids,
);
