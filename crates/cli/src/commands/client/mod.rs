//! The shared parts of the commands that ask servers.
//!
//! Invariants
//!
//! - A command ends by itself, whatever the servers do: each wait has a limit, and so has the end (C-74).
//! - However it ends, it ends every server that it started, and the exit code is that of the outcome.
//! - Data goes to stdout, everything else to stderr. If nobody reads it, the command ends quietly.

mod argument_check;
mod batch;
mod call;
pub(super) mod content;
mod elicitation_form;
pub(super) mod files;
mod left_running;
mod list;
mod one_tool;
mod ping;
mod raw;
mod schema;
pub(super) mod server_launch;
mod servers;
mod terminal_questions;
mod typed_arguments;

use std::{
    cell::{OnceCell, RefCell},
    collections::HashSet,
    ffi::OsString,
    io::{self, IsTerminal},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use serde::Serialize;
use tokio::{
    join,
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::timeout,
};
use unhang::{
    client::{Client, ClientSpec, Endpoint, ServerPool, UnfinishedCall},
    config::{EXIT_LIMIT, REQUEST_TIMEOUT},
    doctor::Starts,
    exit,
    guard::Stop,
    settings::LimitSettings,
    units::in_words,
};
use unhang_terminal::failure::Format;
use unhang_terminal::{failure::CommandFailure, output, progress, text::escaped};

pub(super) use self::{
    batch::batch, call::call, call::prompt, call::read, list::list, list::tools, ping::ping, servers::servers,
};
use self::{left_running::BackgroundCall, terminal_questions::TerminalUser};
use super::engine::{CommandOutcome, to_its_end};
use crate::{
    arguments::{
        client::{AdHoc, RequestArguments, ServerCommon},
        files::FileChoice,
    },
    commands::client::files::{ConfiguredServers, FoundServer},
    server_name::server_name,
    signals::signals,
};

/// The state of one command at work.
pub(super) struct ClientContext<'a> {
    pool: ServerPool,
    /// The flags for a server that is in no file.
    ad_hoc: &'a AdHoc,
    /// The choice of files to read.
    choice: FileChoice,
    known: OnceCell<ConfiguredServers>,
    limits: LimitSettings,
    format: Option<Format>,
    /// The call that went on in the background when the command stopped waiting for it.
    left: RefCell<Option<BackgroundCall>>,
    /// The call that goes on in the background while the command waits for it.
    background: watch::Sender<Option<UnfinishedCall>>,
    /// The names of the servers that are reached over HTTP.
    remote: RefCell<HashSet<String>>,
    /// The servers of examinations, which the pool does not have.
    pub(super) examinations: Arc<Starts>,
}

/// Runs a command to its end, ends its servers, and prints any error.
pub(super) fn run(
    common: &ServerCommon,
    ad_hoc: &AdHoc,
    verbose: bool,
    work: impl AsyncFnOnce(&ClientContext<'_>) -> CommandOutcome,
) -> ExitCode {
    to_its_end(common.output, verbose, async || {
        let context = ClientContext::new(common, ad_hoc);
        let mut stops =
            signals().map_err(|error| CommandFailure::system("signals cannot be waited for", &error))?;
        let outcome = tokio::select! {
            outcome = work(&context) => outcome,
            Some(stop) = stops.recv() => {
                context.stop(stop);
                Ok(stop.exit_code())
            }
        };
        context.end(&mut stops).await;
        // Only now it is known whether the call goes on without this command.
        match context.left.take() {
            Some(left) => tokio::select! {
                told = left.told() => Err(told),
                Some(_) = stops.recv() => outcome,
            },
            None => outcome,
        }
    })
}

/// The server that a command line names.
pub(super) enum ServerTarget {
    /// A configured server, or a URL.
    Named(String),
    /// The command of a server.
    Command(Vec<OsString>),
}

impl ServerTarget {
    /// Takes the server from the words of a command line, and returns the item to ask for and the words after it too. The server is the
    /// first word if no command follows.
    fn take<'a>(
        request: &'a RequestArguments,
        what: &str,
    ) -> Result<(ServerTarget, &'a str, &'a [String]), CommandFailure> {
        match (&request.command[..], &request.words[..]) {
            ([], [server, first, rest @ ..]) => Ok((ServerTarget::Named(server.clone()), first, rest)),
            ([_, ..], [first, rest @ ..]) => {
                Ok((ServerTarget::Command(request.command.clone()), first, rest))
            }
            ([], []) => {
                let hint = "give both, or a server's command after `--`";
                Err(CommandFailure::usage(
                    format!("no server is named, and the {what} is missing"),
                    Some(hint),
                ))
            }
            ([], [server]) => {
                let hint =
                    format!("`{0}` is the server; `unhang {what}s {0}` lists its {what}s", escaped(server));
                Err(CommandFailure::usage(format!("the {what} is missing"), Some(&hint)))
            }
            (_, []) => {
                let hint = format!("write it before `--`; `unhang {what}s -- CMD ARGS...` lists the {what}s");
                Err(CommandFailure::usage(format!("the {what} is missing"), Some(&hint)))
            }
        }
    }
}

