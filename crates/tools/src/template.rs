//! A command with places for arguments: `{args.NAME}`, `{job_dir}` and `{job_id}` inside of its items.
//!
//! Invariants
//! - One item stays one item, whatever the argument holds: nothing is split, nothing is quoted, there is no shell (J-145).
//! - The program is the author's; no argument takes part in it.
//! - An item whose argument is absent is left out; in a nested list, all of its items are.
//! - No argument becomes an option: an item that begins with an argument does not begin with `-`. The author can allow that, or can write
//!   `--` before the item, behind which programs take nothing for an option.
//! - An unknown placeholder is an error when the file is read, and does not reach a program as text.

use std::{ffi::OsString, path::Path};

use serde_json::{Map, Value};

use unhang_core::wording::did_you_mean;

/// The longest item that Linux hands to a program, its ending zero included (MAX_ARG_STRLEN).
const MAX_ITEM: usize = 128 << 10;

/// A command with places for arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTemplate {
    program: String,
    items: Vec<CommandItem>,
    /// The arguments whose values may be options.
    options: Vec<String>,
}

/// An item of a command, or several that are left out together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandItem {
    /// One item.
    One(Pattern),
    /// Items that are left out together.
    Together(Vec<Pattern>),
}

/// The text of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<TemplatePart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Argument(String),
    JobFolder,
    JobId,
}

/// One item of a command that only lacks the job's folder and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateWord(Vec<WordPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum WordPart {
    Text(String),
    JobFolder,
    JobId,
}

impl TemplateWord {
    /// Returns the item for the job of this id in this folder.
    pub fn render(&self, folder: &Path, id: &str) -> OsString {
        let mut item = OsString::new();
        for part in &self.0 {
            match part {
                WordPart::Text(text) => item.push(text),
                WordPart::JobFolder => item.push(folder),
                WordPart::JobId => item.push(id),
            }
        }
        item
    }
}

impl From<&str> for TemplateWord {
    fn from(text: &str) -> TemplateWord {
        TemplateWord(vec![WordPart::Text(text.to_owned())])
    }
}

impl Pattern {
    /// Parses one item. `known` are the arguments that the schema lists.
    ///
    /// # Errors
    /// Fails with a sentence about the placeholder if one is unknown.
    pub fn parse(text: &str, known: &[&str]) -> Result<Pattern, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            plain.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some((name, behind)) = rest.strip_prefix("{{").and_then(placeholder)
                && let Some(behind) = behind.strip_prefix('}')
            {
                plain.push_str(&format!("{{{name}}}"));
                rest = behind;
            } else if let Some((name, behind)) = placeholder(&rest[1..]) {
                let part = TemplatePart::named(name, known)?;
                if !plain.is_empty() {
                    parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
                }
                parts.push(part);
                rest = behind;
            } else {
                plain.push('{');
                rest = &rest[1..];
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() || parts.is_empty() {
            parts.push(TemplatePart::Text(plain));
        }
        Ok(Pattern(parts))
    }

    /// Returns whether the item is `--` alone, behind which no option can come.
    fn ends_options(&self) -> bool {
        matches!(&self.0[..], [TemplatePart::Text(text)] if text == "--")
    }

