//! `docs/reference/cli.md`: every command, its flags and limits, and the meanings of its exit codes.
//!
//! Invariants: each command, flag and limit that is not hidden is on the page; each limit is described once.

use std::fmt::Write as _;

use clap::{Arg, Command};
use unhang::exit;

use super::{notes::Notes, roff::name};

/// The heading of limits in the help.
const LIMITS: &str = "Limits";

const HEAD: &str = "\
<!-- Written by `unhang man --page > docs/reference/cli.md`; change the declaration in crates/cli/src, not this file. -->

# The command line

This page lists every command with its arguments, flags and exit codes. The help (`unhang COMMAND --help`), the manual
(`unhang man DIR`) and the completions of shells (`unhang completions SHELL`) have the same texts. The guides show how to
use the commands: [wrap](../guide/wrap.md), [command line](../guide/command-line.md), [jobs](../guide/jobs.md),
[jobs for servers](../guide/jobs-for-servers.md). The page leaves out `unhang zoo`, which starts the faulty servers of
`unhang demo`; `unhang zoo --help` describes it.

A flag overrides its environment variable. The variable overrides the configuration file, and the file overrides the
default. Data goes to stdout, and everything else to stderr. With `-v`, every command prints its current action and its
waits to stderr. `--help` prints the help.
";

const ABOUT_LIMITS: &str = "\
Times and sizes need a unit (`500ms`, `30s`, `5m`; `64KiB`, `16MiB`). In `unhang.toml`, the name of a limit is its flag without
the dashes, under `[servers.NAME.limits]`. The limits of jobs are under `[jobs]`, and `quiet` is under `[servers.NAME]`. If unhang
knows that the client has a shorter timeout than `--call-timeout`, the limit is 95 % of the client's timeout.
";

/// Makes the whole page.
pub(super) fn page(whole: &Command) -> String {
    let mut page = HEAD.to_owned();
    let link = |title: &str| format!("[`{title}`](#{})", title.replace(' ', "-"));
    let rows: Vec<_> =
        whole.get_subcommands().map(|command| vec![link(&title(command)), about(command)]).collect();
    page.push_str("\n## Commands\n\n");
    table(&mut page, &["command", "meaning"], &rows);

    let rows = exit::MEANINGS.map(|(code, meaning)| vec![code.to_string(), meaning.to_owned()]);
    page.push_str("\n## Exit codes\n\n");
    table(&mut page, &["code", "meaning"], &rows);

    let _infallible = write!(page, "\n## Limits\n\n{ABOUT_LIMITS}\n");
    arguments(&mut page, "meaning", &limits(whole));

    for command in whole.get_subcommands() {
        one(&mut page, command, whole, "##");
        for below in command.get_subcommands() {
            one(&mut page, below, command, "###");
        }
    }
    page
}

/// Returns the limits of all commands, each once.
fn limits(whole: &Command) -> Vec<&Arg> {
    let mut known: Vec<&Arg> = Vec::new();
    for limit in
        whole.get_subcommands().flat_map(Command::get_arguments).filter(|argument| is_limit(argument))
    {
        if known.iter().all(|known| known.get_id() != limit.get_id()) {
            known.push(limit);
        }
    }
    known
}

/// Adds the section of one command.
fn one(page: &mut String, command: &Command, above: &Command, heading: &str) {
    let _infallible = write!(page, "\n{heading} {}\n\n{}.\n", title(command), about(command));
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<&str> = usage.lines().map(|line| line.trim_start_matches("Usage:").trim()).collect();
    let _infallible = write!(page, "\n```text\n{}\n```\n", usage.join("\n"));

    let is_told_above = |argument: &Arg| {
        argument.is_global_set() && above.get_arguments().any(|known| known.get_id() == argument.get_id())
    };
    let is_everywhere = |argument: &Arg| matches!(argument.get_id().as_str(), "help" | "version");
    let own = command.get_arguments().filter(|argument| !is_told_above(argument) && !is_everywhere(argument));
    let (limits, others): (Vec<&Arg>, Vec<&Arg>) = own.partition(|argument| is_limit(argument));
    if !others.is_empty() {
        let (mut positionals, flags): (Vec<&Arg>, Vec<&Arg>) =
            others.into_iter().partition(|argument| argument.is_positional());
        positionals.extend(flags);
        page.push('\n');
        arguments(page, "meaning", &positionals);
    }
    if !limits.is_empty() {
        let names = limits.iter().filter_map(|limit| limit.get_long()).map(|name| format!("`--{name}`"));
        let names = names.collect::<Vec<_>>().join(", ");
        let _infallible = write!(page, "\n[Limits](#limits): {names}.\n");
    }
    ending(page, &Notes::of(command));
}

