//! `unhang call`, `read` and `prompt`: one request to one server, and its result on stdout.
//!
//! Invariants: the command never calls a tool that the server does not list. If a result says that the tool failed, the exit code is 1,
//! whatever else the result says.

use std::{
    fs,
    io::{self, IsTerminal},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use rustix::fs::{Access, access};
use serde_json::{Map, Value, json, value::RawValue};
use tokio::{
    sync::watch,
    time::{Instant, interval_at},
};
use unhang::{
    client::{Client, Error, JobResource, RequestOptions, ServerList},
    exit,
    fault::FaultKind,
    units::in_words,
    wording::nearest,
};
use unhang_terminal::failure::Format;
use unhang_terminal::{failure::CommandFailure, output, progress, text::escaped};

use super::{
    ClientContext, ServerTarget,
    argument_check::{check_prompt, check_tool},
    content::Writer,
    raw, run,
    terminal_questions::is_asking,
    typed_arguments::{arguments, object_within, texts},
};
use crate::arguments::client::{CallArguments, Prompt, Read, RequestArguments};

/// Calls a tool.
pub(in crate::commands) fn call(
    CallArguments { json, no_check, request }: &CallArguments,
    verbose: bool,
) -> ExitCode {
    run(&request.common, &request.ad_hoc, verbose, async |context| {
        ServerTarget::take(request, "tool")?;
        context.check_save(request)?;
        // The writer of a pipe may be slow, and the command needs no server to read from it.
        let given = match json.clone() {
            Some(json) => object_within(json, context.timeout()).await?,
            None => Map::new(),
        };
        let (client, tool, pairs) = context.asked(request, "tool").await?;
        client.ready().await?;
        let (since, limits) = (Instant::now(), client.limits());
        // The list of tools is part of the call, and also has the limit of its own request.
        let timeout = Some(limits.request_timeout.min(limits.call_timeout));
        let listing = RequestOptions { timeout, since: Some(since), ..RequestOptions::default() };
        let declared = one_of(&client, ServerList::Tools, "tool", tool, &listing).await?;
        let listed = since.elapsed();
        let arguments = arguments(given, pairs, declared.get("inputSchema"), !no_check)?;
        if !no_check {
            check_tool(tool, &arguments, declared.get("inputSchema"))?;
        }
        let call = async |options: &RequestOptions| {
            let options = RequestOptions { since: Some(since), ..options.clone() };
            client.call_tool_to_its_end(tool, arguments, &options).await
        };
        let result = context.with_progress(call).await;
        let result = result.map_err(|error| context.failed(behind_a_list(error, listed)))?;
        let members = parsed(&result);
        let has_failed = members["isError"] == true;
        let writer = writer(request, tool);
        if has_failed && (request.raw || context.format_of(request) == Format::Text) {
            let text = writer.tool(&members);
            writer.tell_unsaved();
            let text = output::plain_on_stderr(text.trim_end());
            output::error(&format!("`{}` failed: {text}", escaped(tool)), None);
            return Ok(exit::FAILED);
        }
        if request.raw && !io::stdout().is_terminal() {
            return Ok(context.print(raw::of_tool(&members)?).await);
        }
        let printed = context.print_result(request, &result, &writer, || writer.tool(&members)).await;
        Ok(if has_failed { exit::FAILED } else { printed })
    })
}

/// Reads a resource.
pub(in crate::commands) fn read(Read { request }: &Read, verbose: bool) -> ExitCode {
    run(&request.common, &request.ad_hoc, verbose, async |context| {
        let (client, uri, rest) = context.asked(request, "resource").await?;
        if !rest.is_empty() {
            return Err(CommandFailure::usage("a resource has no arguments".to_owned(), Some("see --help")));
        }
        let read = async |options: &RequestOptions| client.read_resource_to_its_end(uri, options).await;
        let result = match context.with_progress(read).await {
            Err(Error::Server(error)) if is_unknown(error.code) => {
                let known = listed(&client, ServerList::Resources, "uri").await.unwrap_or_default();
                return Err(unknown(&client, "resource", uri, &known, Some(&error.message)));
            }
            result => result.map_err(|error| context.failed(error))?,
        };
        let writer = writer(request, "resource");
        let printed = if request.raw && !io::stdout().is_terminal() {
            context.print(raw::of_resource(&parsed(&result))?).await
        } else {
            context.print_result(request, &result, &writer, || writer.resource(&parsed(&result))).await
        };
        // The command prints what the job has told so far. Its exit code is that of the job.
        not_completed(uri, &result).map_or(Ok(printed), Err)
    })
}

/// Returns a failure if this resource is a job that ended without completing, else `None`.
pub(super) fn not_completed(uri: &str, read: &RawValue) -> Option<CommandFailure> {
    let job = JobResource::read(uri, read).filter(JobResource::has_failed)?;
    let cause = job.cause.map_or_else(String::new, |cause| format!(": {cause}"));
    let data = json!({ "job_id": job.job.as_str(), "status": job.state.as_str() });
    Some(CommandFailure {
        code: exit::FAILED,
        kind: "not_completed",
        message: escaped(&format!("job {} {}{cause}", job.job, job.state)),
        hint: None,
        data: Some(data),
    })
}

/// Gets a prompt.
pub(in crate::commands) fn prompt(Prompt { request }: &Prompt, verbose: bool) -> ExitCode {
    run(&request.common, &request.ad_hoc, verbose, async |context| {
        let (client, name, pairs) = context.asked(request, "prompt").await?;
        let declared =
            one_of(&client, ServerList::Prompts, "prompt", name, &RequestOptions::default()).await?;
        let arguments = texts(pairs)?;
        check_prompt(name, &arguments, &declared)?;
        let get = async |options: &RequestOptions| client.get_prompt(name, arguments, options).await;
        let result = context.with_progress(get).await?;
        let writer = writer(request, name);
        Ok(context.print_result(request, &result, &writer, || writer.prompt(&parsed(&result))).await)
    })
}

fn writer<'a>(request: &'a RequestArguments, name: &'a str) -> Writer<'a> {
    Writer::new(request.save.as_deref().unwrap_or(Path::new(".")), name)
}

/// Refuses a folder in which nothing can be saved, before the command asks for something that it cannot get again.
fn check_folder(folder: &Path) -> Result<(), CommandFailure> {
    let unusable = |why: &str| {
        CommandFailure::usage(format!("--save {}: {why}", escaped(&folder.display().to_string())), None)
    };
    match fs::metadata(folder) {
        Ok(found) if !found.is_dir() => Err(unusable("it is not a folder")),
        Ok(_) => access(folder, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| unusable(&format!("it cannot be written to: {}", io::Error::from(error)))),
        Err(error) => Err(unusable(&error.to_string())),
    }
}

fn parsed(result: &RawValue) -> Value {
    serde_json::from_str(result.get()).unwrap_or_default()
}

/// Returns whether servers have used this error code for something that they do not have (protocol.md 1.3).
fn is_unknown(code: i64) -> bool {
    matches!(code, -32002 | -32602)
}

impl ClientContext<'_> {
    /// Returns the client of the server to ask, the name of the item to ask for, and the words after that.
    async fn asked<'a>(
        &self,
        request: &'a RequestArguments,
        what: &str,
    ) -> Result<(Client, &'a str, &'a [String]), CommandFailure> {
        let (target, first, rest) = ServerTarget::take(request, what)?;
        self.check_save(request)?;
        request.save.as_deref().map_or(Ok(()), check_folder)?;
        Ok((self.client(&target).await?, first, rest))
    }

    /// Refuses `--save` with `--output json`. JSON is the result as received, with the data in it, and would save nothing.
    fn check_save(&self, request: &RequestArguments) -> Result<(), CommandFailure> {
        if request.save.is_none() || self.format != Some(Format::Json) {
            return Ok(());
        }
        let message = "--save cannot be used with `--output json`, which prints the data itself".to_owned();
        let hint = "leave out `--output json` to save files and print their paths, or leave out --save";
        Err(CommandFailure::usage(message, Some(hint)))
    }

    /// Returns the format in which the result of this request is printed. `--save` asks for text, off a terminal too, because only text
    /// saves files.
    fn format_of(&self, request: &RequestArguments) -> Format {
        if request.save.is_some() { Format::Text } else { self.format() }
    }

    /// Prints a result as received, or as text. Returns [`exit::FAILED`] if the writer could not save a part of it.
    async fn print_result(
        &self,
        request: &RequestArguments,
        result: &RawValue,
        writer: &Writer<'_>,
        text: impl FnOnce() -> String,
    ) -> u8 {
        let printed = match self.format_of(request) {
            Format::Json if !request.raw => self.print_raw_json(format!("{}\n", result.get())).await,
            _ => self.print(text().into_bytes()).await,
        };
        if writer.tell_unsaved() { exit::FAILED } else { printed }
    }

    /// Makes a request. On a terminal, it shows how long the request takes and how far it is.
    async fn with_progress(
        &self,
        request: impl AsyncFnOnce(&RequestOptions) -> Result<Box<RawValue>, Error>,
    ) -> Result<Box<RawValue>, Error> {
        let options =
            RequestOptions { background: Some(self.background.clone()), ..RequestOptions::default() };
        let result =
            if io::stderr().is_terminal() { shown(request, options).await } else { request(&options).await };
        // The request is over, so the command waits for nothing in the background.
        self.background.send_replace(None);
        result
    }
}

