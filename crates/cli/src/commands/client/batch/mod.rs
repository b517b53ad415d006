//! `unhang batch`: one request a line in, one outcome a line out, many at once.
//!
//! # Theory of operation
//!
//! ```text
//! file ─ lines (thread) ─ bounded channel ─ requests, at most -j at once ─ outcomes ─ bounded channel ─ out (thread) ─ stdout or OUT
//! ```
//!
//! Invariants
//!
//! - Memory does not grow with the number of lines: each stage is bounded, and waits for the next. `--resume` keeps their ids.
//! - Every outcome is written, however the batch ends. A line without an outcome does not count as done, so that `--resume` goes on from
//!   there.
//! - The outcome of an invalid line names its number, and the line stops no other.
//! - With `--resume` each id names one line. Otherwise the outcome of one line would count for another.

mod item;
mod lines;
mod out;
mod tally;

use std::{
    collections::HashMap, fs::File, os::unix::fs::FileTypeExt, path::Path, process::ExitCode, time::Duration,
};

use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};
use unhang::{
    client::{Client, RequestOptions},
    exit,
    process::deadline::Deadline,
};
use unhang_terminal::failure::CommandFailure;

use self::{
    item::{BatchItem, InvalidItem, ItemRequest},
    lines::{BatchLine, BatchLines, Ids, RepeatedId, twice},
    out::{BatchOutput, EarlierRun},
    tally::BatchTally,
};
use super::{
    ClientContext, ServerTarget, beside, call::not_completed, left_running::BackgroundCall, run, unread,
};
use crate::{arguments::client::Batch, commands::engine::CommandOutcome};

/// Runs a batch.
pub(in crate::commands) fn batch(batch: &Batch, verbose: bool) -> ExitCode {
    run(&batch.common, &batch.ad_hoc, verbose, async |context| {
        BatchWork::new(context, batch).await?.through().await
    })
}

struct BatchWork<'a> {
    context: &'a ClientContext<'a>,
    batch: &'a Batch,
    earlier: EarlierRun,
    /// The ids of the lines so far, if two lines may not share an id.
    ids: Option<Ids>,
    lines: BatchLines,
    // Fields are dropped in order: the outcomes are written before the tally tells of them.
    out: BatchOutput,
    tally: BatchTally,
    clients: HashMap<String, Client>,
    deadline: Deadline,
}

/// Opens the lines, and the file that the outcomes are added to. It may wait for the writer of the file.
fn opened(
    file: &Path,
    resume: Option<&Path>,
) -> Result<(BatchLines, EarlierRun, Option<File>), CommandFailure> {
    let unusable = |path: &Path, error: &std::io::Error| {
        CommandFailure::usage(format!("{} cannot be used: {error}", path.display()), None)
    };
    // The check that may refuse the batch comes first, because opening the other file may wait.
    if resume.is_some_and(|resume| resume != file)
        && let Some(twice) = twice(file).map_err(|error| unusable(file, &error))?
    {
        let hint = "give each line an id of its own, or none: then unhang uses its number";
        return Err(CommandFailure::usage(format!("{}: {}", file.display(), told_twice(&twice)), Some(hint)));
    }
    let earlier = match resume {
        Some(path) => Some(EarlierRun::read(path, file).map_err(|error| unusable(path, &error))?),
        None => None,
    };
    let lines = BatchLines::open(file).map_err(|error| unusable(file, &error))?;
    let (earlier, out) = earlier.map_or_else(Default::default, |(earlier, out)| (earlier, Some(out)));
    Ok((lines, earlier, out))
}

fn told_twice(RepeatedId { id, first, again }: &RepeatedId) -> String {
    format!(
        "the id {id} is in line {first} and in line {again}, and --resume needs a different id for each \
        line"
    )
}

fn not_done_within(limit: Option<Duration>) -> String {
    format!("the batch was not done within {}", unhang::units::in_words(limit.unwrap_or_default()))
}

/// The outcome of an item: the text that goes out, and whether all was well.
struct ItemDone {
    text: Vec<u8>,
    is_ok: bool,
}

