//! A reader who types the commands of a page, one after the other, at a terminal.
//!
//! What the page calls `/home/ada` is the sandbox, its `127.0.0.1:8808` a free port, and its ids of jobs are those that
//! the run draws. The folder and the exported variables go from one command to the next.

use std::{
    cell::RefCell,
    env,
    ffi::OsString,
    fs,
    io::Read,
    net::{Ipv4Addr, TcpListener},
    os::{fd::AsFd, unix::fs::symlink},
    path::{Path, PathBuf},
    process::Stdio,
};

use rustix::process::Signal;

use super::{
    page::{Block, Command, Mark, ROOT},
    pattern::{fits, ids, seen},
};
use crate::{
    harness::{Client, PATIENCE, Sandbox, signal, wait_until},
    terminal::terminal,
};

const HOME: &str = "/home/ada";
const DATA: &str = "/home/ada/.local/state/unhang";
const ADDRESS: &str = "127.0.0.1:8808";
/// How a page shows that its reader interrupts a command.
const CTRL_C: &str = "^C";
/// What only looks may be asked again until it shows what the page does.
const LOOKS: [&str; 4] = ["unhang job list", "unhang job show", "unhang job logs", "ls"];
/// What is said of the machine and not of the command.
const SURROUNDINGS: &str = "unhang: jobs here do not survive everything";
/// How often one looks at a terminal, a hundredth of a second apart.
const ATTEMPTS_TO_LOOK: u32 = 2500;
/// How often a command is asked again.
const ATTEMPTS: u32 = 300;

pub(super) struct Reader {
    sandbox: Sandbox,
    /// Where a command leaves its folder and its variables for the next one.
    notes: tempfile::TempDir,
    address: String,
    /// Ids of the page, and those of the run.
    jobs: Vec<(String, String)>,
    running: Vec<Typed>,
    /// Variables besides those of a sandbox.
    variables: Vec<(&'static str, OsString)>,
}

/// A command at a terminal.
struct Typed {
    client: Client,
    master: fs::File,
    printed: RefCell<Vec<u8>>,
}

impl Typed {
    /// What is seen so far, and whether nothing more comes.
    fn look(&self) -> (String, bool) {
        let mut printed = self.printed.borrow_mut();
        // The end of a terminal is an error, and so is that nothing is there yet.
        let result = (&self.master).read_to_end(&mut printed);
        let ended = !result.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        (seen(&String::from_utf8_lossy(&printed)), ended)
    }

    /// Ctrl+C, which reaches what the shell has started.
    fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    fn signal(&self, signal_to_send: Signal) {
        let pid = self.client.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children
            .split_whitespace()
            .filter_map(|child| child.parse().ok())
            .for_each(|child| signal(child, signal_to_send));
    }
}

impl Reader {
    pub(super) fn new() -> Reader {
        let sandbox = Sandbox::with_jobs();
        let home = sandbox.path();
        fs::create_dir_all(home.join(".local/state")).expect("a folder");
        fs::create_dir(home.join("state")).expect("a folder");
        symlink(home.join("state"), home.join(".local/state/unhang")).expect("a link");
        // The reader has the sources at hand.
        for folder in ["examples", "packaging"] {
            symlink(format!("{ROOT}/{folder}"), home.join(folder)).expect("a link");
        }
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = free.local_addr().expect("an address").to_string();
        let notes = tempfile::tempdir().expect("a temporary folder");
        Reader { sandbox, notes, address, jobs: Vec::new(), running: Vec::new(), variables: Vec::new() }
    }

    /// One who has Python, wherever it is, and does not wait for the imports of the example.
    pub(super) fn with_python() -> Reader {
        let mut reader = Reader::new();
        let binaries = Path::new(env!("CARGO_BIN_EXE_unhang")).parent().expect("a folder");
        let mut path = binaries.as_os_str().to_owned();
        path.push(":");
        path.push(env::var_os("PATH").expect("a path"));
        reader.variables = vec![("PATH", path), ("DIGESTER_IMPORT_SECONDS", "0.2".into())];
        reader
    }

    /// Does what a block asks for.
    pub(super) fn block(&mut self, block: &Block) {
        match &block.mark {
            Some(Mark::File(name)) => {
                let file = self.folder().join(name);
                fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
                fs::write(file, self.here(&block.text())).expect("a file");
            }
            Some(Mark::RunsOn) => {
                for command in block.commands() {
                    let typed = self.typed(&command);
                    self.await_shown(&typed, &block.location, &command.output.unwrap_or_default());
                    self.running.push(typed);
                }
            }
            None if block.is_commands() => {
                block.commands().iter().for_each(|command| self.command(&block.location, command));
            }
            _ => {}
        }
    }

    /// Ends what runs on.
    pub(super) fn leave(mut self) {
        for mut typed in self.running.drain(..) {
            // Where these tests run in the background of a shell, programs without a handler ignore SIGINT.
            typed.signal(Signal::TERM);
            wait_until("the end of what ran on", PATIENCE, || typed.look().1);
            typed.client.exit_code();
        }
    }

