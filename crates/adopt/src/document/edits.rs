//! The edits of one entry: the guard in front of its command, and away again.
//!
//! # Theory of operation
//!
//! `guard` inserts its words in front of the first argument. The last of them is a copy of the old command, with its quotes and escapes. So
//! only the command moves. `unguard` removes these words and writes the command back, with the quotes and escapes that it has then. If an
//! entry has no arguments, `guard` adds a list, and `unguard` removes that list with its separator.
//!
//! Invariant: `unguard` after `guard` gives the bytes from before. [`plan`](crate::plan()) checks that for each file.

use std::ops::Range;

use unhang::settings::{OwnCommand, own_command};

use super::CommandPlace;
use crate::{
    patch::TextEdit,
    syntax::{FileSyntax, PlacedMember, PlacedValue},
};

/// Returns the edits that put `unhang wrap --name NAME --` in front of a command.
pub(super) fn guard(
    text: &str,
    syntax: FileSyntax,
    name: &str,
    command: &CommandPlace<'_>,
    program: &str,
) -> Vec<TextEdit> {
    let mut words: Vec<String> = guard_arguments(name).iter().map(|word| literal(word)).collect();
    match command {
        CommandPlace::Words(list) => {
            words.insert(0, literal(program));
            vec![in_front(text, list, &words)]
        }
        CommandPlace::Word { command, args, .. } => {
            words.push(text[command.value.range.clone()].to_owned());
            let list = match args {
                Some(args) => in_front(text, &args.value, &words),
                None => new_list(text, syntax, command, &words),
            };
            vec![TextEdit { range: command.value.range.clone(), text: literal(program) }, list]
        }
    }
}

/// Returns the edit that writes this program in the place of another.
pub(super) fn program(old: Range<usize>, program: &str) -> TextEdit {
    TextEdit { range: old, text: literal(program) }
}

/// Returns the arguments of unhang in front of the server's own command.
fn guard_arguments(name: &str) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match name {
        "" => words(&["wrap", "--"]),
        // It would be taken for a flag.
        _ if name.starts_with('-') => words(&["wrap", &format!("--name={name}"), "--"]),
        _ => words(&["wrap", "--name", name, "--"]),
    }
}

/// Returns the text as both syntaxes write it.
fn literal(text: &str) -> String {
    // TOML has no bare delete character.
    serde_json::to_string(text).unwrap_or_default().replace('\u{7f}', "\\u007f")
}

/// Inserts words in front of the first item of a list, in the form that the list has.
fn in_front(text: &str, list: &PlacedValue, words: &[String]) -> TextEdit {
    let items = list.list().unwrap_or_default();
    let Some(first) = items.first() else {
        return TextEdit::insert(list.range.start + 1, words.join(", "));
    };
    let begin = line_begin(text, first.range.start);
    let indent = &text[begin..first.range.start];
    let separator = match items.get(1) {
        _ if begin > list.range.start && indent.trim().is_empty() => {
            format!(",{}{indent}", line_break(&text[..begin]))
        }
        Some(second) if &text[first.range.end..second.range.start] == "," => ",".to_owned(),
        _ => ", ".to_owned(),
    };
    TextEdit::insert(first.range.start, format!("{}{separator}", words.join(&separator)))
}

/// Inserts a list of arguments beside a command that has none.
fn new_list(text: &str, syntax: FileSyntax, command: &PlacedMember, words: &[String]) -> TextEdit {
    let begin = line_begin(text, command.key.start);
    let prefix = &text[begin..command.key.start];
    let after = command.value.range.end;
    let line_end = text[after..].find('\n').map_or(text.len(), |end| after + end);
    let line_end = if text[after..line_end].ends_with('\r') { line_end - 1 } else { line_end };
    let between = &text[command.key.end..command.value.range.start];
    let line_break = line_break(text);
    let is_own_line = own_line(syntax, prefix);
    match syntax {
        FileSyntax::Toml => {
            let equals = if between == "=" { "=" } else { " = " };
            let list = format!("args{equals}[{}]", words.join(", "));
            match is_own_line {
                true => TextEdit::insert(line_end, format!("{line_break}{prefix}{list}")),
                false => TextEdit::insert(after, format!(", {list}")),
            }
        }
        FileSyntax::Json => {
            let is_plain = between.chars().all(|character| matches!(character, ':' | ' ' | '\t'));
            let colon = if is_plain { between } else { ": " };
            // A text without any blanks gets none.
            let blank = if colon == ":" && !is_own_line { "" } else { " " };
            let list = format!("\"args\"{colon}[{}]", words.join(&format!(",{blank}")));
            let rest = text[after..line_end].trim_start_matches([' ', '\t', ',']);
            match is_own_line {
                // The comment stays with the command.
                true if rest.starts_with('/') => {
                    TextEdit::insert(command.key.start, format!("{list},{line_break}{prefix}"))
                }
                true => TextEdit::insert(after, format!(",{line_break}{prefix}{list}")),
                false => TextEdit::insert(after, format!(",{blank}{list}")),
            }
        }
    }
}