impl<'a> BatchWork<'a> {
    async fn new(context: &'a ClientContext<'a>, batch: &'a Batch) -> Result<Self, CommandFailure> {
        let deadline = Deadline::after(batch.timeout.unwrap_or(Duration::MAX));
        if batch.command.is_empty() {
            // The lines name servers. If a file cannot be read, the batch reports it once, before anything starts, and not for each line.
            context.known().await?;
        }
        let (file, resume) = (batch.file.clone(), batch.resume.clone());
        // The file may be a pipe without a writer so far, or a long file to look through.
        let opening = async {
            let is_pipe = file.metadata().is_ok_and(|found| found.file_type().is_fifo());
            let limit = if is_pipe { context.timeout() } else { Duration::MAX };
            let shown = file.display().to_string();
            let opened = beside(move || opened(&file, resume.as_deref()));
            tokio::time::timeout(limit, opened).await.unwrap_or_else(|_| Err(unread(&shown, limit)))
        };
        let (lines, earlier, out) = deadline.timeout(opening).await.map_err(|_| CommandFailure {
            code: exit::DEADLINE,
            kind: "deadline",
            message: not_done_within(batch.timeout),
            hint: Some("raise --timeout, or check the program that writes the file".to_owned()),
            data: None,
        })??;
        let tally = BatchTally::new(lines.count());
        let out = match out {
            Some(file) => BatchOutput::new(file),
            None => BatchOutput::new(tally.beside(unhang_terminal::output::JsonLines)),
        };
        let out = out.map_err(|error| CommandFailure::system("a thread cannot be started", &error))?;
        let ids = batch.resume.is_some().then(Ids::default);
        Ok(Self { context, batch, earlier, ids, lines, out, tally, clients: HashMap::new(), deadline })
    }

    async fn through(mut self) -> CommandOutcome {
        let mut running = JoinSet::new();
        let mut has_ended = false;
        let code = loop {
            if has_ended && running.is_empty() {
                break if self.tally.is_all_well() { exit::DONE } else { exit::FAILED };
            }
            let may_take = !has_ended && running.len() < self.batch.jobs();
            tokio::select! {
                biased;
                Some(done) = running.join_next(), if !running.is_empty() => {
                    // The panic has been reported, and its request has no outcome.
                    let Ok(done) = done else { break exit::BUG };
                    if let Err(code) = self.done(done).await {
                        break code;
                    }
                    if !self.tally.is_all_well() && self.batch.fail_fast {
                        tracing::debug!("stopping at the first that failed");
                        break exit::FAILED;
                    }
                }
                line = self.lines.next(), if may_take => match line {
                    Some(Ok((number, line))) => self.begin(number, &line, &mut running).await,
                    Some(Err(error)) => {
                        let what = format!("the rest of {} cannot be read", self.batch.file.display());
                        self.tally.aside(|| CommandFailure::system(&what, &error).print(self.context.format));
                        self.tally.spoil();
                        has_ended = true;
                    }
                    None => has_ended = true,
                },
                () = self.deadline.sleep() => {
                    let failure = CommandFailure {
                        code: exit::DEADLINE,
                        kind: "deadline",
                        message: not_done_within(self.batch.timeout),
                        hint: Some("raise --timeout, or go on with --resume".to_owned()),
                        data: None,
                    };
                    self.tally.aside(|| failure.print(self.context.format));
                    break exit::DEADLINE;
                }
            }
        };
        let written = self.out.finish().await;
        self.tally.close();
        // If nobody reads stdout, the batch ends quietly, whatever the other outcomes were.
        written.map_or_else(Ok, |()| Ok(code))
    }

    async fn done(&mut self, done: ItemDone) -> Result<(), u8> {
        self.tally.count(done.is_ok);
        self.out.write(done.text).await
    }

