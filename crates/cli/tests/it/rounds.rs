//! `unhang-lab rounds`: a short run, which shows that the tool works, and that jobs outlive the ends of the processes around them.

use crate::harness::{Sandbox, run_to_end};

#[test]
fn a_few_rounds_end_as_they_have_to() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.lab();
    command.args(["rounds", "--count", "12", "--seed", "1"]);
    let (code, stdout, stderr) = run_to_end(command);
    assert_eq!(code, 0, "{stdout} {stderr}");
    let last: Vec<_> = stdout.lines().filter(|line| line.contains("in all")).collect();
    let [counts] = *last else { panic!("one sum: {stdout}") };
    let numbers: Vec<u64> = counts.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers[0] == 12 && numbers[1] >= 12 && numbers[4..] == [0; 3], "{stdout}");
    sandbox.assert_nothing_left();
}