fn arguments(page: &mut String, about: &str, arguments: &[&Arg]) {
    let row = |argument: &&Arg| {
        let (text, default) = described(argument);
        vec![spelled(argument), default, variable(argument), text]
    };
    let rows: Vec<_> = arguments.iter().map(row).collect();
    table(page, &["argument", "default", "environment", about], &rows);
}

/// The mark for blocks of commands that the tests of the pages do not run, such as examples.
const EXAMPLES: &str = "<!-- not run: needs servers and files of the reader -->";

/// Adds the end of the command's help.
fn ending(page: &mut String, notes: &Notes) {
    for paragraph in &notes.paragraphs {
        let _infallible = write!(page, "\n{paragraph}\n");
    }
    if !notes.examples.is_empty() {
        let _infallible = write!(page, "\n{EXAMPLES}\n```sh\n{}\n```\n", notes.examples.join("\n"));
    }
    if !notes.exit_codes.is_empty() {
        let _infallible = write!(page, "\nExit codes: {}.\n", notes.exit_codes.join("; "));
    }
}

fn title(command: &Command) -> String {
    name(command).replace('-', " ")
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn is_limit(argument: &Arg) -> bool {
    argument.get_help_heading() == Some(LIMITS)
}

/// Returns an argument as it is typed.
fn spelled(argument: &Arg) -> String {
    let value = argument.get_value_names().and_then(<[_]>::first).map(|name| name.as_str());
    let value = value.filter(|_| argument.get_action().takes_values());
    let Some(long) = argument.get_long() else {
        return format!("`{}`", value.unwrap_or_default());
    };
    let short = argument.get_short().map_or_else(String::new, |short| format!("-{short}, "));
    let value = value.map_or_else(String::new, |value| format!(" {value}"));
    format!("`{short}--{long}{value}`")
}

/// Returns the description of an argument, and its default.
fn described(argument: &Arg) -> (String, String) {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let values = argument.get_possible_values();
    let values: Vec<String> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
    let told = help.strip_suffix(']').and_then(|help| help.rsplit_once(" [default: "));
    let (text, default) = match told {
        Some((text, default)) => (text.to_owned(), default.to_owned()),
        None if argument.is_hide_default_value_set() || !argument.get_action().takes_values() => {
            (help, String::new())
        }
        None => {
            let values = argument.get_default_values().iter().map(|value| value.to_string_lossy());
            (help, values.collect::<Vec<_>>().join(" "))
        }
    };
    let is_choice = !values.is_empty() && argument.get_action().takes_values();
    let text = if is_choice { format!("{text}: {}", values.join(", ")) } else { text };
    (text, default)
}

fn variable(argument: &Arg) -> String {
    argument.get_env().map_or_else(String::new, |name| format!("`{}`", name.to_string_lossy()))
}

/// Adds a table, without the columns that are empty in every row.
fn table(page: &mut String, head: &[&str], rows: &[Vec<String>]) {
    let is_used = |column: &usize| rows.iter().any(|row| !row[*column].is_empty());
    let columns: Vec<usize> = (0..head.len()).filter(is_used).collect();
    let mut line = |cells: Vec<String>| {
        let _infallible = writeln!(page, "| {} |", cells.join(" | "));
    };
    line(columns.iter().map(|column| head[*column].to_owned()).collect());
    line(columns.iter().map(|_| "---".to_owned()).collect());
    for row in rows {
        line(columns.iter().map(|column| row[*column].replace('|', "\\|")).collect());
    }
}
