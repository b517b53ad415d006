//! The guards of `front`, in the order of its files.

use super::{SwitchedGuard, end_to_end, unit};

#[rustfmt::skip]
pub(super) const GUARDS: &[SwitchedGuard] = guards! {
    "front-answers-garbage" [1]
        "The front answers a line that is no message, so that its sender does not wait for ever."
        unit("front", "tests::life::what_is_no_good_request_is_refused_with_its_id");
    "front-batch-by-revision" [1]
        "The front takes arrays of messages in the one revision that has them, and refuses them in every other."
        unit("front", "tests::revisions::the_first_revision");
    "front-refuses-while-ending" [1]
        "A request that comes while the front ends is refused, not left."
        unit("front", "tests::life::a_signal_answers_everything_and_waits_no_longer_than_a_stop_takes");
    "front-refuses-a-repeated-id" [1]
        "A request with an id that is in flight is refused, so that no answer can be taken for another's."
        unit("front", "tests::life::an_id_in_flight_is_refused_and_its_call_goes_on");
    "front-max-in-flight" [3]
        "Calls are bounded, those included that were withdrawn and have not ended yet."
        unit("front", "tests::life::calls_in_flight_are_bounded_those_that_nobody_waits_for_included");
    "front-holds-a-deaf-client-back" [3]
        "A client that does not read its answers is not read either."
        unit("front", "tests::life::promise_3_a_client_that_does_not_read_is_not_read_either");
    "tool-deadline" [1]
        "A tool that does not answer in time is answered for."
        unit("front", "tests::life::a_call_that_takes_too_long_is_answered_and_cancelled");
    "abandoned-call-is-cancelled" [5]
        "A call that nobody waits for is told to stop, and its command ends with it."
        unit("front", "tests::life::after_a_cancellation_nothing_more_is_said_and_the_id_is_free");
    "late-tool-answer-dropped" [1]
        "What a withdrawn call still answers is not taken for the answer to a later request with its id."
        unit("front", "tests::life::after_a_cancellation_nothing_more_is_said_and_the_id_is_free");
    "front-ends-when-drained" [5]
        "Once the client has ended and waits for nothing, the front ends and does not sit the grace out."
        unit("front", "tests::life::at_the_end_of_stdin_calls_may_still_end");
    "panic-is-answered" [1, 8]
        "A call that panics is answered with an error."
        unit("front", "tests::shell::promise_8_calls_that_panic_or_hang_delay_no_other");
    "asked-call-stays-a-call" [1]
        "A call about which its client is being asked something does not become a job before the client has answered."
        unit("front", "tests::promotion::a_call_about_which_the_client_is_asked_stays_a_call_until_it_has_answered");
    "strangers-are-refused" [8]
        "A page in a browser that has its own name lead to this machine is refused, whatever it asks."
        unit("front", "http::tests::what_is_wrong_with_a_request_is_a_status_and_a_sentence");
    "strangers-need-a-token" [2]
        "Where there are tokens, whoever has none gets no answer, whatever is asked for."
        end_to_end("gateway_access::whoever_has_no_token_gets_no_answer");
    "sessions-are-their-callers" [2]
        "A session, or a call that waits for its client, is there for whoever began it, and for nobody else."
        unit("front", "http::tests::access::a_session_is_there_for_whoever_began_it_alone");
    "share-of-one-bounded" [8]
        "One client has a share of the requests and sessions that there may be, and leaves the rest to others."
        unit("front", "http::tests::access::no_client_takes_what_the_others_need");
    "other-machines-are-asked" [2]
        "Nothing listens where other machines come unless they are asked who they are."
        unit("front", "http::access::tests::where_other_machines_come_somebody_asks_who_they_are");
    "tokens-cannot-be-guessed" [2]
        "A token that is short enough to be guessed is refused."
        unit("front", "http::access::tests::a_token_cannot_be_guessed_and_is_not_shown");
    "secrets-are-their-owners" [2]
        "A file with tokens or a key that others can read is refused."
        unit("front", "http::access::tests::secrets_lie_where_their_owner_alone_can_read_them");
    "slow-body-ends" [1]
        "A body that does not come is not waited for."
        unit("front", "http::tests::a_body_that_does_not_come_is_not_waited_for");
    "headers-say-what-the-body-says" [1]
        "A request whose headers say something else than its body is refused: whoever stands in between has read the headers."
        unit("front", "http::tests::what_stands_alone_says_in_its_headers_what_its_body_says");
    "sessions-bounded" [8]
        "There are at most so many sessions over HTTP, whoever comes."
        unit("front", "http::tests::sessions_are_bounded_and_forgotten");
    "idle-session-ends" [5]
        "A session of which nobody hears any more is forgotten."
        unit("front", "http::tests::sessions_are_bounded_and_forgotten");
    "one-stream-ends-its-session" [5]
        "A session of a client of 2024-11-05 ends with its stream, for nobody can come back to it."
        unit("front", "http::tests::old::a_session_ends_with_its_stream");
    "gone-client-withdraws" [5]
        "A request that stands alone is withdrawn when its client goes before there is an answer."
        unit("front", "http::tests::what_stands_alone_is_withdrawn_with_its_connection");
    "left-stream-withdraws" [5]
        "A request that stands alone is withdrawn when its client goes while it is being answered."
        unit("front", "http::tests::what_stands_alone_is_withdrawn_with_its_connection");
    "deaf-session-ends" [3]
        "A session over HTTP whose client does not read is closed, so that what waits for it is bounded."
        unit("front", "http::tests::promise_3_a_session_that_does_not_read_is_closed");
    "one-reader-a-stream" [5]
        "A connection that another has replaced ends."
        unit("front", "http::tests::one_listens_to_a_session_at_a_time");
    "client-asked-what-it-offers" [2]
        "A client is asked nothing that it has not said that it can be asked, whatever a server wants of it."
        unit("front", "tests::questions::a_client_is_asked_nothing_that_it_has_not_offered");
    "question-withdrawn-with-its-call" [1]
        "A question ends with the call that it is about, and the client is told."
        unit("front", "tests::questions::a_question_ends_with_its_call");
    "requests-alone-bounded" [8]
        "There are at most so many requests without a session in flight, whoever comes."
        unit("front", "http::tests::requests_that_stand_alone_are_bounded");
    "parked-call-for-its-request" [2]
        "A client comes back to its call with the very request that it made, and with no other."
        unit("front", "tests::questions::a_state_is_good_for_its_own_request_alone");
    "forgotten-call-is-cancelled" [1, 5]
        "A call to which its client does not come back ends, and the server is told."
        unit("front", "tests::questions::a_call_to_which_nobody_comes_back_ends_with_its_limit");
    "subscription-hears-what-it-asked" [2]
        "A subscription hears what it has asked to hear, and nothing else."
        unit("front", "tests::subscriptions::a_subscription_hears_what_it_asked_for_under_its_own_id");
    "front-subscriptions-bounded" [8]
        "A session hears of at most so many resources."
        unit("front", "tests::subscriptions::subscriptions_of_a_session_are_bounded");
    "logs-as-asked" [2]
        "A client hears what is logged from the level on that it has named, and a request that names none hears nothing."
        unit("front", "tests::questions::a_request_that_stands_alone_hears_what_is_logged_if_it_says_so");
    "watched-resource-is-followed" [8]
        "Whoever hears of a resource hears of it from the server that has it now."
        unit("front", "tests::subscriptions::what_is_watched_is_watched_where_it_has_gone");
    "revoked-sessions-end" [2]
        "What somebody has begun whose token is good no more ends."
        unit("front", "http::tests::access::what_a_token_began_ends_with_it");
    "a-number-is-one-tokens" [2]
        "A token is known by a number that no other token ever has, however tokens are listed later."
        unit("front", "http::access::tests::a_token_keeps_its_number_and_no_other_ever_has_it");
    "unknown-name-waits-for-servers" [1]
        "A request about what no server has been found to have waits while servers are still starting, so that nobody is told that there is no such thing before that is known."
        unit("front", "tests::servers::what_nobody_has_yet_waits_for_whoever_may_have_it");
    "list-waits-for-servers" [1]
        "A list waits for servers that are still starting, so that a client that asks once does not take them for missing."
        unit("front", "tests::servers::a_list_waits_for_servers_and_not_for_ever");
    "flooding-client-gives-way" [8]
        "A client that writes without a pause keeps no other window from its turn."
        end_to_end("gateway_fair::promise_8_a_client_that_writes_without_an_end_keeps_no_other_window_from_its_turn");
    "silent-call-has-a-heartbeat" [1]
        "A client that wants to hear of progress is told that a silent server is waited for, so that one whose clock begins anew with it waits too."
        unit("front", "tests::heartbeats::a_client_that_wants_to_hear_of_progress_hears_that_a_silent_server_is_waited_for_until_the_end");
    "progress-by-the-newest-token" [1]
        "A client that comes back to its call with an answer hears of progress under the token that it names then."
        unit("front", "tests::questions::a_client_without_a_session_is_asked_by_the_answer_and_comes_back_to_its_call");
    "regulars-bounded" [3]
        "There are at most so many clients without a session for whom anything is kept."
        unit("front", "http::stateless_clients::tests::what_is_kept_is_there_for_as_long_as_a_session_may_be_silent");
    "nothing-is-known-of-strangers" [3]
        "Of a client without a session for whom nothing is kept nothing stays."
        unit("front", "http::stateless_clients::tests::what_is_kept_is_there_for_as_long_as_a_session_may_be_silent");
    "unknown-methods-are-one" [3]
        "Methods that there are none of are counted as one, so that no outsider makes the metrics grow."
        unit("front", "http::tests::operators::no_outsider_makes_series_grow");
    "trace-of-the-client-kept" [2]
        "What is told of a request is in the trace that its client named."
        end_to_end("gateway_traces::a_request_is_told_in_its_clients_trace_and_the_servers_part_in_it");
    "status-waits-for-no-disk" [8]
        "Whoever asks how all is hears it without the jobs where the disk that knows of them is stuck."
        unit("front", "http::tests::operators::a_stuck_disk_keeps_nobody_from_hearing_how_the_rest_is");
    "jobs-counted-once-at-a-time" [3]
        "However often it is asked how all is, one at a time waits for the disk that knows of jobs."
        unit("front", "http::tests::operators::a_stuck_disk_keeps_nobody_from_hearing_how_the_rest_is");
    "handed-over-is-in-the-schema" [1]
        "A tool whose results have a schema is listed with that of a call that goes on as a job, so that no client refuses that."
        unit("front", "session_catalog::tests::who_can_ask_for_tasks_is_told_of_them_and_who_gets_them_is_told_nothing_else");
    "tasks-followed-until-the-end" [3]
        "A task is followed for a subscription for no longer than that is there."
        unit("front", "tests::promotion::a_subscription_hears_of_its_tasks_until_it_is_over");
};
