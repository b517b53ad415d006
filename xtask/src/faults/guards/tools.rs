//! The guards of `tools`, in the order of its files.

use super::{SwitchedGuard, unit};

#[rustfmt::skip]
pub(super) const GUARDS: &[SwitchedGuard] = guards! {
    "losing-tool-refused" [8]
        "A closure whose calls are late again and again is refused, so that its lost threads cannot fill the process."
        unit("tools", "direct::tests::a_late_closure_is_answered_for_counted_and_refused_until_it_ends");
    "argument-fits-a-command-line" [1]
        "An argument that is too long for a command line is refused in words, not by an error of the system."
        unit("tools", "template::tests::what_no_command_can_be_given_is_told");
    "members-by-revision" [2]
        "A client is sent no member that its revision does not know."
        unit("tools", "definition::tests::a_revision_is_sent_what_it_knows");
    "answers-bounded" [3]
        "The text of a tool's answer is bounded, since clients cut or refuse what is longer."
        unit("tools", "definition::tests::a_long_text_is_cut_and_says_so");
    "arguments-checked" [1]
        "Arguments that do not fit a tool's schema are refused before the tool sees them."
        unit("unhang", "tests::j_16_what_does_not_fit_the_schema_is_no_job");
    "unwanted-child-is-ended" [5]
        "A command that nobody waits for any more is ended."
        unit("unhang", "tests::a_child_that_nobody_waits_for_is_ended");
    "status-wait-bounded" [1]
        "A status is never waited for longer than the most impatient client waits for its answer."
        unit("unhang", "tests::a_status_is_waited_for_no_longer_than_any_client_waits");
    "log-page-bounded" [3]
        "A piece of a log is bounded, whatever is asked for."
        unit("unhang", "tests::an_answer_is_bounded_and_says_where_the_rest_is");
    "large-members-left-out" [3]
        "What is too large for an answer is left out by name, and the answer says where it lies."
        unit("unhang", "tests::an_answer_is_bounded_and_says_where_the_rest_is");
};
