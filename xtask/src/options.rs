//! The options of the chores, as the command line gives them.

use crate::failure::ChoreFailure;

/// The options of all verbs. Each verb reads those that concern it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Names of the only things to do; all when empty.
    pub(crate) only: Vec<String>,
    /// Names what there is instead of doing it.
    pub(crate) list: bool,
    /// Writes the page that is generated from the list instead.
    pub(crate) write: bool,
    /// The `unhang` to check instead of the release build.
    pub(crate) binary: Option<String>,
    /// Programs of other systems to pack, as `TARGET=PATH`.
    pub(crate) with: Vec<String>,
    /// A small part of everything, for every change.
    pub(crate) quick: bool,
    /// The form of a long chore that takes less than two minutes.
    pub(crate) short: bool,
    /// Where random choices begin.
    pub(crate) seed: Option<u64>,
    /// The one session to repeat.
    pub(crate) session: Option<u64>,
    /// How long to fuzz each target instead of the usual time.
    pub(crate) seconds: Option<u64>,
    /// The part of the work to do, as `K/N`.
    pub(crate) shard: Option<String>,
    /// The file with the diff whose places are the only ones to look at.
    pub(crate) in_diff: Option<String>,
    /// Renews the fuzzers' corpus instead of fuzzing.
    pub(crate) merge: bool,
}

impl Options {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, ChoreFailure> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().ok_or_else(|| ChoreFailure::usage(format!("{argument} needs a value")));
            match argument.as_str() {
                "--list" => options.list = true,
                "--write" => options.write = true,
                "--only" => options.only.extend(value()?.split(',').map(str::to_owned)),
                "--binary" => options.binary = Some(value()?),
                "--with" => options.with.push(value()?),
                "--quick" => options.quick = true,
                "--short" => options.short = true,
                "--seed" => options.seed = Some(number(&argument, &value()?)?),
                "--session" => options.session = Some(number(&argument, &value()?)?),
                "--seconds" => options.seconds = Some(number(&argument, &value()?)?),
                "--minutes" => options.seconds = Some(number(&argument, &value()?)?.saturating_mul(60)),
                "--shard" => options.shard = Some(value()?),
                "--in-diff" => options.in_diff = Some(value()?),
                "--merge" => options.merge = true,
                _ => return Err(ChoreFailure::usage(format!("unknown argument {argument}"))),
            }
        }
        Ok(options)
    }
}

fn number(flag: &str, text: &str) -> Result<u64, ChoreFailure> {
    text.parse().map_err(|_| ChoreFailure::usage(format!("{flag} needs a number, not {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, ChoreFailure> {
        Options::parse(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn several_names_may_follow_only() {
        let options = parse(&["--only", "fmt,deny", "--only", "docs", "--list"]).expect("these are known");
        assert_eq!(options.only, ["fmt", "deny", "docs"]);
        assert!(options.list);
    }

    #[test]
    fn minutes_are_seconds() {
        assert_eq!(parse(&["--minutes", "2"]).expect("this is a number").seconds, Some(120));
        assert!(parse(&["--seconds", "5m"]).expect_err("that is no number").is_usage());
    }

    #[test]
    fn an_unknown_argument_or_a_missing_value_is_a_usage_failure() {
        assert!(parse(&["--onyl", "fmt"]).expect_err("there is no such flag").is_usage());
        assert!(parse(&["--only"]).expect_err("the value is missing").is_usage());
        assert!(parse(&["--seed", "x"]).expect_err("that is no number").is_usage());
    }
}
