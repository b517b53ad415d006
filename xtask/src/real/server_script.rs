//! The servers in `real/servers/`, which are written with the official SDKs: how each is started, over stdio and over HTTP.
//!
//! # Invariants
//!
//! - A server over HTTP is a case of its own, since it outlives each gateway. Nothing of it is left when its work is done.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use crate::clock;
use crate::failure::ChoreFailure;
use crate::run;

use super::bench::{CaseContext, CaseFolder};

/// The folder in which Node.js finds packages.
const PACKAGES: &str = "node_modules";
/// Until a server over HTTP takes connections.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A server of one script, named by its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerScript {
    Python(&'static str),
    Typescript(&'static str),
}

impl ServerScript {
    /// Returns the command that starts it over stdio. With a port behind it, the server serves HTTP.
    pub(crate) fn command(
        self,
        bench: &CaseContext,
        case_folder: &CaseFolder,
    ) -> Result<Vec<OsString>, ChoreFailure> {
        match self {
            Self::Python(file) => {
                let script = bench.source("servers").join(file);
                Ok(vec![bench.installed.python("python").into(), script.into()])
            }
            Self::Typescript(file) => {
                copy_scripts(bench, case_folder).map_err(|error| ChoreFailure::io(file, &error))?;
                Ok(vec!["node".into(), case_folder.path(file).into()])
            }
        }
    }

    /// Does something with the URL of the server, and makes sure that the server ends after it. `case` names the folder of the server.
    pub(crate) fn over_http<T>(
        self,
        bench: &CaseContext,
        case: &str,
        work: impl FnOnce(&str) -> Result<T, ChoreFailure>,
    ) -> Result<T, ChoreFailure> {
        let own = bench.case_folder(case)?;
        let command = self.command(bench, &own)?;
        let [program, arguments @ ..] = &command[..] else {
            return Err(ChoreFailure::new(format!("{case} has no command")));
        };
        let port = free_port()?;
        let task = own.task(program.as_ref(), &own.work(), "server");
        let running = run::start(task.arguments(arguments).arguments([port.to_string()]))?;
        let has_come_up = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        let outcome = match clock::wait_until(START_LIMIT, has_come_up) {
            true => work(&format!("http://127.0.0.1:{port}/mcp")),
            false => Err(ChoreFailure::new("the server did not come up").with_output(own.path("server.log"))),
        };
        running.ask_to_end();
        let ended = own.finish_in_any_way(&running);
        let outcome = outcome?;
        ended.map(|_| outcome)
    }
}

/// Copies all scripts of Node.js, which looks for packages beside a script.
fn copy_scripts(bench: &CaseContext, case_folder: &CaseFolder) -> std::io::Result<()> {
    for entry in fs::read_dir(bench.source("servers"))? {
        let source = entry?.path();
        if let (Some("mjs"), Some(name)) =
            (extension(&source), source.file_name().and_then(|name| name.to_str()))
        {
            fs::copy(&source, case_folder.path(name))?;
        }
    }
    symlink(bench.installed.node_folder().join(PACKAGES), case_folder.path(PACKAGES))
}

fn extension(path: &Path) -> Option<&str> {
    path.extension().and_then(|extension| extension.to_str())
}

/// Returns a port that was free a moment ago.
fn free_port() -> Result<u16, ChoreFailure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|error| ChoreFailure::io("a free port", &error))
}
