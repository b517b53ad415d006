//! The guards of `hub` towards clients of ours and servers that we ask, in the order of its files.

use super::{Guard, end_to_end, unit};

#[rustfmt::skip]
pub(super) const GUARDS: &[Guard] = guards! {
    "stateless-revisions-alone" [1]
        "A request that names a revision with a handshake is told which revisions need none, and not served by other rules."
        unit("hub", "revision::tests::a_revision_is_negotiated_as_every_revision_says");
    "front-answers-garbage" [1]
        "The front answers a line that is no message, so that its sender does not wait for ever."
        unit("hub", "front::tests::life::what_is_no_good_request_is_refused_with_its_id");
    "front-batch-by-revision" [1]
        "The front takes arrays of messages in the one revision that has them, and refuses them in every other."
        unit("hub", "front::tests::revisions::the_first_revision");
    "front-refuses-while-ending" [1]
        "A request that comes while the front ends is refused, not left."
        unit("hub", "front::tests::life::a_signal_answers_everything_and_waits_no_longer_than_a_stop_takes");
    "front-refuses-a-repeated-id" [1]
        "A request with an id that is in flight is refused, so that no answer can be taken for another's."
        unit("hub", "front::tests::life::an_id_in_flight_is_refused_and_its_call_goes_on");
    "front-max-in-flight" [3]
        "Calls are bounded, those included that were withdrawn and have not ended yet."
        unit("hub", "front::tests::life::calls_in_flight_are_bounded_those_that_nobody_waits_for_included");
    "front-holds-a-deaf-client-back" [3]
        "A client that does not read its answers is not read either."
        unit("hub", "front::tests::life::promise_3_a_client_that_does_not_read_is_not_read_either");
    "tool-deadline" [1]
        "A tool that does not answer in time is answered for."
        unit("hub", "front::tests::life::a_call_that_takes_too_long_is_answered_and_cancelled");
    "abandoned-call-is-cancelled" [5]
        "A call that nobody waits for is told to stop, and its command ends with it."
        unit("hub", "front::tests::life::after_a_cancellation_nothing_more_is_said_and_the_id_is_free");
    "late-tool-answer-dropped" [1]
        "What a withdrawn call still answers is not taken for the answer to a later request with its id."
        unit("hub", "front::tests::life::after_a_cancellation_nothing_more_is_said_and_the_id_is_free");
    "front-ends-when-drained" [5]
        "Once the client has ended and waits for nothing, the front ends and does not sit the grace out."
        unit("hub", "front::tests::life::at_the_end_of_stdin_calls_may_still_end");
    "panic-is-answered" [1, 8]
        "A call that panics is answered with an error."
        unit("hub", "front::tests::shell::promise_8_calls_that_panic_or_hang_delay_no_other");
    "asked-call-stays-a-call" [1]
        "A call about which its client is being asked something does not become a job before the client has answered."
        unit("hub", "front::tests::handover::a_call_about_which_the_client_is_asked_stays_a_call_until_it_has_answered");
    "jobs-are-their-owners" [2]
        "A job, or a task, is there for whoever began it, and for nobody else."
        end_to_end("slow_tasks::a_job_is_there_for_whoever_began_it_alone");
    "promoted-calls-end-with-us" [7]
        "A call that has become a job ends with unhang as a job that says so, and not as one whose server has gone."
        end_to_end("slow_endings::a_client_that_leaves_its_window_ends_its_jobs_with_the_reason");
    "same-call-joins" [1]
        "The same call of the same client joins the job that it has become, and does not run twice."
        end_to_end("slow_calls::the_same_call_joins_the_job_that_it_has_become");
    "strangers-are-refused" [8]
        "A page in a browser that has its own name lead to this machine is refused, whatever it asks."
        unit("hub", "front::http::tests::what_is_wrong_with_a_request_is_a_status_and_a_sentence");
    "strangers-need-a-token" [2]
        "Where there are tokens, whoever has none gets no answer, whatever is asked for."
        end_to_end("gateway_access::whoever_has_no_token_gets_no_answer");
    "sessions-are-their-callers" [2]
        "A session, or a call that waits for its client, is there for whoever began it, and for nobody else."
        unit("hub", "front::http::tests::access::a_session_is_there_for_whoever_began_it_alone");
    "share-of-one-bounded" [8]
        "One client has a share of the requests and sessions that there may be, and leaves the rest to others."
        unit("hub", "front::http::tests::access::no_client_takes_what_the_others_need");
    "other-machines-are-asked" [2]
        "Nothing listens where other machines come unless they are asked who they are."
        unit("hub", "front::http::access::tests::where_other_machines_come_somebody_asks_who_they_are");
    "tokens-cannot-be-guessed" [2]
        "A token that is short enough to be guessed is refused."
        unit("hub", "front::http::access::tests::a_token_cannot_be_guessed_and_is_not_shown");
    "secrets-are-their-owners" [2]
        "A file with tokens or a key that others can read is refused."
        unit("hub", "front::http::access::tests::secrets_lie_where_their_owner_alone_can_read_them");
    "slow-body-ends" [1]
        "A body that does not come is not waited for."
        unit("hub", "front::http::tests::a_body_that_does_not_come_is_not_waited_for");
    "headers-say-what-the-body-says" [1]
        "A request whose headers say something else than its body is refused: whoever stands in between has read the headers."
        unit("hub", "front::http::tests::what_stands_alone_says_in_its_headers_what_its_body_says");
    "sessions-bounded" [8]
        "There are at most so many sessions over HTTP, whoever comes."
        unit("hub", "front::http::tests::sessions_are_bounded_and_forgotten");
    "idle-session-ends" [5]
        "A session of which nobody hears any more is forgotten."
        unit("hub", "front::http::tests::sessions_are_bounded_and_forgotten");
    "one-stream-ends-its-session" [5]
        "A session of a client of 2024-11-05 ends with its stream, for nobody can come back to it."
        unit("hub", "front::http::tests::old::a_session_ends_with_its_stream");
    "gone-client-withdraws" [5]
        "A request that stands alone is withdrawn when its client goes before there is an answer."
        unit("hub", "front::http::tests::what_stands_alone_is_withdrawn_with_its_connection");
    "left-stream-withdraws" [5]
        "A request that stands alone is withdrawn when its client goes while it is being answered."
        unit("hub", "front::http::tests::what_stands_alone_is_withdrawn_with_its_connection");
    "deaf-session-ends" [3]
        "A session over HTTP whose client does not read is closed, so that what waits for it is bounded."
        unit("hub", "front::http::tests::promise_3_a_session_that_does_not_read_is_closed");
    "one-reader-a-stream" [5]
        "A connection that another has replaced ends."
        unit("hub", "front::http::tests::one_listens_to_a_session_at_a_time");
    "client-asked-what-it-offers" [2]
        "A client is asked nothing that it has not said that it can be asked, whatever a server wants of it."
        unit("hub", "front::tests::questions::a_client_is_asked_nothing_that_it_has_not_offered");
    "question-withdrawn-with-its-call" [1]
        "A question ends with the call that it is about, and the client is told."
        unit("hub", "front::tests::questions::a_question_ends_with_its_call");
    "one-call-where-questions-come" [8]
        "A server that asks things about its calls has those of one session at a time, so that each question comes to whoever made them."
        end_to_end("gateway_http::questions_come_on_the_stream_of_the_call_that_they_are_about");
    "requests-alone-bounded" [8]
        "There are at most so many requests without a session in flight, whoever comes."
        unit("hub", "front::http::tests::requests_that_stand_alone_are_bounded");
    "parked-call-for-its-request" [2]
        "A client comes back to its call with the very request that it made, and with no other."
        unit("hub", "front::tests::questions::a_state_is_good_for_its_own_request_alone");
    "forgotten-call-is-cancelled" [1, 5]
        "A call to which its client does not come back ends, and the server is told."
        unit("hub", "front::tests::questions::a_call_to_which_nobody_comes_back_ends_with_its_limit");
    "answers-to-nothing-refused" [1]
        "A request that answers what its server has not asked is refused, not carried out once more."
        end_to_end("gateway_http::a_client_without_a_session_is_asked_by_its_answers");
    "subscription-hears-what-it-asked" [2]
        "A subscription hears what it has asked to hear, and nothing else."
        unit("hub", "front::tests::subscriptions::a_subscription_hears_what_it_asked_for_under_its_own_id");
    "front-subscriptions-bounded" [8]
        "A session hears of at most so many resources."
        unit("hub", "front::tests::subscriptions::subscriptions_of_a_session_are_bounded");
    "unwatched-is-unsubscribed" [5]
        "A resource of which nobody wants to hear any more is unsubscribed from."
        end_to_end("gateway_http::a_change_of_a_resource_comes_to_whoever_wants_to_hear_of_it");
    "logs-as-asked" [2]
        "A client hears what is logged from the level on that it has named, and a request that names none hears nothing."
        unit("hub", "front::tests::questions::a_request_that_stands_alone_hears_what_is_logged_if_it_says_so");
    "unchanged-server-goes-on" [8]
        "A server that a new configuration describes as before goes on as it is."
        unit("hub", "gateway::roster::tests::what_stays_as_it_was_keeps_its_place_and_no_place_is_given_twice");
    "server-that-goes-answers-first" [1]
        "A server that is left out of a new configuration, or described otherwise, answers first what it was asked."
        unit("hub", "gateway::roster::tests::what_a_server_that_goes_was_asked_it_may_still_answer");
    "watched-resource-is-followed" [8]
        "Whoever hears of a resource hears of it from the server that has it now."
        unit("hub", "front::tests::subscriptions::what_is_watched_is_watched_where_it_has_gone");
    "revoked-sessions-end" [2]
        "What somebody has begun whose token is good no more ends."
        unit("hub", "front::http::tests::access::what_a_token_began_ends_with_it");
    "a-number-is-one-tokens" [2]
        "A token is known by a number that no other token ever has, however tokens are listed later."
        unit("hub", "front::http::access::tests::a_token_keeps_its_number_and_no_other_ever_has_it");
    "unchanged-wakes-nobody" [8]
        "A server that tells of changes where there are none wakes no session."
        unit("hub", "gateway::tests::what_has_not_changed_wakes_nobody");
    "nobody-keeps-a-server-by-silence" [8]
        "Who does not answer what a server asks keeps it from others for a tenth of a call's limit, and no longer."
        end_to_end("gateway_http::promise_8_who_does_not_come_back_with_an_answer_keeps_the_server_from_no_other");
    "members-by-revision" [2]
        "A client is sent no member that its revision does not know."
        unit("hub", "tools::definition::tests::a_revision_is_sent_what_it_knows");
    "answers-bounded" [3]
        "The text of a tool's answer is bounded, since clients cut or refuse what is longer."
        unit("hub", "tools::definition::tests::a_long_text_is_cut_and_says_so");
    "arguments-checked" [1]
        "Arguments that do not fit a tool's schema are refused before the tool sees them."
        unit("hub", "tools::tests::j_16_what_does_not_fit_the_schema_is_no_job");
    "unwanted-child-is-ended" [5]
        "A command that nobody waits for any more is ended."
        unit("hub", "tools::tests::a_child_that_nobody_waits_for_is_ended");
    "status-wait-bounded" [1]
        "A status is never waited for longer than the most impatient client waits for its answer."
        unit("hub", "tools::tests::a_status_is_waited_for_no_longer_than_any_client_waits");
    "log-page-bounded" [3]
        "A piece of a log is bounded, whatever is asked for."
        unit("hub", "tools::tests::an_answer_is_bounded_and_says_where_the_rest_is");
    "large-members-left-out" [3]
        "What is too large for an answer is left out by name, and the answer says where it lies."
        unit("hub", "tools::tests::an_answer_is_bounded_and_says_where_the_rest_is");
    "client-deadline" [1]
        "Each request of the client has a limit, after which whoever waits is told."
        unit("hub", "upstream::conversation::tests::l_41_what_is_overdue_is_told_and_its_late_answer_dropped");
    "client-deadline-cancels" [1]
        "The server is told that nobody waits for the answer any more."
        unit("hub", "upstream::conversation::tests::l_41_what_is_overdue_is_told_and_its_late_answer_dropped");
    "client-progress-ends" [2]
        "Progress of a request that has ended is handed to nobody."
        unit("hub", "upstream::conversation::tests::progress_is_heard_for_what_waits_and_not_afterwards");
    "client-bad-answer-told" [1, 2]
        "An answer that is no valid message fails the request that it is for."
        unit("hub", "upstream::conversation::tests::l_43_an_answer_that_is_no_message_fails_the_one_that_it_is_for");
    "silence-means-initialize" [1]
        "A server that leaves server/discover unanswered is shaken hands with in the old way."
        unit("hub", "upstream::handshake::tests::silence_means_initialize_but_counts_from_the_first_sign_of_life");
    "probe-waits-for-life" [1]
        "The clock for that runs from the first sign of life, so that a slow start is not taken for silence."
        unit("hub", "upstream::handshake::tests::silence_means_initialize_but_counts_from_the_first_sign_of_life");
    "late-discovery-counts" [1]
        "A server that refuses initialize because it has taken to the newer era is waited for."
        unit("hub", "upstream::handshake::tests::silence_means_initialize_but_counts_from_the_first_sign_of_life");
    "guessed-era-may-be-wrong" [1]
        "A server that was found to know handshakes alone and has changed since is asked what it knows now."
        unit("hub", "upstream::handshake::tests::what_was_known_of_a_server_is_a_guess");
    "handshake-once" [1]
        "A server is asked for its handshake once, however often something calls for it (X-11)."
        unit("hub", "upstream::handshake::tests::silence_means_initialize_but_counts_from_the_first_sign_of_life");
    "revision-checked" [2]
        "A revision that is none is not taken for one."
        unit("hub", "upstream::handshake::tests::the_handshake_of_old_is_checked");
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
    "wakefulness-ends" [8]
        "Messages that followed one another closely keep the gateway awake for as long as they do."
        unit("hub", "gateway::vigil::tests::who_is_awake_sleeps_soon_after_the_last_message");
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
    "doctor-comes-home" [1]
        "An examination ends when its time is up, whatever the server does, and says so."
        end_to_end("doctor::it_comes_home_when_its_time_is_up");
    "unknown-name-waits-for-servers" [1]
        "A request about what no server has been found to have waits while servers are still starting, so that nobody is told that there is no such thing before that is known."
        unit("hub", "front::tests::servers::what_nobody_has_yet_waits_for_whoever_may_have_it");
    "lock-is-that-of-the-file" [6]
        "Whoever has the lock of a gateway has that of the file that others find, so that two never lead."
        unit("hub", "sharing::place::tests::one_leads_and_the_next_when_it_has_gone");
    "list-waits-for-servers" [1]
        "A list waits for servers that are still starting, so that a client that asks once does not take them for missing."
        unit("hub", "front::tests::servers::a_list_waits_for_servers_and_not_for_ever");
    "lists-of-the-last-run" [1]
        "What servers offered in the last run is listed before they have come up, so that a client that asks once does not take them for missing."
        end_to_end("gateway_memory::the_lists_of_the_last_run_are_there_before_the_servers");
    "lists-wait-for-no-disk" [8]
        "A disk that is stuck keeps no server from being listed."
        unit("hub", "gateway::memory::tests::a_stuck_disk_keeps_no_server_from_being_listed");
    "kept-lists-bounded" [3]
        "What a server offers is not kept on the disk where it is too much."
        unit("hub", "gateway::memory::tests::what_is_too_large_is_not_kept");
    "old-lists-removed" [5]
        "Lists of servers that nobody has used for a month are removed."
        unit("hub", "gateway::memory::tests::what_nobody_has_used_for_long_is_removed");
    "changed-server-is-asked-anew" [1]
        "A server that calls itself something else than in the last run is not taken for what it was at the next start."
        unit("hub", "gateway::memory::tests::a_server_that_has_changed_is_asked_anew_what_it_knows");
    "gateway-fences-off" [6]
        "A server behind the gateway that keeps failing is left alone for a while, and whoever asks it is told at once."
        end_to_end("gateway::l_56_a_server_that_keeps_failing_is_left_alone_for_a_while");
    "gateway-restart-delayed" [6]
        "A server behind the gateway is not started again at once, so that one that dies at each start does not fill the machine."
        end_to_end("gateway::promise_6_a_server_that_dies_in_a_call_costs_that_call_and_comes_back");
    "clash-gets-another-name" [8]
        "Of two tools that would have the same name the later gets another, so that no server is asked in the place of another."
        unit("hub", "route::names::tests::of_two_that_would_be_the_same_the_first_keeps_the_name");
    "what-is-denied-is-not-offered" [8]
        "A tool that the configuration does not allow is in no list, and a call of it never reaches the server."
        end_to_end("gateway_routing::a_tool_that_is_not_allowed_is_unknown_and_its_server_hears_nothing_of_it");
    "calls-of-a-tool-bounded" [8]
        "A tool that is to have so many calls at a time has no more, however many clients call it."
        unit("hub", "gateway::turns::tests::calls_of_a_tool_wait_for_their_turn_and_not_for_ever");
    "requests-of-a-server-bounded" [8]
        "A server has so many requests at a time and no more, of all clients together; the others wait for their turn."
        unit("hub", "gateway::turns::tests::a_server_has_so_many_requests_and_no_more");
    "requests-of-all-bounded" [8]
        "All servers together have so many requests at a time and no more."
        unit("hub", "gateway::turns::tests::all_servers_together_have_so_many_requests_and_no_more");
    "turns-are-fair" [8]
        "Whoever asks once is next, though another has asked five hundred times before."
        end_to_end("gateway_fair::promise_8_who_asks_once_is_next_though_another_asks_five_hundred_times");
    "flood-gives-way" [8]
        "A server that writes without a pause keeps nobody else from their turn."
        end_to_end("gateway_fair::promise_8_a_server_that_logs_without_an_end_keeps_no_other_from_its_turn");
    "flooding-client-gives-way" [8]
        "A client that writes without a pause keeps no other window from its turn."
        end_to_end("gateway_fair::promise_8_a_client_that_writes_without_an_end_keeps_no_other_window_from_its_turn");
    "silent-call-has-a-heartbeat" [1]
        "A client that wants to hear of progress is told that a silent server is waited for, so that one whose clock begins anew with it waits too."
        unit("hub", "front::tests::heartbeats::a_client_that_wants_to_hear_of_progress_hears_that_a_silent_server_is_waited_for_until_the_end");
    "off-is-without-heartbeats" [2]
        "Where nothing becomes a job nothing of ours is put between what a server says."
        unit("hub", "front::tests::heartbeats::where_nothing_becomes_a_job_or_a_server_is_to_be_quiet_there_is_no_heartbeat");
    "quiet-without-heartbeats" [2]
        "A server that is to be quiet while a call runs is not made up for by us."
        unit("hub", "front::tests::heartbeats::where_nothing_becomes_a_job_or_a_server_is_to_be_quiet_there_is_no_heartbeat");
    "progress-by-the-newest-token" [1]
        "A client that comes back to its call with an answer hears of progress under the token that it names then."
        unit("hub", "front::tests::questions::a_client_without_a_session_is_asked_by_the_answer_and_comes_back_to_its_call");
    "waiting-is-bounded" [3]
        "There are at most so many requests that wait for their turn; further ones are told when to ask again."
        unit("hub", "gateway::turns::tests::where_there_is_no_room_to_wait_it_is_said_when_there_will_be");
    "longest-line-gives-way" [8]
        "Whoever fills the room for those who wait does not keep others from waiting: whoever has the longest line gives way."
        unit("hub", "fair::tests::whoever_has_the_longest_line_gives_way");
    "who-left-waits-no-more" [8]
        "Whoever stops waiting for their turn takes up no room from then on."
        unit("hub", "gateway::places::tests::who_stops_waiting_takes_up_no_room_and_no_turn");
    "server-in-use-does-not-rest" [1]
        "A server is not stopped for being idle while somebody waits for its answer or wants to hear of its resources."
        end_to_end("gateway_routing::a_server_that_nobody_asks_anything_rests_until_it_is_asked_and_never_in_a_call");
    "resting-server-is-left-alone" [8]
        "A server that rests is not started to be listed."
        unit("hub", "gateway::rest::tests::who_keeps_its_lists_does_not_wake_it");
    "next-start-after-the-stop" [8]
        "A server that is being stopped has gone before the next one is started, which may need what the first still holds."
        end_to_end("gateway_routing::one_that_is_slow_to_stop_is_started_again_when_it_has_gone");
    "session-has-its-own-instance" [2]
        "Of a server that keeps state of one client each session has an instance of its own, and reaches no other."
        unit("hub", "gateway::visit::tests::each_session_has_its_own_and_all_have_the_others");
    "windows-see-what-all-share" [2]
        "A window that asks a leader finds nothing there that is one client's."
        unit("hub", "gateway::visit::tests::each_session_has_its_own_and_all_have_the_others");
    "instance-ends-with-its-session" [5]
        "An instance that one session has ends with that session."
        unit("hub", "gateway::visit::tests::an_instance_is_gone_when_its_session_is");
    "instance-is-started-by-its-session" [8]
        "An instance is started by whoever asks it something, and not to be listed."
        unit("hub", "gateway::visit::tests::who_keeps_its_lists_starts_no_instance");
    "instance-is-not-remembered" [2]
        "What one session makes of its instance is not what the next run begins with."
        end_to_end("gateway_sessions::what_one_session_makes_of_its_instance_no_other_sees");
    "instances-start-in-turn" [8]
        "However many sessions come at once, so many instances start at a time."
        unit("hub", "gateway::visit::tests::as_many_instances_start_at_once_as_servers_do");
    "instances-bounded" [3]
        "There are at most so many instances, however many sessions there are."
        unit("hub", "gateway::seats::tests::there_are_so_many_seats_and_each_is_given_back");
    "instances-of-one-bounded" [8]
        "A client with a token has half of all instances at most."
        unit("hub", "gateway::seats::tests::who_is_known_has_half_of_them_at_most");
    "listing-leaves-nothing-running" [5]
        "What was started to say what sessions will have is stopped when it has said it."
        end_to_end("gateway_sessions::an_instance_ends_with_its_session_and_nothing_of_it_is_left");
    "regulars-bounded" [3]
        "There are at most so many clients without a session for whom anything is kept."
        unit("hub", "front::http::regulars::tests::what_is_kept_is_there_for_as_long_as_a_session_may_be_silent");
    "nothing-is-known-of-strangers" [3]
        "Of a client without a session for whom nothing is kept nothing stays."
        unit("hub", "front::http::regulars::tests::what_is_kept_is_there_for_as_long_as_a_session_may_be_silent");
    "shared-uri-names-its-server" [8]
        "A URI that two servers list names its server, so that no server is asked in the place of another."
        unit("hub", "route::uris::tests::a_uri_stays_as_it_is_while_one_server_has_it");
    "uri-like-a-named-one-is-named" [8]
        "A URI that looks as if it named a server has its own server's name in front, so that it cannot be taken for that one's."
        unit("hub", "route::uris::tests::what_looks_as_if_it_named_a_server_is_named_too");
    "secrets-hidden" [2]
        "What was configured as a secret of a server, or looks like one, is in no log and in no `/status`, whatever the server prints."
        end_to_end("gateway_metrics::what_is_secret_is_in_no_log_and_no_status");
    "unknown-methods-are-one" [3]
        "Methods that there are none of are counted as one, so that no outsider makes the metrics grow."
        unit("hub", "front::http::tests::operators::no_outsider_makes_series_grow");
    "trace-of-the-client-kept" [2]
        "What is told of a request is in the trace that its client named."
        end_to_end("gateway_traces::a_request_is_told_in_its_clients_trace_and_the_servers_part_in_it");
    "telemetry-end-bounded" [5]
        "A collector that never answers keeps the program from its end for a second, and no longer."
        end_to_end("gateway_traces::a_collector_that_never_answers_delays_no_call_and_no_end");
    "status-waits-for-no-disk" [8]
        "Whoever asks how all is hears it without the jobs where the disk that knows of them is stuck."
        unit("hub", "front::http::tests::operators::a_stuck_disk_keeps_nobody_from_hearing_how_the_rest_is");
    "jobs-counted-once-at-a-time" [3]
        "However often it is asked how all is, one at a time waits for the disk that knows of jobs."
        unit("hub", "front::http::tests::operators::a_stuck_disk_keeps_nobody_from_hearing_how_the_rest_is");
    "handed-over-is-in-the-schema" [1]
        "A tool whose results have a schema is listed with that of a call that goes on as a job, so that no client refuses that."
        unit("hub", "front::offers::tests::who_can_ask_for_tasks_is_told_of_them_and_who_gets_them_is_told_nothing_else");
    "questions-end-with-their-task" [3]
        "What a server asked about a call that was a job is forgotten with it."
        unit("hub", "promoted::inputs::tests::a_question_is_answered_once_and_by_its_name");
    "tasks-followed-until-the-end" [3]
        "A task is followed for a subscription for no longer than that is there."
        unit("hub", "front::tests::handover::a_subscription_hears_of_its_tasks_until_it_is_over");
    "unwanted-task-is-cancelled" [5]
        "A task with which a server goes on is cancelled there when nobody waits for its call any more."
        end_to_end("slow_upstream::a_server_that_gives_out_tasks_is_of_use_to_clients_that_know_nothing_of_them");
    "client-of-task-bounded" [3]
        "What a client says of itself is kept with a task of its server as far as there is room; beyond that the task is asked for as ourselves."
        unit("hub", "gateway::lasting::tests::what_a_client_says_of_itself_is_kept_in_bounds");
    "forgotten-task-is-told" [7]
        "A task that its server does not know any more fails with words that say so, and not as if the call had been wrong."
        end_to_end("slow_restarts::a_task_that_its_server_has_forgotten_fails_with_the_reason");
    "left-task-goes-on" [7]
        "A task of a remote server is not cancelled there when unhang ends in order: the next one goes on with it."
        end_to_end("slow_restarts::a_task_of_a_server_is_taken_up_after_an_end_in_order");
    "task-is-asked-for-where-it-is" [7]
        "A task is taken up at the server that has it, and not at another one of the same name."
        end_to_end("slow_restarts::a_task_whose_server_is_nobodys_ends_when_its_time_is_over");
    "task-of-a-job-is-noted" [7]
        "The task with which a server goes on with a job is on the disk as soon as it is known."
        unit("hub", "promoted::tickets::tests::a_task_that_becomes_known_while_its_job_is_followed_is_noted");
    "task-outlives-a-clean-end" [7]
        "A job whose server goes on with it without unhang does not fail when unhang ends in order."
        unit("hub", "promoted::tickets::tests::a_task_that_becomes_known_while_its_job_is_followed_is_noted");
    "absent-server-is-given-time" [7]
        "A server that is not up yet when its task is taken up after a restart is asked again for minutes."
        unit("hub", "gateway::tasks::tests::a_server_that_is_away_when_its_task_is_taken_up_has_minutes_to_come_up");
};
