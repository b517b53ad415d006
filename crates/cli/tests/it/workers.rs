//! `unhang worker`: jobs that are submitted on one machine and run on another. Each data folder stands for a machine.

use std::{fs, path::Path, process::Command};

use rustix::process::Signal;
use serde_json::{Value, json};
use unhang_zoo::{
    private_postgres::{OWNER, PASSWORD, PrivatePostgres},
    test_programs::{POSTGRES, named_by},
};

use crate::{
    gateway_metrics::demand_documented_workers,
    harness::{Client, PATIENCE, Sandbox, Web, run_to_end, wait_until},
    jobs::Jobs,
};

/// A database, and the machine on which jobs are submitted.
pub(crate) struct SharedStore {
    jobs: Jobs,
    url: String,
    pub(crate) server: PrivatePostgres,
}

/// Ends a worker or a gateway as a service manager does.
#[track_caller]
fn terminate(process: &mut Client) {
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code(), 143, "{}", process.stderr());
}

impl SharedStore {
    pub(crate) fn new(name: &str) -> Self {
        let server = PrivatePostgres::start(&named_by(POSTGRES), name, "fsync = off").expect("a server");
        let jobs = Jobs { sandbox: Sandbox::with_shown_calls() };
        Self { jobs, url: server.url(OWNER, PASSWORD, "postgres"), server }
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.jobs.sandbox
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// `unhang WORDS` on the machine that submits.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.jobs.command(words);
        command.env("UNHANG_JOBS_STORE", &self.url);
        command
    }

    /// `unhang worker WORDS` on a machine of its own.
    pub(crate) fn worker(&self, machine: &Sandbox, words: &[&str]) -> Command {
        let mut command = machine.unhang();
        let settings = ["--lease", "6s"];
        command.args(["worker"]).args(settings).args(words).env("UNHANG_MEMORY_LIMIT", "100");
        command.env("UNHANG_JOBS_STORE", &self.url);
        command
    }

    #[track_caller]
    pub(crate) fn demand(&self, code: i32, words: &[&str]) -> (String, String) {
        let (found, stdout, stderr) = run_to_end(self.command(words));
        assert_eq!(found, code, "{words:?}; stdout: {stdout}; stderr: {stderr}");
        assert!(!stdout.contains(PASSWORD) && !stderr.contains("correct"), "{stdout}{stderr}");
        (stdout, stderr)
    }

    /// Ends a worker, and demands that nothing is left on its machine and where jobs are submitted.
    #[track_caller]
    pub(crate) fn finish(&self, worker: &mut Client, machine: &Sandbox) {
        terminate(worker);
        machine.assert_nothing_left();
        self.sandbox().assert_nothing_left();
    }