    fn command(&mut self, location: &str, command: &Command) {
        let looks = LOOKS.iter().any(|look| command.line.starts_with(look));
        let mut left = if looks { ATTEMPTS } else { 1 };
        loop {
            left -= 1;
            let (printed, code) = self.run(location, command);
            let Some(pattern) = &command.output else {
                assert_eq!(code, 0, "{location}: {}\n{printed}", command.line);
                return;
            };
            self.meet(pattern, &printed);
            // The line in which a wait shows itself is gone at the end of it.
            let interrupted = || {
                let at = pattern.iter().position(|line| line == CTRL_C);
                at.is_some_and(|at| self.shows(&[&pattern[..at - 1], &pattern[at + 1..]].concat(), &printed))
            };
            if self.shows(pattern, &printed) || interrupted() {
                return;
            }
            let page = pattern.join("\n");
            assert!(left > 0, "{location}: $ {}\n{printed}\n\nthe page has:\n{page}", command.line);
        }
    }

    /// Waits until a command that goes on shows what the page does.
    fn await_shown(&mut self, typed: &Typed, location: &str, pattern: &[String]) {
        let mut looks = 0;
        let mut printed = String::new();
        wait_until(&format!("{location}: a command that goes on"), 2 * PATIENCE, || {
            let ended;
            (printed, ended) = typed.look();
            self.meet(pattern, &printed);
            looks += 1;
            ended || looks > ATTEMPTS_TO_LOOK || self.shows(pattern, &printed)
        });
        let page = pattern.join("\n");
        assert!(self.shows(pattern, &printed), "{location}: shown:\n{printed}\n\nthe page has:\n{page}");
    }

    /// What a command shows at its end, and its code.
    fn run(&mut self, location: &str, command: &Command) -> (String, i32) {
        let mut typed = self.typed(command);
        if let Some(pattern) = &command.output
            && let Some(at) = pattern.iter().position(|line| line == CTRL_C)
        {
            self.await_shown(&typed, location, &pattern[..at]);
            typed.interrupt();
        }
        wait_until(&format!("{location}: the end of `{}`", command.line), PATIENCE, || typed.look().1);
        (typed.look().0, typed.client.exit_code())
    }

    fn typed(&self, command: &Command) -> Typed {
        let notes = self.notes.path().display();
        let line = self.here(&command.line);
        // The bars of a batch stay between its outcomes, so a bar is drawn only where the page shows one.
        let bars = command.output.iter().flatten().any(|line| line == CTRL_C);
        let terminal_kind = if bars { "export TERM=xterm" } else { "unset TERM" };
        // A script ends at its first failure.
        let strict = if line.ends_with('\n') { "set -e" } else { "" };
        let script = format!(
            "[ ! -e {notes}/pwd ] || {{ . {notes}/env; cd \"$(cat {notes}/pwd)\"; }}\n\
             {terminal_kind}\ntrap 'pwd >{notes}/pwd; export -p >{notes}/env' EXIT\n{strict}\n{line}"
        );
        let mut shell = self.sandbox.shell(&script);
        shell.env("NO_COLOR", "1").env("UNHANG_MEMORY_LIMIT", "100");
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let (master, screen) = terminal();
        let stream = || Stdio::from(screen.as_fd().try_clone_to_owned().expect("a descriptor"));
        shell.stdin(stream()).stdout(stream()).stderr(stream());
        rustix::io::ioctl_fionbio(&master, true).expect("a terminal");
        Typed {
            client: Client::start_alone(shell),
            master: fs::File::from(master),
            printed: RefCell::default(),
        }
    }

    fn folder(&self) -> PathBuf {
        fs::read_to_string(self.notes.path().join("pwd"))
            .map_or_else(|_| self.sandbox.path().to_owned(), |folder| folder.trim_end().into())
    }

    /// A text of the page with the ids, the folder and the address of this run.
    fn here(&self, text: &str) -> String {
        let home = self.sandbox.path().to_str().expect("text");
        let text = text.replace(DATA, &format!("{home}/state")).replace(HOME, home);
        self.jobs
            .iter()
            .fold(text.replace(ADDRESS, &self.address), |text, (page, run)| text.replace(page, run))
    }

    /// The other way round.
    fn there(&self, text: &str) -> String {
        let home = self.sandbox.path().to_str().expect("text");
        let text = text.replace(&format!("{home}/state"), DATA).replace(home, HOME);
        self.jobs
            .iter()
            .fold(text.replace(&self.address, ADDRESS), |text, (page, run)| text.replace(run, page))
    }

    fn shows(&self, pattern: &[String], printed: &str) -> bool {
        let printed = self.there(printed);
        let lines = printed.lines().filter(|line| !line.starts_with(SURROUNDINGS));
        let pattern: Vec<&str> = pattern.iter().map(String::as_str).collect();
        fits(&pattern, &lines.collect::<Vec<_>>())
    }

    /// Learns which job of the run is which of the page, by the first line that names it.
    fn meet(&mut self, pattern: &[String], printed: &str) {
        for line in pattern {
            let new = |id: &&str| !self.jobs.iter().any(|(page, _)| page == id);
            let Some(page) = ids(line).filter(|id| id.bytes().any(|sign| sign.is_ascii_digit())).find(new)
            else {
                continue;
            };
            let anyone = line.replace(page, "…");
            let there = self.there(printed);
            let run = there
                .lines()
                .filter(|printed| fits(&[&anyone], &[printed]))
                .find_map(|printed| ids(printed).find(|id| !self.jobs.iter().any(|(known, _)| known == id)));
            if let Some(run) = run {
                let pair = (page.to_owned(), run.to_owned());
                self.jobs.push(pair);
            }
        }
    }
}
