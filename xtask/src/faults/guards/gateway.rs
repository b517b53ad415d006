//! The guards of `gateway`, in the order of its files.

use super::{SwitchedGuard, end_to_end, unit};

#[rustfmt::skip]
pub(super) const GUARDS: &[SwitchedGuard] = guards! {
    "one-call-where-questions-come" [8]
        "A server that asks things about its calls has those of one session at a time, so that each question comes to whoever made them."
        end_to_end("gateway_http::questions_come_on_the_stream_of_the_call_that_they_are_about");
    "answers-to-nothing-refused" [1]
        "A request that answers what its server has not asked is refused, not carried out once more."
        end_to_end("gateway_http::a_client_without_a_session_is_asked_by_its_answers");
    "unwatched-is-unsubscribed" [5]
        "A resource of which nobody wants to hear any more is unsubscribed from."
        end_to_end("gateway_http::a_change_of_a_resource_comes_to_whoever_wants_to_hear_of_it");
    "unchanged-server-goes-on" [8]
        "A server that a new configuration describes as before goes on as it is."
        unit("gateway", "roster::tests::what_stays_as_it_was_keeps_its_place_and_no_place_is_given_twice");
    "server-that-goes-answers-first" [1]
        "A server that is left out of a new configuration, or described otherwise, answers first what it was asked."
        unit("gateway", "roster::tests::what_a_server_that_goes_was_asked_it_may_still_answer");
    "unchanged-wakes-nobody" [8]
        "A server that tells of changes where there are none wakes no session."
        unit("gateway", "tests::what_has_not_changed_wakes_nobody");
    "nobody-keeps-a-server-by-silence" [8]
        "Who does not answer what a server asks keeps it from others for a tenth of a call's limit, and no longer."
        end_to_end("gateway_http::promise_8_who_does_not_come_back_with_an_answer_keeps_the_server_from_no_other");
    "wakefulness-ends" [8]
        "Messages that followed one another closely keep the gateway awake for as long as they do."
        unit("gateway", "busy_poll::tests::who_is_awake_sleeps_soon_after_the_last_message");
    "lists-of-the-last-run" [1]
        "What servers offered in the last run is listed before they have come up, so that a client that asks once does not take them for missing."
        end_to_end("gateway_memory::the_lists_of_the_last_run_are_there_before_the_servers");
    "lists-wait-for-no-disk" [8]
        "A disk that is stuck keeps no server from being listed."
        unit("gateway", "list_store::tests::a_stuck_disk_keeps_no_server_from_being_listed");
    "kept-lists-bounded" [3]
        "What a server offers is not kept on the disk where it is too much."
        unit("gateway", "list_store::tests::what_is_too_large_is_not_kept");
    "old-lists-removed" [5]
        "Lists of servers that nobody has used for a month are removed."
        unit("gateway", "list_store::tests::what_nobody_has_used_for_long_is_removed");
    "changed-server-is-asked-anew" [1]
        "A server that calls itself something else than in the last run is not taken for what it was at the next start."
        unit("gateway", "list_store::tests::a_server_that_has_changed_is_asked_anew_what_it_knows");
    "gateway-fences-off" [6]
        "A server behind the gateway that keeps failing is left alone for a while, and whoever asks it is told at once."
        end_to_end("gateway::l_56_a_server_that_keeps_failing_is_left_alone_for_a_while");
    "gateway-restart-delayed" [6]
        "A server behind the gateway is not started again at once, so that one that dies at each start does not fill the machine."
        end_to_end("gateway::promise_6_a_server_that_dies_in_a_call_costs_that_call_and_comes_back");
    "clash-gets-another-name" [8]
        "Of two tools that would have the same name the later gets another, so that no server is asked in the place of another."
        unit("gateway", "route::names::tests::of_two_that_would_be_the_same_the_first_keeps_the_name");
    "what-is-denied-is-not-offered" [8]
        "A tool that the configuration does not allow is in no list, and a call of it never reaches the server."
        end_to_end("gateway_routing::a_tool_that_is_not_allowed_is_unknown_and_its_server_hears_nothing_of_it");
    "calls-of-a-tool-bounded" [8]
        "A tool that is to have so many calls at a time has no more, however many clients call it."
        unit("gateway", "admission_limits::tests::calls_of_a_tool_wait_for_their_turn_and_not_for_ever");
    "requests-of-a-server-bounded" [8]
        "A server has so many requests at a time and no more, of all clients together; the others wait for their turn."
        unit("gateway", "admission_limits::tests::a_server_has_so_many_requests_and_no_more");
    "requests-of-all-bounded" [8]
        "All servers together have so many requests at a time and no more."
        unit("gateway", "admission_limits::tests::all_servers_together_have_so_many_requests_and_no_more");
    "quiet-without-heartbeats" [2]
        "A server that is to be quiet while a call runs is not made up for by us."
        unit("front", "tests::heartbeats::where_nothing_becomes_a_job_or_a_server_is_to_be_quiet_there_is_no_heartbeat");
    "who-left-waits-no-more" [8]
        "Whoever stops waiting for their turn takes up no room from then on."
        unit("gateway", "permits::tests::who_stops_waiting_takes_up_no_room_and_no_turn");
    "server-in-use-does-not-rest" [1]
        "A server is not stopped for being idle while somebody waits for its answer or wants to hear of its resources."
        end_to_end("gateway_routing::a_server_that_nobody_asks_anything_rests_until_it_is_asked_and_never_in_a_call");
    "resting-server-is-left-alone" [8]
        "A server that rests is not started to be listed."
        unit("gateway", "idle::tests::who_keeps_its_lists_does_not_wake_it");
    "next-start-after-the-stop" [8]
        "A server that is being stopped has gone before the next one is started, which may need what the first still holds."
        end_to_end("gateway_routing::one_that_is_slow_to_stop_is_started_again_when_it_has_gone");
    "session-has-its-own-instance" [2]
        "Of a server that keeps state of one client each session has an instance of its own, and reaches no other."
        unit("gateway", "session_servers::tests::each_session_has_its_own_and_all_have_the_others");
    "windows-see-what-all-share" [2]
        "A window that asks a leader finds nothing there that is one client's."
        unit("gateway", "session_servers::tests::each_session_has_its_own_and_all_have_the_others");
    "instance-ends-with-its-session" [5]
        "An instance that one session has ends with that session."
        unit("gateway", "session_servers::tests::an_instance_is_gone_when_its_session_is");
    "instance-is-started-by-its-session" [8]
        "An instance is started by whoever asks it something, and not to be listed."
        unit("gateway", "session_servers::tests::who_keeps_its_lists_starts_no_instance");
    "instance-is-not-remembered" [2]
        "What one session makes of its instance is not what the next run begins with."
        end_to_end("gateway_sessions::what_one_session_makes_of_its_instance_no_other_sees");
    "instances-start-in-turn" [8]
        "However many sessions come at once, so many instances start at a time."
        unit("gateway", "session_servers::tests::as_many_instances_start_at_once_as_servers_do");
    "instances-bounded" [3]
        "There are at most so many instances, however many sessions there are."
        unit("gateway", "instance_limit::tests::there_are_so_many_seats_and_each_is_given_back");
    "instances-of-one-bounded" [8]
        "A client with a token has half of all instances at most."
        unit("gateway", "instance_limit::tests::who_is_known_has_half_of_them_at_most");
    "listing-leaves-nothing-running" [5]
        "What was started to say what sessions will have is stopped when it has said it."
        end_to_end("gateway_sessions::an_instance_ends_with_its_session_and_nothing_of_it_is_left");
    "shared-uri-names-its-server" [8]
        "A URI that two servers list names its server, so that no server is asked in the place of another."
        unit("gateway", "route::uris::tests::a_uri_stays_as_it_is_while_one_server_has_it");
    "uri-like-a-named-one-is-named" [8]
        "A URI that looks as if it named a server has its own server's name in front, so that it cannot be taken for that one's."
        unit("gateway", "route::uris::tests::what_looks_as_if_it_named_a_server_is_named_too");
    "unwanted-task-is-cancelled" [5]
        "A task with which a server goes on is cancelled there when nobody waits for its call any more."
        end_to_end("slow_upstream::a_server_that_gives_out_tasks_is_of_use_to_clients_that_know_nothing_of_them");
    "client-of-task-bounded" [3]
        "What a client says of itself is kept with a task of its server as far as there is room; beyond that the task is asked for as ourselves."
        unit("gateway", "server_task::tests::what_a_client_says_of_itself_is_kept_in_bounds");
    "forgotten-task-is-told" [7]
        "A task that its server does not know any more fails with words that say so, and not as if the call had been wrong."
        end_to_end("slow_restarts::a_task_that_its_server_has_forgotten_fails_with_the_reason");
    "left-task-goes-on" [7]
        "A task of a remote server is not cancelled there when unhang ends in order: the next one goes on with it."
        end_to_end("slow_restarts::a_task_of_a_server_is_taken_up_after_an_end_in_order");
    "task-is-asked-for-where-it-is" [7]
        "A task is taken up at the server that has it, and not at another one of the same name."
        end_to_end("slow_restarts::a_task_whose_server_is_nobodys_ends_when_its_time_is_over");
    "absent-server-is-given-time" [7]
        "A server that is not up yet when its task is taken up after a restart is asked again for minutes."
        unit("gateway", "tasks::tests::a_server_that_is_away_when_its_task_is_taken_up_has_minutes_to_come_up");
};