    #[track_caller]
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let (stdout, _) = self.demand(0, words);
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {stdout}"))
    }
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_command_runs_on_a_worker_and_everything_about_it_is_seen_where_it_was_submitted() {
    let store = SharedStore::new("cli");
    let machine = Sandbox::with_worker();
    fs::write(store.sandbox().path().join("input.txt"), "from afar\n").expect("a file");
    let script = "cat $UNHANG_JOB_DIR/input.txt; echo '{\"a\":1}' > $UNHANG_JOB_DIR/r.json";
    let words = ["job", "run", "--input", "input.txt", "--result", "r.json", "--", "sh", "-c", script];
    let (id, _) = store.demand(0, &words);
    let id = id.trim_end();
    let waiting = store.json(&["job", "show", id]);
    assert_eq!(waiting["status"], "queued", "{waiting}");
    assert!(waiting["wait_reason"].as_str().expect("a reason").starts_with("no worker allows any command"));
    assert!(waiting.get("job_folder").is_none(), "{waiting}");

    // The folder of the submitter exists on the worker's machine too.
    let mut worker = Client::start(store.worker(&machine, &["--any-command"]));
    assert_eq!(store.json(&["job", "wait", id])[0]["status"], "completed");
    assert_eq!(store.demand(0, &["job", "logs", id]).0, "from afar\n");
    assert_eq!(store.json(&["job", "result", id]), json!({"a": 1}));
    // No job gets the password of the store, though the worker and the submitter have it.
    let (id, _) = store.demand(0, &["job", "run", "--wait", "--", "env"]);
    assert!(store.demand(0, &["job", "logs", id.trim_end()]).0.contains("UNHANG_JOB_DIR="));
    let script = "echo '{\"why\":\"no mesh\"}' > $UNHANG_JOB_DIR/error.json; exit 3";
    assert_eq!(store.demand(3, &["job", "run", "--wait", "--", "sh", "-c", script]).1.lines().count(), 2);
    assert!(store.demand(1, &["job", "result", "last"]).1.contains("no mesh"), "its own account comes along");

    // A job is kept for its retention, and removed from the store after that.
    assert_eq!(store.json(&["job", "prune"])["jobs"], json!([]));
    let removed = store.json(&["job", "prune", "--retention", "1ms"])["jobs"].clone();
    assert_eq!(removed.as_array().map(Vec::len), Some(3), "{removed}");
    assert_eq!(store.json(&["job", "list"]), json!([]));

    let workers = store.json(&["worker", "--list"]);
    assert_eq!((workers[0]["running"].as_u64(), workers.as_array().map(Vec::len)), (Some(0), Some(1)));
    let name = workers[0]["name"].as_str().expect("a name");
    // A second worker on the folder is refused, and so is a name that nobody has.
    let (code, _, stderr) = run_to_end(store.worker(&machine, &["--any-command"]));
    assert!(code == 1 && stderr.contains("another worker"), "{code}: {stderr}");
    assert!(store.demand(6, &["worker", "--drain", "nobody"]).1.contains("worker --list"));
    store.demand(0, &["worker", "--drain", name]);
    assert_eq!(worker.exit_code(), 0, "{}", worker.stderr());
    assert_eq!(store.json(&["worker", "--list"]), json!([]));
    machine.assert_nothing_left();
    store.sandbox().assert_nothing_left();
}

/// The right to write into the database is not enough to run a program on a worker.
#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn promise_4_a_worker_runs_only_tools_of_its_own_file_with_its_own_command() {
    let store = SharedStore::new("tools");
    let machine = Sandbox::with_worker();
    let tool = |program: &str| {
        format!(
            "[tools.measure]\ncommand = [\"{program}\", \"{{args.what}}\"]\nmode = \"job\"\n\
             input-schema = {{ type = \"object\", properties = {{ what = {{ type = \"string\" }} }}, \
             required = [\"what\"] }}\n"
        )
    };
    fs::write(store.sandbox().path().join("unhang.toml"), tool("/nowhere/at/all")).expect("a file");
    fs::write(machine.path().join("unhang.toml"), tool("echo")).expect("a file");
    let command = store.demand(0, &["job", "run", "--", "touch", "taken"]).0;
    let mut worker = Client::start(store.worker(&machine, &[]));
    let mut client = Client::start(store.command(&["serve", "--config", "unhang.toml"]));
    client.initialize();
    let id = SharedStore::begin(&mut client, "measure", json!({"what": "depth"}));
    wait_until("it has completed", PATIENCE, || store.json(&["job", "show", &id])["status"] == "completed");
    let call = client.call("get_job_results", json!({"job_id": id}));
    let results = client.answer(call);
    assert_eq!(results["result"]["structuredContent"]["stdout_tail"], "depth\n", "{results}");
    let call = client.call("get_system_status", json!({}));
    let system = client.answer(call)["result"]["structuredContent"].clone();
    assert_eq!(system["workers"][0]["labels"], json!(["unhang:tool:measure"]), "{system}");
    assert_eq!((&system["queued_jobs"], &system["slots_in_use"]), (&json!(1), &json!(0)), "{system}");
    let waiting = store.json(&["job", "show", command.trim_end()]);
    assert_eq!(waiting["status"], "queued", "{waiting}");
    client.finish();
    store.finish(&mut worker, &machine);
}

