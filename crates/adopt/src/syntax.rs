//! JSON with comments and TOML as one tree, in which each value knows its place in the text.
//!
//! Invariants: ranges are byte ranges of the whole text, with a byte order mark if it has one. Members stand in the order of the text.

use std::ops::Range;

use jsonc_parser::{
    CollectOptions, ParseOptions,
    ast::{Object, Value},
    common::Ranged,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::patch::in_order;

/// The mark with which some editors begin a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The syntax of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSyntax {
    /// JSON, with comments and trailing commas if the client takes them.
    Json,
    /// TOML.
    Toml,
}

/// The reason why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {why}")]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// The reason, as a sentence without its end.
    pub why: String,
}

/// A value and its place.
#[derive(Debug)]
pub(crate) struct PlacedValue {
    pub(crate) range: Range<usize>,
    pub(crate) node: PlacedNode,
}

/// The kinds of values.
#[derive(Debug)]
pub(crate) enum PlacedNode {
    Text(String),
    Flag(bool),
    List(Vec<PlacedValue>),
    Table(Vec<PlacedMember>),
    /// A number, a time or `null`.
    Other,
}

/// A key with its value.
#[derive(Debug)]
pub(crate) struct PlacedMember {
    pub(crate) name: String,
    /// The place of the key. In TOML it is the last part of a dotted key.
    pub(crate) key: Range<usize>,
    pub(crate) value: PlacedValue,
}

impl PlacedValue {
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.node {
            PlacedNode::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[PlacedValue]> {
        match &self.node {
            PlacedNode::List(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn table(&self) -> Option<&[PlacedMember]> {
        match &self.node {
            PlacedNode::Table(members) => Some(members),
            _ => None,
        }
    }

    /// Returns the value of the first key of this name, if this is a table that has it.
    pub(crate) fn member(&self, name: &str) -> Option<&PlacedMember> {
        self.members(name).next()
    }

    /// Returns the values of all keys of this name. A file in JSON may have several.
    pub(crate) fn members<'d>(&'d self, name: &str) -> impl Iterator<Item = &'d PlacedMember> {
        self.table().unwrap_or_default().iter().filter(move |member| member.name == name)
    }
}

/// Parses a text into a tree whose root is a table.
///
/// # Errors
/// Fails with the place of the first mistake.
pub(crate) fn parse(text: &str, syntax: FileSyntax) -> Result<PlacedValue, SyntaxError> {
    let begin = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
    let tree = match syntax {
        FileSyntax::Json => json_tree(&text[begin..], begin),
        FileSyntax::Toml => toml_tree(&text[begin..], begin),
    };
    tree.map_err(|(at, why)| {
        let before = &text[begin..][..at.min(text.len() - begin)];
        let line_begin = before.rfind('\n').map_or(0, |end| end + 1);
        SyntaxError {
            line: 1 + before.matches('\n').count(),
            column: 1 + before[line_begin..].chars().count(),
            why,
        }
    })
}

/// A tree, or the place of a mistake and its reason.
type Parsed = Result<PlacedValue, (usize, String)>;

fn json_tree(text: &str, begin: usize) -> Parsed {
    let options = ParseOptions {
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        ..ParseOptions::default()
    };
    let parsed = jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &options)
        .map_err(|error| (boundary(text, error.range().start), format!("{}", error.kind())))?;
    match parsed.value {
        Some(value @ Value::Object(_)) => Ok(of_json(value, begin)),
        Some(other) => Err((other.range().start, "the file is JSON, but not an object".to_owned())),
        None => Err((0, "the file is empty".to_owned())),
    }
}

fn of_json(value: Value<'_>, begin: usize) -> PlacedValue {
    let range = value.range();
    let node = match value {
        Value::StringLit(text) => PlacedNode::Text(text.value.into_owned()),
        Value::BooleanLit(flag) => PlacedNode::Flag(flag.value),
        Value::Array(array) => {
            PlacedNode::List(array.elements.into_iter().map(|item| of_json(item, begin)).collect())
        }
        Value::Object(object) => PlacedNode::Table(of_object(object, begin)),
        Value::NumberLit(_) | Value::NullKeyword(_) => PlacedNode::Other,
    };
    PlacedValue { range: range.start + begin..range.end + begin, node }
}

fn of_object(object: Object<'_>, begin: usize) -> Vec<PlacedMember> {
    let member = |property: jsonc_parser::ast::ObjectProp<'_>| {
        let key = property.name.range();
        PlacedMember {
            key: key.start + begin..key.end + begin,
            value: of_json(property.value, begin),
            name: property.name.into_string(),
        }
    };
    object.properties.into_iter().map(member).collect()
}

