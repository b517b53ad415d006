//! The parts that need no process; `tests/zoo/load.rs` has those that do.

use super::*;

#[test]
fn a_rate_is_a_count_over_time() {
    assert!((per_second(500, Duration::from_millis(250)) - 2000.0).abs() < 1e-6);
    assert!(per_second(1, Duration::ZERO).is_finite());
}

#[test]
fn an_error_says_what_was_being_done() {
    let error = during("the start")(io::Error::other("no such file"));
    assert_eq!(error.to_string(), "the start: no such file");
}

#[test]
fn what_is_in_flight_fits_into_a_pipe() {
    for plan in [LoadPlan::FULL, LoadPlan::QUICK] {
        assert!(plan.in_flight <= 256 && plan.starts > 0 && plan.rounds > 0, "{plan:?}");
    }
    let LoadPlan { rounds, round_trips, starts, .. } = LoadPlan::FULL;
    assert!(rounds * round_trips >= 2_000 && rounds * starts >= 15);
}