impl<'a> ClientContext<'a> {
    fn new(common: &ServerCommon, ad_hoc: &'a AdHoc) -> Self {
        ClientContext {
            ad_hoc,
            left: RefCell::default(),
            background: watch::Sender::default(),
            remote: RefCell::default(),
            examinations: Arc::default(),
            pool: ServerPool::default(),
            choice: common.files.choice(),
            known: OnceCell::new(),
            limits: common.limits.settings(),
            format: common.output,
        }
    }

    /// Returns the configured servers. It reads the files only when they are needed: a command after `--` does not need them, whatever is
    /// wrong in a file.
    pub(super) async fn known(&self) -> Result<&ConfiguredServers, CommandFailure> {
        if let Some(known) = self.known.get() {
            return Ok(known);
        }
        let known = find(self.choice.clone()).await?;
        known.tell_warnings();
        Ok(self.known.get_or_init(|| known))
    }

    /// Starts the server that is meant, and returns its client.
    async fn client(&self, target: &ServerTarget) -> Result<Client, CommandFailure> {
        match target {
            ServerTarget::Command(command) => self.launch(self.of_command(command)?),
            ServerTarget::Named(url) if url.contains("://") => self.launch(self.of_url(url)?),
            ServerTarget::Named(name) => {
                self.demand_no_ad_hoc(name)?;
                self.start(self.named(name).await?)
            }
        }
    }

    /// Refuses flags that are for servers in no file, because the server of this name is in one.
    pub(super) fn demand_no_ad_hoc(&self, name: &str) -> Result<(), CommandFailure> {
        let AdHoc { header, env, cwd } = self.ad_hoc;
        if header.is_empty() && env.is_empty() && cwd.is_none() {
            return Ok(());
        }
        let message = format!(
            "--header, --env and --cwd are for servers that are in no file, but `{}` is in one",
            escaped(name)
        );
        Err(CommandFailure::usage(message, Some("change them in the file that `unhang servers` names")))
    }

    /// Starts a configured server, and returns its client.
    fn start(&self, found: &FoundServer) -> Result<Client, CommandFailure> {
        self.launch(self.of_file(found)?)
    }

    /// Returns the configured server of this name.
    pub(super) async fn named(&self, name: &str) -> Result<&FoundServer, CommandFailure> {
        let known = self.known().await?;
        known.named(name).ok_or_else(|| no_such_server(known, name))
    }

    /// Makes the specification of a server whose command was typed.
    pub(super) fn of_command(&self, command: &[OsString]) -> Result<ClientSpec, CommandFailure> {
        let name = server_name(command);
        server_launch::by_command(
            &name,
            command,
            self.ad_hoc,
            &self.limits,
            Arc::new(TerminalUser::new(&name)),
        )
    }