    /// Begins the request of a line, unless an earlier run did it.
    async fn begin(&mut self, number: u64, line: &BatchLine, running: &mut JoinSet<ItemDone>) {
        let read = match line {
            BatchLine::Whole(line) if line.trim_ascii().is_empty() => return,
            BatchLine::Whole(line) => BatchItem::read(number, line).and_then(|item| self.met(item)),
            BatchLine::TooLong => Err(InvalidItem::too_long()),
        };
        let item = match read {
            Ok(item) if self.earlier.has(&item) => {
                self.tally.skip();
                return;
            }
            Ok(item) => item,
            Err(InvalidItem { id, reason }) => {
                let error =
                    json!({ "kind": "bad_line", "message": format!("line {number}: {reason}"), "data": {} });
                self.tally.begin();
                running.spawn(async move { outcome(id, number, ItemAnswer::Error(error), Instant::now()) });
                return;
            }
        };
        self.tally.begin();
        let begun = Instant::now();
        let BatchItem { id, server, asked, .. } = item;
        match self.client(server.as_deref()).await {
            Ok(client) => {
                self.tally.ask(client.name(), &asked);
                let is_remote = self.context.is_remote(client.name());
                running.spawn(async move {
                    let uri = if let ItemRequest::Resource(uri) = &asked { Some(uri.clone()) } else { None };
                    let answer = asked.of(&client, &RequestOptions::default()).await;
                    let answer = match answer {
                        Ok(result) => {
                            let failed = uri.and_then(|uri| not_completed(&uri, &result));
                            ItemAnswer::Result(result.get().to_owned(), failed.map(|failed| failed.members()))
                        }
                        Err(error) => ItemAnswer::Error(match BackgroundCall::behind(&error, is_remote) {
                            Some(left) => left.told_beforehand().await.members(),
                            None => CommandFailure::from(error).members(),
                        }),
                    };
                    outcome(id, number, answer, begun)
                });
            }
            Err(failure) => {
                let error = failure.members();
                running.spawn(async move { outcome(id, number, ItemAnswer::Error(error), begun) });
            }
        }
    }

    /// Refuses an item whose id another line has, if lines are known by their ids.
    fn met(&mut self, item: BatchItem) -> Result<BatchItem, InvalidItem> {
        let (Some(ids), Some(id)) = (&mut self.ids, &item.id) else { return Ok(item) };
        match ids.meet(id, item.line) {
            Ok(()) => Ok(item),
            Err(twice) => Err(InvalidItem { reason: told_twice(&twice), id: item.id }),
        }
    }

    /// Returns the client of the server that a line names. It starts the server at its first line.
    async fn client(&mut self, name: Option<&str>) -> Result<Client, CommandFailure> {
        let key = name.unwrap_or_default();
        // A server that has gone is started again, so that the next lines may succeed.
        if let Some(client) = self.clients.get(key).filter(|client| client.is_usable()) {
            return Ok(client.clone());
        }
        let target = match (name, &self.batch.command[..]) {
            (Some(name), _) => Ok(ServerTarget::Named(name.to_owned())),
            (None, []) => Err(CommandFailure::usage(
                "the line names no `server`".to_owned(),
                Some("or give a server's command after `--`"),
            )),
            (None, command) => Ok(ServerTarget::Command(command.to_vec())),
        };
        let client = self.context.client(&target?).await?;
        self.clients.insert(key.to_owned(), client.clone());
        Ok(client)
    }
}

/// The answer to a request.
enum ItemAnswer {
    /// A result. If it tells of something else that failed, the error comes with it.
    Result(String, Option<Value>),
    /// An error instead of a result.
    Error(Value),
}

/// Makes the line that goes out.
fn outcome(id: Option<Value>, line: u64, answer: ItemAnswer, begun: Instant) -> ItemDone {
    let mut text = String::from("{");
    if let Some(id) = id {
        text.push_str(&format!("\"id\":{id},"));
    }
    // Finer times than microseconds mean nothing.
    let ms = (begun.elapsed().as_secs_f64() * 1e6).round() / 1e3;
    let (is_ok, told) = match answer {
        ItemAnswer::Result(result, failed) => {
            // Line breaks between its members become spaces. Strings in JSON contain none.
            let result = result.replace(['\n', '\r'], " ");
            let is_ok = failed.is_none() && !item::says_error(&result);
            let failed = failed.map_or_else(String::new, |error| format!(",\"error\":{error}"));
            (is_ok, format!("\"result\":{result}{failed}"))
        }
        ItemAnswer::Error(error) => (false, format!("\"error\":{error}")),
    };
    text.push_str(&format!("\"line\":{line},\"ok\":{is_ok},{told},\"ms\":{ms}}}\n"));
    ItemDone { text: text.into_bytes(), is_ok }
}

impl ItemRequest {
    async fn of(
        self,
        client: &Client,
        options: &RequestOptions,
    ) -> Result<Box<serde_json::value::RawValue>, unhang::client::Error> {
        match self {
            ItemRequest::Tool(tool, arguments) => {
                client.call_tool_to_its_end(&tool, arguments, options).await
            }
            ItemRequest::Resource(uri) => client.read_resource_to_its_end(&uri, options).await,
            ItemRequest::Prompt(prompt, arguments) => client.get_prompt(&prompt, arguments, options).await,
        }
    }
}
