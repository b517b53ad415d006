//! Random lives of a guard against its promises: whatever the client, the server and the clock do, in whatever order
//! . The fuzz target `guard` searches the same lives further.

use proptest::prelude::*;

use super::fuzzing::Story;

fn story() -> impl Strategy<Value = Story> {
    prop::collection::vec(any::<u8>(), 0..600).prop_map(|bytes| Story::read(&bytes))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn promise_1_every_request_is_answered_once_or_was_withdrawn(story in story()) {
        story.live();
    }
}