/// Returns whether a key with this text in front of it has a line of its own.
fn own_line(syntax: FileSyntax, prefix: &str) -> bool {
    let prefix = prefix.trim_start();
    prefix.is_empty()
        || syntax == FileSyntax::Toml && prefix.ends_with('.') && !prefix.contains(['{', '=', ','])
}

fn line_begin(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

/// Returns the kind of line break that the text has.
fn line_break(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Returns the edits that take the guard away from a command. Returns `None` if the words are not those of a guard with a command behind
/// `--`.
pub(super) fn unguard(
    text: &str,
    syntax: FileSyntax,
    command: &CommandPlace<'_>,
    had_args: bool,
) -> Option<Vec<TextEdit>> {
    let words = command.words();
    let texts: Vec<&str> = words.iter().map(|word| word.text().unwrap_or_default()).collect();
    let Some(OwnCommand::Guard { at: 0, server: Some(server) }) = own_command(&texts) else { return None };
    match command {
        CommandPlace::Words(_) => {
            Some(vec![TextEdit::remove(words[0].range.start..words[server].range.start)])
        }
        CommandPlace::Word { table, command, args } => {
            let args = (*args)?;
            words[server].text()?;
            let written = text[words[server].range.clone()].to_owned();
            let old = TextEdit { range: command.value.range.clone(), text: written };
            let list = match words.get(server + 1) {
                Some(next) => TextEdit::remove(words[1].range.start..next.range.start),
                None if had_args => emptied(text, &args.value, words[1].range.start..words[server].range.end),
                None => {
                    let emptied =
                        || emptied(text, &args.value, words[1].range.start..words[server].range.end);
                    without_member(text, syntax, table, args).map_or_else(emptied, TextEdit::remove)
                }
            };
            Some(vec![old, list])
        }
    }
}

/// Removes all items of a list, and a comma behind them.
fn emptied(text: &str, list: &PlacedValue, items: Range<usize>) -> TextEdit {
    let behind = &text[items.end..list.range.end];
    let comma = behind.len() - behind.trim_start().len();
    let end = if behind[comma..].starts_with(',') { items.end + comma + 1 } else { items.end };
    TextEdit::remove(items.start..end)
}

/// Returns the bytes of a member with the separator that belongs to it. Returns `None` if a comment stands there, which is somebody's.
fn without_member(
    text: &str,
    syntax: FileSyntax,
    table: &[PlacedMember],
    member: &PlacedMember,
) -> Option<Range<usize>> {
    let begin = line_begin(text, member.key.start);
    let end = member.value.range.end;
    if syntax == FileSyntax::Toml && own_line(syntax, &text[begin..member.key.start]) {
        let rest = text[end..].split('\n').next().unwrap_or_default();
        let before = text[..begin].trim_end_matches('\n').trim_end_matches('\r').len();
        let is_next_line = text[before..begin].matches('\n').count() == 1;
        return (rest.trim().is_empty() && is_next_line).then_some(before..end);
    }
    let index = table.iter().position(|other| other.key == member.key)?;
    let is_separator = |range: Range<usize>| {
        let part = text.get(range)?;
        part.chars().all(|character| character == ',' || character.is_whitespace()).then_some(())
    };
    let next = table.get(index + 1);
    let is_in_front = next
        .is_some_and(|next| ["command", "path"].contains(&next.name.as_str()) && next.value.text().is_some());
    let with_next = || {
        let next = next?.key.start;
        is_separator(end..next).map(|()| member.key.start..next)
    };
    let with_previous = || {
        let previous = table.get(index.checked_sub(1)?)?.value.range.end;
        is_separator(previous..member.key.start).map(|()| previous..end)
    };
    if is_in_front { with_next().or_else(with_previous) } else { with_previous().or_else(with_next) }
}
