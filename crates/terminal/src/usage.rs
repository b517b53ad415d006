//! Errors about a wrong command line, in the form of all other errors.

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use clap::{
    Arg, Command,
    error::{ContextKind, ContextValue, ErrorKind},
};
use unhang::exit;

use crate::{
    failure::{CommandFailure, Format},
    output::{say, unwritten},
};

/// Finds a tip about a wrong command line: from the error, the full name of the command that was meant, and the words that were typed.
pub type FindTip = fn(&clap::Error, &str, &[OsString]) -> Option<&'static str>;

/// Prints why a command line is wrong (exit 2), or help and version (exit 0). `whole` is the parser that refused it. The tip that `find_tip`
/// gives comes before those of the parser.
pub fn usage_error(error: &clap::Error, whole: &Command, find_tip: FindTip) -> ExitCode {
    if !error.use_stderr() {
        let printed = error.print().and_then(|()| io::stdout().lock().flush());
        return ExitCode::from(printed.map_or_else(|error| unwritten(&error), |()| exit::DONE));
    }
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    // `build` gives each command the flags that it inherits from those above it.
    let mut whole = whole.clone();
    whole.build();
    let whole = &whole;
    let (meant, command) = &meant_command(whole, &words);
    let of_a_value = refused_value(error, whole, meant, &words);
    let rendered = usage_rendered(of_a_value.as_ref().unwrap_or(error), whole, &words);
    let tip = missing_flag_tip(error, meant).or_else(|| find_tip(error, command, &words));
    if wants_json(&words) {
        let (message, hint) = usage_parts(&rendered, tip, command);
        return CommandFailure::usage(message, Some(&hint)).print(Some(Format::Json));
    }
    let told = match error.kind() {
        // The help already says everything.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.render().to_string(),
        _ => usage_told(&rendered, tip, command),
    };
    say(&told);
    ExitCode::from(exit::USAGE)
}

/// Returns the command that the words of a wrong command line name, as far as they do, and its full name: `unhang job show`.
fn meant_command<'a>(whole: &'a Command, words: &[OsString]) -> (&'a Command, String) {
    let mut command = whole;
    let mut path = command.get_name().to_owned();
    for word in words.iter().filter(|word| !word.as_encoded_bytes().starts_with(b"-")) {
        let Some(below) = command.find_subcommand(word) else { break };
        path = format!("{path} {}", below.get_name());
        command = below;
    }
    (command, path)
}

/// Tells how to ask for JSON if somebody typed `--json`, as many other programs want it. Returns `None` for any other error.
fn missing_flag_tip(error: &clap::Error, command: &Command) -> Option<&'static str> {
    let is_json =
        matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(flag)) if flag == "--json");
    let has_output = || command.get_arguments().any(|argument| argument.get_long() == Some("output"));
    (error.kind() == ErrorKind::UnknownArgument && is_json && has_output())
        .then_some("write `--output json` for JSON")
}

/// Returns the error about a value that begins with a hyphen, as in `--call-timeout -5s`. The parser takes such a value for a flag, and
/// names neither the flag before it nor the kind of value which that takes.
fn refused_value(
    error: &clap::Error,
    whole: &Command,
    command: &Command,
    words: &[OsString],
) -> Option<clap::Error> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return None };
    let own = words.iter().take_while(|word| *word != "--").count();
    let place = (1..own).find(|place| {
        let (flag, value) = (words[place - 1].to_str(), words[*place].to_str());
        let is_number = value.and_then(|value| value.strip_prefix('-')).is_some_and(|rest| {
            rest.starts_with(|first: char| first.is_ascii_digit() || first == '.')
                && value.is_some_and(|value| value.starts_with(&**unknown))
        });
        is_number && flag.is_some_and(|flag| takes_value(command, flag))
    })?;
    let mut joined = words.to_vec();
    let value = joined.remove(place);
    let flag = &mut joined[place - 1];
    let sign = if flag.as_encoded_bytes().starts_with(b"--") { "=" } else { "" };
    flag.push(sign);
    flag.push(value);
    let name = OsString::from(whole.get_name());
    let parsed = whole.clone().try_get_matches_from(std::iter::once(name).chain(joined));
    parsed.err().filter(clap::Error::use_stderr)
}

/// Returns whether this word is a flag of the command that a value follows.
fn takes_value(command: &Command, word: &str) -> bool {
    let is_it = |argument: &&Arg| {
        let long = word.strip_prefix("--");
        let short = word.strip_prefix('-').filter(|rest| rest.chars().count() == 1);
        let is_long = long.is_some() && argument.get_long() == long;
        is_long || (short.is_some() && argument.get_short() == short.and_then(|short| short.chars().next()))
    };
    command.get_arguments().filter(is_it).any(|argument| argument.get_action().takes_values())
}