/// A server file as the Python package writes it, with a tool for each of these functions.
fn functions(names: &[(&str, &str)]) -> String {
    let tool = |(tool, function): &(&str, &str)| {
        format!(
            "[tools.{tool}]\ncommand = [\"/nowhere/at/all\"]\nmode = \"job\"\ninherit-env = true\n\
             results = \"results.json\"\ninput-schema = {{ additionalProperties = true }}\n\
             function = \"{function}\"\n"
        )
    };
    names.iter().map(tool).collect()
}

/// A machine with the module `models.design` and a worker that may run functions of `models.*`, if `pattern` says so.
fn machine_with_models(pattern: &str) -> Sandbox {
    let machine = Sandbox::with_worker();
    let folder = machine.path().join("app/models");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(machine.path().join("app/other.py"), "def size(flow: float) -> float:\n    return -flow\n")
        .expect("a module");
    let design = "import os, sys\nfrom os import system\nimport unhang\n\n\
                  def size(flow: float) -> dict:\n    unhang.progress(0.5)\n    \
                  return {'flow': 2 * flow, 'folder': os.getcwd(), 'first': sys.path[0], \
                  'secrets': [name for name in ('UNHANG_JOBS_STORE', 'PGPASSWORD') if name in os.environ]}\n\n\
                  def ask() -> object:\n    return unhang.state.get('mesh')\n";
    fs::write(folder.join("design.py"), design).expect("a module");
    let worker = format!("[worker]\nfunctions = [\"{pattern}\"]\nfolder = \"app\"\n");
    fs::write(machine.path().join("unhang.toml"), worker).expect("a file");
    machine
}

impl SharedStore {
    /// The worker of such a machine. Its Python finds the package of the checkout.
    fn function_worker(&self, machine: &Sandbox) -> Client {
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python/src");
        let mut command = self.worker(machine, &[]);
        command.env("PYTHONPATH", package).env("PYTHONDONTWRITEBYTECODE", "1").env("PGPASSWORD", PASSWORD);
        Client::start(command)
    }

    /// Calls a tool that makes a job, and returns the job's id.
    fn begin(client: &mut Client, tool: &str, arguments: Value) -> String {
        let call = client.call(tool, arguments);
        let started = client.answer(call);
        started["result"]["structuredContent"]["job_id"]
            .as_str()
            .unwrap_or_else(|| panic!("{started}"))
            .to_owned()
    }

    /// Runs SQL as somebody who may write into the database.
    fn forge(&self, sql: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let connected = tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await;
            let (client, connection) = connected.expect("a connection");
            tokio::spawn(connection);
            client.batch_execute(sql).await.expect("rows are written");
        });
    }
}

