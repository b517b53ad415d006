//! What errors tell beside what happened: the true cause, who said what, and what to do next.

use crate::harness::{Sandbox, run_to_end};

#[test]
fn the_help_of_a_batch_says_that_outcomes_are_json() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["batch", "--help"]);
    let (code, stdout, _) = run_to_end(command);
    let help = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(code == 0 && help.contains("outcomes are lines of JSON in either form"), "{help}");
}
