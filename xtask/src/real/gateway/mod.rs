//! `unhang serve` in front of servers: how a case starts it, how clients come to it, how it ends.
//!
//! # Invariants
//!
//! - A gateway ends as it promises to after SIGTERM, whatever became of the case.

pub(crate) mod asking;
pub(crate) mod direct;
pub(crate) mod server_killed;
pub(crate) mod six;
pub(crate) mod tasks;

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock;
use crate::failure::ChoreFailure;
use crate::gateway_address;
use crate::run::{self, RunningProgram};

use super::bench::{CaseContext, CaseFolder};
use super::servers::PublicServer;

/// Until all servers are listed.
const START_LIMIT: Duration = Duration::from_secs(30);

/// A page of the gateway is there at once.
const PAGE_LIMIT: Duration = Duration::from_secs(10);

/// What the gateway exits with after SIGTERM.
const TERMINATED: i32 = 143;

/// Names the files with what the gateway says.
const NAME: &str = "gateway";

/// One server of a gateway.
#[derive(Debug, Clone)]
pub(crate) struct GatewayEntry {
    pub(crate) name: String,
    pub(crate) command: Vec<OsString>,
    /// Where it is, if it is not started by the gateway.
    pub(crate) url: Option<String>,
    /// What the names of its tools and prompts begin with, where it is not its own name.
    pub(crate) prefix: Option<&'static str>,
    /// What the configuration says of it besides: whole lines.
    pub(crate) settings: &'static str,
}

/// One that runs and serves HTTP.
#[derive(Debug)]
pub(crate) struct Gateway {
    running: RunningProgram,
    /// Where MCP is.
    pub(crate) url: String,
}

impl GatewayEntry {
    /// A real server under its own name, with what it relies on.
    pub(crate) fn real(
        bench: &CaseContext,
        case_folder: &CaseFolder,
        server: PublicServer,
    ) -> Result<Self, ChoreFailure> {
        server.furnish(case_folder)?;
        Ok(Self {
            name: server.name().to_owned(),
            command: server.command(bench, case_folder),
            url: None,
            prefix: None,
            settings: "",
        })
    }
}

impl Gateway {
    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// What the gateway says of its servers, in their order.
    pub(crate) fn servers(&self) -> Result<Vec<Value>, ChoreFailure> {
        let (status, body) = self.get("/status")?;
        let page: Value = serde_json::from_str(&body).unwrap_or_default();
        let servers = page["servers"].as_array().cloned();
        servers.ok_or_else(|| ChoreFailure::new(format!("/status is {status} with {body}")))
    }

    /// Waits until every server has been listed.
    pub(crate) fn until_ready(&self) -> Result<(), ChoreFailure> {
        let is_ready = || self.get("/ready").is_ok_and(|(status, _)| status == "200");
        if clock::wait_until(START_LIMIT, is_ready) {
            return Ok(());
        }
        Err(ChoreFailure::new(format!("not all servers were listed: {:#?}", self.servers()?)))
    }

    /// The status and the body of a page beside `/mcp`.
    fn get(&self, path: &str) -> Result<(String, String), ChoreFailure> {
        let at = self.url.trim_start_matches("http://").trim_end_matches("/mcp");
        let failed = |error: std::io::Error| ChoreFailure::io(format!("cannot get {path} of {at}"), &error);
        let mut connection = TcpStream::connect(at).map_err(failed)?;
        connection.set_read_timeout(Some(PAGE_LIMIT)).map_err(failed)?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).map_err(failed)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        Ok((head.split(' ').nth(1).unwrap_or_default().to_owned(), body.to_owned()))
    }
}

/// `unhang serve` over stdio, which asks a gateway that runs with the same file. Clients pass few variables on, and windows share servers
/// only where both would give them the same environment (F-21), so that it is given those of the gateway.
pub(crate) fn window(bench: &CaseContext, case_folder: &CaseFolder) -> Vec<OsString> {
    let is_given = |name: &str| SERVERS_INHERIT.contains(&name) || name.starts_with("LC_");
    let own = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_given));
    let of_case = case_folder.environment().into_iter().map(|(name, value)| (OsString::from(name), value));
    let mut words = vec![OsString::from("env")];
    words.extend(own.chain(of_case).map(|(mut word, value)| {
        word.push("=");
        word.push(value);
        word
    }));
    words.extend(bench.unhang(&["serve", "--config"], &[configuration(case_folder).into()]));
    words
}

/// The variables that servers behind the gateway inherit, besides those that begin with `LC_`.
const SERVERS_INHERIT: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"];

/// Writes the configuration file of a gateway in front of these servers, with the environment of the case for each.
pub(crate) fn configure(case_folder: &CaseFolder, entries: &[GatewayEntry]) -> Result<PathBuf, ChoreFailure> {
    // A string of JSON is one of TOML.
    let text = |word: &OsString| json!(word.to_string_lossy()).to_string();
    let environment = case_folder.environment();
    let variables: Vec<_> =
        environment.iter().map(|(name, value)| format!("{name} = {}", text(value))).collect();
    let mut file = String::new();
    for entry in entries {
        let words: Vec<_> = entry.command.iter().map(text).collect();
        let way = match (&entry.url, &words[..]) {
            (Some(url), _) => format!("url = {}\n", json!(url)),
            (None, [command, arguments @ ..]) => format!(
                "command = {command}\nargs = [{}]\ncwd = {}\nenv = {{ {} }}\n",
                arguments.join(", "),
                text(&case_folder.work().into()),
                variables.join(", "),
            ),
            (None, []) => return Err(ChoreFailure::new(format!("{} has no command", entry.name))),
        };
        let prefix = entry.prefix.map(|prefix| format!("prefix = {}\n", json!(prefix)));
        file += &format!("[servers.{}]\n{way}{}{}", entry.name, prefix.unwrap_or_default(), entry.settings);
    }
    let path = configuration(case_folder);
    fs::write(&path, file).map_err(|error| ChoreFailure::io(path.display(), &error))?;
    Ok(path)
}

fn configuration(case_folder: &CaseFolder) -> PathBuf {
    case_folder.path("unhang.toml")
}

/// Does something with a gateway that serves HTTP, and makes sure that it ends well after it.
pub(crate) fn serve<T>(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    entries: &[GatewayEntry],
    work: impl FnOnce(&Gateway) -> Result<T, ChoreFailure>,
) -> Result<T, ChoreFailure> {
    let file = configure(case_folder, entries)?;
    let task = case_folder.task(bench.binary(), &case_folder.work(), NAME).arguments(["serve", "--config"]);
    let running = run::start(task.arguments([&file]).arguments(["--http", "127.0.0.1:0"]))?;
    let gateway = Gateway { running, url: String::new() };
    let (gateway, outcome) = match gateway_address::until_named(&case_folder.path(&format!("{NAME}.log"))) {
        Ok(url) => {
            let gateway = Gateway { url, ..gateway };
            let outcome = work(&gateway);
            (gateway, outcome)
        }
        Err(failure) => (gateway, Err(failure)),
    };
    gateway.running.ask_to_end();
    let ended = case_folder.finish_in_any_way(&gateway.running);
    let outcome = outcome?;
    let status = ended?;
    if status.code() == Some(TERMINATED) {
        return Ok(outcome);
    }
    Err(ChoreFailure::new(format!("after SIGTERM the gateway ended with {status}")))
}