#[test]
#[ignore = "needs PostgreSQL and python3; cargo xtask ci --only examples"]
fn a_function_of_the_python_package_runs_on_a_worker_whose_file_names_its_module() {
    let store = SharedStore::new("functions");
    let (machine, other) = (machine_with_models("models.*"), machine_with_models("other"));
    let file = functions(&[("size", "models.design:size"), ("ask", "models.design:ask")]);
    fs::write(store.sandbox().path().join("unhang.toml"), file).expect("a file");
    let mut client = Client::start(store.command(&["serve", "--config", "unhang.toml"]));
    client.initialize();
    // A worker that may not run the function has all the time to do so before the right one starts.
    let mut wrong = store.function_worker(&other);
    wait_until("it is known", PATIENCE, || {
        store.json(&["worker", "--list"])[0]["labels"] == json!(["unhang:function:other"])
    });
    let id = SharedStore::begin(&mut client, "size", json!({"flow": 1.5}));
    let waiting = store.json(&["job", "show", &id]);
    assert_eq!(
        waiting["wait_reason"],
        "no worker allows functions of models.design (`functions` in [worker] of its unhang.toml)",
        "{waiting}"
    );
    // The wrong worker would have taken the job before this one, which comes later and is done.
    let later = functions(&[("negate", "other:size")]);
    fs::write(store.sandbox().path().join("later.toml"), later).expect("a file");
    let mut second = Client::start(store.command(&["serve", "--config", "later.toml"]));
    second.initialize();
    let done = SharedStore::begin(&mut second, "negate", json!({"flow": 2.5}));
    assert_eq!(store.json(&["job", "wait", &done])[0]["status"], "completed");
    assert_eq!(store.json(&["job", "result", &done]), json!(-2.5));
    assert_eq!(store.json(&["job", "show", &id])["status"], "queued");

    let mut worker = store.function_worker(&machine);
    assert_eq!(store.json(&["job", "wait", &id])[0]["status"], "completed", "{}", worker.stderr());
    let folder = machine.path().join("app");
    assert_eq!(
        store.json(&["job", "result", &id]),
        json!({"flow": 3.0, "folder": folder, "first": folder, "secrets": []})
    );
    // A job has no store, so the state of the worker's own folder is not taken for that of the store.
    let id = SharedStore::begin(&mut client, "ask", json!({}));
    assert_eq!(run_to_end(store.command(&["job", "wait", &id])).0, 1);
    let told = store.demand(1, &["job", "result", &id]).1;
    assert!(told.contains("neither the jobs nor the state of the store"), "{told}");
    for (client, machine) in [(&mut worker, &machine), (&mut wrong, &other)] {
        terminate(client);
        machine.assert_nothing_left();
    }
    client.finish();
    second.finish();
    store.sandbox().assert_nothing_left();
}

/// A writer of the database can choose a function. The worker runs only functions of the modules that its own file names.
#[test]
#[ignore = "needs PostgreSQL and python3; cargo xtask ci --only examples"]
fn promise_4_a_forged_function_runs_nothing_on_a_worker() {
    let store = SharedStore::new("forged");
    let machine = machine_with_models("models.*");
    let file = functions(&[("size", "models.design:size")]);
    fs::write(store.sandbox().path().join("unhang.toml"), file).expect("a file");
    let mut client = Client::start(store.command(&["serve", "--config", "unhang.toml"]));
    client.initialize();
    let taken = machine.path().join("taken");
    let command = format!("touch {}", taken.display());
    let forged = [
        ("os:system", "does not allow functions of the module os"),
        ("models.x:y; import os", "cannot read what is to be done"),
        ("../x", "cannot read what is to be done"),
        ("models.design:system", "is a function of posix"),
    ];
    let mut ids = Vec::new();
    for (name, _) in forged {
        let id = SharedStore::begin(&mut client, "size", json!({ "command": command }));
        store.forge(&format!(
            "UPDATE unhang.jobs SET orders = replace(orders, 'models.design:size', '{name}') WHERE id = '{id}'"
        ));
        ids.push(id);
    }
    let mut worker = store.function_worker(&machine);
    for (id, (name, why)) in ids.iter().zip(forged) {
        let ended = run_to_end(store.command(&["job", "wait", id])).1;
        assert!(ended.contains("\"failed\""), "{name}: {ended}");
        let told = store.demand(1, &["job", "result", id]).1;
        assert!(told.contains(why), "{name}: {told}");
    }
    assert!(!taken.exists(), "a forged function ran");
    client.finish();
    store.finish(&mut worker, &machine);
}

