//! One `[tools.NAME]` of the file.
//!
//! Invariants: the program of a command is the author's alone. Names of files and state fields are checked by the engine's rules, so
//! mistakes are found here, with their lines.

use std::{path::Path, str::FromStr};

use serde_json::{Value, json};
use unhang_jobs::{
    folder::{ARGUMENTS, FileName},
    record::Patch,
    submission::LOG_LIMIT,
};

use super::{
    JobSettings, Mode, ToolSettings,
    keys::{MODES, STATE, TOOL},
    section::{Complaint, SettingValue},
    workers::placement,
};
use unhang_core::wording::did_you_mean;
use unhang_tools::{
    ArgumentSchema, CommandTemplate,
    template::{CommandItem, Pattern},
};

/// The longest name of a tool, according to the newest revision.
const MAX_TOOL_NAME: usize = 128;
pub(super) fn read(
    name: &str,
    field: &SettingValue<'_>,
    folder: &Path,
    jobs: &JobSettings,
) -> Result<ToolSettings, Complaint> {
    if !is_tool_name(name) {
        return Err(field.complaint(format!(
            "is not a name for a tool: use letters, digits, `_`, `-` and `.`, at most {MAX_TOOL_NAME}"
        )));
    }
    let section = field.section(TOOL)?;
    let input_schema = input_schema(section.get("input-schema").as_ref(), field)?;
    let names = input_schema.names();
    let options =
        section.get("option-arguments").map(|field| option_arguments(&field, &names)).transpose()?;
    let command = command(&section.require("command")?, &names)?.with_options(options.unwrap_or_default());
    let description = section.get("description").map(|field| field.text().map(str::to_owned)).transpose()?;
    let mode = match section.get("mode") {
        Some(field) if field.word(MODES)? == 0 => Mode::Job,
        _ => Mode::Child,
    };
    let mut inputs = Vec::new();
    for (file, field) in section.get("inputs").map_or(Ok(Vec::new()), |field| field.fields())? {
        inputs.push((file_name(file, &field)?, parsed(&field)?));
    }
    let results = section.get("results").map(|field| file_name(field.text()?, &field)).transpose()?;
    if let Some(name) = results.as_ref().filter(|results| inputs.iter().any(|(name, _)| name == *results)) {
        return Err(field.complaint(format!("`{}` is both an input and the results", name.as_str())));
    }
    let state = section.get("state").map(|field| state(&field)).transpose()?;
    if state.is_some() && results.is_none() {
        return Err(
            field.complaint("`state` needs `results`: the file to which the command writes its results")
        );
    }
    let environment = section.get("env").map(|field| field.variables()).transpose()?.unwrap_or_default();
    let cwd = section.get("cwd").map(|field| field.plain()).transpose()?;
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
        inherits_environment: section.get("inherit-env").map_or(Ok(false), |field| field.flag())?,
        log_limit: log_limit.map(|field| field.size()).transpose()?.or(jobs.log_limit).unwrap_or(LOG_LIMIT),
        placement: placement(&section)?,
    })
}

fn command(field: &SettingValue<'_>, arguments: &[&str]) -> Result<CommandTemplate, Complaint> {
    let mut items = field.items()?.into_iter();
    let program = items.next().ok_or_else(|| field.complaint("is empty; its first item is the program"))?;
    let name = program.plain()?;
    if name.is_empty() {
        return Err(program.complaint("is empty; it must name the program"));
    }
    let pattern =
        |item: SettingValue<'_>| Pattern::parse(&item.plain()?, arguments).map_err(|why| item.complaint(why));
    let item = |item: SettingValue<'_>| {
        if !item.is_list() {
            return pattern(item).map(CommandItem::One);
        }
        let together = item.items()?.into_iter().map(pattern);
        together.collect::<Result<_, _>>().map(CommandItem::Together)
    };
    Ok(CommandTemplate::new(name, items.map(item).collect::<Result<_, Complaint>>()?))
}

/// Reads the arguments whose values may be options of the command.
fn option_arguments(field: &SettingValue<'_>, known: &[&str]) -> Result<Vec<String>, Complaint> {
    let argument = |item: &SettingValue<'_>| {
        let name = item.plain()?;
        if known.contains(&name.as_str()) {
            return Ok(name);
        }
        let hint = did_you_mean(&name, known.iter().copied());
        Err(item.complaint(format!("`{name}` is not one of the `properties` of input-schema{hint}")))
    };
    field.items()?.iter().map(argument).collect()
}

/// Reads the schema of a tool's arguments. A tool without a schema takes no arguments.
fn input_schema(
    field: Option<&SettingValue<'_>>,
    tool: &SettingValue<'_>,
) -> Result<ArgumentSchema, Complaint> {
    let Some(field) = field else {
        let nothing = json!({ "type": "object", "additionalProperties": false });
        return ArgumentSchema::new(nothing).map_err(|why| tool.complaint(why));
    };
    let mut schema = field.object()?;
    // A client always sends the members of one object.
    match schema.get("type") {
        None => {
            schema.insert("type".to_owned(), "object".into());
        }
        Some(Value::String(kind)) if kind == "object" => {}
        Some(_) => return Err(field.complaint("must have `type = \"object\"`, because arguments have names")),
    }
    ArgumentSchema::new(schema.into()).map_err(|why| field.complaint(why))
}

fn state(field: &SettingValue<'_>) -> Result<Patch, Complaint> {
    let section = field.section(STATE)?;
    let pointer = section.get("pointer").map(|field| parsed(&field)).transpose()?;
    Ok(Patch { field: parsed(&section.require("field")?)?, pointer, is_shared: false })
}

/// Reads a text and parses it with the engine's parser.
fn parsed<T: FromStr<Err: ToString>>(field: &SettingValue<'_>) -> Result<T, Complaint> {
    field.text()?.parse().map_err(|error: T::Err| field.complaint(error.to_string()))
}

fn file_name(name: &str, field: &SettingValue<'_>) -> Result<FileName, Complaint> {
    if name == ARGUMENTS {
        return Err(field.complaint(format!(
            "`{name}` cannot be a file of a tool's job: unhang writes the arguments of the call to that \
             file"
        )));
    }
    FileName::new(name).map_err(|error| field.complaint(error.to_string()))
}

fn is_tool_name(name: &str) -> bool {
    (1..=MAX_TOOL_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}
