//! Large files of shared jobs in a bucket, as people set it up. Each data folder stands for a machine.

use std::{fs, process::Command};

use serde_json::json;
use unhang_zoo::{
    private_moto::{MotoAccess, PrivateMoto},
    test_programs::{MOTO, named_by},
};

use crate::{
    harness::{Client, Sandbox, run_to_end},
    workers::SharedStore,
};

const KEY_ID: &str = "AKIDGEHEIM";
const SECRET: &str = "sehrgeheim";

fn moto(access: MotoAccess) -> PrivateMoto {
    let moto = PrivateMoto::start(&named_by(MOTO), access).expect("an object store");
    moto.ask("PUT", "/jobs", b"").expect("a bucket");
    moto
}

/// The same command with the access to a bucket in its environment.
fn with_access(mut command: Command, moto: &PrivateMoto) -> Command {
    command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("AWS_ENDPOINT_URL", moto.url()).env("AWS_ALLOW_HTTP", "true");
    command
}

/// Writes a file with settings, and one that is large.
fn set_up(sandbox: &Sandbox) {
    fs::write(sandbox.path().join("artifacts.toml"), "[jobs]\nartifacts = \"s3://jobs/unhang\"\n")
        .expect("a file");
    let large = format!("[{}0]", "1, ".repeat(700_000));
    fs::write(sandbox.path().join("large.json"), large).expect("a file");
}

const SUBMIT: [&str; 6] = ["job", "run", "--config", "artifacts.toml", "--input", "large.json"];

#[test]
#[ignore = "needs PostgreSQL and moto; cargo xtask ci --only examples"]
fn promise_4_large_files_go_through_a_bucket_and_no_job_gets_the_key() {
    let (store, moto) = (SharedStore::new("bucket"), moto(MotoAccess::Everybody));
    let machine = Sandbox::with_worker();
    set_up(store.sandbox());
    set_up(&machine);
    let here = |words: &[&str]| run_to_end(with_access(store.command(words), &moto));
    let script = "env; cp $UNHANG_JOB_DIR/large.json $UNHANG_JOB_DIR/r.json";
    let (code, id, stderr) = here(&[&SUBMIT[..], &["--result", "r.json", "--", "sh", "-c", script]].concat());
    assert_eq!(code, 0, "{stderr}");
    let id = id.trim_end();
    let [input] = &moto.keys("jobs").expect("keys")[..] else { panic!("one object") };
    assert!(input.starts_with(&format!("unhang/{id}/0/")), "{input}");

    let words = ["--any-command", "--config", "artifacts.toml"];
    let mut worker = Client::start(with_access(store.worker(&machine, &words), &moto));
    let (code, ended, stderr) = here(&["job", "wait", id]);
    assert!(code == 0 && ended.contains("completed"), "{code}: {ended}{stderr}");
    assert_eq!(moto.keys("jobs").expect("keys").len(), 2);
    // The name of the variable was in the submitter's environment, and its value is in the worker's.
    let log = here(&["job", "logs", id]).1;
    assert!(log.contains("UNHANG_JOB_DIR=") && !log.contains("AWS_") && !log.contains("eheim"), "{log}");
    let (code, result, stderr) = here(&["job", "result", "--config", "artifacts.toml", id]);
    assert!(code == 0 && result.matches('1').count() == 700_000, "{code}: {stderr}");
    // A reader that was not told of the bucket learns where the result is.
    let (code, _, stderr) = here(&["job", "result", id]);
    assert!(
        code != 0 && stderr.contains("s3://jobs/unhang") && stderr.contains("has none"),
        "{code}: {stderr}"
    );
    let (code, _, stderr) = here(&["job", "remove", "--config", "artifacts.toml", id]);
    assert_eq!((code, moto.keys("jobs").expect("keys")), (0, Vec::new()), "{stderr}");
    store.finish(&mut worker, &machine);
}

#[test]
#[ignore = "needs PostgreSQL and moto; cargo xtask ci --only examples"]
fn promise_4_a_bucket_that_refuses_is_named_and_nothing_is_accepted() {
    let (store, mut moto) = (SharedStore::new("no-bucket"), moto(MotoAccess::NobodyAfterTheFirst));
    set_up(store.sandbox());
    let words = [&SUBMIT[..], &["--", "true"]].concat();
    let refused = |command: Command, told: &str| {
        let (code, stdout, stderr) = run_to_end(command);
        assert!(code == 3 && stdout.is_empty(), "{code}: {stdout}{stderr}");
        let parts = ["nothing was accepted", "s3://jobs/unhang", told];
        assert!(parts.iter().all(|part| stderr.contains(part)) && !stderr.contains("eheim"), "{stderr}");
    };
    refused(with_access(store.command(&words), &moto), "InvalidAccessKeyId");
    refused(store.command(&words), "AWS_ACCESS_KEY_ID");
    let mut plain = with_access(store.command(&words), &moto);
    plain.env_remove("AWS_ALLOW_HTTP");
    refused(plain, "AWS_ALLOW_HTTP=true");
    let command = with_access(store.command(&words), &moto);
    moto.stop();
    refused(command, "refused");
    assert_eq!(store.json(&["job", "list"]), json!([]));
    // A small file needs no bucket.
    fs::write(store.sandbox().path().join("large.json"), "1").expect("a file");
    store.demand(0, &words);
    // A worker without a key, and a place that is none, are refused at the start.
    let machine = Sandbox::with_worker();
    set_up(&machine);
    let (code, _, stderr) =
        run_to_end(store.worker(&machine, &["--any-command", "--config", "artifacts.toml"]));
    assert!(code == 2 && stderr.contains("AWS_SECRET_ACCESS_KEY"), "{code}: {stderr}");
    fs::write(machine.path().join("artifacts.toml"), "[jobs]\nartifacts = \"shared\"\n").expect("a file");
    let (code, _, stderr) =
        run_to_end(store.worker(&machine, &["--any-command", "--config", "artifacts.toml"]));
    assert!(code == 2 && stderr.contains("`shared` names no object store"), "{code}: {stderr}");
    store.sandbox().assert_nothing_left();
}
