//! Random lives of a guard against its promises: whatever the client, the server and the clock do, in whatever order
//! . The fuzz target `guard` searches the same lives further.

use proptest::prelude::*;

use super::fuzzing::FuzzScript;

fn script() -> impl Strategy<Value = FuzzScript> {
    prop::collection::vec(any::<u8>(), 0..600).prop_map(|bytes| FuzzScript::read(&bytes))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn promise_1_every_request_is_answered_once_or_was_withdrawn(script in script()) {
        script.live();
    }
}
