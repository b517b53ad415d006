//! The guards of `wire`.

use super::{SwitchedGuard, unit};

#[rustfmt::skip]
pub(super) const GUARDS: &[SwitchedGuard] = guards! {
    "max-message" [3]
        "A line over the limit is skimmed as it passes and not kept, so no line can fill the memory."
        unit("wire", "lines::tests::a_line_of_200_megabytes_stays_below_70_mebibytes");
    "line-memory-given-back" [3]
        "The memory of a long line goes back once it has passed."
        unit("wire", "lines::tests::memory_goes_back_although_the_next_line_has_begun");
    "long-line-skimmed" [1]
        "The id of a line that is too long to be kept is read as it passes, so that its sender can be answered."
        unit("wire", "lines::tests::an_oversized_line_tells_its_id_and_method_wherever_they_stand");
    "byte-order-mark" [1, 2]
        "A byte order mark at the beginning is no part of the first message."
        unit("wire", "lines::tests::endings_blank_lines_and_the_byte_order_mark_are_removed");
    "carriage-return-before-line-feed" [2]
        "A line may end with carriage return and line feed, as it does from Windows."
        unit("wire", "lines::tests::endings_blank_lines_and_the_byte_order_mark_are_removed");
    "blank-lines" [2]
        "Lines of white space are skipped."
        unit("wire", "lines::tests::endings_blank_lines_and_the_byte_order_mark_are_removed");
    "one-line" [2]
        "Line breaks inside of a message, which are legal white space, are made blanks: to other readers they would end the line."
        unit("wire", "message::tests::a_message_with_line_breaks_between_its_members_is_put_on_one_line");
    "message-behind-text" [1, 2]
        "A message that log text without a line feed was glued to is recovered."
        unit("wire", "pieces::tests::messages_glued_together_and_to_text_are_recovered");
    "invalid-behind-text" [2]
        "What text quotes is not taken for a message of its own, unless it is a valid one."
        unit("wire", "pieces::tests::messages_glued_together_and_to_text_are_recovered");
    "batch-behind-text" [2]
        "An array behind text is a batch only if all of it is valid messages."
        unit("wire", "pieces::tests::nothing_is_recovered_from_inside_of_something");
    "message-in-open-brace" [2]
        "What stands inside of something with an open brace is a member of it, and no message."
        unit("wire", "pieces::tests::nothing_is_recovered_from_inside_of_something");
    "broken-object-takes-the-line" [2]
        "Behind an object that is broken or cut off nothing on the line is believed: it may be a part of it."
        unit("wire", "pieces::tests::broken_objects_take_the_rest_of_the_line_and_keep_their_id");
    "broken-array-takes-the-line" [2]
        "Behind an array that is broken nothing on the line is believed."
        unit("wire", "pieces::tests::nothing_is_recovered_from_inside_of_something");
    "id-of-broken-object" [1]
        "A request whose JSON is broken is answered with its id where that can be read."
        unit("wire", "pieces::tests::broken_objects_take_the_rest_of_the_line_and_keep_their_id");
    "log-record-is-no-message" [2]
        "A JSON object that is no JSON-RPC, such as a log record, is junk and is not answered."
        unit("wire", "pieces::tests::json_that_is_no_json_rpc_is_junk");
    "empty-batch" [1]
        "An empty batch is refused: nobody would ever answer it."
        unit("wire", "pieces::tests::batches");
    "max-batch" [3]
        "A batch of more than ten thousand elements is refused, each of which would cost memory."
        unit("wire", "pieces::tests::batches");
    "member-once" [2]
        "A message with a member twice is refused: two readers would read two messages."
        unit("wire", "pieces::tests::invalid_messages_keep_the_id_that_can_be_read");
    "json-rpc-version" [2]
        "A message without the version 2.0 does not pass."
        unit("wire", "pieces::tests::invalid_messages_keep_the_id_that_can_be_read");
    "method-or-outcome" [2]
        "What is a request and a response at once does not pass."
        unit("wire", "pieces::tests::invalid_messages_keep_the_id_that_can_be_read");
    "params-structured" [2]
        "Parameters that are neither an object nor an array do not pass."
        unit("wire", "pieces::tests::invalid_messages_keep_the_id_that_can_be_read");
    "one-outcome" [2]
        "A response with a result and an error does not pass."
        unit("wire", "pieces::tests::invalid_messages_keep_the_id_that_can_be_read");
    "error-shape" [2]
        "An error without an integer code and a text does not pass."
        unit("wire", "pieces::tests::invalid_messages_keep_the_id_that_can_be_read");
    "names-decoded" [2]
        "Names are compared decoded, as every reader behind us does, so that an escape hides no member."
        unit("wire", "pieces::tests::valid_messages");
    "id-of-doubt" [1]
        "An id that stands there twice is not used: the answer might be another request's."
        unit("wire", "pieces::tests::invalid_messages_keep_the_id_that_can_be_read");
    "id-bounded" [3]
        "An id of more than 1,024 bytes is none, so that what is remembered about a request stays small."
        unit("wire", "id::tests::an_id_is_bounded");
    "id-type" [1, 2]
        "Only strings and integers are ids."
        unit("wire", "id::tests::strings_and_integers_are_ids_and_nothing_else_is");
    "skim-bounded" [3]
        "The scanner of long lines keeps no long text."
        unit("wire", "envelope_scan::tests::what_is_no_id_is_none");
    "skim-stops-at-doubt" [1]
        "Once quotes stand where none may, the scanner believes nothing: strings and text may be the wrong way round."
        unit("wire", "envelope_scan::tests::of_broken_objects_only_what_is_certain_is_read");
    "skimmed-id-once" [1]
        "An id that the scanner meets twice is none."
        unit("wire", "envelope_scan::tests::what_is_no_id_is_none");
    "skimmed-id-whole" [1]
        "A number that is cut off is another number, and so no id."
        unit("wire", "envelope_scan::tests::of_broken_objects_only_what_is_certain_is_read");
    "id-in-flight-once" [1]
        "The same id is not put in flight twice, or one of both requests would never be answered."
        unit("wire", "in_flight::tests::an_id_in_flight_is_refused");
    "id-awaited-late" [1]
        "An id whose late answer may still come is not used again: that answer would be taken for the new one's."
        unit("wire", "in_flight::tests::an_id_whose_late_answer_may_come_is_refused_until_it_has_come");
    "late-answers-known" [1, 2]
        "The answer to a request that was cancelled or has expired is known as such when it comes."
        unit("wire", "in_flight::tests::what_is_due_expires_earliest_first_and_in_order");
    "late-answer-of-other-type" [2]
        "A late answer is known in the other type of id too."
        unit("wire", "in_flight::tests::a_late_answer_of_the_other_type_is_late_too");
    "late-ids-bounded" [3]
        "Ids of late answers are forgotten, oldest first, beyond a bound."
        unit("wire", "in_flight::tests::the_oldest_late_id_is_forgotten_first");
    "late-ids-end-with-the-server" [1, 6]
        "The late ids of a process that is gone are forgotten: from the next one no such answer can come."
        unit("wire", "in_flight::tests::all_are_taken_in_order_of_registration_and_late_ids_are_forgotten");
    "id-type-repaired" [1]
        "An answer with 1 for \"1\", or the other way round, reaches the request that it belongs to."
        unit("wire", "in_flight::tests::x_13_an_id_of_the_other_type_is_repaired_only_when_it_can_be_no_other");
    "deadline-ends-with-the-answer" [1]
        "The deadline of an answered request goes with it, and holds up no other's."
        unit("wire", "in_flight::tests::what_is_due_expires_earliest_first_and_in_order");
    "answered-in-order" [1]
        "Requests that end together are answered in the order in which they came."
        unit("wire", "in_flight::tests::all_are_taken_in_order_of_registration_and_late_ids_are_forgotten");
};
