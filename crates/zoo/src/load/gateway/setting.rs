//! What stands ready for a run: a folder, the fast server, nginx and the gateway.
//!
//! # Invariants
//!
//! - The folder is new, and for its owner alone. What was started is told to end when it is dropped, and killed where it does not.

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use unhang_demo_servers::{bounded_waits, processes::WatchedProcess};

use super::web;
use crate::child_processes::{self, ChildStreams};

/// How long whatever is started may take until it is ready.
const READY: Duration = Duration::from_secs(60);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(20);
/// How long it may take to end; longer than a whole end of the gateway.
const FAREWELL: Duration = Duration::from_secs(12);

/// The folder.
pub(super) struct GatewayFolder {
    folder: PathBuf,
}

/// A process that listens.
pub(super) struct ListeningProcess {
    child: Child,
    pub(super) address: SocketAddr,
}

impl GatewayFolder {
    pub(super) fn make() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("unhang-gateway-{}-{number}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self { folder })
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    /// The fast server over HTTP, and where it is.
    pub(super) fn upstream(&self, zoo: &str) -> io::Result<(ListeningProcess, SocketAddr)> {
        let words = ["zoo", "echoes-http"].map(str::to_owned);
        let mut child = child_processes::start_bound(zoo, &words)?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut running = ListeningProcess { child, address: (Ipv4Addr::LOCALHOST, 0).into() };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix(web::PATH));
        running.address =
            address.and_then(|address| address.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        let address = running.address;
        Ok((running, address))
    }

    /// nginx, which passes everything on to `upstream`.
    pub(super) fn nginx(&self, nginx: &str, upstream: SocketAddr) -> io::Result<ListeningProcess> {
        let address = free_address()?;
        fs::write(self.folder.join("nginx.conf"), configuration(&self.path(""), address, upstream))?;
        let words = ["-p", &self.path(""), "-e", "stderr", "-c", &self.path("nginx.conf")].map(str::to_owned);
        let running = ListeningProcess { child: start(nginx, &words, ("UNHANG_BENCH", "1"))?, address };
        running.wait(|| TcpStream::connect(address).is_ok())?;
        Ok(running)
    }

    /// The gateway in front of these servers, once it has listed them.
    pub(super) fn gateway(&self, unhang: &str, servers: &str) -> io::Result<ListeningProcess> {
        let address = free_address()?;
        let (configuration, data) = (self.path("unhang.toml"), self.path("data"));
        fs::write(&configuration, servers)?;
        let at = address.to_string();
        let words = ["serve", "--own", "--config", &configuration, "--http", &at].map(str::to_owned);
        let running = ListeningProcess { child: start(unhang, &words, ("UNHANG_HOME", &data))?, address };
        running.wait(|| web::ask(address, "GET", "/ready").is_ok_and(|answer| answer.status == 200))?;
        Ok(running)
    }
}

impl Drop for GatewayFolder {
    fn drop(&mut self) {
        // What is left of it is in the system's folder for such.
        let _left = fs::remove_dir_all(&self.folder);
    }
}

impl ListeningProcess {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait(&self, is_ready: impl Fn() -> bool) -> io::Result<()> {
        let begin = bounded_waits::now();
        let process = WatchedProcess::open(self.pid(), &[]);
        while !is_ready() {
            let has_ended = process.as_ref().is_none_or(|process| process.wait(LOOK).unwrap_or(true));
            if has_ended || begin.elapsed() > READY {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("not ready after {:?}", begin.elapsed()),
                ));
            }
        }
        Ok(())
    }
}

impl Drop for ListeningProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if let Some(process) = WatchedProcess::open(self.pid(), &[]) {
            process.signal(Signal::TERM);
            if !process.wait(FAREWELL).unwrap_or_default() {
                process.kill();
            }
        }
        let _reaped_already = child_processes::wait(&mut self.child);
    }
}

fn start(program: &str, words: &[String], variable: (&str, &str)) -> io::Result<Child> {
    let streams = ChildStreams { stdin: Stdio::null(), stdout: Stdio::null(), stderr: Stdio::null() };
    child_processes::start_marked(program, words, streams, variable)
}

/// One that nobody has at the moment.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// One process that logs nothing and keeps its connections.
fn configuration(folder: &str, address: SocketAddr, upstream: SocketAddr) -> String {
    let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders = folders.map(|name| format!("  {name}_temp_path {folder}{name};\n")).concat();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}nginx.pid;\nevents {{ worker_connections 512; }}\nhttp {{\n  access_log off;\n{folders}\
         \x20 upstream server {{ server {upstream}; keepalive 64; keepalive_requests 100000000; }}\n\
         \x20 server {{\n    listen {address};\n    keepalive_requests 100000000;\n    tcp_nodelay on;\n\
         \x20   location / {{ proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}\n  }}\n}}\n"
    )
}