fn toml_tree(text: &str, begin: usize) -> Parsed {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        (boundary(text, at), error.message().to_owned())
    })?;
    let members = of_toml_table(table.into_inner(), begin);
    Ok(PlacedValue { range: begin..begin + text.len(), node: PlacedNode::Table(members) })
}

fn of_toml_table(table: DeTable<'_>, begin: usize) -> Vec<PlacedMember> {
    let member = |(key, value): (Spanned<_>, Spanned<DeValue<'_>>)| {
        let place = key.span();
        PlacedMember {
            key: place.start + begin..place.end + begin,
            value: of_toml(value, begin),
            name: std::borrow::Cow::into_owned(key.into_inner()),
        }
    };
    // The table is sorted by name.
    in_order(table.into_iter().map(member).collect(), |member: &PlacedMember| member.key.start)
}

fn of_toml(value: Spanned<DeValue<'_>>, begin: usize) -> PlacedValue {
    let range = value.span();
    let node = match value.into_inner() {
        DeValue::String(text) => PlacedNode::Text(text.into_owned()),
        DeValue::Boolean(flag) => PlacedNode::Flag(flag),
        DeValue::Array(items) => {
            PlacedNode::List(items.into_iter().map(|item| of_toml(item, begin)).collect())
        }
        DeValue::Table(table) => PlacedNode::Table(of_toml_table(table, begin)),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Datetime(_) => PlacedNode::Other,
    };
    PlacedValue { range: range.start + begin..range.end + begin, node }
}

/// Returns the nearest boundary of characters at or before this byte.
fn boundary(text: &str, at: usize) -> usize {
    text.floor_char_boundary(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_told_with_line_and_column_behind_a_byte_order_mark_too() {
        let told = |text: &str, syntax| {
            let error = parse(text, syntax).expect_err("it is wrong");
            (error.line, error.column)
        };
        assert_eq!(told("{\n  \"a\": 1\n  \"b\": 2\n}", FileSyntax::Json), (2, 9));
        assert_eq!(told("\u{feff}{\n  \"ä\": 1 \"b\": 2\n}", FileSyntax::Json), (2, 9));
        assert_eq!(told("{'a': 1}", FileSyntax::Json), (1, 2));
        assert_eq!(told("a = 1\nb = = 2\n", FileSyntax::Toml).0, 2);
        for text in ["", "[1]", "// nothing"] {
            assert!(parse(text, FileSyntax::Json).is_err(), "{text}");
        }
    }

    #[test]
    fn every_value_knows_its_place() {
        for (text, syntax) in [
            ("\u{feff}{\"a\": {\"b\": [\"c\"]}}", FileSyntax::Json),
            ("\u{feff}[a]\nb = [\"c\"]\n", FileSyntax::Toml),
            ("a.b = ['c']", FileSyntax::Toml),
        ] {
            let tree = parse(text, syntax).expect("it is right");
            let member = tree.member("a").and_then(|member| member.value.member("b")).expect("it is there");
            assert_eq!(text[member.key.clone()].trim_matches('"'), "b");
            let list = &text[member.value.range.clone()];
            assert!(list.starts_with('[') && list.ends_with(']'), "{list}");
            let item = &member.value.list().expect("a list")[0];
            assert_eq!((item.text(), &text[item.range.clone()][1..2]), (Some("c"), "c"));
        }
    }
}
