//! The guards of `guard`, in the order of its files.

use super::{SwitchedGuard, end_to_end, unit};

#[rustfmt::skip]
pub(super) const GUARDS: &[SwitchedGuard] = guards! {
    "held-back-is-not-judged" [3, 8]
        "A server that is held back because its client does not read is not taken for hung or late."
        unit("guard", "tests::life::promise_3_a_server_that_is_held_back_is_not_judged");
    "only-safe-sent-again" [6]
        "Only lists, reads and subscriptions are sent to a restarted server again, for anything else may have had its effect."
        unit("guard", "tests::life::promise_6_what_was_in_flight_is_answered_at_once_and_the_session_is_replayed");
    "sent-again-once" [6]
        "A request is sent again once, so that one which kills the server does not kill it for ever."
        unit("guard", "tests::life::a_list_is_sent_again_once_only");
    "unreading-client-unread" [3]
        "A client that does not read is not read either, so our own errors for it do not pile up."
        unit("guard", "tests::talk::promise_3_a_client_that_does_not_read_holds_the_server_back");
    "server-held-back" [3]
        "The server is not read while too much waits for the client, so its answers do not fill our memory."
        unit("guard", "tests::talk::promise_3_a_client_that_does_not_read_holds_the_server_back");
    "eof-grace-ends" [1, 5]
        "The wait for answers after the end of the client's stdin has an end."
        unit("guard", "tests::life::the_grace_after_the_end_of_stdin_is_bounded");
    "unasked-failure-ends" [5]
        "A client that never asks after a failed start is not waited for."
        unit("guard", "tests::restarts::a_client_that_never_asks_after_a_failed_start_is_not_waited_for");
    "stop-ends" [5]
        "The guard ends even if the end of its server is never reported."
        unit("guard", "tests::life::the_grace_after_the_end_of_stdin_is_bounded");
    "one-process-at-a-time" [5, 6]
        "No process is started before the last one and all that it left have gone."
        unit("guard", "tests::restarts::a_server_is_not_started_before_the_old_one_and_all_it_left_have_gone");
    "health-checked" [6]
        "An idle server is asked whether it lives."
        unit("guard", "tests::life::l_58_three_unanswered_health_checks_restart_an_idle_server");
    "call-deadline" [1]
        "A request that the server does not answer is answered at its deadline."
        unit("guard", "tests::talk::promise_1_a_call_ends_at_its_deadline_and_a_late_answer_goes_nowhere");
    "question-deadline" [1]
        "A server's question that the client does not answer ends for both sides."
        unit("guard", "tests::questions::a_question_that_stays_unanswered_ends_for_both_sides");
    "replay-deadline" [6]
        "A new process that does not answer the replayed handshake is replaced."
        unit("guard", "tests::restarts::a_replayed_handshake_has_a_deadline");
    "silent-start-told-by-exit" [1]
        "A session whose server never answered anything ends with the exit code for a deadline."
        unit("guard", "tests::talk::an_initialize_that_expires_is_neither_cancelled_nor_is_its_server_killed");
    "first-outcome-stays" [5]
        "The outcome that came first keeps its exit code, whatever ends the process faster."
        unit("guard", "tests::restarts::x_05_the_outcome_that_came_first_stays");
    "failed-start-outlasts-signal" [5]
        "A signal does not hide that the server could not be started."
        unit("guard", "tests::restarts::x_05_a_signal_does_not_hide_that_the_server_never_started");
    "told-before-the-stop" [1]
        "What is in flight when the guard ends is answered at once, not after the server's stop."
        unit("guard", "tests::life::a_signal_answers_what_is_in_flight_and_ends");
    "subscription-ended-by-server" [1]
        "A subscription is answered by the server, which hears of the end, and not by us before it can."
        unit("guard", "tests::life::a_subscription_is_answered_by_the_server_when_it_hears_of_the_end");
    "drained-before-the-stop" [1]
        "After the end of the client's stdin the server is not stopped while a call is in flight."
        unit("guard", "tests::life::stdin_ends_and_calls_in_flight_are_still_answered");
    "drained-is-the-end" [5]
        "After the end of the client's stdin the guard ends as soon as nothing is in flight."
        unit("guard", "tests::life::stdin_ends_and_calls_in_flight_are_still_answered");
    "nothing-unanswered-at-the-end" [1]
        "Whatever is still unanswered at the very end is answered by us."
        unit("guard", "tests::life::a_subscription_is_answered_by_the_server_when_it_hears_of_the_end");
    "guarded-silent-call-has-a-heartbeat" [1]
        "Behind the guard, too, a client that wants to hear of progress is told that a silent server is waited for."
        unit("guard", "tests::heartbeats::a_client_that_wants_to_hear_of_progress_hears_that_a_silent_server_is_waited_for_until_the_end");
    "quiet-guard-without-heartbeats" [2]
        "With `--quiet` no heartbeat of ours reaches the client either while a call runs."
        unit("guard", "tests::heartbeats::a_heartbeat_is_for_calls_whose_clients_ask_for_progress_where_traffic_is_not_left_alone");
    "one-heartbeat-for-a-token" [2]
        "Two calls with one token have one heartbeat, so that progress of the token increases."
        unit("guard", "tests::heartbeats::two_calls_with_one_token_have_one_heartbeat_which_increases");
    "tokens-of-heartbeats-bounded" [3]
        "Tokens of calls that are over are forgotten in time, though nothing says when each is."
        unit("guard", "tests::heartbeats::tokens_of_calls_that_are_over_are_forgotten_in_time");
    "guarded-asked-call-stays-a-call" [1]
        "Behind the guard, too, a call stays one while its client is asked something."
        unit("guard", "tests::promotion::a_call_stays_one_while_its_client_is_asked_something");
    "guarded-same-call-joins" [1]
        "Behind the guard, too, the same call waits for the job that it has become and does not run twice."
        unit("guard", "tests::promotion::the_same_call_has_the_answer_of_the_job_that_it_has_become");
    "question-of-a-task-says-so" [1]
        "A client that has asked for a task hears of which one its server's question is, where that is known."
        unit("guard", "tests::promotion::a_client_that_asks_for_a_task_gets_one_at_once_and_its_server_hears_of_a_call");
    "order-is-of-its-call" [1, 2]
        "A job that comes late is not handed to another call that has the id by then."
        unit("guard", "tests::promotion::a_job_that_comes_too_late_is_not_that_of_another_call_with_the_id");
    "jobs-keep-nobody-waiting" [1]
        "What has become a job holds up neither the end of the session nor what is kept back while a call runs."
        unit("guard", "tests::promotion::a_job_keeps_nobody_waiting");
    "kept-params-bounded" [3]
        "Large arguments of calls that may become jobs are kept for so many of them as the queue has room for."
        unit("guard", "tests::promotion::arguments_that_are_kept_are_bounded");
    "tokens-of-jobs-bounded" [3]
        "Tokens of jobs that have ended are forgotten in time."
        unit("guard", "tests::promotion::tokens_of_jobs_that_have_ended_are_forgotten");
    "their-tool-stays-theirs" [2]
        "A tool of the server is called there, also where one of ours would be called the same."
        unit("guard", "tests::offers::tools_of_ours_are_called_what_none_of_the_server_is");
    "their-tasks-stay-theirs" [2]
        "A server that has tasks is asked about them, and its client gets no others."
        unit("guard", "tests::offers::a_server_that_has_tasks_keeps_them");
    "learned-names-bounded" [3]
        "Of a server's tools so many names are kept and no more."
        unit("guard", "tests::offers::what_is_learned_of_a_server_is_bounded");
    "only-ours-to-the-job-server" [1]
        "A subscription that is about something else as well goes to the server."
        unit("guard", "tests::local_jobs::a_client_without_a_handshake_asks_about_its_tasks_there_and_about_others_its_server");
    "job-server-deadline" [1]
        "What is asked about jobs is answered in time also where the folder of jobs does not open."
        unit("guard", "tests::local_jobs::a_job_server_that_does_not_open_keeps_nobody_waiting_and_nothing_piles_up_for_it");
    "job-server-backlog-bounded" [3]
        "What waits for the folder of jobs to open is bounded."
        unit("guard", "tests::local_jobs::a_job_server_that_does_not_open_keeps_nobody_waiting_and_nothing_piles_up_for_it");
    "job-server-ids-in-flight" [2]
        "An id that is in flight at the local job server is not used for another request."
        unit("guard", "tests::local_jobs::a_request_at_the_job_server_is_in_flight_like_any_other");
    "job-server-answered-at-the-end" [1]
        "What was asked about jobs is answered when the session ends before that."
        unit("guard", "tests::local_jobs::the_end_of_the_session_waits_for_the_job_server_and_answers_what_it_does_not");
    "dead-tokens-bounded" [3]
        "Progress tokens of ended calls are forgotten in time."
        unit("guard", "tests::bounds::tokens_of_ended_calls_are_forgotten_in_time");
    "reused-token-lives" [2]
        "A progress token that is used again is not taken for the dead one."
        unit("guard", "tests::bounds::progress_for_a_token_that_is_used_again_arrives");
    "quiet-merged" [3]
        "What `--quiet` kept back is merged to one of a kind."
        unit("guard", "tests::talk::g_13_quiet_keeps_notifications_back_while_a_call_runs");
    "own-id-is-free" [1, 2]
        "Our own requests take ids that the client does not use."
        unit("guard", "tests::questions::our_own_ids_are_none_of_the_clients");
    "one-handshake" [6]
        "A client that shakes hands itself is not replayed for."
        unit("guard", "tests::restarts::a_client_that_shakes_hands_itself_is_not_replayed_for");
    "session-replayed" [6]
        "A new process is told the session before anything else."
        unit("guard", "tests::life::promise_6_what_was_in_flight_is_answered_at_once_and_the_session_is_replayed");
    "failed-start-ends-the-stop" [5]
        "A restart that fails while the guard ends is its end, not something more to wait for."
        unit("guard", "tests::restarts::a_restart_that_fails_while_a_signal_ends_the_guard_is_its_end");
    "asked-end-is-expected" [5]
        "A server that we told to end is neither called unexpected nor started again."
        unit("guard", "tests::restarts::an_end_that_was_asked_for_is_not_called_unexpected");
    "death-at-start-told" [1, 5]
        "A server that dies before it answered anything is a failed start, told at once and by the exit code."
        unit("guard", "tests::life::a_server_that_dies_before_it_answered_anything_is_a_failed_start");
    "gone-is-the-end" [5]
        "The guard ends when its server has gone, not only when its time is up."
        unit("guard", "tests::life::a_signal_answers_what_is_in_flight_and_ends");
    "deaf-server-replaced" [1, 6]
        "A server that hears or says nothing any more is stopped, and another takes its place."
        unit("guard", "tests::restarts::what_is_asked_while_a_deaf_server_is_stopped_waits_for_the_next_and_for_the_delay");
    "nothing-for-the-stopped" [1]
        "Nothing is sent to a server that is being stopped; it waits for the next one."
        unit("guard", "tests::restarts::what_is_asked_while_a_deaf_server_is_stopped_waits_for_the_next_and_for_the_delay");
    "failed-start-waits-for-a-question" [1]
        "After a failed start a client that has not asked yet is given the time to ask and be told."
        unit("guard", "tests::life::a_server_that_cannot_be_started_is_told_to_whoever_asks");
    "deaths-counted" [6]
        "Deaths are counted, so that a server which dies on every call is fenced off."
        unit("guard", "tests::life::promise_6_a_server_that_dies_on_every_call_is_fenced_off");
    "dead-replay-forgotten" [6]
        "A handshake with a process that died is not held against the next one."
        unit("guard", "tests::restarts::a_handshake_with_a_process_that_died_is_not_held_against_the_next");
    "no-start-while-fenced-off" [6]
        "A server that is fenced off is not started for an earlier wish."
        unit("guard", "tests::restarts::a_server_that_is_fenced_off_is_not_started_for_an_earlier_wish");
    "early-wish-waits" [6]
        "A request that came while the old process was being stopped does not cut the pause before the restart short."
        unit("guard", "tests::restarts::what_is_asked_while_a_deaf_server_is_stopped_waits_for_the_next_and_for_the_delay");
    "restarted-unasked-once" [6]
        "A server that keeps dying while nobody asks is started once, not over and over."
        unit("guard", "tests::life::nothing_is_restarted_over_and_over_while_nobody_asks");
    "dead-questions-withdrawn" [1]
        "Questions of a dead server are withdrawn from the client."
        unit("guard", "tests::talk::a_question_of_a_dead_server_is_withdrawn_and_its_answer_goes_nowhere");
    "restart-delayed" [6]
        "A restart waits for the pause that the breaker asks for."
        unit("guard", "tests::restarts::a_restart_waits_for_its_delay");
    "held-sent-once" [1]
        "A request that was held is sent once, whatever became of its id before."
        unit("guard", "tests::restarts::a_held_request_is_sent_once_whatever_became_of_its_id_before");
    "refused-replay-noticed" [6]
        "A server that refuses the replayed handshake is stopped, and not treated as one that is back."
        unit("guard", "tests::restarts::a_server_that_refuses_the_replayed_handshake_is_stopped");
    "handshake-never-cancelled" [1]
        "An `initialize` that expires is not cancelled at the server, which may still be installing itself."
        unit("guard", "tests::talk::an_initialize_that_expires_is_neither_cancelled_nor_is_its_server_killed");
    "expired-cancelled-at-server" [1, 8]
        "The server is told that nobody waits for an expired call any more."
        unit("guard", "tests::talk::promise_1_a_call_ends_at_its_deadline_and_a_late_answer_goes_nowhere");
    "unanswered-trial-frees" [1, 6]
        "A trial that expires lets the next request try, else everybody would be refused for ever."
        unit("guard", "tests::restarts::an_expired_trial_lets_the_next_request_try");
    "asked-after-the-handshake" [6]
        "Nobody is checked before the handshake is done."
        unit("guard", "tests::questions::nobody_is_checked_before_the_handshake");
    "asking-is-not-idle" [8]
        "A server that waits for a person's answer is not checked and not judged."
        unit("guard", "tests::questions::l_58_a_server_that_waits_for_a_person_is_not_hung");
    "busy-is-not-idle" [8]
        "A server with a call in flight is not checked and not judged."
        unit("guard", "tests::life::promise_8_a_busy_server_is_not_asked_and_a_deadline_does_not_stop_it");
    "asked-in-its-era" [6]
        "A stateless server is checked in its own revision."
        unit("guard", "tests::life::stateless_traffic_passes_and_is_mirrored");
    "garbage-answered" [1]
        "Garbage from the client is answered here, for real servers stay silent on it."
        unit("guard", "tests::talk::promise_1_garbage_is_answered_here_and_never_forwarded");
    "batch-by-revision" [1, 2]
        "A batch is taken only in the one revision that has batches, and refused in all others."
        unit("guard", "tests::talk::promise_1_garbage_is_answered_here_and_never_forwarded");
    "batch-awaits-answers-alone" [1]
        "A batch waits for what is owed an answer, and not for its notifications."
        unit("guard", "tests::talk::batches_of_2025_03_26_are_split_and_answered_as_one_array");
    "later-requests-told-of-the-start" [1]
        "A request that comes after a failed start is told why."
        unit("guard", "tests::life::a_server_that_cannot_be_started_is_told_to_whoever_asks");
    "refused-while-ending" [1]
        "A request that comes while the guard ends is refused, not left behind."
        unit("guard", "tests::bounds::a_request_behind_the_end_is_refused");
    "repeated-id-refused" [1]
        "An id that is in flight is refused, for two answers could not be told apart."
        unit("guard", "tests::talk::a_repeated_id_is_refused_while_it_is_in_flight");
    "handshake-alone" [6]
        "An `initialize` in a batch is refused, so that what is replayed is a line of its own."
        unit("guard", "tests::bounds::a_handshake_in_a_batch_is_refused");
    "max-in-flight" [3]
        "Requests in flight are bounded, and the refusal is an answer."
        unit("guard", "tests::talk::bounds_are_answered");
    "server-backlog-bounded" [3]
        "Requests to a server that does not read are refused beyond the limit."
        unit("guard", "tests::talk::bounds_are_answered");
    "held-bytes-bounded" [3]
        "What is held while the server is down counts against the same limit."
        unit("guard", "tests::bounds::what_is_held_while_the_server_is_down_is_bounded");
    "notifications-bounded" [3]
        "Notifications to a server that does not read are dropped beyond the limit."
        unit("guard", "tests::bounds::notifications_to_a_server_that_does_not_read_are_dropped");
    "subscription-is-no-trial" [1, 6]
        "A subscription is not the one trial after the cool-down, since nobody knows when it ends."
        unit("guard", "tests::restarts::a_subscription_is_no_trial_since_nobody_knows_when_it_ends");
    "held-until-replayed" [6]
        "Requests are held until the new process has been told the session."
        unit("guard", "tests::life::promise_6_what_was_in_flight_is_answered_at_once_and_the_session_is_replayed");
    "kept-for-again-bounded" [3]
        "A request is kept to be sent again only if it is small."
        unit("guard", "tests::restarts::a_request_too_large_to_be_kept_is_not_sent_again");
    "ids-apart-from-ours" [1, 2]
        "A client's id that is in use by us is replaced on the way, so that no answer is taken for the other."
        unit("guard", "tests::questions::an_id_of_the_client_that_is_in_use_by_us_is_replaced");
    "ids-apart-by-more-than-type" [1]
        "A request whose id differs from another's in flight by its type alone goes on under another id: servers change types."
        unit("guard", "tests::ids::x_13_an_answer_of_the_other_type_is_never_taken_for_a_request_that_differs_by_type_alone");
    "subscription-without-deadline" [1]
        "A subscription, which is answered when it ends, has no deadline."
        unit("guard", "tests::bounds::a_subscription_has_no_deadline");
    "start-deadline-for-all" [1]
        "A server that is still starting has the time for it, whatever is asked first."
        unit("guard", "tests::talk::the_start_deadline_covers_whatever_is_asked_first");
    "cancelled-is-over" [1]
        "A request that the client has cancelled is over: nothing more comes for it."
        unit("guard", "tests::talk::after_a_cancel_the_caller_gets_nothing_more");
    "cancelled-by-its-id-there" [1, 8]
        "A renamed request is cancelled by the id that the server knows."
        unit("guard", "tests::bounds::a_request_that_was_renamed_is_cancelled_by_the_name_that_the_server_knows");
    "answers-to-questions-alone" [2]
        "An answer of the client that the server does not wait for goes nowhere."
        unit("guard", "tests::talk::requests_of_the_server_reach_the_client_and_its_answers_come_back");
    "question-id-restored" [1]
        "A server whose question was renamed gets the answer under its own id."
        unit("guard", "tests::talk::a_question_of_a_dead_server_is_withdrawn_and_its_answer_goes_nowhere");
    "invalid-reply-told" [1]
        "A client's invalid answer to the server's question is an error for the server, which waits for it."
        unit("guard", "tests::talk::an_invalid_answer_of_the_client_is_an_error_for_the_server");
    "oversized-reply-told" [1]
        "A client's oversized answer to the server's question is an error for the server, which waits for it."
        unit("guard", "tests::questions::a_question_or_an_answer_to_one_over_the_limit_is_an_error_for_the_server");
    "oversized-request-told" [1]
        "A client's oversized request is answered here."
        unit("guard", "tests::talk::a_message_over_the_limit_is_an_error_for_whoever_waits");
    "half-a-message-is-a-trace" [1]
        "Half an answer at a server's end is not taken for its answer; the caller is told of the end."
        unit("guard", "tests::bounds::half_an_answer_is_a_trace_of_the_death_and_not_an_answer");
    "junk-filtered" [2]
        "What is no message stays away from the client."
        unit("guard", "tests::talk::promise_2_only_messages_reach_the_client");
    "own-answers-swallowed" [2]
        "Answers to our own questions do not reach the client."
        unit("guard", "tests::questions::answers_to_our_own_questions_stay_with_us_early_and_late");
    "late-own-answers-swallowed" [2]
        "A late answer to a health check is not shown as stray output."
        unit("guard", "tests::questions::answers_to_our_own_questions_stay_with_us_early_and_late");
    "unasked-answer-dropped" [1, 2]
        "An answer that nobody waits for, or waits for any more, goes to nobody."
        unit("guard", "tests::talk::x_13_an_answer_goes_to_the_request_with_its_id_and_to_no_other");
    "client-id-restored" [1]
        "A renamed request is answered under the client's own id."
        unit("guard", "tests::talk::a_reused_id_whose_late_answer_may_still_come_is_renamed");
    "answered-id-is-free" [1]
        "The id of a renamed request may be used again after its answer."
        unit("guard", "tests::talk::a_reused_id_whose_late_answer_may_still_come_is_renamed");
    "handshake-is-no-success" [6]
        "An answered handshake does not reset the count of failures, so a server that shakes hands and dies on every call is fenced off."
        unit("guard", "tests::restarts::promise_6_a_server_that_shakes_hands_and_dies_on_every_call_is_fenced_off");
    "array-bounded" [3]
        "The array that answers a batch is bounded."
        unit("guard", "tests::bounds::an_array_of_answers_is_bounded");
    "stateless-never-asked" [2]
        "A stateless client is never asked by its server, which is told so."
        unit("guard", "tests::life::stateless_traffic_passes_and_is_mirrored");
    "questions-bounded" [3]
        "Open questions of the server are bounded, and the refusal is an answer."
        unit("guard", "tests::questions::questions_are_bounded");
    "repeated-question-refused" [1]
        "A question under an id that is open is refused, for two answers could not be told apart."
        unit("guard", "tests::questions::a_repeated_question_is_refused_while_the_first_is_open");
    "no-progress-after-the-end" [2]
        "Progress of a call that was cancelled or has expired goes nowhere."
        unit("guard", "tests::talk::after_a_cancel_the_caller_gets_nothing_more");
    "quiet-while-calling" [2]
        "With `--quiet` nothing but answers reaches the client while a call runs."
        unit("guard", "tests::talk::g_13_quiet_keeps_notifications_back_while_a_call_runs");
    "stale-dropped" [2]
        "Log and progress that `--quiet` kept back are not sent when they mean nothing any more."
        unit("guard", "tests::talk::g_13_quiet_keeps_notifications_back_while_a_call_runs");
    "quiet-bounded" [3]
        "What `--quiet` keeps back is bounded."
        unit("guard", "tests::bounds::what_quiet_keeps_back_is_bounded");
    "ended-subscription-is-over" [1]
        "A subscription that the server has ended is owed nothing more."
        unit("guard", "tests::questions::a_subscription_that_the_server_has_ended_is_over");
    "withdrawn-question-is-over" [2]
        "The answer to a question that the server has withdrawn goes nowhere."
        unit("guard", "tests::questions::the_answer_to_a_question_that_was_withdrawn_goes_nowhere");
    "invalid-question-told" [1]
        "A server's request that is no valid one is answered here."
        unit("guard", "tests::questions::a_question_that_is_no_valid_request_is_answered_here");
    "invalid-answer-told" [1]
        "An invalid answer with an id is an error for whoever waits for it."
        unit("guard", "tests::talk::an_invalid_answer_is_an_error_for_whoever_waits");
    "answer-without-id-told" [1]
        "An invalid answer without an id is an error for the one call that waits."
        unit("guard", "tests::talk::an_invalid_answer_is_an_error_for_whoever_waits");
    "oversized-question-told" [1]
        "A server's oversized request is answered here."
        unit("guard", "tests::questions::a_question_or_an_answer_to_one_over_the_limit_is_an_error_for_the_server");
    "oversized-answer-told" [1]
        "An oversized answer is an error for whoever waits for it."
        unit("guard", "tests::talk::a_message_over_the_limit_is_an_error_for_whoever_waits");
    "oversized-line-without-id-told" [1]
        "An oversized line whose id cannot be read is an error for the one call that waits."
        unit("guard", "tests::bounds::a_line_over_the_limit_without_an_id_ends_the_one_call_that_waits");
    "told-id-is-free" [1]
        "The id of a renamed request may be used again after our own answer to it."
        unit("guard", "tests::bounds::an_id_may_be_used_again_after_each_deadline");
    "withdrawn-completes-a-batch" [1]
        "A batch does not wait for a request that was withdrawn."
        unit("guard", "tests::bounds::a_batch_is_complete_when_its_last_request_is_withdrawn");
    "gone-client-noticed" [5]
        "The guard ends when the client's reading end is closed, though nothing is written."
        end_to_end("promise_5_nothing_left_behind::the_client_closes_its_reading_end_when_all_is_said");
    "failed-write-to-client-ends" [5]
        "A write to the client that fails ends the guard, where nothing else tells that the client has gone."
        end_to_end("promise_5_nothing_left_behind::a_client_that_shuts_its_socket_down_is_noticed_at_the_next_write");
    "told-tail-bounded" [3]
        "An error carries the last lines of stderr and not all that is kept of it."
        end_to_end("promise_6_restarted::r_29_the_last_words_of_a_talkative_death_are_told");
    "old-input-forgotten" [6]
        "What waited for a dead process is not sent to the next one, nor is the next one taken for deaf."
        end_to_end("promise_6_restarted::a_server_that_closes_its_stdin_is_replaced_at_the_next_request");
    "second-signal-ends" [5]
        "A second signal ends the guard at once."
        end_to_end("promise_5_nothing_left_behind::x_05_a_second_signal_ends_at_once_and_leaves_nothing");
    "deaf-stdin-noticed" [1, 6]
        "A server that has closed its stdin is replaced at the next write to it."
        end_to_end("promise_6_restarted::a_server_that_closes_its_stdin_is_replaced_at_the_next_request");
    "unread-input-noticed" [1, 6]
        "A server that has closed its stdin with a request in it is replaced without another write."
        end_to_end("promise_6_restarted::a_server_that_leaves_a_request_unread_in_its_stdin_is_replaced");
    "deaf-stdout-noticed" [1, 6]
        "A server that has closed its stdout is replaced, and whoever waits is told at once."
        end_to_end("promise_1_answered::a_closed_stdout_is_told");
    "last-words-read" [1]
        "What a server wrote before its end is read, although it is held back at that moment."
        end_to_end("promise_3_drained::answers_of_a_server_that_was_held_back_when_it_died_arrive");
    "pipe-end-not-awaited" [3, 6]
        "A dead server's stdout is read without waiting for its end, which somebody else may hold open."
        end_to_end("promise_3_drained::a_dead_servers_pipes_in_foreign_hands_hold_nothing_up");
    "signal-ends-delivery" [5]
        "A signal ends the delivery of the last answers to a slow client."
        end_to_end("endings::x_05_a_signal_ends_the_delivery_of_the_last_answers");
};