/// Returns the names of the items that a server lists.
async fn listed(client: &Client, list: ServerList, member: &str) -> Result<Vec<String>, Error> {
    let items = client.list(list, &RequestOptions::default()).await?;
    let name = |item: &RawValue| {
        let members: Value = serde_json::from_str(item.get()).ok()?;
        Some(members[member].as_str()?.to_owned())
    };
    Ok(items.iter().filter_map(|item| name(item)).collect())
}

/// Returns the item of this name. Fails with the names that are known if the server lists no such item.
pub(super) async fn one_of(
    client: &Client,
    list: ServerList,
    what: &str,
    name: &str,
    options: &RequestOptions,
) -> Result<Value, CommandFailure> {
    let limits = client.limits();
    let items = client.list(list, options).await.map_err(|mut error| {
        if let Error::Failure(failure) = &mut error
            && failure.kind == FaultKind::Deadline
            && options.timeout.is_some_and(|limit| limit < limits.request_timeout)
        {
            "unhang cancelled the request; raise --call-timeout if it needs longer"
                .clone_into(&mut failure.hint);
        }
        error
    })?;
    let items: Vec<Value> = items.iter().filter_map(|item| serde_json::from_str(item.get()).ok()).collect();
    if let Some(found) = items.iter().find(|item| item["name"] == name) {
        return Ok(found.clone());
    }
    let names: Vec<String> =
        items.iter().filter_map(|item| item["name"].as_str().map(str::to_owned)).collect();
    Err(unknown(client, what, name, &names, None))
}