/// Returns the flag whose value is wrong, and the environment variable that gave the value in the flag's place.
fn blamed_variable(error: &clap::Error, whole: &Command, words: &[OsString]) -> Option<(String, String)> {
    let ContextValue::String(argument) = error.get(ContextKind::InvalidArg)? else { return None };
    let ContextValue::String(value) = error.get(ContextKind::InvalidValue)? else { return None };
    let flag = argument.split_whitespace().next()?.strip_prefix("--")?;
    let is_typed = |word: &OsString| {
        let rest = word.to_str().and_then(|word| word.strip_prefix("--")?.strip_prefix(flag));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    // The words after `--` belong to others.
    if words.iter().take_while(|word| *word != "--").any(is_typed) {
        return None;
    }
    fn all(command: &Command) -> Vec<&Arg> {
        command.get_arguments().chain(command.get_subcommands().flat_map(all)).collect()
    }
    let variables = all(whole).into_iter().filter(|argument| argument.get_long() == Some(flag));
    let mut names = variables.filter_map(|argument| argument.get_env()?.to_str());
    let name = names.find(|name| std::env::var(name).is_ok_and(|said| said == *value))?;
    Some((argument.clone(), name.to_owned()))
}

/// Returns whether the words of a wrong command line ask for JSON. The words after `--` belong to others.
fn wants_json(words: &[OsString]) -> bool {
    let own: Vec<&OsString> = words.iter().take_while(|word| *word != "--").collect();
    let pair = |pair: &[&OsString]| pair[0] == "--output" && pair[1] == "json";
    own.iter().any(|word| *word == "--output=json") || own.windows(2).any(pair)
}

/// Returns the parser's error text. If an environment variable gave the wrong value, the text names the variable instead of the flag.
fn usage_rendered(error: &clap::Error, whole: &Command, words: &[OsString]) -> String {
    let told = without_secret(error, error.render().to_string());
    match blamed_variable(error, whole, words) {
        Some((flag, variable)) => told.replacen(&format!("'{flag}'"), &format!("the variable {variable}"), 1),
        None => told,
    }
}

/// The flags whose values may be secret.
const SECRET_FLAGS: [&str; 2] = ["--header", "--env"];

/// Leaves the wrong value of a flag out of the error text if it may be secret: clients keep what a server writes to stderr.
fn without_secret(error: &clap::Error, told: String) -> String {
    match (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue)) {
        (Some(ContextValue::String(flag)), Some(ContextValue::String(value)))
            if SECRET_FLAGS.iter().any(|secret| flag.starts_with(secret)) =>
        {
            told.replace(&format!("'{value}'"), "(not shown)")
        }
        _ => told,
    }
}

/// Splits the error text into a message and a hint, for a program.
fn usage_parts(parser: &str, tip: Option<&str>, command: &str) -> (String, String) {
    let told = usage_told(parser, tip, command);
    let mut lines =
        told.lines().map(|line| line.trim_start_matches("unhang: ").trim_start_matches("hint: ").trim());
    let message = lines.next().unwrap_or_default().to_owned();
    (message, lines.collect::<Vec<_>>().join("; "))
}

