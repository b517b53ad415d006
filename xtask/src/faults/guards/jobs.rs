//! The guards of `jobs`.

use super::{SwitchedGuard, end_to_end, job, unit};

#[rustfmt::skip]
pub(super) const GUARDS: &[SwitchedGuard] = guards! {
    "job-id-alphabet" [7]
        "An id from outside is checked against the alphabet, so it names no other folder than a job's."
        unit("jobs", "id::tests::x_10_only_the_alphabet_and_the_length_make_an_id");
    "job-file-name-checked" [7]
        "The name of an input or a result is one plain part of a path and none of our own files."
        unit("jobs", "folder::tests::a_file_name_is_one_plain_part_of_a_path_and_none_of_ours");
    "state-field-checked" [7]
        "The name of a state field is checked before it becomes part of a path."
        unit("jobs", "document::tests::a_field_is_safe_as_a_part_of_a_path");
    "job-secrets-hidden" [7]
        "What looks like a secret in a command is not written into the job's record."
        unit("jobs", "launch::tests::what_looks_like_a_secret_is_not_shown");
    "orders-removed" [7]
        "The file with the command and its environment is removed when the work runs, so no secret is kept."
        job("life::the_orders_are_gone_as_soon_as_the_work_runs");
    "pages-cut-between-characters" [7]
        "A page of a log ends between two characters, so whoever reads on loses and repeats nothing."
        unit("jobs", "log::tests::pages_follow_one_another_without_gap_or_repetition");
    "log-limit" [3, 7]
        "A log over its limit loses its head, so no job can fill the disk."
        job("logs::a_gibibyte_at_full_speed_does_not_stay_on_the_disk_and_keeps_its_last_line");
    "newer-copy-kept" [7]
        "The record that is copied for people after a job was accepted does not replace that of a later state."
        unit("jobs", "folder::tests::a_file_that_is_there_is_left_alone_where_only_a_missing_one_is_wanted");
    "failed-submit-leaves-no-folder" [7]
        "A submission that fails leaves no folder, so nothing that was refused can be taken for a job."
        job("life::j_17_inputs_come_from_the_state_and_a_missing_one_is_an_error_and_no_job");
    "write-lock-first" [7]
        "A transaction takes the write lock before it reads, so nobody changes in between what it decides by."
        unit("jobs", "store::tests::a_transaction_that_reads_first_is_not_overtaken");
    "slots-are-counted" [8]
        "A job gets a slot only while fewer than the limit have one, counted over all processes."
        unit("jobs", "store::tests::slots_are_given_in_order_and_counted");
    "open-jobs-kept" [7]
        "A job that has not ended is never removed."
        unit("jobs", "store::tests::a_final_state_stays_as_it_is_and_an_open_job_cannot_be_removed");
    "young-folders-kept" [7]
        "A folder that no row knows yet is left alone until it is surely not a job that is being accepted."
        job("folder::an_unknown_folder_is_removed_when_it_is_old");
    "memory-gate" [8]
        "Nothing starts while the memory is nearly full."
        job("folder::j_136_without_room_a_job_is_refused_and_leaves_no_folder");
    "disk-gate" [8]
        "Nothing starts while the disk is nearly full."
        job("folder::j_136_without_room_a_job_is_refused_and_leaves_no_folder");
    "close-waits-for-the-round" [7]
        "An engine that is closed finishes what it is at, so that a job which was given a slot has a supervisor when its program ends."
        job("crashes::an_engine_that_is_closed_first_gives_a_shim_to_whatever_it_has_given_a_slot");
    "queue-waits-for-room" [7]
        "A shim that cannot start the next job for lack of room stays until it can, so a queue drains without a server."
        job("crashes::a_shim_that_cannot_hand_over_stays_until_there_is_room");
    "start-waits-for-room" [7]
        "A shim whose disk is full waits for room to write down that it has the job, before it starts the work."
        end_to_end("bad_disk::a_job_that_has_no_room_to_start_waits_for_it");
    "running-told-later" [7]
        "Where there is no room to write down that the work runs, it runs all the same, and that is written when there is."
        end_to_end("bad_disk::a_job_that_has_no_room_right_after_its_start_goes_on_and_tells_later");
    "end-waits-for-room" [7]
        "A shim whose disk is full waits for room to write down how its job ended, which nobody else knows."
        end_to_end("bad_disk::a_disk_that_fills_up_meanwhile_loses_no_job");
    "run-before-work" [7]
        "A shim writes down that it has the job before it starts the work, so what may have run is not started again."
        job("crashes::x_07_a_shim_that_dies_before_the_end_is_known_gives_lost_and_never_completed");
    "begun-before-a-reboot" [7]
        "A job that was given to a shim before a reboot is taken for begun, because what the shim wrote may have gone with the power."
        unit("jobs", "verdict::tests::what_was_given_out_before_a_reboot_may_have_run");
    "record-before-work" [7]
        "A job whose record was not copied when it was accepted gets its copy before the work starts, so a rebuild finds it."
        job("crashes::j_35_the_record_is_in_the_folder_before_the_work_starts");
    "work-started-once" [7]
        "A shim that finds that another one has had the job does not start the work."
        job("crashes::work_that_may_have_begun_is_not_begun_again");
    "job-timeout" [7]
        "A job that runs longer than it may is ended."
        job("life::a_job_that_takes_too_long_is_ended_with_everything_that_it_started");
    "results-checked" [7]
        "A job that ends with code 0 without the result that was agreed on has failed."
        job("life::a_result_that_is_missing_or_no_json_fails_the_job");
    "replaced-database-followed" [7]
        "A server goes on with the database that was put in the place of its own."
        job("folder::a_database_that_is_replaced_under_a_server_is_followed");
    "no-timer-for-a-look" [1]
        "A poll of a job that runs is answered at once, and not by a timer of no length."
        job("life::a_mere_look_at_a_job_waits_for_nothing");
    "unfinished-files-removed" [5, 7]
        "What a killed shim or server had begun to write of the job's own files is removed at its end."
        job("everywhere::x_07_a_shim_killed_anywhere_leaves_the_true_end_or_lost");
    "writers-in-turn" [8]
        "Servers on one data folder come to its database in the order in which they asked."
        unit("jobs", "store::tests::a_writer_waits_for_its_turn");
    "files-outlive-power" [7]
        "What an accepted job needs, and how it ended, is on the disk with its name before anybody is told."
        job("everywhere::j_12_a_job_outlives_a_power_failure_before_its_id_goes_out");
    "launch-files-kept" [7]
        "What a small job needs to start is in the database with its row, so that its folder need not be on the disk yet."
        job("everywhere::j_12_a_queued_job_whose_files_a_power_failure_has_taken_runs_as_it_was_accepted");
    "files-written-after-a-boot" [7]
        "What a power failure took of a queued job's folder is written anew before anything starts."
        job("everywhere::j_12_a_queued_job_whose_files_a_power_failure_has_taken_runs_as_it_was_accepted");
    "no-slot-before-the-files" [7]
        "In a new boot nothing starts before what a power failure may have taken has been written anew."
        unit("jobs", "store::tests::in_a_new_boot_no_job_gets_a_slot_before_the_files_were_looked_at");
    "launch-files-written-over" [4]
        "What a job needed to start, its environment with it, does not stay in the database when it has ended."
        unit("jobs", "store::tests::what_a_job_needed_to_start_is_written_over_at_its_end");
    "new-log-outlives-power" [7]
        "A database or a log of it that was just made has a name that lasts before anything is written to it."
        job("everywhere::j_12_a_job_outlives_a_power_failure_before_its_id_goes_out");
    "exit-written-once" [7]
        "What was written about the end of a job is not written over."
        unit("jobs", "store::tests::what_was_written_about_an_end_stays");
    "killed-shim-is-lost" [7]
        "A job whose shim was killed is lost and never taken for completed."
        unit("jobs", "verdict::tests::x_07_every_crash_point_is_decided");
    "survivors-of-a-shim-ended" [5, 7]
        "What a killed shim left behind is ended before its job is called lost."
        job("survivors::of_seven_ways_to_leave_something_behind_none_outlives_a_killed_shim");
    "survivors-of-this-boot-only" [5, 8]
        "After a restart of the machine nobody is ended for having a number that a shim had before."
        job("folder::after_a_reboot_nobody_is_taken_for_what_a_shim_left");
    "active-jobs-judged" [7]
        "Each job with a slot is looked at, so one whose shim has died does not hold it for ever."
        job("crashes::j_48_a_shim_that_dies_after_the_end_loses_nothing_and_repeats_nothing");
    "deaf-shim-killed" [7]
        "A shim that does not end its job in time is killed, so that a job can always be cancelled."
        job("life::a_job_whose_shim_is_deaf_can_be_cancelled");
    "patches-finished-first" [7]
        "A result that was about to reach the state gets there before anything later does."
        unit("jobs", "store::tests::j_48_a_patch_is_applied_once_and_before_what_was_set_later");
    "patch-applied-once" [7]
        "A result that has reached the state is not applied again, so it replaces nothing newer."
        unit("jobs", "store::tests::j_48_a_patch_is_applied_once_and_before_what_was_set_later");
    "calls-take-no-slot" [8]
        "A call that became a job keeps no command from a slot: its work is the server's, and runs already."
        job("calls::calls_take_no_slot");
    "call-let-go-is-settled" [7]
        "A call that became a job and that nobody here waits for any more, as after a panic, has failed, and says so."
        job("calls::a_call_that_is_let_go_of_has_failed");
    "orphaned-call-is-settled" [7]
        "A call whose process was killed has failed; nothing stays running for ever."
        job("calls::a_call_has_failed_when_the_process_that_waited_for_it_was_killed");
    "left-call-has-its-time" [7]
        "A call that nobody takes up although its server may have the answer fails when its time is over; nothing stays running for ever."
        job("tickets::a_call_that_nobody_takes_up_has_failed_when_its_time_is_over");
    "taken-up-call-lives" [7]
        "Whoever looked at a call before somebody else took it up does not settle it as failed."
        unit("jobs", "engine::tickets::tests::whoever_looked_before_a_call_was_taken_up_leaves_it_alone");
    "ticket-is-left-to-who-serves" [7]
        "A call whose server keeps the answer is not settled as failed by whoever does not serve that server."
        job("tickets::a_call_whose_server_keeps_the_answer_is_taken_up_by_one");
    "wish-in-the-folder-is-heard" [7]
        "Whoever holds a call hears that another process wants it to end."
        job("calls::whoever_holds_a_call_hears_that_it_is_to_end");
};
