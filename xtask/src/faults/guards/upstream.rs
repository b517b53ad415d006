//! The guards of `upstream`, in the order of its files.

use super::{SwitchedGuard, end_to_end, unit};

#[rustfmt::skip]
pub(super) const GUARDS: &[SwitchedGuard] = guards! {
    "last-stderr-awaited" [1]
        "The end of a dead server's stderr is awaited, so that its last words can be told."
        unit("upstream", "process::tests::the_last_words_on_stderr_are_awaited");
    "last-words-bounded" [3, 6]
        "A dead server's stderr is not waited for beyond a limit, for somebody else may hold it open."
        end_to_end("promise_3_drained::a_dead_servers_pipes_in_foreign_hands_hold_nothing_up");
    "client-deadline" [1]
        "Each request of the client has a limit, after which whoever waits is told."
        unit("upstream", "request_table::tests::l_41_what_is_overdue_is_told_and_its_late_answer_dropped");
    "client-deadline-cancels" [1]
        "The server is told that nobody waits for the answer any more."
        unit("upstream", "request_table::tests::l_41_what_is_overdue_is_told_and_its_late_answer_dropped");
    "client-progress-ends" [2]
        "Progress of a request that has ended is handed to nobody."
        unit("upstream", "request_table::tests::progress_is_heard_for_what_waits_and_not_afterwards");
    "client-bad-answer-told" [1, 2]
        "An answer that is no valid message fails the request that it is for."
        unit("upstream", "request_table::tests::l_43_an_answer_that_is_no_message_fails_the_one_that_it_is_for");
    "silence-means-initialize" [1]
        "A server that leaves server/discover unanswered is shaken hands with in the old way."
        unit("upstream", "handshake::tests::silence_means_initialize_but_counts_from_the_first_sign_of_life");
    "probe-waits-for-life" [1]
        "The clock for that runs from the first sign of life, so that a slow start is not taken for silence."
        unit("upstream", "handshake::tests::silence_means_initialize_but_counts_from_the_first_sign_of_life");
    "late-discovery-counts" [1]
        "A server that refuses initialize because it has taken to the newer era is waited for."
        unit("upstream", "handshake::tests::silence_means_initialize_but_counts_from_the_first_sign_of_life");
    "guessed-era-may-be-wrong" [1]
        "A server that was found to know handshakes alone and has changed since is asked what it knows now."
        unit("upstream", "handshake::tests::what_was_known_of_a_server_is_a_guess");
    "handshake-once" [1]
        "A server is asked for its handshake once, however often something calls for it (X-11)."
        unit("upstream", "handshake::tests::silence_means_initialize_but_counts_from_the_first_sign_of_life");
    "revision-checked" [2]
        "A revision that is none is not taken for one."
        unit("upstream", "handshake::tests::the_handshake_of_old_is_checked");
    "client-withdrawal-told" [1]
        "Whoever stops waiting withdraws the request, and the server is told."
        end_to_end("client_library::whoever_stops_waiting_withdraws_the_request");
    "client-requests-bounded" [3]
        "A server gets no more requests at the same time than it may have."
        end_to_end("client_library::a_server_that_does_not_read_is_not_fed_without_end");
    "idle-server-is-asked" [6, 8]
        "A server behind a client that nobody talks to is asked whether it lives, and is ended when it does not."
        end_to_end("gateway::l_58_a_server_that_hangs_while_nobody_talks_to_it_is_ended_and_started_anew");
    "client-mute-server-stopped" [1]
        "A server that has closed its stdout is stopped, and whoever waits is told."
        end_to_end("asking::what_goes_wrong_is_told_by_exit_code_and_sentence");
    "client-last-words-read" [1]
        "What a server wrote before it died is read, so that an answer is not lost to its end."
        end_to_end("client_library::the_answer_of_a_server_that_ends_with_it_is_not_lost");
    "initialized-bounded" [1]
        "A server over HTTP that never takes the end of the handshake keeps no request from it."
        end_to_end("remote_faults::a_notification_that_is_never_taken_keeps_nobody_from_asking");
    "listens-before-it-asks" [1]
        "Nothing is asked of a server over HTTP before the stream on which it asks is open, for some lose what they ask before."
        end_to_end("remote::a_server_that_asks_is_answered_wherever_it_asks");
    "ended-exchange-is-let-go" [3]
        "What is over with a server over HTTP is kept in no memory, and has nobody woken."
        end_to_end("gateway_http::calls_that_are_over_leave_nothing_to_be_woken_for");
    "http-connections-bounded" [3, 8]
        "Requests that are with one server over HTTP at the same time leave descriptors for everything else."
        end_to_end("remote::calls_that_all_wait_end_at_their_deadline_and_not_for_want_of_descriptors");
    "stream-retry-grows" [8]
        "A stream that ends at once each time is opened ever more seldom, whatever its server wishes."
        end_to_end("remote_faults::a_stream_that_ends_at_once_is_opened_again_ever_more_seldom");
    "broken-stream-resumed" [1]
        "A stream that ends before its answer is taken up again from its last event."
        end_to_end("remote_faults::a_stream_that_ends_before_its_answer_is_taken_up_again");
    "forgotten-session-renewed" [6]
        "A session that the server has forgotten is begun anew, and what met with that is asked once more."
        end_to_end("remote_faults::a_forgotten_session_is_begun_anew_and_what_met_with_that_is_asked_again");
    "lost-list-asked-again" [6]
        "What was lost with its connection and changes nothing is asked once more; a call is not."
        end_to_end("remote_faults::what_changes_nothing_is_asked_once_more_when_its_connection_closes");
    "input-rounds-bounded" [1]
        "A server that asks for input again and again does not keep a request from its end."
        end_to_end("client_library::what_has_no_end_is_ended");
    "disposed-is-disposed" [5]
        "A pool that was disposed of starts nothing any more."
        end_to_end("client_library::c_64_disposing_ends_every_server_at_once_as_often_as_one_likes");
    "dead-client-replaced" [6]
        "A server that has died is started again when it is asked again."
        end_to_end("client_library::l_55_a_server_that_died_is_started_again_when_it_is_asked_again");
    "flood-gives-way" [8]
        "A server that writes without a pause keeps nobody else from their turn."
        end_to_end("gateway_fair::promise_8_a_server_that_logs_without_an_end_keeps_no_other_from_its_turn");
};