/// Returns the parser's text about a wrong command line in the form of all other errors, with two hints at most. unhang's own tip
/// comes before those of the parser.
fn usage_told(parser: &str, own_tip: Option<&str>, command: &str) -> String {
    let mut parts = parser.split("\n\n");
    let joined = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let message = joined(parts.next().unwrap_or_default());
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let mut told = format!("unhang: {message}\n");
    let rest: Vec<&str> = parts.collect();
    // The words after `--` are a server's command or an ID: a tip about passing a value there does not help.
    let tips =
        rest.iter().flat_map(|part| part.lines()).filter_map(|line| line.trim_start().strip_prefix("tip: "));
    let tip = own_tip.or_else(|| tips.into_iter().find(|tip| !tip.starts_with("to pass ")));
    let usage = rest.iter().find(|part| part.starts_with("Usage: "));
    match (tip, usage) {
        (Some(tip), _) => told.push_str(&format!("hint: {tip}\n")),
        (None, Some(usage)) => told.push_str(&format!("{}\n", usage.trim_end())),
        (None, None) => {}
    }
    told.push_str(&format!("hint: `{command} --help` says more\n"));
    told
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::{
        OsString, meant_command, missing_flag_tip, refused_value, usage_parts, usage_told, wants_json,
    };

    #[test]
    fn the_command_that_was_meant_is_told_from_the_words() {
        let nested = Command::new("job").subcommand(Command::new("show").arg(Arg::new("nosuch")));
        let whole = Command::new("unhang").subcommands([nested, Command::new("call")]);
        for (words, path) in [
            ("-v job show --nosuch", "unhang job show"),
            ("call --cal-timeout 5s job", "unhang call"),
            ("cal time", "unhang"),
            ("", "unhang"),
        ] {
            let words: Vec<OsString> = words.split_whitespace().map(Into::into).collect();
            assert_eq!(meant_command(&whole, &words).1, path);
        }
    }

    #[test]
    fn a_wrong_command_line_is_told_in_our_own_form_with_two_hints_at_most() {
        let help = "hint: `unhang call --help` says more\n";
        for (parser, told) in [
            (
                "error: unexpected argument '--cal' found\n\n  tip: a similar argument exists: '--call-timeout'\n  tip: to pass \
                 '--cal' as a value, use '-- --cal'\n\nUsage: unhang call\n\nFor more information, try '--help'.\n",
                "unhang: unexpected argument '--cal' found\nhint: a similar argument exists: '--call-timeout'\n",
            ),
            (
                "error: the following required arguments were not provided:\n  <ID>\n\nUsage: unhang job show <ID>\n\nFor more \
                 information, try '--help'.\n",
                "unhang: the following required arguments were not provided: <ID>\nUsage: unhang job show <ID>\n",
            ),
            (
                "error: invalid value 'x' for '<SHELL>'\n  [possible values: bash, zsh]\n\nFor more information, try '--help'.\n",
                "unhang: invalid value 'x' for '<SHELL>' [possible values: bash, zsh]\n",
            ),
        ] {
            assert_eq!(usage_told(parser, None, "unhang call"), format!("{told}{help}"));
        }
        let parts = usage_parts("error: a\n\n  tip: b\n\nUsage: unhang call\n", None, "unhang call");
        assert_eq!(parts, ("a".to_owned(), "b; `unhang call --help` says more".to_owned()));
    }

    #[test]
    fn a_value_that_begins_with_a_hyphen_is_told_with_its_flag() {
        let limit = Arg::new("limit").long("limit").short('l').value_parser(|text: &str| match text {
            "-5s" => Err("it is no length of time"),
            _ => Ok(text.to_owned()),
        });
        let call = Command::new("call").arg(limit).arg(Arg::new("words").num_args(0..));
        let whole = Command::new("unhang").subcommand(call);
        for (words, expect) in [
            ("call --limit -5s", Some("invalid value '-5s' for '--limit <limit>': it is no length of time")),
            ("call a -l -5s b", Some("invalid value '-5s' for '--limit <limit>': it is no length of time")),
            ("call --limit -5", None),
            ("call --nosuch -5s", None),
            ("call x -5s", None),
        ] {
            let words: Vec<OsString> = words.split_whitespace().map(Into::into).collect();
            let name = std::iter::once(OsString::from("unhang"));
            let error =
                whole.clone().try_get_matches_from(name.chain(words.clone())).expect_err("it is wrong");
            let told = refused_value(&error, &whole, meant_command(&whole, &words).0, &words);
            let told = told.map(|told| told.to_string());
            assert_eq!(told.is_some(), expect.is_some(), "{words:?}: {told:?}");
            assert!(told.unwrap_or_default().contains(expect.unwrap_or_default()), "{words:?}");
        }
    }

    #[test]
    fn whoever_types_a_flag_for_json_is_told_how_it_is_asked_for_here() {
        let list = Command::new("list").arg(Arg::new("output").long("output"));
        let whole = Command::new("unhang").subcommands([list, Command::new("wrap")]);
        for (typed, is_told) in [("list --json", true), ("list --jsn", false), ("wrap --json", false)] {
            let words: Vec<OsString> = typed.split_whitespace().map(Into::into).collect();
            let name = std::iter::once(OsString::from("unhang"));
            let error =
                whole.clone().try_get_matches_from(name.chain(words.clone())).expect_err("it is wrong");
            let tip = missing_flag_tip(&error, meant_command(&whole, &words).0);
            assert_eq!(tip.is_some(), is_told, "{typed}");
        }
        let told = usage_told("error: a\n\nUsage: unhang list\n", Some("write b"), "unhang list");
        assert_eq!(told, "unhang: a\nhint: write b\nhint: `unhang list --help` says more\n");
    }

    #[test]
    fn json_is_asked_for_before_the_words_that_are_for_others() {
        for (words, wants) in [
            ("call x --output json", true),
            ("call --output=json x", true),
            ("call --output text json", false),
            ("job run -- x --output json", false),
            ("", false),
        ] {
            let words: Vec<_> = words.split_whitespace().map(Into::into).collect();
            assert_eq!(wants_json(&words), wants, "{words:?}");
        }
    }
}
