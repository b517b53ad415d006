//! A wrong command line, told in the form of all other errors.

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};
use unhang::exit;

use crate::{
    failure::{CommandFailure, Format},
    output::{say, unwritten},
};

/// Prints why a command line is wrong (exit 2), or help and version (exit 0). `whole` is the parser that refused it.
pub fn usage_error(error: &clap::Error, whole: &Command) -> ExitCode {
    if !error.use_stderr() {
        let printed = error.print().and_then(|()| io::stdout().lock().flush());
        return ExitCode::from(printed.map_or_else(|error| unwritten(&error), |()| exit::DONE));
    }
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let command = &meant_command(whole, &words);
    if wants_json(&words) {
        let (message, hint) = usage_parts(&usage_rendered(error, whole, &words), command);
        return CommandFailure::usage(message, Some(&hint)).print(Some(Format::Json));
    }
    let told = match error.kind() {
        // A help, which says all there is to say.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.render().to_string(),
        _ => usage_told(&usage_rendered(error, whole, &words), command),
    };
    say(&told);
    ExitCode::from(exit::USAGE)
}

/// Returns the command that the words of a wrong command line name, as far as they name one: `unhang job show`.
fn meant_command(whole: &Command, words: &[OsString]) -> String {
    let mut command = whole;
    let mut path = command.get_name().to_owned();
    for word in words.iter().filter(|word| !word.as_encoded_bytes().starts_with(b"-")) {
        let Some(below) = command.find_subcommand(word) else { break };
        path = format!("{path} {}", below.get_name());
        command = below;
    }
    path
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
    fn all(command: &Command) -> Vec<&clap::Arg> {
        command.get_arguments().chain(command.get_subcommands().flat_map(all)).collect()
    }
    let variables = all(whole).into_iter().filter(|argument| argument.get_long() == Some(flag));
    let mut names = variables.filter_map(|argument| argument.get_env()?.to_str());
    let name = names.find(|name| std::env::var(name).is_ok_and(|said| said == *value))?;
    Some((argument.clone(), name.to_owned()))
}

/// Whether the words of a wrong command line ask for JSON. What stands behind `--` is for others.
fn wants_json(words: &[OsString]) -> bool {
    let own: Vec<&OsString> = words.iter().take_while(|word| *word != "--").collect();
    let pair = |pair: &[&OsString]| pair[0] == "--output" && pair[1] == "json";
    own.iter().any(|word| *word == "--output=json") || own.windows(2).any(pair)
}

/// What the parser says, with the variable that has said a wrong value in the place of a flag.
fn usage_rendered(error: &clap::Error, whole: &Command, words: &[OsString]) -> String {
    let told = error.render().to_string();
    match blamed_variable(error, whole, words) {
        Some((flag, variable)) => told.replacen(&format!("'{flag}'"), &format!("the variable {variable}"), 1),
        None => told,
    }
}

/// The same as a message and a hint, for a program.
fn usage_parts(parser: &str, command: &str) -> (String, String) {
    let told = usage_told(parser, command);
    let mut lines =
        told.lines().map(|line| line.trim_start_matches("unhang: ").trim_start_matches("hint: ").trim());
    let message = lines.next().unwrap_or_default().to_owned();
    (message, lines.collect::<Vec<_>>().join("; "))
}

/// What the parser says of a wrong command line, in the form of all other errors, with two hints at most.
fn usage_told(parser: &str, command: &str) -> String {
    let mut parts = parser.split("\n\n");
    let joined = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let message = joined(parts.next().unwrap_or_default());
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let mut told = format!("unhang: {message}\n");
    let rest: Vec<&str> = parts.collect();
    // Behind `--` stands a server's command, or an ID: a flag that is not ours is of no use there.
    let tips =
        rest.iter().flat_map(|part| part.lines()).filter_map(|line| line.trim_start().strip_prefix("tip: "));
    let tip = tips.into_iter().find(|tip| !tip.starts_with("to pass "));
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

    use super::{OsString, meant_command, usage_parts, usage_told, wants_json};

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
            assert_eq!(meant_command(&whole, &words), path);
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
            assert_eq!(usage_told(parser, "unhang call"), format!("{told}{help}"));
        }
        let parts = usage_parts("error: a\n\n  tip: b\n\nUsage: unhang call\n", "unhang call");
        assert_eq!(parts, ("a".to_owned(), "b; `unhang call --help` says more".to_owned()));
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
