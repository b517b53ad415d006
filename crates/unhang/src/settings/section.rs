//! The file as tables whose values know their places, so that each complaint names file, line and key.
//!
//! Invariants: an unknown key is a warning, a value of the wrong type is an error, and nothing is guessed.

use std::{cell::RefCell, collections::BTreeMap, fmt, ops::Range, time::Duration};

use serde_json::{Map, Value};
use toml::{
    Spanned,
    de::{DeInteger, DeTable, DeValue},
};

use super::{
    expand::expand,
    keys::{SettingKey, SettingKind},
};
use unhang_core::{
    insertion::InsertEach,
    promotion::{NoPromotion, Promotion},
    units::{parse_duration, parse_size},
    wording::{did_you_mean, nearest},
};

/// A mistake at one place of the file, or a likely one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Complaint {
    /// The file's name, as its reader called it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// The key, with the keys above it and dots between.
    pub key: String,
    /// The complaint, as a sentence without its end.
    pub text: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Complaint { file, line, column, key, text } = self;
        let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
        write!(formatter, "{file}:{line}:{column}: {key}{text}")
    }
}

/// The file that is being read.
pub(super) struct SettingsFile<'a> {
    pub file: &'a str,
    pub text: &'a str,
    pub lookup: &'a dyn Fn(&str) -> Option<String>,
    pub warnings: RefCell<Vec<Complaint>>,
}

impl<'a> SettingsFile<'a> {
    /// Parses a file in TOML.
    pub(super) fn toml(&self) -> Result<DeTable<'a>, Complaint> {
        DeTable::parse(self.text).map(Spanned::into_inner).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.complaint(at, "", format!("is not valid TOML: {}", error.message()))
        })
    }

    pub(super) fn complaint(&self, at: usize, key: &str, text: impl Into<String>) -> Complaint {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let begin = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let column = 1 + String::from_utf8_lossy(&before[begin..]).chars().count();
        Complaint { file: self.file.to_owned(), line, column, key: key.to_owned(), text: text.into() }
    }

    pub(super) fn warn(&self, complaint: Complaint) {
        self.warnings.borrow_mut().push(complaint);
    }
}

/// Returns the place of a key of this name in one of the tables below, such as `limits.busy-after`.
fn place_below(name: &str, keys: &[SettingKey]) -> Option<String> {
    keys.iter().find_map(|key| match key.kind {
        SettingKind::Section(below) => {
            below.iter().any(|below| below.name == name).then(|| format!("{}.{name}", key.name))
        }
        _ => None,
    })
}

/// A table of the file, and the keys that it may have.
pub(super) struct Section<'a> {
    source: &'a SettingsFile<'a>,
    path: String,
    at: usize,
    table: &'a DeTable<'a>,
    keys: &'static [SettingKey],
}

impl<'a> Section<'a> {
    /// Opens a table and warns about unknown keys in it.
    pub(super) fn open(
        source: &'a SettingsFile<'a>,
        path: String,
        at: usize,
        table: &'a DeTable<'a>,
        keys: &'static [SettingKey],
    ) -> Section<'a> {
        for name in table.keys() {
            if keys.iter().all(|key| key.name != name.get_ref()) {
                let hint = place_below(name.get_ref(), keys).map_or_else(
                    || did_you_mean(name.get_ref(), keys.iter().map(|key| key.name)),
                    |place| format!("; did you mean `{place}`?"),
                );
                let key = below(&path, name.get_ref());
                let text = format!("is not known and has no effect{hint}");
                source.warn(source.complaint(name.span().start, &key, text));
            }
        }
        Section { source, path, at, table, keys }
    }

    /// Opens a table that may have any keys.
    pub(super) fn any(source: &'a SettingsFile<'a>, table: &'a DeTable<'a>) -> Section<'a> {
        Section { source, path: String::new(), at: 0, table, keys: &[] }
    }

    /// Returns the value of a declared key, if the table has it.
    pub(super) fn get(&self, name: &str) -> Option<SettingValue<'a>> {
        debug_assert!(self.keys.iter().any(|key| key.name == name), "{name} is read but not declared");
        self.find(name)
    }

    /// Returns the value of a key that need not be declared, if the table has it.
    pub(super) fn find(&self, name: &str) -> Option<SettingValue<'a>> {
        let (key, value) = self.table.iter().find(|(key, _)| key.get_ref() == name)?;
        Some(SettingValue { source: self.source, path: below(&self.path, name), at: key.span(), value })
    }

    /// Returns the value of a key that must be there.
    pub(super) fn require(&self, name: &str) -> Result<SettingValue<'a>, Complaint> {
        let missing = || {
            let hint = self.meant(&[name]);
            self.source.complaint(self.at, &self.path, format!("`{name}` is missing{hint}"))
        };
        self.get(name).ok_or_else(missing)
    }

    /// Guesses which unknown key of the table is a misspelling of one of these. Returns the end of a sentence, or an empty text.
    pub(super) fn meant(&self, names: &[&str]) -> String {
        let known = |key: &str| self.keys.iter().any(|declared| declared.name == key);
        let written = self.table.keys().map(|key| key.get_ref().as_ref()).filter(|key| !known(key));
        misspelt(written, names)
    }
}

