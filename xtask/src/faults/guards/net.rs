//! The guards of `net`, in the order of its files.

use super::{Guard, end_to_end};

#[rustfmt::skip]
pub(super) const GUARDS: &[Guard] = guards! {
    "redirect-stays-at-home" [2]
        "A redirect to another origin is not followed, so that what is for one server goes to no other."
        end_to_end("remote_faults::redirects_lead_to_no_other_origin_and_not_round_for_ever");
    "http-body-bounded" [3]
        "An answer that comes whole is read up to the limit and no further."
        end_to_end("remote_faults::what_is_no_message_or_has_no_end_is_told");
    "endless-event-ended" [1]
        "An event that goes on and on far over the limit ends its stream, so that nobody waits for its end."
        end_to_end("remote_faults::what_is_no_message_or_has_no_end_is_told");
};