    /// Makes the specification of a configured server.
    pub(super) fn of_file(&self, found: &FoundServer) -> Result<ClientSpec, CommandFailure> {
        let settings = found.settings.as_ref();
        let settings = settings.map_err(|complaint| CommandFailure::usage(complaint.to_string(), None))?;
        server_launch::by_settings(settings, &self.limits, Arc::new(TerminalUser::new(&settings.name)))
    }

    /// Makes the specification of a server whose URL was typed.
    pub(super) fn of_url(&self, url: &str) -> Result<ClientSpec, CommandFailure> {
        let mut name = server_launch::url_name(url)?;
        while self.pool.names().contains(&name) {
            // The two URLs differ in a part that the name does not show.
            name.push('\'');
        }
        server_launch::by_url(&name, url, self.ad_hoc, &self.limits, Arc::new(TerminalUser::new(&name)))
    }

    /// Returns whether the server of this name is not a process that this command started.
    fn is_remote(&self, name: &str) -> bool {
        self.remote.borrow().contains(name)
    }

    fn launch(&self, spec: ClientSpec) -> Result<Client, CommandFailure> {
        let name = spec.name.clone();
        if matches!(spec.endpoint, Endpoint::Http(_)) {
            self.remote.borrow_mut().insert(name.clone());
        }
        self.pool.register(spec);
        self.pool.client(&name).map_err(CommandFailure::from)
    }

    /// Tells that the work was broken off, and keeps the call that may go on without this command.
    fn stop(&self, stop: Stop) {
        let name = if stop == Stop::Interrupt { "interrupted" } else { "told to end" };
        progress::end();
        match self.pool.names().is_empty() && self.examinations.is_empty() {
            true => self.say(name),
            false => self.say(&format!("{name}: ending the servers that were started")),
        }
        let unfinished = self.background.send_replace(None);
        self.left.replace(unfinished.map(|unfinished| {
            let is_remote = self.is_remote(&unfinished.server);
            BackgroundCall::broken_off(unfinished, is_remote, stop)
        }));
    }

    /// Ends every server. After a second signal the command ends at once, and the servers' lifelines go on without it.
    async fn end(&self, stops: &mut mpsc::Receiver<Stop>) {
        tracing::debug!("waiting for the servers to end");
        tokio::select! {
            ended = timeout(EXIT_LIMIT, async { join!(self.pool.dispose(), self.examinations.ended()) }) => match ended {
                Ok((disposed, ())) => tracing::debug!("{} servers have ended", disposed.gone.len()),
                Err(_) => tracing::warn!("the end was forced: the servers had not ended within {} s", EXIT_LIMIT.as_secs()),
            },
            Some(_) = stops.recv() => {}
        }
    }

    /// Prints a message that is not an error, or not yet. If stderr is for JSON, the message goes to the log.
    fn say(&self, text: &str) {
        match self.format {
            Some(Format::Json) => tracing::warn!("{text}"),
            _ => output::error(text, None),
        }
    }

    /// Returns how long a command waits for the writer of a file before it asks anything: no longer than for a server.
    pub(super) fn timeout(&self) -> Duration {
        let request = self.limits.request_timeout.unwrap_or(REQUEST_TIMEOUT);
        self.limits.call_timeout.map_or(request, |call| call.min(request))
    }

    pub(super) fn format(&self) -> Format {
        let unsaid = if io::stdout().is_terminal() { Format::Text } else { Format::Json };
        self.format.unwrap_or(unsaid)
    }

    /// Prints data on another thread, so that a reader that stops reading does not keep the command from ending.
    pub(super) async fn print(&self, data: Vec<u8>) -> u8 {
        // The panic has been reported.
        spawn_blocking(move || output::bytes(&data)).await.unwrap_or(exit::BUG)
    }

