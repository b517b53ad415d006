//! The guards of `proc`.

use super::{SwitchedGuard, end_to_end, process, unit};

#[rustfmt::skip]
pub(super) const GUARDS: &[SwitchedGuard] = guards! {
    "null-streams" [4]
        "A process gets the null device for each stream that its caller did not name, so the protocol is never inherited by accident."
        process("server::g_11_a_process_gets_the_null_device_unless_told_otherwise");
    "lifeline-own-session" [5, 8]
        "A lifeline has a session of its own, so no signal of the terminal reaches it or its server past the guard."
        end_to_end("promise_5_nothing_left_behind::the_terminals_signals_do_not_reach_the_server");
    "server-own-group" [5]
        "A server leads a process group of its own, so SIGTERM reaches all of it and nobody else."
        process("server::l_50_a_server_that_minds_only_sigterm_gets_it");
    "signals-reset" [5]
        "A server starts with every signal at its default, also where we inherited ignored ones, so it can be stopped politely."
        process("server::signals_ignored_by_the_owner_are_not_ignored_by_the_server");
    "exit-kept" [5]
        "How a process ended is asked for once and kept, because a second question would be about nobody, or about another process."
        process("server::g_11_a_process_gets_the_null_device_unless_told_otherwise");
    "no-signal-to-the-reaped" [8]
        "A process that was reaped is not signalled, because its number may be another process by then."
        unit("proc", "spawn::tests::what_was_reaped_is_not_signalled");
    "departed-reaped" [5]
        "A process whose handle was dropped is reaped later, so no zombie stays for as long as we run."
        unit("proc", "spawn::tests::a_process_whose_handle_was_dropped_is_reaped_when_it_ends");
    "no-folder-as-program" [1]
        "A folder that has the name of a program is not taken for one, so the error names what was found."
        unit("proc", "lookup::tests::a_file_that_may_not_be_executed_is_named_as_such");
    "refused-file-named" [1]
        "A file that is there and may not be executed is named, where a plain search would say that nothing was found."
        unit("proc", "lookup::tests::a_file_that_may_not_be_executed_is_named_as_such");
    "folder-checked" [1]
        "A working folder that cannot be used is named before anything is started."
        process("server::a_missing_folder_and_a_missing_lifeline_are_named");
    "stdin-taken" [4]
        "Our own stdin becomes the null device, so no child can eat a request of the client."
        end_to_end("promise_4_isolated::g_22_the_guards_own_stdin_and_stdout_are_the_null_device");
    "stdout-taken" [2, 4]
        "Our own stdout becomes the null device, so no stray print reaches the wire."
        process("server::g_07_taken_streams_are_out_of_reach_of_prints_and_children");
    "taken-streams-not-inherited" [4]
        "The duplicate of the client's stream is closed in every child, so none can write to it under another number."
        process("server::g_07_taken_streams_are_out_of_reach_of_prints_and_children");
    "inherited-flags-kept" [4]
        "A descriptor that the client shares is never made non-blocking, because its own writes would begin to fail."
        unit("proc", "pipe::tests::an_inherited_pipe_keeps_its_flags_and_its_bytes");
    "own-ends-never-wait" [1, 3]
        "Our ends of a server's pipes are non-blocking, so a full or an empty pipe cannot stop the guard."
        unit("proc", "pipe::tests::our_ends_never_wait_and_the_servers_ends_do");
    "sockets-never-wait" [1, 3]
        "Each call on an inherited socket asks not to wait, so a client that does not read cannot stop the guard."
        unit("proc", "pipe::tests::a_socket_is_never_waited_for");
    "pump-ends-with-its-reader" [5]
        "A pump looks at its output while it has nothing to move, so the end of the client is noticed without a write."
        unit("proc", "pipe::tests::the_end_of_a_pumps_reader_is_noticed_without_a_write");
    "pump-waits-for-room" [1]
        "A pump waits where somebody else has made its output non-blocking, so that no answer is lost half-way."
        unit("proc", "pipe::tests::a_pump_waits_for_room_where_the_output_does_not");
    "last-answers-flushed" [1]
        "The end waits for what a pump has still to write, so the last answers are not lost."
        unit("proc", "pipe::tests::an_output_that_takes_nothing_is_waited_for_until_the_deadline");
    "flush-deadline" [3, 5]
        "The wait for an output that takes nothing has a deadline, so it cannot hold up the end."
        unit("proc", "pipe::tests::an_output_that_takes_nothing_is_waited_for_until_the_deadline");
    "drain-deadline" [1, 5]
        "The wait for the end of stderr has a deadline, because a stranger may hold the pipe for ever."
        unit("proc", "drain::tests::a_pipe_that_a_stranger_holds_is_waited_for_until_the_deadline");
    "drain-given-up" [3]
        "A drain that was waited for in vain is told to end, so that no thread and no pipe stay for each restart."
        unit("proc", "drain::tests::a_pipe_that_a_stranger_holds_is_given_up_and_closed");
    "drain-reads-what-is-there" [1]
        "A drain that is given up still reads what was written before, so that the last words of a server are told on a busy machine too."
        unit("proc", "drain::tests::what_was_written_before_the_end_is_read_although_the_drain_is_late");
    "drain-stops" [3]
        "The drain's thread listens for the word to end beside the pipe, which may never say anything again."
        unit("proc", "drain::tests::l_40_a_dropped_drain_ends_its_thread");
    "line-in-pieces" [3]
        "A line of stderr that does not end is handed on in pieces, so that it cannot fill the memory."
        unit("proc", "drain::tests::any_split_of_the_bytes_gives_the_same_lines");
    "last-line-without-end" [1]
        "What a dying server wrote without a line ending is handed on too; it is often the reason."
        unit("proc", "drain::tests::any_split_of_the_bytes_gives_the_same_lines");
    "tail-bounded" [3]
        "The tail forgets the oldest bytes of stderr, so a talkative server cannot fill the memory."
        unit("proc", "drain::tests::the_tail_keeps_the_newest_bytes");
    "tail-printable" [2]
        "Control characters of stderr are left out of errors, so no escape sequence reaches a client or a terminal."
        unit("proc", "drain::tests::the_tail_is_fit_to_be_shown");
    "lossy-bounded" [3]
        "What an unread sink has no room for is dropped, so neither memory nor the caller suffers."
        unit("proc", "lossy::tests::a_stuck_sink_delays_nobody_and_the_loss_is_told");
    "lossy-counts-what-is-in-hand" [3]
        "The bytes that the thread is writing count as waiting, so that the bound holds for all of them."
        unit("proc", "lossy::tests::a_stuck_sink_delays_nobody_and_the_loss_is_told");
    "loss-told" [2, 3]
        "Where something was dropped, the reader is told how much."
        unit("proc", "lossy::tests::a_stuck_sink_delays_nobody_and_the_loss_is_told");
    "waits-for-room" [3]
        "A patient caller waits for room before it drops, so a reader that is only slow loses nothing."
        unit("proc", "lossy::tests::patience_is_spent_once_on_a_stuck_sink");
    "patience-once" [3]
        "A stuck sink costs a patient caller one wait and not one for each line."
        unit("proc", "lossy::tests::patience_is_spent_once_on_a_stuck_sink");
    "patience-ends" [3, 5]
        "Every wait for a sink ends, whether or not somebody reads."
        unit("proc", "lossy::tests::a_wait_for_a_stuck_sink_has_an_end");
    "no-wait-for-the-impossible" [3]
        "A piece that can never have room is not waited for, and does not use up the patience of others."
        unit("proc", "lossy::tests::patience_is_spent_once_on_a_stuck_sink");
    "broken-sink-left" [3]
        "After an error of the sink the thread ends, and what comes then is counted as lost."
        unit("proc", "lossy::tests::a_broken_sink_drops_and_counts");
    "lossy-writes-the-rest" [3]
        "What waits when the last handle is dropped is still written."
        unit("proc", "lossy::tests::the_thread_writes_the_rest_and_ends_with_the_last_handle");
    "lossy-thread-ends" [5]
        "The last handle ends the thread, so that no thread stays for each restart."
        unit("proc", "lossy::tests::the_thread_writes_the_rest_and_ends_with_the_last_handle");
    "log-rotated" [3]
        "A log that has grown to half its cap is put aside in place of the one before, so the disk does not fill."
        unit("proc", "log_file::tests::the_cap_holds_and_the_newest_half_is_there");
    "log-taken-up" [3]
        "What a log holds when it is opened again counts, so that restarts do not let it grow over its cap."
        unit("proc", "log_file::tests::the_cap_holds_for_a_log_that_is_opened_again");
    "log-write-cut" [3]
        "What is longer than half the cap is written in pieces, so that one line cannot exceed it."
        unit("proc", "log_file::tests::the_cap_holds_and_the_newest_half_is_there");
    "log-name-sanitised" [2]
        "A server's name becomes one part of a path, so its log never leaves the folder of the logs."
        unit("proc", "log_file::tests::a_name_loses_what_a_path_is_made_of");
    "log-is-a-file" [3]
        "What is no file is no log: a device cannot be put aside for another, and a pipe may be read by nobody."
        unit("proc", "log_file::tests::what_is_no_file_is_no_log");
    "log-follows-no-link" [2]
        "A link in the place of a log is not followed, so what was filtered is not written into a file of somebody else."
        unit("proc", "log_file::tests::a_link_in_the_place_of_a_log_is_not_followed");
    "prune-own-name" [2]
        "Only logs of exactly this name are pruned, so one server's logs are not taken for another's."
        unit("proc", "log_file::tests::only_old_logs_of_this_very_name_are_pruned");
    "prune-spares-living" [2]
        "The log of a process that lives is not pruned."
        unit("proc", "log_file::tests::only_old_logs_of_this_very_name_are_pruned");
    "stdin-closed-first" [5]
        "A stop begins with the end of stdin, at which a polite server leaves by itself with its own exit code."
        process("server::a_polite_server_ends_when_its_stdin_does");
    "sigterm-first" [5]
        "A server that stays is sent SIGTERM before SIGKILL."
        process("server::l_50_a_server_that_minds_only_sigterm_gets_it");
    "sigkill-at-last" [5]
        "A server that minds nothing is killed after the second grace."
        unit("proc", "ladder::tests::x_12_the_rungs_come_in_order_and_within_the_limit");
    "lifeline-given-up" [1, 5]
        "A lifeline that does not answer is given up in time, and its owner ends the tree by itself."
        unit("proc", "ladder::tests::x_12_the_rungs_come_in_order_and_within_the_limit");
    "grace-within-limit" [5]
        "A long grace is cut, so that the whole stop stays within its limit."
        unit("proc", "ladder::tests::a_long_grace_is_cut_so_that_the_limit_holds");
    "force-has-its-share" [5]
        "A tenth of the limit is left for the force of the last rung."
        unit("proc", "ladder::tests::x_12_the_rungs_come_in_order_and_within_the_limit");
    "owner-wakes-for-the-ladder" [5]
        "The owner of a server that is to stop wakes for each rung of the ladder, also where nothing happens."
        unit("proc", "server::supervision::tests::a_stop_says_when_to_look_again");
    "stop-begins-once" [5]
        "A second wish to stop does not start the graces again."
        unit("proc", "ladder::tests::a_second_begin_changes_nothing");
    "kill-once" [5]
        "A second kill does not put off the end."
        unit("proc", "ladder::tests::kill_skips_the_graces_and_is_sent_once");
    "report-deadline" [1, 5]
        "The report of the sweep after a server's end has a deadline too, or a restart could wait for ever."
        unit("proc", "ladder::tests::the_report_of_a_server_that_ended_by_itself_has_a_limit_too");
    "stop-without-owner" [5]
        "A lifeline whose owner has gone stops the server by itself."
        process("containment::a_dropped_server_is_ended_by_its_lifeline");
    "lifeline-waits-for-all-at-once" [5]
        "A lifeline waits for owner, server and signals together and for none of them alone."
        process("server::exit_codes_and_signals_are_kept");
    "lifeline-wakes-for-its-ladder" [5]
        "A lifeline without an owner wakes for each rung of its ladder, also where nothing happens."
        process("containment::a_dropped_server_is_ended_by_its_lifeline");
    "server-dies-with-lifeline" [5]
        "The kernel kills a server whose lifeline is killed, also when the owner can do nothing."
        process("lifeline::a_server_dies_with_its_lifeline_though_its_owner_does_nothing");
    "parent-still-there" [5]
        "A server whose lifeline was killed before it could ask for that does not start."
        unit("proc", "linux::tests::a_process_whose_parent_has_gone_before_does_not_start");
    "subreaper" [5]
        "Orphans of a server come to its lifeline, so daemons are found."
        process("lifeline::nobody_lives_when_the_tree_is_said_to_have_gone");
    "sweep-at-the-end" [5]
        "When the server has ended, what is left of its tree is killed before the end is told."
        process("lifeline::nobody_lives_when_the_tree_is_said_to_have_gone");
    "sweep-has-a-limit" [5]
        "A lifeline that cannot end its tree ends itself in time, and the kernel kills the server."
        process("lifeline::a_sweep_that_cannot_succeed_ends_in_time");
    "kill-at-once" [5]
        "A kill is done by the lifeline at once, without any grace."
        process("lifeline::a_kill_is_done_by_the_lifeline_at_once");
    "lifeline-outlives-signals" [5]
        "SIGTERM, SIGINT and SIGHUP to a lifeline start a stop with graces and do not end it."
        process("lifeline::a_terminated_lifeline_gives_its_server_time_to_end");
    "lifeline-holds-no-pipe" [1, 5]
        "A lifeline lets go of the server's pipes before it says that the server runs, so end-of-file works in both directions."
        process("lifeline::when_a_server_is_said_to_run_its_lifeline_holds_nothing_of_it");
    "lifeline-holds-no-stranger" [4, 5]
        "A lifeline closes what whoever started us left open, so that only the server can keep it."
        process("lifeline::what_all_our_children_inherit_is_held_by_the_server_and_not_by_its_lifeline");
    "lifeline-leaves-folder" [5]
        "A lifeline does not stand in the server's folder, which may be removed or unmounted."
        process("lifeline::when_a_server_is_said_to_run_its_lifeline_holds_nothing_of_it");
    "lifeline-name" [5]
        "A lifeline has another name than the program, so that a kill by name spares it."
        process("lifeline::when_a_server_is_said_to_run_its_lifeline_holds_nothing_of_it");
    "link-not-inherited" [4, 5]
        "The link to the owner is closed in the server, whose daemons would keep its end from being noticed."
        process("lifeline::a_server_does_not_get_the_link_between_lifeline_and_owner");
    "sweep-stops-first" [5]
        "A sweep stops what it sees before it looks again, so that a tree which forks all the time stands still."
        unit("proc", "sweep::tests::what_was_seen_stands_still_at_the_next_look");
    "sweep-looks-again" [5]
        "A sweep looks until nothing new appears, so that what was born meanwhile is killed too."
        unit("proc", "sweep::tests::what_is_born_during_a_look_falls_in_the_same_round");
    "descendants-in-any-order" [5]
        "Descendants are found also where a child has a lower number than its parent."
        unit("proc", "table::tests::descendants_are_found_in_any_order_of_numbers_and_without_their_root");
    "start-time-compared" [8]
        "A process is signalled only if its start time is the one that was seen, so no stranger with its number is killed."
        unit("proc", "linux::tests::j_pid_reuse_a_process_with_another_start_time_is_left_alone");
    "identity-by-start-time" [8]
        "A process that was written down is known by number and start time, so one that has its number by now is neither taken for it nor signalled."
        unit("proc", "identity::tests::j_pid_reuse_another_start_time_is_another_process");
    "the-ended-are-not-alive" [7]
        "A process that has ended and was not reaped yet does not count as alive."
        unit("proc", "identity::tests::who_has_ended_is_not_alive_and_who_was_reaped_has_gone");
    "lock-of-one-opening" [7]
        "A lock belongs to one opening of its file, so a second opening in the same process is refused and its end gives nothing free."
        unit("proc", "lock::tests::a_second_opening_is_refused_until_the_first_is_closed");
    "lock-only-asked-for" [7]
        "Whether a lock is held is asked without taking it, so a look never makes a process fail that is just starting."
        unit("proc", "lock::tests::a_look_never_makes_a_start_fail");
    "lock-not-inherited" [7]
        "A lock is not inherited by what its holder starts, so no grandchild keeps a dead process alive."
        process("lock::a_killed_holder_lets_go_though_its_child_lives");
    "lock-follows-no-link" [2]
        "A link in the place of a lock is not followed, so no file of somebody else is made or opened."
        unit("proc", "lock::tests::a_link_in_the_place_of_the_lock_is_not_followed");
    "lock-opened-without-waiting" [1]
        "A lock is opened without waiting, so a named pipe in its place hangs nobody."
        unit("proc", "lock::tests::a_named_pipe_in_the_place_of_the_lock_is_not_waited_for");
    "name-may-hold-brackets" [5]
        "A process cannot hide from a sweep by a name with a bracket."
        unit("proc", "linux::tests::a_name_with_brackets_and_spaces_does_not_shift_the_fields");
    "foreign-groups-kept" [8]
        "Only control groups with our prefix are taken for ours."
        unit("proc", "linux::control_group::tests::only_our_own_names_are_taken_for_ours");
    "living-groups-kept" [8]
        "Of our control groups only those whose lifeline is dead are removed, because a living one may be about to fill its own."
        unit("proc", "linux::control_group::tests::only_what_the_dead_left_is_removed");
    "rescue-without-lifeline" [5, 6]
        "The owner ends the tree of a lifeline that was killed."
        unit("proc", "server::supervision::tests::a_lifeline_that_is_lost_is_stood_in_for");
    "orphans-adopted" [5]
        "What a killed lifeline leaves comes to its owner, so daemons are found without it."
        process("containment::what_a_killed_lifeline_leaves_comes_to_its_owner");
    "orphans-reaped" [5]
        "What came to the owner and has ended is reaped, so no zombie stays for each killed lifeline."
        unit("proc", "rescue::tests::an_orphan_that_has_ended_is_reaped");
    "session-swept" [5]
        "Without a lifeline everything in its session is ended, also where orphans do not come to us."
        process("lifeline::without_a_lifeline_its_session_is_swept_and_the_end_is_told_once");
    "own-children-spared" [8]
        "A rescue of one server leaves what we started ourselves alone, such as the lifeline of another."
        unit("proc", "rescue::tests::what_we_started_ourselves_is_no_orphan");
    "rescue-has-a-limit" [1, 5]
        "A rescue that does not succeed ends in time, so the end is always told."
        unit("proc", "server::supervision::tests::a_rescue_that_cannot_succeed_ends_in_time");
    "goodbye-has-a-limit" [1, 5]
        "A lifeline that has said goodbye and stays is ended."
        unit("proc", "server::supervision::tests::a_lifeline_that_says_goodbye_and_stays_is_ended");
    "link-never-waited-for" [1, 8]
        "A lifeline that says nothing is not waited for, because all calls of the client would wait with us."
        unit("proc", "server::supervision::tests::a_lifeline_that_says_nothing_is_not_waited_for");
    "report-bounded" [3]
        "A report that does not end is cut, so that it cannot fill the memory."
        unit("proc", "server::supervision::tests::a_report_without_end_is_cut");
    "exit-always-told" [1, 6]
        "The end of a server is told also where nobody can say how it ended."
        process("lifeline::without_a_lifeline_its_session_is_swept_and_the_end_is_told_once");
    "one-exit-told" [6]
        "The end of a server is told once, so that it is restarted once."
        process("server::events_survive_being_waited_for_in_slices");
    "no-failure-after-start" [6]
        "A server that ran is never said to have failed to start."
        process("lifeline::without_a_lifeline_its_session_is_swept_and_the_end_is_told_once");
    "survivors-by-session" [5]
        "What a killed shim leaves in its session is ended, whatever environment it has."
        process("survivors::a_session_mate_without_the_cookie_is_ended");
    "survivors-by-cookie" [5]
        "What a killed shim leaves in another session is known by the variable that it was started with."
        process("survivors::who_left_the_session_is_ended");
    "survivors-with-descendants" [5]
        "What comes of a survivor is ended with it, whatever session and environment it has."
        unit("proc", "survivors::tests::everything_is_found_by_group_session_or_cookie_and_with_its_descendants");
    "survivors-of-that-session" [8]
        "A session whose number was given out again is not taken for that of a dead shim."
        unit("proc", "survivors::tests::j_pid_reuse_a_session_whose_number_was_given_out_again_is_another");
    "survivors-younger-than-the-shim" [8]
        "Who is older than a shim was not started by it and is left alone."
        unit("proc", "survivors::tests::who_is_older_than_the_shim_was_not_started_by_it");
    "survivors-not-our-ancestors" [8]
        "Whoever started us is never taken for what a shim left."
        unit("proc", "survivors::tests::who_started_us_is_never_found");
    "survivors-not-the-spared" [8]
        "A process that is to be spared is neither ended nor walked through."
        unit("proc", "survivors::tests::who_is_spared_is_not_found_and_not_walked_through");
    "survivors-by-the-whole-cookie" [8]
        "A cookie is one whole variable, so a job whose name begins like another one's is left alone."
        unit("proc", "survivors::tests::a_cookie_is_one_whole_variable");
    "survivors-by-a-real-cookie" [8]
        "What is no cookie finds nobody, where the empty one would find everybody."
        unit("proc", "survivors::tests::what_is_no_cookie_finds_nobody");
    "survivors-of-that-group" [8]
        "A control group is killed only if its name is that of the shim in question, whatever path was written down."
        unit("proc", "linux::control_group::tests::a_group_is_known_by_its_maker");
    "survivors-of-a-real-group" [8]
        "A folder that only looks like a control group is not asked who is to be killed."
        unit("proc", "linux::control_group::tests::a_folder_that_only_looks_like_a_group_is_none");
    "memory-of-the-group" [8]
        "The memory that we may have is that of the narrowest control group around us, which may be far less than the machine's."
        unit("proc", "pressure::tests::the_fullest_group_counts");
    "cache-is-not-in-use" [8]
        "What the kernel only keeps for later does not count as used memory, so that much reading and writing holds nothing up."
        unit("proc", "pressure::tests::the_cache_of_a_group_is_not_in_use");
    "ended-count-as-busy" [8]
        "The processor time of helpers that have ended counts, so a server that works by them is not taken for hung."
        process("lifeline::the_time_of_helpers_that_have_ended_counts");
    "holders-above-told" [7]
        "Who holds everything below itself is told, so nobody counts on a job that ends with it."
        unit("proc", "surroundings::tests::a_guard_above_us_is_told");
    "unit-told" [7]
        "The service manager that ends what was started in a service is told, so nobody counts on a job that ends with it."
        unit("proc", "surroundings::tests::a_service_is_told_and_a_login_is_not");
};