/// Adds to the error of a call how much of its time the list of tools took, if that was long.
fn behind_a_list(mut error: Error, listed: Duration) -> Error {
    if let Error::Failure(failure) = &mut error
        && failure.kind == FaultKind::Deadline
        && listed >= QUICK
    {
        failure.happened.push_str(&format!(", {} of which its list of tools took", in_words(listed)));
    }
    error
}

/// The time that a request may take before a line tells how long it takes.
const QUICK: Duration = Duration::from_millis(500);
/// The interval at which the elapsed time is drawn anew.
const TICK: Duration = Duration::from_millis(250);

/// The number of names that an error lists if none of them is similar.
const NAMES: usize = 10;

fn unknown(client: &Client, what: &str, name: &str, known: &[String], said: Option<&str>) -> CommandFailure {
    let said = said.map_or_else(String::new, |said| format!(" ({})", escaped(said)));
    let mut some: Vec<String> = known.iter().take(NAMES).map(|name| escaped(name)).collect();
    if known.len() > NAMES {
        some.push(format!("{} more", known.len() - NAMES));
    }
    let hint = match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{}`?", escaped(near)),
        None if known.is_empty() => format!("it has no {what}s"),
        None => format!("it has {}", some.join(", ")),
    };
    CommandFailure {
        code: exit::NOT_FOUND,
        kind: "not_found",
        message: format!("`{}` has no {what} `{}`{said}", client.name(), escaped(name)),
        hint: Some(hint),
        data: None,
    }
}

/// Makes a request, and shows how long it takes and how far it is.
async fn shown(
    request: impl AsyncFnOnce(&RequestOptions) -> Result<Box<RawValue>, Error>,
    options: RequestOptions,
) -> Result<Box<RawValue>, Error> {
    let (sender, mut seen) = watch::channel(None);
    let options = RequestOptions { progress: Some(sender), ..options };
    let mut request = std::pin::pin!(request(&options));
    let since = Instant::now();
    let mut ticks = interval_at(since + QUICK, TICK);
    let mut said = String::new();
    let result = loop {
        tokio::select! {
            result = &mut request => break result,
            Ok(()) = seen.changed() => {
                let params: Option<Box<RawValue>> = seen.borrow_and_update().clone();
                if let Some(params) = params {
                    said = progress_words(&serde_json::from_str(params.get()).unwrap_or_default());
                }
            }
            _ = ticks.tick() => {}
        }
        if !is_asking() {
            let line = format!("{}  {said}", in_words(Duration::from_secs(since.elapsed().as_secs())));
            progress::show(line.trim_end());
        }
    };
    progress::end();
    result
}

/// Returns the progress that the server reports, in words.
fn progress_words(params: &Value) -> String {
    let (done, total) = (params["progress"].as_f64(), params["total"].as_f64());
    let share = match (done, total) {
        (Some(done), Some(total)) if total > 0.0 => format!("{:.0} %  ", 100.0 * done / total),
        (Some(done), _) => format!("{done}  "),
        _ => String::new(),
    };
    format!("{share}{}", escaped(params["message"].as_str().unwrap_or_default()))
}