    /// Prints text in which everything from outside is escaped already.
    pub(super) async fn print_escaped(&self, text: String) -> u8 {
        let printed = spawn_blocking(move || output::write_escaped(&text)).await;
        printed.map_or(exit::BUG, |written| written.err().unwrap_or(exit::DONE))
    }

    /// Prints JSON that is text already.
    pub(super) async fn print_raw_json(&self, json: String) -> u8 {
        let printed = spawn_blocking(move || output::write_json(&json)).await;
        printed.map_or(exit::BUG, |written| written.err().unwrap_or(exit::DONE))
    }

    /// Prints a document.
    pub(super) async fn print_json(&self, document: &impl Serialize) -> u8 {
        // No printed document has keys that are not text.
        let text = serde_json::to_string_pretty(document).unwrap_or_default();
        self.print_raw_json(format!("{text}\n")).await
    }
}

/// Finds the configured servers, on another thread. It may ask a person for consent, and a signal is heard meanwhile.
pub(super) async fn find(choice: FileChoice) -> Result<ConfiguredServers, CommandFailure> {
    beside(move || ConfiguredServers::find(&choice)).await
}

/// Runs work that may wait for a disk or a person, on another thread.
pub(super) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CommandFailure> + Send + 'static,
) -> Result<T, CommandFailure> {
    // The panic has been reported.
    let bug = |_| CommandFailure {
        code: exit::BUG,
        kind: "bug",
        message: "a thread of unhang has panicked".to_owned(),
        hint: None,
        data: None,
    };
    spawn_blocking(work).await.map_err(bug)?
}

/// Runs work on a file that may be a pipe, on another thread. It waits no longer than this limit for the writer.
pub(super) async fn read_within<T: Send + 'static>(
    file: &str,
    limit: Duration,
    work: impl FnOnce() -> Result<T, CommandFailure> + Send + 'static,
) -> Result<T, CommandFailure> {
    timeout(limit, beside(work)).await.unwrap_or_else(|_| Err(unread(file, limit)))
}

/// Makes the failure about a file that was not read in time.
pub(super) fn unread(file: &str, limit: Duration) -> CommandFailure {
    CommandFailure {
        code: exit::DEADLINE,
        kind: "deadline",
        message: format!("{} could not be read to its end within {}", escaped(file), in_words(limit)),
        hint: Some("if it is a pipe, check that its writer closes it".to_owned()),
        data: None,
    }
}

/// The hint about a file that could not be read.
const UNREAD_HINT: &str = "correct the file, name another with --config, or give the command after `--`";

/// Makes the failure of a command that finds no server to ask.
pub(super) fn no_server(known: &ConfiguredServers) -> CommandFailure {
    if let Some(unread) = known.unread_alone() {
        let message = format!("no server is configured in a file that can be read: {unread}");
        return CommandFailure::usage(message, Some(UNREAD_HINT));
    }
    CommandFailure {
        code: exit::NOT_FOUND,
        kind: "no_server",
        message: "no server is configured".to_owned(),
        hint: Some("write unhang.toml, or give a server's command after `--`".to_owned()),
        data: None,
    }
}

pub(super) fn no_such_server(known: &ConfiguredServers, name: &str) -> CommandFailure {
    if let Some(unread) = known.unread_alone() {
        let message = format!("there is no server `{}` in a file that can be read: {unread}", escaped(name));
        return CommandFailure::usage(message, Some(UNREAD_HINT));
    }
    let names: Vec<&str> = known.in_use().map(|found| found.name.as_str()).collect();
    let hint = match (unhang::wording::nearest(name, names.iter().copied()), names.len()) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, 0) => "no server is configured; write unhang.toml, or give the command after `--`".to_owned(),
        (None, _) => format!("name one of these: {}; `unhang servers` shows their files", names.join(", ")),
    };
    CommandFailure {
        code: exit::NOT_FOUND,
        kind: "no_such_server",
        message: format!("there is no server `{}`", escaped(name)),
        hint: Some(hint),
        data: None,
    }
}