    /// Checks that no argument makes an option of the item. Only a text can do that: a number has no name.
    ///
    /// # Errors
    /// Fails with a sentence about the argument if the item would begin with its `-`.
    fn check_option(&self, arguments: &Map<String, Value>, options: &[String]) -> Result<(), String> {
        for part in &self.0 {
            let TemplatePart::Argument(name) = part else { return Ok(()) };
            let Some(Value::String(text)) = arguments.get(name) else { return Ok(()) };
            if text.starts_with('-') && !options.contains(name) {
                return Err(format!(
                    "`{name}` begins with `-`, so the command would take it for an option; the \
                     configuration of the tool can allow that with `option-arguments = [\"{name}\"]`, or \
                     write `--` before it in `command`"
                ));
            }
            // After an empty text, the item begins with the next part.
            if !text.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn fill(&self, arguments: &Map<String, Value>) -> Result<Option<TemplateWord>, String> {
        let mut word = Vec::with_capacity(self.0.len());
        for part in &self.0 {
            word.push(match part {
                TemplatePart::Text(text) => WordPart::Text(text.clone()),
                TemplatePart::JobFolder => WordPart::JobFolder,
                TemplatePart::JobId => WordPart::JobId,
                TemplatePart::Argument(name) => match arguments.get(name) {
                    None | Some(Value::Null) => return Ok(None),
                    Some(value) => WordPart::Text(as_item(name, value)?),
                },
            });
        }
        let texts = word.iter().map(|part| if let WordPart::Text(text) = part { text.len() } else { 0 });
        let length: usize = texts.sum();
        let named = self
            .0
            .iter()
            .find_map(|part| if let TemplatePart::Argument(name) = part { Some(name) } else { None });
        match named {
            // The text around an argument counts as well.
            Some(name) if length >= MAX_ITEM => {
                Err(too_long(&format!("the item of the command with `{name}`"), length))
            }
            _ => Ok(Some(TemplateWord(word))),
        }
    }
}

impl TemplatePart {
    fn named(name: &str, known: &[&str]) -> Result<TemplatePart, String> {
        match name {
            "job_dir" => return Ok(TemplatePart::JobFolder),
            "job_id" => return Ok(TemplatePart::JobId),
            _ => {}
        }
        if let Some(argument) = name.strip_prefix("args.") {
            if known.contains(&argument) {
                return Ok(TemplatePart::Argument(argument.to_owned()));
            }
            let hint = did_you_mean(argument, known.iter().copied());
            return Err(format!(
                "`{{{name}}}` is not one of the `properties` of input-schema{hint}; write \
                 `{{{{{name}}}}}` for the text itself"
            ));
        }
        Err(format!(
            "`{{{name}}}` is not a placeholder: the placeholders are {{args.NAME}}, {{job_dir}} and \
             {{job_id}}; write `{{{{{name}}}}}` for the text itself"
        ))
    }
}

/// Returns the name of the placeholder that begins behind an opening brace, and the text behind its closing brace. Returns `None` if the
/// text does not look like one.
fn placeholder(text: &str) -> Option<(&str, &str)> {
    let (name, behind) = text.split_once('}')?;
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|character| character.is_alphanumeric() || matches!(character, '_' | '-' | '.'));
    is_name.then_some((name, behind))
}

/// Returns an argument as a text on a command line: a text as it is, every other value as JSON.
fn as_item(name: &str, value: &Value) -> Result<String, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.contains('\0') {
        return Err(format!("`{name}` has a zero byte, which a command cannot take"));
    }
    if text.len() >= MAX_ITEM {
        return Err(too_long(&format!("`{name}`"), text.len()));
    }
    Ok(text)
}

fn too_long(what: &str, length: usize) -> String {
    format!(
        "{what} has {length} bytes, more than the {} that one item of a command can have; a tool that \
         needs so much can read it from {{job_dir}}/input.json",
        MAX_ITEM - 1
    )
}

impl CommandItem {
    fn patterns(&self) -> &[Pattern] {
        match self {
            CommandItem::One(pattern) => std::slice::from_ref(pattern),
            CommandItem::Together(patterns) => patterns,
        }
    }
}

impl CommandTemplate {
    /// Makes a command of its program and its arguments.
    pub fn new(program: String, items: Vec<CommandItem>) -> CommandTemplate {
        CommandTemplate { program, items, options: Vec::new() }
    }

    /// Returns the command with these arguments, whose values may be options.
    pub fn with_options(self, options: Vec<String>) -> CommandTemplate {
        CommandTemplate { options, ..self }
    }