/// Guesses which of the written keys is a misspelling of a known one. Returns the end of a sentence, or an empty text.
fn misspelt<'k>(written: impl Iterator<Item = &'k str>, known: &[&str]) -> String {
    let mut pairs = written.filter_map(|key| Some((key, nearest(key, known.iter().copied())?)));
    pairs
        .next()
        .map_or_else(String::new, |(key, known)| format!("; `{key}` is not known: did you mean `{known}`?"))
}

fn below(path: &str, name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let name = if is_plain && !name.is_empty() { name.to_owned() } else { format!("{name:?}") };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

/// A value of the file.
pub(super) struct SettingValue<'a> {
    source: &'a SettingsFile<'a>,
    path: String,
    at: Range<usize>,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> SettingValue<'a> {
    /// Makes a complaint about this value.
    pub(super) fn complaint(&self, text: impl Into<String>) -> Complaint {
        self.source.complaint(self.at.start, &self.path, text)
    }

    /// Warns about this value.
    pub(super) fn warn(&self, text: &str) {
        self.source.warn(self.complaint(text));
    }

    fn expected(&self, what: &str) -> Complaint {
        self.complaint(format!("expected {what}, found {}", described(self.value.get_ref())))
    }

    /// Reads a text as it stands.
    pub(super) fn text(&self) -> Result<&'a str, Complaint> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.expected("a text in quotes")),
        }
    }

    /// Reads a text and expands its variables.
    pub(super) fn expanded(&self) -> Result<String, Complaint> {
        expand(self.text()?, self.source.lookup).map_err(|why| self.complaint(why))
    }

    /// Reads a text and expands its variables, for a command line, an environment or a request.
    pub(super) fn plain(&self) -> Result<String, Complaint> {
        let text = self.expanded()?;
        if text.contains('\0') {
            return Err(self.complaint("has a zero byte, which a command cannot take"));
        }
        Ok(text)
    }

    /// Reads a table of variables for a process. Every value has to be a text.
    pub(super) fn variables(&self) -> Result<BTreeMap<String, String>, Complaint> {
        let mut variables = BTreeMap::new();
        for (name, field) in self.fields()? {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(field.complaint("is not a name for a variable"));
            }
            variables.insert(name.to_owned(), field.plain()?);
        }
        Ok(variables)
    }

    /// Reads `true` or `false`.
    pub(super) fn flag(&self) -> Result<bool, Complaint> {
        match self.value.get_ref() {
            DeValue::Boolean(flag) => Ok(*flag),
            _ => Err(self.expected("`true` or `false`")),
        }
    }

    /// Reads a text, or turns a number or a flag into one. Returns `None` for other values.
    pub(super) fn loose(&self) -> Option<String> {
        match self.value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) => Some(number.as_str().to_owned()),
            DeValue::Float(number) => Some(number.as_str().to_owned()),
            DeValue::Boolean(flag) => Some(flag.to_string()),
            _ => None,
        }
    }

    /// Returns the value of a key. Returns `None` if this is not a table, or if the table does not have the key.
    pub(super) fn member(&self, name: &str) -> Option<SettingValue<'a>> {
        let (key, value) = self.table().ok()?.iter().find(|(key, _)| key.get_ref() == name)?;
        Some(SettingValue { source: self.source, path: below(&self.path, name), at: key.span(), value })
    }

    /// Guesses which key of this table is a misspelling of one of these. Returns the end of a sentence, or an empty text.
    pub(super) fn meant(&self, names: &[&str]) -> String {
        let keys = self.table().into_iter().flat_map(|table| table.keys());
        misspelt(keys.map(|key| key.get_ref().as_ref()), names)
    }

    /// Looks up a variable of the environment.
    pub(super) fn look_up(&self, name: &str) -> Option<String> {
        (self.source.lookup)(name)
    }

    /// Parses a length of time.
    pub(super) fn duration(&self) -> Result<Duration, Complaint> {
        match self.value.get_ref() {
            DeValue::String(text) => parse_duration(text).map_err(|why| self.complaint(why)),
            _ => Err(self.expected("a length of time with a unit in quotes, such as \"30s\" or \"5m\"")),
        }
    }

    /// Parses when a call becomes a job.
    pub(super) fn promotion(&self) -> Result<Promotion, Complaint> {
        match self.value.get_ref() {
            DeValue::String(text) => {
                text.parse().map_err(|error: NoPromotion| self.complaint(error.to_string()))
            }
            _ => Err(self.expected(
                "a length of time with a unit in quotes, such as \"30s\", or \"off\" or \"by-clock\"",
            )),
        }
    }

    /// Parses a number of bytes.
    pub(super) fn size(&self) -> Result<u64, Complaint> {
        match self.value.get_ref() {
            DeValue::String(text) => parse_size(text).map_err(|why| self.complaint(why)),
            _ => Err(self.expected("a size with a unit in quotes, such as \"8MiB\"")),
        }
    }

    /// Reads a whole number within these bounds.
    pub(super) fn whole(&self, (least, most): (u32, u32)) -> Result<u32, Complaint> {
        let number = match self.value.get_ref() {
            DeValue::Integer(number) => integer(number).and_then(|number| u32::try_from(number).ok()),
            _ => None,
        };
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| self.expected(&format!("a whole number from {least} to {most}")))
    }

    /// Reads one of these words. Returns its index among them.
    pub(super) fn word(&self, words: &[&str]) -> Result<usize, Complaint> {
        let quoted = words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ");
        let found = match self.value.get_ref() {
            DeValue::String(text) => words.iter().position(|word| word == text),
            _ => None,
        };
        found.ok_or_else(|| self.expected(&quoted))
    }

    /// Lists the fields of a table, in the order of the file.
    pub(super) fn fields(&self) -> Result<Vec<(&'a str, SettingValue<'a>)>, Complaint> {
        let mut fields: Vec<_> = self
            .table()?
            .iter()
            .map(|(key, value)| {
                let name: &str = key.get_ref();
                let path = below(&self.path, name);
                (name, SettingValue { source: self.source, path, at: key.span(), value })
            })
            .collect();
        fields.sort_unstable_by_key(|(_, field)| field.at.start);
        Ok(fields)
    }

    /// Lists the items of a list.
    pub(super) fn items(&self) -> Result<Vec<SettingValue<'a>>, Complaint> {
        let DeValue::Array(items) = self.value.get_ref() else { return Err(self.expected("a list")) };
        let item = |(index, value): (usize, &'a Spanned<DeValue<'a>>)| SettingValue {
            source: self.source,
            path: format!("{}[{index}]", self.path),
            at: value.span(),
            value,
        };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// Returns whether the value is this word.
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.value.get_ref(), DeValue::String(text) if text == word)
    }

    /// Returns whether the value is a text.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::String(_))
    }

    /// Returns whether the value is a list.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::Array(_))
    }

    /// Returns whether the value is a table.
    pub(super) fn is_table(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::Table(_))
    }

    /// Opens the value as a table with known keys.
    pub(super) fn section(&self, keys: &'static [SettingKey]) -> Result<Section<'a>, Complaint> {
        Ok(Section::open(self.source, self.path.clone(), self.at.start, self.table()?, keys))
    }

    fn table(&self) -> Result<&'a DeTable<'a>, Complaint> {
        match self.value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.expected("a table")),
        }
    }

    /// Converts a table into JSON, without checking its keys.
    pub(super) fn object(&self) -> Result<Map<String, Value>, Complaint> {
        self.fields()?.into_iter().map(|(name, field)| Ok((name.to_owned(), field.json()?))).try_insert_each()
    }

    /// Converts the value into JSON, without checking its keys.
    pub(super) fn json(&self) -> Result<Value, Complaint> {
        let no_such_number = || self.complaint("is a number that JSON does not have");
        Ok(match self.value.get_ref() {
            DeValue::String(text) => text.as_ref().into(),
            DeValue::Boolean(yes) => (*yes).into(),
            DeValue::Integer(number) => integer(number).ok_or_else(no_such_number)?.into(),
            DeValue::Float(number) => {
                let number = number.as_str().parse().ok().and_then(serde_json::Number::from_f64);
                number.ok_or_else(no_such_number)?.into()
            }
            DeValue::Datetime(moment) => moment.to_string().into(),
            DeValue::Array(_) => {
                self.items()?.iter().map(SettingValue::json).collect::<Result<Vec<Value>, _>>()?.into()
            }
            DeValue::Table(_) => self.object()?.into(),
        })
    }
}

fn integer(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Describes a value for the end of a sentence.
fn described(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() <= 40 => format!("the text {text:?}"),
        DeValue::String(_) => "a long text".to_owned(),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(yes) => format!("`{yes}`"),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
