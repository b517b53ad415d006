//! The guards of `background`, in the order of its files.

use super::{SwitchedGuard, end_to_end, unit};

#[rustfmt::skip]
pub(super) const GUARDS: &[SwitchedGuard] = guards! {
    "jobs-are-their-owners" [2]
        "A job, or a task, is there for whoever began it, and for nobody else."
        end_to_end("slow_tasks::a_job_is_there_for_whoever_began_it_alone");
    "promoted-calls-end-with-us" [7]
        "A call that has become a job ends with unhang as a job that says so, and not as one whose server has gone."
        end_to_end("slow_endings::a_client_that_leaves_its_window_ends_its_jobs_with_the_reason");
    "same-call-joins" [1]
        "The same call of the same client joins the job that it has become, and does not run twice."
        end_to_end("slow_calls::the_same_call_joins_the_job_that_it_has_become");
    "questions-end-with-their-task" [3]
        "What a server asked about a call that was a job is forgotten with it."
        unit("background", "inputs::tests::a_question_is_answered_once_and_by_its_name");
    "task-of-a-job-is-noted" [7]
        "The task with which a server goes on with a job is on the disk as soon as it is known."
        unit("background", "tickets::tests::a_task_that_becomes_known_while_its_job_is_followed_is_noted");
    "task-outlives-a-clean-end" [7]
        "A job whose server goes on with it without unhang does not fail when unhang ends in order."
        unit("background", "tickets::tests::a_task_that_becomes_known_while_its_job_is_followed_is_noted");
};
