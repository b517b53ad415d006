//! `examples/digester`, as its guide uses it: two tools behind `unhang serve`, the second from the state of the first.
//!
//! The script needs Python, which plain `cargo test` must not: `cargo xtask ci --only examples` runs these.

use std::{env, fs, path::Path};

use serde_json::{Value, json};

use crate::{
    harness::{Client, Sandbox},
    jobs::{called, ended},
};

/// Serves a copy of the example whose imports take no time.
fn served(sandbox: &Sandbox) -> Client {
    served_with(sandbox, "")
}

/// The same with more said of each tool.
fn served_with(sandbox: &Sandbox, more: &str) -> Client {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digester");
    let folder = sandbox.path().join("digester");
    fs::create_dir_all(&folder).expect("the sandbox can be written");
    for name in ["digester.py", "unhang.toml"] {
        let text = fs::read_to_string(example.join(name)).expect("it is part of the example");
        let text = text.replace("mode = \"job\"\n", &format!("mode = \"job\"\n{more}"));
        fs::write(folder.join(name), text).expect("the sandbox can be written");
    }
    let mut command = sandbox.unhang();
    command
        .args(["serve", "--stdio", "--config", "digester/unhang.toml"])
        .env("DIGESTER_IMPORT_SECONDS", "0.2")
        .env("UNHANG_MEMORY_LIMIT", "100")
        // Python may be anywhere.
        .env("PATH", env::var_os("PATH").expect("a path"));
    let mut client = Client::start(command);
    client.initialize();
    client
}

fn told(client: &mut Client, tool: &str, arguments: Value) -> Value {
    let result = called(client, tool, arguments);
    assert!(result["isError"].is_null(), "{tool}: {result}");
    result["structuredContent"].clone()
}

#[test]
#[ignore = "needs python3; cargo xtask ci --only examples"]
fn j_49_heavy_modules_are_loaded_in_the_job_alone_and_patched_before() {
    let sandbox = Sandbox::with_jobs();
    // A module of Python that runs before any other tells of who imports what, in which order and process.
    let python = sandbox.path().join("python");
    fs::create_dir(&python).expect("the sandbox can be written");
    let spy = "import builtins, os\n\
               real = builtins.print\n\
               def told(*words, **how):\n    \
               if any('importing ' in str(word) for word in words):\n        \
               real('patched with', os.environ.get('OMP_NUM_THREADS'), 'in a job', 'UNHANG_JOB_ID' in os.environ)\n    \
               real(*words, **how)\n\
               builtins.print = told\n";
    fs::write(python.join("sitecustomize.py"), spy).expect("a file");
    let mut client =
        served_with(&sandbox, &format!("env = {{ PYTHONPATH = {:?} }}\n", python.display().to_string()));
    let basis = json!({ "flow_m3_d": 100, "cod_kg_m3": 40 });
    let job = told(&mut client, "size_digester", basis)["job_id"].clone();
    assert_eq!(ended(&mut client, &job), "completed");
    let log = told(&mut client, "get_job_logs", json!({ "job_id": job }));
    let text = log["text"].as_str().expect("text");
    assert!(text.contains("importing flowsheet"), "{text}");
    assert_eq!(
        text.matches("importing ").count(),
        text.matches("patched with 1 in a job True").count(),
        "{text}"
    );
    // The server, which answered with the id meanwhile, has loaded nothing.
    assert!(!client.stderr().contains("importing "), "{}", client.stderr());
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
#[ignore = "needs python3; cargo xtask ci --only examples"]
fn j_84_the_second_tool_starts_from_the_state_of_the_first() {
    let sandbox = Sandbox::with_jobs();
    let mut client = served(&sandbox);

    let early = called(&mut client, "simulate_digester", json!({ "days": 3 }));
    assert_eq!(early["isError"], true, "J-17: {early}");
    let text = early["content"][0]["text"].as_str().expect("text");
    assert!(text.starts_with("Job submission failed: ") && text.contains("`digester_design`"), "{text}");
    assert_eq!(told(&mut client, "list_jobs", json!({}))["jobs"], json!([]));

    let basis = json!({ "flow_m3_d": 100, "cod_kg_m3": 40 });
    let sized = told(&mut client, "size_digester", basis)["job_id"].clone();
    assert_eq!(ended(&mut client, &sized), "completed");
    let results = told(&mut client, "get_job_results", json!({ "job_id": sized }));
    assert_eq!(results["results"]["design"]["volume_m3"], 2000.0, "{results}");
    for (stream, noise) in [("stdout", "importing kinetics"), ("stderr", "kinetics: UserWarning")] {
        let log = told(&mut client, "get_job_logs", json!({ "job_id": sized, "stream": stream }));
        assert!(log["text"].as_str().is_some_and(|text| text.contains(noise)), "{log}");
    }
    let design = told(&mut client, "get_state", json!({ "field": "digester_design" }))["value"].clone();
    assert_eq!(design, results["results"]["design"]);

    let simulated = told(&mut client, "simulate_digester", json!({ "days": 3 }))["job_id"].clone();
    assert_eq!(ended(&mut client, &simulated), "completed");
    let results = told(&mut client, "get_job_results", json!({ "job_id": simulated }));
    assert_eq!(results["results"]["series"].as_array().map(Vec::len), Some(3), "{results}");
    assert!(
        results["stdout_tail"].as_str().is_some_and(|tail| tail.ends_with("progress: 100%\n")),
        "{results}"
    );
    let state = told(&mut client, "get_state", json!({ "field": "simulation_results" }));
    assert_eq!(state["value"], results["results"]["digester"], "{state}");
    assert_eq!(state["value"]["volume_m3"], 2000.0, "what the first has found");
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
#[ignore = "needs python3; cargo xtask ci --only examples"]
fn j_57_what_cannot_be_computed_is_told_in_the_words_of_the_script() {
    let sandbox = Sandbox::with_jobs();
    let mut client = served(&sandbox);
    let basis = json!({ "flow_m3_d": 100, "cod_kg_m3": 40, "target_srt_days": 3 });
    let job = told(&mut client, "size_digester", basis)["job_id"].clone();
    assert_eq!(ended(&mut client, &job), "failed");
    let results = told(&mut client, "get_job_results", json!({ "job_id": job }));
    assert_eq!((&results["exit_code"], &results["error"]["kind"]), (&json!(1), &json!("ValueError")));
    let message = results["error"]["message"].as_str().expect("text");
    assert!(message.contains("washes the biomass out"), "{message}");
    assert_eq!(called(&mut client, "get_state", json!({ "field": "digester_design" }))["isError"], true);
    client.finish();
    sandbox.assert_nothing_left();
}