/// A worker takes inputs from the state that all machines see, and changes it by the result.
#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_tool_on_a_worker_reads_the_named_state_and_changes_it() {
    let store = SharedStore::new("state");
    let machine = Sandbox::with_worker();
    let script = "sed s/2/3/ $UNHANG_JOB_DIR/basis.json > $UNHANG_JOB_DIR/r.json";
    let tool = format!(
        "[tools.refine]\ncommand = [\"sh\", \"-c\", \"{script}\"]\nmode = \"job\"\nresults = \"r.json\"\n\
         inputs = {{ \"basis.json\" = \"basis\" }}\n\
         state = {{ field = \"mesh\", pointer = \"/size\" }}\n"
    );
    for folder in [store.sandbox().path(), machine.path()] {
        fs::write(folder.join("unhang.toml"), &tool).expect("a file");
    }
    let mut worker = Client::start(store.worker(&machine, &[]));
    let mut client = Client::start(store.command(&["serve", "--config", "unhang.toml"]));
    client.initialize();
    let mut ask = |tool: &str, arguments: Value| {
        let call = client.call(tool, arguments);
        client.answer(call)["result"].clone()
    };
    let refused = ask("refine", json!({}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(refused["content"][0]["text"].as_str().expect("a text").contains("`basis`"), "{refused}");
    assert_eq!(store.json(&["job", "list"]), json!([]), "a missing field makes no job");

    store.demand(0, &["state", "set", "basis", "{\"size\": 2}"]);
    let started = ask("refine", json!({}));
    let id = started["structuredContent"]["job_id"].as_str().expect("an id").to_owned();
    wait_until("it has completed", PATIENCE, || store.json(&["job", "show", &id])["status"] == "completed");
    let results = ask("get_job_results", json!({"job_id": id}));
    assert_eq!(results["structuredContent"]["state_applied"], true, "{results}");
    assert_eq!(ask("get_state", json!({"field": "mesh"}))["structuredContent"]["value"], 3);
    let fields: Vec<Value> = store.json(&["state", "list"]).as_array().cloned().unwrap_or_default();
    assert_eq!(fields.iter().map(|entry| &entry["field"]).collect::<Vec<_>>(), ["basis", "mesh"]);
    // A pointer that finds nothing leaves the document, and says why.
    ask("set_state", json!({"field": "basis", "value": [2]}));
    let started = ask("refine", json!({}));
    let id = started["structuredContent"]["job_id"].as_str().expect("an id").to_owned();
    wait_until("it has completed", PATIENCE, || store.json(&["job", "show", &id])["status"] == "completed");
    let shown = store.json(&["job", "show", &id]);
    assert_eq!(shown["state_applied"], false, "{shown}");
    assert!(shown.to_string().contains("matches nothing in r.json"), "{shown}");
    assert_eq!(store.json(&["state", "get", "mesh", "--output", "json"])["value"], 3);
    // The store has the document, and no file does. So the answer names a command.
    let long = "x".repeat(60_000);
    ask("set_state", json!({"field": "long", "value": long}));
    let told = ask("get_state", json!({"field": "long"}))["content"].to_string();
    assert!(told.contains("`unhang state get long`"), "{}", &told[..500]);
    client.finish();
    store.finish(&mut worker, &machine);
}

/// A load balancer may give each request of a client without a session to another gateway.
#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn gateways_with_one_store_show_the_same_jobs_tasks_and_state() {
    let store = SharedStore::new("replicas");
    let (machine, other) = (Sandbox::with_worker(), Sandbox::with_worker());
    let script = "until [ -e $UNHANG_JOB_DIR/../../../gate ]; do sleep 0.05; done; echo '{\"size\":3}' > \
                  $UNHANG_JOB_DIR/r.json";
    let tool = format!(
        "[tools.refine]\ncommand = [\"sh\", \"-c\", {script:?}]\nmode = \"job\"\nresults = \"r.json\"\n\
         state = {{ field = \"mesh\" }}\n"
    );
    for folder in [store.sandbox().path(), machine.path(), other.path()] {
        fs::write(folder.join("unhang.toml"), &tool).expect("a file");
    }
    let mut worker = Client::start(store.worker(&machine, &[]));
    let gateway = |sandbox: &Sandbox| {
        let mut command = sandbox.unhang();
        command.args(["-v", "serve", "--http", "127.0.0.1:0"]).env("UNHANG_JOBS_STORE", &store.url);
        Web::start_as(command)
    };
    let ((one, first), (two, second)) = (gateway(store.sandbox()), gateway(&other));
    let ask = |web: &Web, method: &str, name: &str, params: &Value| {
        let capabilities = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let mut params = params.clone();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", name)];
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        web.post(&headers, &message).last()["result"].clone()
    };
    let call = |web: &Web, tool: &str, arguments: Value| {
        ask(web, "tools/call", tool, &json!({ "name": tool, "arguments": arguments }))
    };
    let created = call(&first, "refine", json!({}));
    let task = created["taskId"].as_str().unwrap_or_else(|| panic!("no task: {created}")).to_owned();
    let told = |web: &Web| ask(web, "tasks/get", &task, &json!({ "taskId": task }));
    assert_eq!(told(&second)["status"], "working", "{}", told(&second));
    let listed = call(&second, "list_jobs", json!({}));
    let id = listed["structuredContent"]["jobs"][0]["job_id"].as_str().expect("a job").to_owned();
    fs::write(machine.path().join("state/gate"), "").expect("a file");
    for web in [&second, &first] {
        wait_until("the task ends", PATIENCE, || told(web)["status"] == "completed");
        let results = call(web, "get_job_results", json!({ "job_id": id }));
        assert_eq!(results["structuredContent"]["results"], json!({ "size": 3 }), "{results}");
        let state = call(web, "get_state", json!({ "field": "mesh" }));
        assert_eq!(state["structuredContent"]["value"], json!({ "size": 3 }), "{state}");
        let page = web.ask("GET", "/metrics", &[], "").text();
        assert!(page.contains("unhang_worker_slots{worker=\""), "{page}");
        assert!(page.contains("labels=\"unhang:tool:refine\""), "{page}");
        demand_documented_workers(web);
    }
    fs::remove_file(machine.path().join("state/gate")).expect("it is there");
    for mut gateway in [one, two] {
        terminate(&mut gateway);
    }
    terminate(&mut worker);
    for sandbox in [&machine, &other, store.sandbox()] {
        sandbox.assert_nothing_left();
    }
}

