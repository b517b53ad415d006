//! What the tests of jobs share: a sandbox that keeps jobs, commands in it, and looks at the disk that need no unhang.

use std::{fs, path::PathBuf, process::Command};

use serde_json::{Value, json};

use crate::harness::{Client, PATIENCE, Sandbox, lab_program, run_to_end, wait_until};

/// A sandbox with a data folder.
pub(crate) struct Jobs {
    pub(crate) sandbox: Sandbox,
}

impl Jobs {
    pub(crate) fn new() -> Jobs {
        Jobs { sandbox: Sandbox::with_jobs() }
    }

    /// `unhang WORDS`, where no pressure of the machine holds jobs back.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.sandbox.unhang();
        command.env("UNHANG_MEMORY_LIMIT", "100").args(words);
        command
    }

    /// Runs `unhang WORDS` to its end: exit code, stdout and stderr.
    #[track_caller]
    pub(crate) fn run(&self, words: &[&str]) -> (i32, String, String) {
        run_to_end(self.command(words))
    }

    /// Runs it, demands an exit code, and returns stdout and stderr.
    #[track_caller]
    pub(crate) fn demand(&self, code: i32, words: &[&str]) -> (String, String) {
        let (found, stdout, stderr) = self.run(words);
        assert_eq!(found, code, "{words:?}; stdout: {stdout}; stderr: {stderr}");
        (stdout, stderr)
    }

    /// Runs it, demands exit code 0, and returns what it says as JSON.
    #[track_caller]
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let (stdout, _) = self.demand(0, words);
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {stdout}"))
    }

    /// Submits a shell script with some flags and returns its id.
    #[track_caller]
    pub(crate) fn submit(&self, flags: &[&str], script: &str) -> String {
        let words = [&["job", "run"], flags, &["--", "sh", "-c", script]].concat();
        let (stdout, _) = self.demand(0, &words);
        stdout.strip_suffix('\n').expect("the id is a line").to_owned()
    }

    /// The words of `unhang job run FLAGS -- unhang-lab zoo PROGRAM…`.
    pub(crate) fn zoo<'a>(flags: &[&'a str], faulty_server: &[&'a str]) -> Vec<&'a str> {
        [&["job", "run"], flags, &["--", lab_program(), "zoo"], faulty_server].concat()
    }

    /// Submits a job of the zoo and returns its id.
    #[track_caller]
    pub(crate) fn submit_zoo(&self, flags: &[&str], faulty_server: &[&str]) -> String {
        let (stdout, _) = self.demand(0, &Self::zoo(flags, faulty_server));
        stdout.trim_end().to_owned()
    }

    /// Runs a job of the zoo to its end: the exit code of `--wait`, and what `job show` says then.
    #[track_caller]
    pub(crate) fn see_through(&self, flags: &[&str], faulty_server: &[&str]) -> (i32, Value) {
        let (code, stdout, stderr) = self.run(&Self::zoo(&[&["--wait"], flags].concat(), faulty_server));
        let id = stdout.trim_end();
        assert_eq!(id.len(), 12, "{faulty_server:?}: {stdout} {stderr}");
        (code, self.json(&["job", "show", id]))
    }

    /// Runs one job of the zoo for each of these lines, a few at a time, and returns what [`Jobs::see_through`] does, from
    /// the list.
    #[track_caller]
    pub(crate) fn see_all_through(&self, faulty_servers: &[Vec<&str>]) -> Vec<(i32, Value)> {
        const AT_ONCE: usize = 8;
        let flags = ["--wait", "--max-concurrent", "8"];
        let mut ends = Vec::new();
        for some in faulty_servers.chunks(AT_ONCE) {
            let clients: Vec<_> = some
                .iter()
                .map(|faulty_server| Client::start(self.command(&Self::zoo(&flags, faulty_server))))
                .collect();
            for mut client in clients {
                let id = client.next_line(PATIENCE).expect("an id").trim_end().to_owned();
                ends.push((client.exit_code(), id));
            }
        }
        let listed = self.json(&["job", "list", "--limit", "1000"]);
        let listed = listed.as_array().expect("a list");
        let shown = |id: &str| listed.iter().find(|job| job["job_id"] == id).expect("it is listed").clone();
        ends.into_iter().map(|(code, id)| (code, shown(&id))).collect()
    }

    /// What is kept of one of a job's outputs.
    #[track_caller]
    pub(crate) fn log(&self, id: &str, name: &str) -> String {
        let bytes = fs::read(self.folder(id).join(name)).expect("a log");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A client that waits, ready to be signalled: it has the job's data folder open.
    #[track_caller]
    pub(crate) fn waiting(&self, words: &[&str]) -> Client {
        let mut client = Client::start(self.command(words));
        client.close_stdin();
        let pid = client.pid();
        // It has looked at the job, and can be interrupted: the handler of SIGINT is there.
        wait_until("a handler of SIGINT", PATIENCE, || {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
            caught & 0b10 != 0
        });
        client
    }

    /// A job's folder.
    pub(crate) fn folder(&self, id: &str) -> PathBuf {
        self.sandbox.path().join("state/jobs").join(id)
    }

    /// One of a job's files, if it is there.
    pub(crate) fn file(&self, id: &str, name: &str) -> Option<Value> {
        serde_json::from_slice(&fs::read(self.folder(id).join(name)).ok()?).ok()
    }

    /// Waits for the end of a job as the disk tells it, without any unhang, and returns `exit.json`.
    #[track_caller]
    pub(crate) fn end(&self, id: &str) -> Value {
        // The copy of the record comes last: by then the state and the database know it too.
        wait_until(&format!("the end of {id}"), PATIENCE, || {
            let record = self.file(id, "job.json").unwrap_or_default();
            record["ending"].is_object()
        });
        self.file(id, "exit.json").expect("it is there")
    }

    /// The shim and the work of a job, once both run.
    #[track_caller]
    pub(crate) fn processes(&self, id: &str) -> (i32, i32) {
        let pid = |run: &Value, who: &str| run[who]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let mut found = None;
        wait_until(&format!("the work of {id}"), PATIENCE, || {
            let run = self.file(id, "run.json").unwrap_or_default();
            found = pid(&run, "shim").zip(pid(&run, "work"));
            found.is_some()
        });
        found.expect("it was found")
    }

    /// Lets the scripts and faulty servers that wait for it go on; see [`UNTIL_GO`].
    pub(crate) fn go(&self) {
        self.open("go");
    }

    /// Makes the file that something waits for.
    pub(crate) fn open(&self, gate: &str) {
        fs::write(self.sandbox.path().join(gate), "").expect("the sandbox can be written");
    }

    /// What jobs have counted in a file of the sandbox.
    pub(crate) fn tally(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.sandbox.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// The beginning of a script that waits for [`Jobs::go`].
pub(crate) const UNTIL_GO: &str = "until [ -e go ]; do sleep 0.02; done;";

/// Calls a tool and returns its result.
#[track_caller]
pub(crate) fn called(client: &mut Client, tool: &str, arguments: Value) -> Value {
    let id = client.call(tool, arguments);
    let answer = client.answer_within(id, PATIENCE);
    assert!(answer.get("error").is_none(), "{answer}");
    answer["result"].clone()
}

/// The status of a job once it has ended.
#[track_caller]
pub(crate) fn ended(client: &mut Client, job: &Value) -> Value {
    for _ in 0..20 {
        let result = called(client, "get_job_status", json!({ "job_id": job, "wait_seconds": 2 }));
        let status = result["structuredContent"]["status"].clone();
        if !["queued", "starting", "running"].contains(&status.as_str().expect("a word")) {
            return status;
        }
    }
    panic!("job {job} does not end");
}
