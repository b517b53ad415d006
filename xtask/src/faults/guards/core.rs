//! The guards of `core`, in the order of its files.

use super::{SwitchedGuard, end_to_end, unit};

#[rustfmt::skip]
pub(super) const GUARDS: &[SwitchedGuard] = guards! {
    "any-line-is-life" [8]
        "Any line of the server starts the health clock anew, so a server that talks is never taken for hung."
        unit("core", "health::tests::any_sign_of_life_starts_anew");
    "busy-is-not-hung" [8]
        "An unanswered health check is no miss while the server's processes compute."
        unit("core", "health::tests::l_58_a_server_that_works_is_not_taken_for_a_hung_one");
    "ticking-is-not-busy" [6]
        "A hung server whose timers still tick uses too little processor time to count as busy."
        unit("core", "health::tests::l_58_a_hung_server_whose_timers_still_tick_is_hung");
    "busy-for-ever-is-hung" [6]
        "A server that computes and is deaf for longer than any call may take is replaced all the same."
        unit("core", "health::tests::a_server_that_spins_for_ever_is_hung_in_the_end");
    "misses-in-a-row" [8]
        "Work between two checks forgets earlier misses, so a server that works in bursts is left alone."
        unit("core", "health::tests::l_58_a_server_that_works_in_bursts_is_not_taken_for_a_hung_one");
    "one-miss-is-no-verdict" [8]
        "Only three unanswered checks in a row replace a server, not one slow answer."
        unit("core", "health::tests::three_misses_in_a_row_restart");
    "nothing-kept-for-the-gone" [3]
        "Nothing is kept for a peer that has gone, so nothing piles up behind it."
        unit("core", "queue::tests::a_failed_write_means_that_the_peer_has_gone");
    "no-overtaking" [2]
        "A message goes straight to the pipe only if nothing waits in front of it, so that none overtakes another."
        unit("core", "queue::tests::a_short_message_does_not_overtake_a_long_one");
    "rest-of-a-message-kept" [2]
        "The rest of a message that the pipe took in part is never shed, else the next one would be glued to half a line."
        unit("core", "queue::tests::the_rest_of_a_message_that_has_begun_to_leave_is_not_shed");
    "begun-message-kept" [2]
        "A waiting message of which some bytes have left is never shed, else the client would get half a line."
        unit("core", "queue::tests::what_has_begun_to_leave_is_not_shed");
    "failed-write-noticed" [5]
        "A failed write means that the peer has gone, and whoever owns the queue is told."
        unit("core", "queue::tests::a_failed_write_means_that_the_peer_has_gone");
    "logs-shed" [3]
        "Over its limit a queue drops log messages, so a flood of them fills no memory."
        unit("core", "queue::tests::x_01_under_pressure_logs_go_first_then_progress_then_list_changed");
    "answers-never-shed" [1, 3]
        "Responses and requests are never dropped, however full the queue is."
        unit("core", "queue::tests::a_response_is_never_dropped_and_fills_the_queue_instead");
    "repetitions-merged" [3]
        "Over its limit a queue keeps only the newest progress of each token."
        unit("core", "queue::tests::only_the_newest_progress_of_each_token_is_kept");
    "list-changed-merged" [3]
        "Over its limit a queue keeps one list-changed notification of a kind."
        unit("core", "queue::tests::list_changed_is_merged_to_one_of_a_kind");
    "empty-messages-count" [3]
        "Each waiting message counts for its bookkeeping too, so a million tiny ones are bounded as well."
        unit("core", "queue::tests::x_01_under_pressure_logs_go_first_then_progress_then_list_changed");
    "breaker-opens" [6]
        "A server that fails five times in a row is fenced off."
        unit("core", "breaker::tests::opens_after_the_fifth_failure_and_allows_one_trial");
    "breaker-cools-down" [6]
        "A fenced-off server is left alone until the cool-down is over."
        unit("core", "breaker::tests::opens_after_the_fifth_failure_and_allows_one_trial");
    "one-trial" [6]
        "After the cool-down one request tries the server, not all that wait."
        unit("core", "breaker::tests::opens_after_the_fifth_failure_and_allows_one_trial");
    "abandoned-trial-frees" [1, 6]
        "A trial that ends without a verdict lets the next request try, else the breaker would refuse for ever."
        unit("core", "breaker::tests::an_abandoned_trial_lets_the_next_request_try");
    "delay-doubles" [6]
        "The pause before a restart doubles with each failure."
        unit("core", "breaker::tests::pauses_double_to_a_ceiling_and_are_jittered_downwards");
    "delay-capped" [6]
        "The pause before a restart has a ceiling, so a server that is mended comes back soon."
        unit("core", "breaker::tests::pauses_double_to_a_ceiling_and_are_jittered_downwards");
    "delay-jittered" [6, 8]
        "Pauses differ between guards, so that many of them do not restart in step."
        unit("core", "breaker::tests::guards_that_lost_the_same_thing_do_not_restart_in_step");
    "new-session-is-blank" [6]
        "A new `initialize` ends the old session, so nothing of the old one is replayed."
        unit("core", "session::tests::a_new_initialize_ends_the_old_session");
    "subscriptions-bounded" [3]
        "Only so many subscriptions are kept for a replay."
        unit("core", "session::tests::subscriptions_are_bounded");
    "unsubscribed-is-forgotten" [6]
        "A subscription that the client has ended is not replayed."
        unit("core", "session::tests::a_session_is_replayed_in_order_with_fresh_ids");
    "level-replayed" [6]
        "A new process is told the log level that the client has set."
        unit("core", "session::tests::a_session_is_replayed_in_order_with_fresh_ids");
    "subscriptions-replayed" [6]
        "A new process is told the client's subscriptions."
        unit("core", "session::tests::a_session_is_replayed_in_order_with_fresh_ids");
    "initialized-said-once" [6]
        "A `notifications/initialized` that comes while the server is down is said by the replay and not a second time."
        unit("guard", "tests::restarts::the_end_of_the_handshake_is_said_once");
    "one-array" [1, 2]
        "A batch is answered by one array, when its last answer is there."
        unit("core", "batch::tests::answers_come_back_as_one_array_when_the_last_is_there");
    "no-empty-array" [2]
        "A batch whose requests were all withdrawn gets nothing, not a broken array."
        unit("core", "batch::tests::nothing_is_said_when_every_request_was_withdrawn");
    "said-clock-counts" [1]
        "What the configuration says of a client's clock goes before the table."
        unit("core", "clients::tests::what_is_said_goes_before_the_table");
    "clock-by-whole-name" [1]
        "A client's clock is found by its whole name, so no other client gets a deadline that is not its own."
        unit("core", "clients::tests::clocks_are_found_by_whole_name");
    "graces-fit-the-stop" [5]
        "A raised grace raises the limit of the whole stop too, so that SIGTERM still has its turn."
        unit("core", "limits::tests::x_05_the_limits_nest");
    "no-zero-limit" [1, 3]
        "A limit of zero is refused, since nothing could be answered or kept within it."
        unit("core", "units::tests::lengths_of_time_need_a_unit");
    "last-words-told" [1]
        "The error for a dead server's caller has the server's last line on stderr in its message."
        unit("core", "fault::tests::a_fault_is_one_line_with_all_that_is_known");
    "junk-line-cut" [3]
        "Of a stray line only the beginning is kept."
        unit("guard", "tests::bounds::what_is_kept_of_stray_output_is_bounded_and_readable");
    "junk-readable" [2]
        "Control characters of stray output reach neither a terminal nor an error."
        unit("guard", "tests::bounds::what_is_kept_of_stray_output_is_bounded_and_readable");
    "junk-bounded" [3]
        "Only the last stray lines are kept."
        unit("guard", "tests::bounds::what_is_kept_of_stray_output_is_bounded_and_readable");
    "before-the-clients-clock" [1]
        "A client with a known clock is answered before that clock runs out."
        unit("guard", "tests::talk::g_06_a_client_with_a_known_clock_hears_from_us_first");
    "promoted-before-the-clock" [1]
        "A call becomes a job before its client gives it up and before it is cut because of that, whatever was configured."
        unit("core", "promotion::tests::the_moment_comes_before_the_call_is_cut_by_the_clients_clock");
    "heartbeats-increase" [2]
        "A heartbeat is above all progress that went out for its call, as the protocol wants it."
        unit("core", "heartbeat::tests::it_beats_every_ten_seconds_that_the_server_is_silent_and_says_for_how_long_it_has_been_waited");
    "progress-increases-after-heartbeats" [2]
        "What a server tells of its progress is above the heartbeats that went out before it."
        unit("core", "heartbeat::tests::after_a_heartbeat_what_the_server_says_is_raised_where_it_is_not_above");
    "heartbeat-by-revision" [2]
        "A heartbeat has no words for a client of the revision in which progress has none."
        unit("core", "heartbeat::tests::a_client_of_the_first_revision_is_sent_no_message");
    "strange-id-echoed" [1]
        "An id that is no valid one but could be read comes back as it was."
        unit("guard", "tests::talk::promise_1_garbage_is_answered_here_and_never_forwarded");
    "flush-bounded" [5]
        "A client that does not read does not hold the end up."
        unit("guard", "run::tests::the_last_answers_are_not_waited_for_beyond_the_limit");
    "reading-renews-patience" [1, 2]
        "A client that reads its last answers slowly is given time for each piece, not for all of them."
        end_to_end("endings::a_client_that_reads_slowly_gets_its_last_answers_whole");
    "waiting-answers-delivered" [1]
        "Answers that wait when the guard ends are still delivered."
        unit("guard", "run::tests::the_last_answers_are_delivered");
    "idle-is-not-the-end" [1, 5]
        "Nothing to read at the moment is not the end of a stream."
        end_to_end("promise_3_drained::a_read_that_fills_the_room_is_not_the_end_of_the_stream");
    "stateless-revisions-alone" [1]
        "A request that names a revision with a handshake is told which revisions need none, and not served by other rules."
        unit("core", "revision::tests::a_revision_is_negotiated_as_every_revision_says");
    "turns-are-fair" [8]
        "Whoever asks once is next, though another has asked five hundred times before."
        end_to_end("gateway_fair::promise_8_who_asks_once_is_next_though_another_asks_five_hundred_times");
    "off-is-without-heartbeats" [2]
        "Where nothing becomes a job nothing of ours is put between what a server says."
        unit("front", "tests::heartbeats::where_nothing_becomes_a_job_or_a_server_is_to_be_quiet_there_is_no_heartbeat");
    "waiting-is-bounded" [3]
        "There are at most so many requests that wait for their turn; further ones are told when to ask again."
        unit("gateway", "admission_limits::tests::where_there_is_no_room_to_wait_it_is_said_when_there_will_be");
    "longest-line-gives-way" [8]
        "Whoever fills the room for those who wait does not keep others from waiting: whoever has the longest line gives way."
        unit("core", "fair::tests::whoever_has_the_longest_line_gives_way");
    "secrets-hidden" [2]
        "What was configured as a secret of a server, or looks like one, is in no log and in no `/status`, whatever the server prints."
        end_to_end("gateway_metrics::what_is_secret_is_in_no_log_and_no_status");
    "telemetry-end-bounded" [5]
        "A collector that never answers keeps the program from its end for a second, and no longer."
        end_to_end("gateway_traces::a_collector_that_never_answers_delays_no_call_and_no_end");
};