/// Users who outgrow one machine take their jobs along.
#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn jobs_of_a_data_folder_move_to_the_store_with_their_ids() {
    let store = SharedStore::new("move");
    let (machine, sandbox) = (Sandbox::with_worker(), store.sandbox());
    let here = |words: &[&str]| {
        let (code, stdout, stderr) = run_to_end(store.jobs.command(words));
        (code, stdout, stderr)
    };
    let run = |words: &[&str]| here(&[&["job", "run"][..], words].concat()).1.trim_end().to_owned();
    let script = "echo out; echo err >&2; echo '{\"a\":[1]}' > $UNHANG_JOB_DIR/r.json";
    let good = run(&["--wait", "--result", "r.json", "--name", "good", "--", "sh", "-c", script]);
    let bad = run(&["--wait", "--", "sh", "-c", "echo '{\"why\":2}' > $UNHANG_JOB_DIR/error.json; exit 7"]);
    let more = run(&["--wait", "--", "sh", "-c", "echo 1 > $UNHANG_JOB_DIR/picture.png"]);
    let long = run(&["--wait", "--", "sh", "-c", "yes 0123456789 | head -c 3000000"]);
    let open = run(&["--", "sleep", "600"]);
    here(&["state", "set", "mesh", "{\"size\":1}"]);
    here(&["state", "set", "basis", "1"]);
    store.demand(0, &["state", "set", "basis", "2"]);

    // The store has a job already, which is newer than those that come.
    let newest = store.demand(0, &["job", "run", "--", "true"]).0.trim_end().to_owned();

    assert_eq!(here(&["job", "move"]).0, 2, "nobody has said where to");
    let nowhere = ["job", "move", "--to", "postgres://me@127.0.0.1:1/jobs"];
    assert_eq!(here(&nowhere).0, 3, "a wrong address is told");
    let (code, stdout, stderr) = here(&["job", "move", "--to", &store.url]);
    assert!(code == 0 && !stdout.contains("correct"), "{code}: {stdout}{stderr}");
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(report["moved"], json!([good, bad, long]), "{report} {stderr}");
    assert_eq!((&report["copied"][0]["job_id"], &report["open"]), (&json!(more), &json!([open])));
    assert_eq!(report["copied"][0]["files"], json!(["picture.png"]));
    assert_eq!(report["state"], json!({"copied": ["mesh"], "kept": ["basis"]}));
    // The folder has what the store does not have.
    let listed = |text: &str| -> Vec<Value> {
        let listed: Value = serde_json::from_str(text).expect("JSON");
        listed.as_array().into_iter().flatten().map(|job| job["job_id"].clone()).collect()
    };
    assert_eq!(listed(&here(&["job", "list"]).1), [json!(open), json!(more)]);

    // Everything is seen on another machine, in the same order.
    let there = |words: &[&str]| {
        let mut command = machine.unhang();
        command.args(words).env("UNHANG_JOBS_STORE", &store.url);
        run_to_end(command)
    };
    assert_eq!(listed(&there(&["job", "list"]).1), [&newest, &long, &more, &bad, &good].map(|id| json!(id)));
    let last: Value = serde_json::from_str(&there(&["job", "show", "last"]).1).expect("JSON");
    assert_eq!(last["job_id"], json!(newest), "a moved job is older than this one");
    assert_eq!(there(&["job", "logs", &good]).1, "out\n");
    assert_eq!(there(&["job", "logs", "--stderr", &good]).1, "err\n");
    assert_eq!(there(&["job", "logs", &long]).1.len(), 3_000_000);
    let result: Value = serde_json::from_str(&there(&["job", "result", &good]).1).expect("JSON");
    assert_eq!(result, json!({"a": [1]}));
    let shown: Value = serde_json::from_str(&there(&["job", "show", &bad]).1).expect("JSON");
    assert_eq!((&shown["exit_code"], &shown["status"]), (&json!(7), &json!("failed")), "{shown}");
    assert_eq!(there(&["state", "get", "mesh"]).1.trim_end(), "{\n  \"size\": 1\n}");

    // A second time moves what has ended since.
    here(&["job", "cancel", &open]);
    let report: Value = serde_json::from_str(&here(&["job", "move", "--to", &store.url]).1).expect("JSON");
    assert_eq!((&report["moved"], &report["copied"][0]["job_id"]), (&json!([open]), &json!(more)));
    machine.assert_nothing_left();
    sandbox.assert_nothing_left();
}

