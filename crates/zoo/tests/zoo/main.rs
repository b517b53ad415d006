//! Every animal's vice is really there, and the well-behaved server is really well behaved.
#![cfg(test)]

mod answers;
mod lives;
mod load;
mod reference;
mod tee;
mod visitor;

/// A vice that no test shows may have got lost.
#[test]
fn every_animal_is_met_by_a_test() {
    let texts = [
        include_str!("answers.rs"),
        include_str!("lives.rs"),
        include_str!("reference.rs"),
        include_str!("tee.rs"),
    ];
    for animal in unhang_zoo::animals() {
        let starts = [format!("\"{}\"", animal.name), format!("\"{} ", animal.name)];
        assert!(texts.iter().any(|text| starts.iter().any(|start| text.contains(start))), "{}", animal.name);
    }
}

#[test]
fn wrong_arguments_are_usage_errors() {
    for line in ["unicorn", "slow-start soon", "leaves-daemon", "tee a b", "never-answers"] {
        let mut visitor = visitor::Visitor::meet(line);
        assert_eq!(visitor.end().code(), Some(2), "{line}");
        assert_eq!(visitor.last_words().lines().count(), 1, "{line}");
        assert!(visitor.line().is_none(), "{line}");
    }
}

#[test]
fn the_list_is_shown() {
    let mut visitor = visitor::Visitor::meet("--list");
    assert!(visitor.end().success());
    let lines = std::iter::from_fn(|| visitor.line()).count();
    assert_eq!(lines, unhang_zoo::animals().len());
}
