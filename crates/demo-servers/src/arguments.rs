//! The arguments of a faulty program: positional ones and `--name value` pairs, in any order.
//!
//! # Invariants
//!
//! - A malformed argument is an error of kind `InvalidInput` that names it, never a silent default.
//! - Everything after `--` is the command of another program and is not looked at.

use std::io;
use std::time::Duration;

/// The words after the faulty program's name.
pub struct ProgramArguments<'a> {
    positional: Vec<&'a str>,
    options: Vec<(&'a str, Option<&'a str>)>,
    command: &'a [String],
}

impl<'a> ProgramArguments<'a> {
    /// Takes the arguments apart.
    #[must_use]
    pub fn new(args: &'a [String]) -> Self {
        let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
        let mut own = args[..end].iter().map(String::as_str);
        let (mut positional, mut options) = (Vec::new(), Vec::new());
        while let Some(arg) = own.next() {
            match arg.strip_prefix("--") {
                Some(name) => options.push((name, own.next())),
                None => positional.push(arg),
            }
        }
        Self { positional, options, command: args.get(end + 1..).unwrap_or_default() }
    }

    /// Returns the positional argument at `index`, which must be there.
    pub fn text(&self, index: usize, what: &str) -> io::Result<&'a str> {
        self.positional.get(index).copied().ok_or_else(|| wrong(&format!("{what} is missing")))
    }

    /// Returns the positional argument at `index` as a number, or `default` when it was not given.
    pub fn number(&self, index: usize, default: u64) -> io::Result<u64> {
        self.positional.get(index).map_or(Ok(default), |text| number(text))
    }

    /// Returns the positional argument at `index` as a size in bytes or a count.
    pub fn size(&self, index: usize, default: usize) -> io::Result<usize> {
        let size = self.positional.get(index).map_or(Ok(default as u64), |text| number(text))?;
        usize::try_from(size).map_err(|_| wrong(&format!("{size} is too large")))
    }

    /// Returns the positional argument at `index` as a number of milliseconds.
    pub fn milliseconds(&self, index: usize, default: u64) -> io::Result<Duration> {
        self.number(index, default).map(Duration::from_millis)
    }

    /// Returns the value of `--name`, when it was given.
    pub fn option(&self, name: &str) -> io::Result<Option<&'a str>> {
        match self.options.iter().find(|(given, _)| *given == name) {
            None => Ok(None),
            Some((_, Some(value))) => Ok(Some(value)),
            Some((_, None)) => Err(wrong(&format!("`--{name}` needs a value"))),
        }
    }

    /// Returns the value of `--name`, which must be there.
    pub fn required(&self, name: &str) -> io::Result<&'a str> {
        self.option(name)?.ok_or_else(|| wrong(&format!("`--{name}` is missing")))
    }

    /// Returns the value of `--name` as a number, or `default` when it was not given.
    pub fn number_option(&self, name: &str, default: u64) -> io::Result<u64> {
        self.option(name)?.map_or(Ok(default), number)
    }

    /// Returns the command after `--`, which must be there.
    pub fn command(&self) -> io::Result<(&'a str, &'a [String])> {
        match self.command {
            [program, rest @ ..] => Ok((program, rest)),
            [] => Err(wrong("a command after `--` is missing")),
        }
    }
}

fn number(text: &str) -> io::Result<u64> {
    text.parse().map_err(|_| wrong(&format!("`{text}` is not a number")))
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn positional_arguments_and_options_mix() {
        let args = given("12 --marker abc 13 -- run 99 --x");
        let arguments = ProgramArguments::new(&args);
        assert_eq!(arguments.number(0, 1).expect("a number"), 12);
        assert_eq!(arguments.number(1, 1).expect("a number"), 13);
        assert_eq!(arguments.number(2, 7).expect("the default"), 7);
        assert_eq!(arguments.required("marker").expect("given"), "abc");
        let (program, rest) = arguments.command().expect("given");
        assert_eq!((program, rest.join(" ").as_str()), ("run", "99 --x"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |error: io::Error, expect: &str| {
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(expect), "{error}");
        };
        let args = given("12s --marker");
        let arguments = ProgramArguments::new(&args);
        check(arguments.number(0, 1).expect_err("not a number"), "`12s`");
        check(arguments.option("marker").expect_err("no value"), "`--marker`");
        check(arguments.required("other").expect_err("not given"), "`--other`");
        check(arguments.text(5, "TOOL").expect_err("not given"), "TOOL");
        check(arguments.command().expect_err("not given"), "command");
    }
}