#[test]
fn a_worker_that_would_run_nothing_or_has_no_store_says_so() {
    let sandbox = Sandbox::new();
    let run = |words: &[&str]| {
        let mut command = sandbox.unhang();
        command.arg("worker").args(words);
        run_to_end(command)
    };
    let url = "postgres://me:geheim@127.0.0.1:1/jobs";
    for flags in [&["--labels", "gpu"][..], &["--repeatable"]] {
        let mut command = sandbox.unhang();
        command.args(["job", "run"]).args(flags).args(["--", "true"]);
        let (code, _, stderr) = run_to_end(command);
        assert!(code == 2 && stderr.contains("UNHANG_JOBS_STORE"), "{flags:?}: {code}: {stderr}");
    }
    for (words, code, told) in [
        (&["--any-command"][..], 2, "UNHANG_JOBS_STORE"),
        (&["--store", url], 2, "--any-command"),
        (&["--store", "mysql://x", "--any-command"], 2, "postgres://USER@HOST"),
        (&["--store", url, "--any-command", "--heartbeat", "20s"], 2, "two heartbeats"),
        (&["--store", url, "--any-command", "--labels", "a b"], 2, "a label has letters"),
        (&["--store", url, "--list"], 3, "cannot be reached"),
        (&["--store", url, "--drain"], 6, "no worker has run"),
    ] {
        let (found, _, stderr) = run(words);
        assert!(found == code && stderr.contains(told), "{words:?}: {found}: {stderr}");
        assert!(!stderr.contains("geheim"), "{stderr}");
    }
    sandbox.assert_nothing_left();
}