    /// Returns the program, which takes no arguments in.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Returns the command for these arguments, the program first.
    ///
    /// # Errors
    /// Fails with a sentence about the argument if one cannot stand on a command line.
    pub fn fill(&self, arguments: &Map<String, Value>) -> Result<Vec<TemplateWord>, String> {
        let mut words = vec![TemplateWord::from(&*self.program)];
        let mut may_be_options = true;
        for item in &self.items {
            let patterns = item.patterns();
            let together: Option<Vec<TemplateWord>> =
                patterns.iter().map(|pattern| pattern.fill(arguments)).collect::<Result<_, _>>()?;
            // An item that is left out neither ends the options nor becomes one.
            let Some(together) = together else { continue };
            for pattern in patterns {
                if may_be_options {
                    pattern.check_option(arguments, &self.options)?;
                }
                may_be_options &= !pattern.ends_options();
            }
            words.extend(together);
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KNOWN: &[&str] = &["cod", "days", "name"];

    fn template(items: &[&[&str]]) -> CommandTemplate {
        let parse = |text: &&str| Pattern::parse(text, KNOWN).expect("it is right");
        let item = |texts: &&[&str]| match texts {
            [one] => CommandItem::One(parse(one)),
            several => CommandItem::Together(several.iter().map(parse).collect()),
        };
        CommandTemplate::new("prog".to_owned(), items.iter().map(item).collect())
    }

    fn filled(template: &CommandTemplate, arguments: &Value) -> Vec<String> {
        let words = template.fill(arguments.as_object().expect("an object")).expect("they fit");
        let text = |word: &TemplateWord| word.render(Path::new("/jobs/x"), "x").into_string().expect("text");
        words.iter().map(text).collect()
    }

    #[test]
    fn j_145_one_item_stays_one_item() {
        let template =
            template(&[&["--name={args.name}"], &["{args.name}"], &["{job_dir}/in"], &["{job_id}"]]);
        let name = "a b; rm -rf / $(id) \"'\n{job_id} {args.cod}";
        let expect = ["prog", &format!("--name={name}"), name, "/jobs/x/in", "x"];
        assert_eq!(filled(&template, &json!({ "name": name })), expect);
    }

    #[test]
    fn what_is_absent_is_left_out_with_its_companions() {
        let template = template(&[&["-a"], &["--cod", "{args.cod}"], &["--days={args.days}"], &["-z"]]);
        for (arguments, expect) in [
            (json!({}), vec!["prog", "-a", "-z"]),
            (json!({ "cod": null, "days": 3 }), vec!["prog", "-a", "--days=3", "-z"]),
            (json!({ "cod": 0.5 }), vec!["prog", "-a", "--cod", "0.5", "-z"]),
        ] {
            assert_eq!(filled(&template, &arguments), expect);
        }
    }

    #[test]
    fn values_that_are_no_texts_are_json() {
        let template = template(&[&["{args.cod}"]]);
        for (value, expect) in [
            (json!(12), "12"),
            (json!(-1.5), "-1.5"),
            (json!(9_007_199_254_740_993_u64), "9007199254740993"),
            (json!(true), "true"),
            (json!(["a", 1, { "b": null }]), r#"["a",1,{"b":null}]"#),
            (json!(""), ""),
        ] {
            assert_eq!(filled(&template, &json!({ "cod": value })), ["prog", expect]);
        }
    }

    #[test]
    fn what_no_command_can_be_given_is_told() {
        let template = template(&[&["{args.name}"]]);
        for (value, expect) in [("a\0b".to_owned(), "zero byte"), ("x".repeat(MAX_ITEM), "input.json")] {
            let arguments = json!({ "name": value });
            let told = template.fill(arguments.as_object().unwrap()).expect_err("too much");
            assert!(told.starts_with("`name` has") && told.contains(expect), "{told}");
        }
    }

    #[test]
    fn f_13_an_item_has_one_byte_less_than_the_limit_with_all_that_stands_in_it() {
        let template = template(&[&["--x={args.name}"]]);
        let fill = |length: usize| {
            let arguments = json!({ "name": "x".repeat(length) });
            template.fill(arguments.as_object().unwrap())
        };
        assert!(fill(MAX_ITEM - 1 - "--x=".len()).is_ok());
        let told = fill(MAX_ITEM - "--x=".len()).expect_err("too much");
        assert!(
            told.contains("the item of the command with `name` has 131072 bytes, more than the 131071 that"),
            "{told}"
        );
        let told = fill(MAX_ITEM).expect_err("too much");
        assert!(told.starts_with("`name` has 131072 bytes, more than the 131071 that"), "{told}");
    }

    #[test]
    fn f_41_no_argument_becomes_an_option() {
        let bad = json!({ "name": "--output=/etc/passwd" });
        let told =
            |template: &CommandTemplate, arguments: &Value| template.fill(arguments.as_object().unwrap());
        for items in [
            &[&["{args.name}"][..]][..],
            &[&["{args.name}.txt"]],
            &[&["--cod", "{args.name}"]],
            &[&["{args.days}{args.name}"]],
            // What is left out protects nothing.
            &[&["--", "{args.cod}"], &["{args.name}"]],
        ] {
            let bad = json!({ "name": "--output=/etc/passwd", "days": "" });
            let why = told(&template(items), &bad).expect_err("it would be an option");
            assert!(why.starts_with("`name` begins with `-`") && why.contains("option-arguments"), "{why}");
        }
        for items in [
            &[&["--name={args.name}"][..]][..],
            &[&["--"], &["{args.name}"]],
            &[&["--", "{args.name}"]],
            &[&["x{args.name}"]],
        ] {
            assert!(told(&template(items), &bad).is_ok(), "{items:?}");
        }
        let lone = template(&[&["{args.name}"]]);
        assert!(told(&lone, &json!({ "name": -5 })).is_ok(), "a number is no option");
        assert!(told(&lone.with_options(vec!["name".to_owned()]), &bad).is_ok(), "the author says so");
    }

    #[test]
    fn unknown_placeholders_are_refused_and_plain_braces_are_not() {
        for (text, expect) in [
            ("{args.cood}", "did you mean `cod`?"),
            ("{args.}", "not one of the `properties`"),
            (
                "a{jobdir}",
                "`{jobdir}` is not a placeholder: the placeholders are {args.NAME}, {job_dir} and {job_id}",
            ),
            ("{{x} {y}", "`{x}` is not a placeholder"),
        ] {
            let told = Pattern::parse(text, KNOWN).expect_err(text);
            assert!(told.contains(expect), "{told}");
        }
        for (text, expect) in [
            (r#"{"a":{"b":1}}"#, r#"{"a":{"b":1}}"#),
            ("{}", "{}"),
            ("{ x }", "{ x }"),
            ("{{args.cod}}", "{args.cod}"),
            ("{", "{"),
            ("", ""),
            ("é{é", "é{é"),
        ] {
            assert_eq!(filled(&template(&[&[text]]), &json!({})), ["prog", expect]);
        }
    }
}
