//! One `[tools.NAME]` of the file.
//!
//! Invariants: the program of a command is the author's alone; a name that becomes a file in the job's folder is plain and
//! none of those that the job itself is kept in; a pointer is one of RFC 6901.

use std::path::Path;

use serde_json::{Value, json};
use unhang_switches::stands;

use super::{
    JobSettings, Mode, StateTarget, ToolSettings,
    keys::{MODES, STATE, TOOL},
    section::{Complaint, Field},
};
use crate::tools::{
    ArgumentSchema, Template,
    template::{Item, Pattern},
};

/// The longest name of a tool, as the newest revision has it.
const MAX_TOOL_NAME: usize = 128;
/// The longest name of a state field (design 7).
const MAX_FIELD_NAME: usize = 64;
/// The longest name of a file on every system that matters.
const MAX_FILE_NAME: usize = 255;
/// Files that the job itself is kept in (design 7).
const RESERVED: &[&str] =
    &["job.json", "input.json", "error.json", "stdout.log", "stderr.log", "lock", "run.json", "exit.json"];

pub(super) fn read(
    name: &str,
    field: &Field<'_>,
    folder: &Path,
    jobs: &JobSettings,
) -> Result<ToolSettings, Complaint> {
    if !is_tool_name(name) {
        return Err(field.complaint(format!(
            "is no name for a tool: use letters, digits, `_`, `-` and `.`, {MAX_TOOL_NAME} at most"
        )));
    }
    let section = field.section(TOOL)?;
    let input_schema = input_schema(section.get("input-schema").as_ref(), field)?;
    let command = command(&section.require("command")?, &input_schema.names())?;
    let description = section.get("description").map(|field| field.text().map(str::to_owned)).transpose()?;
    let mode = match section.get("mode") {
        Some(field) if field.word(MODES)? == 0 => Mode::Job,
        _ => Mode::Child,
    };
    let mut inputs = std::collections::BTreeMap::new();
    for (file, field) in section.get("inputs").map_or(Ok(Vec::new()), |field| field.fields())? {
        check_file_name(file, &field)?;
        inputs.insert(file.to_owned(), state_field(&field)?);
    }
    let results = section.get("results").map(|field| results(&field)).transpose()?;
    if let Some(name) = results.as_ref().filter(|name| inputs.contains_key(*name)) {
        return Err(field.complaint(format!("`{name}` is an input and the results as well")));
    }
    let state = section.get("state").map(|field| state(&field)).transpose()?;
    if state.is_some() && results.is_none() {
        return Err(
            field.complaint("`state` needs `results`: the file in which the command leaves what is stored")
        );
    }
    let mut environment = std::collections::BTreeMap::new();
    for (name, field) in section.get("env").map_or(Ok(Vec::new()), |field| field.fields())? {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(field.complaint("is no name for a variable"));
        }
        environment.insert(name.to_owned(), plain(field.expanded()?, &field)?);
    }
    let cwd = section.get("cwd").map(|field| plain(field.expanded()?, &field)).transpose()?;
    let (timeout, log_limit) = (section.get("timeout"), section.get("log-limit"));
    Ok(ToolSettings {
        name: name.to_owned(),
        description,
        command,
        mode,
        input_schema,
        inputs,
        results,
        state,
        timeout: timeout.map(|field| field.duration()).transpose()?.or(jobs.timeout),
        folder: cwd.map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd)),
        environment,
        log_limit: log_limit.map_or(Ok(jobs.log_limit), |field| field.size())?,
    })
}

fn command(field: &Field<'_>, arguments: &[&str]) -> Result<Template, Complaint> {
    let mut items = field.items()?.into_iter();
    let program = items.next().ok_or_else(|| field.complaint("is empty; its first item is the program"))?;
    let name = plain(program.expanded()?, &program)?;
    if name.is_empty() {
        return Err(program.complaint("is empty; it is the program"));
    }
    let pattern = |item: Field<'_>| {
        Pattern::parse(&plain(item.expanded()?, &item)?, arguments).map_err(|why| item.complaint(why))
    };
    let item = |item: Field<'_>| {
        if !item.is_list() {
            return pattern(item).map(Item::One);
        }
        let together = item.items()?.into_iter().map(pattern);
        together.collect::<Result<_, _>>().map(Item::Together)
    };
    Ok(Template::new(name, items.map(item).collect::<Result<_, Complaint>>()?))
}

/// A text that may become part of a command line or an environment.
fn plain(text: String, field: &Field<'_>) -> Result<String, Complaint> {
    if text.contains('\0') {
        return Err(field.complaint("has a zero byte in it, which no command can be given"));
    }
    Ok(text)
}

/// What a tool without a schema is called with: nothing.
fn input_schema(field: Option<&Field<'_>>, tool: &Field<'_>) -> Result<ArgumentSchema, Complaint> {
    let Some(field) = field else {
        let nothing = json!({ "type": "object", "additionalProperties": false });
        return ArgumentSchema::new(nothing).map_err(|why| tool.complaint(why));
    };
    let mut schema = field.object()?;
    // What a client sends are always the members of one object.
    match schema.get("type") {
        None => {
            schema.insert("type".to_owned(), "object".into());
        }
        Some(Value::String(kind)) if kind == "object" => {}
        Some(_) => return Err(field.complaint("must have `type = \"object\"`, since arguments have names")),
    }
    ArgumentSchema::new(schema.into()).map_err(|why| field.complaint(why))
}

fn results(field: &Field<'_>) -> Result<String, Complaint> {
    let name = field.text()?;
    check_file_name(name, field)?;
    Ok(name.to_owned())
}

fn state(field: &Field<'_>) -> Result<StateTarget, Complaint> {
    let section = field.section(STATE)?;
    let pointer = match section.get("pointer") {
        Some(field) => {
            let pointer = field.text()?;
            if !is_pointer(pointer) {
                return Err(field.complaint(
                    "is no JSON pointer: it is empty or begins with `/`, and `~` is followed by 0 or 1",
                ));
            }
            pointer.to_owned()
        }
        None => String::new(),
    };
    Ok(StateTarget { field: state_field(&section.require("field")?)?, pointer })
}

fn state_field(field: &Field<'_>) -> Result<String, Complaint> {
    let name = field.text()?;
    if !is_state_field(name) {
        return Err(field.complaint(format!(
            "`{name}` is no name for a state field: a letter or `_`, then letters, digits, `_`, `-` and `.`, \
             {MAX_FIELD_NAME} at most"
        )));
    }
    Ok(name.to_owned())
}

fn check_file_name(name: &str, field: &Field<'_>) -> Result<(), Complaint> {
    if RESERVED.contains(&name) && stands("job-files-reserved") {
        return Err(field.complaint(format!("`{name}` is a file that the job itself is kept in")));
    }
    if !is_file_name(name) && stands("job-files-stay-in-their-folder") {
        return Err(field.complaint(format!(
            "`{name}` is no plain file name; it lies in the job's folder and nowhere else"
        )));
    }
    Ok(())
}

fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && name.len() <= MAX_FILE_NAME && !name.contains(['/', '\\', '\0'])
}

fn is_tool_name(name: &str) -> bool {
    (1..=MAX_TOOL_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

/// Whether this can name a state field (design 7).
fn is_state_field(name: &str) -> bool {
    name.len() <= MAX_FIELD_NAME
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

fn is_pointer(text: &str) -> bool {
    let escaped = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    escaped && (text.is_empty() || text.starts_with('/'))
}
