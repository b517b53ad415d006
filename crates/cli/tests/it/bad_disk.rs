//! A data folder that cannot be written: everything but jobs works, what concerns jobs says which folder it is, and nothing that
//! was accepted is lost.

use std::fs;

use serde_json::{Value, json};

use crate::{
    apart::Apart,
    harness::{Client, PATIENCE, is_alive, run_to_end, wait_until},
    jobs::{Jobs, UNTIL_GO, called},
    processes::{descriptors, entry, writes},
};

const FILE: &str = r#"
[tools.later]
command = ["true"]
mode = "job"

[tools.greet]
command = ["echo", "hello"]
mode = "child"
"#;

/// Demands that of everything only jobs do not work, and that they say where.
#[track_caller]
fn only_jobs_do_not_work(jobs: &Jobs, apart: &Apart) {
    let folder = jobs.sandbox.path().join("state").display().to_string();
    let (code, stdout, stderr) = run_to_end(apart.enter(&jobs.command(&["job", "run", "--", "true"])));
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.contains(&folder), "it does not name {folder}: {stderr}");
    let mut guarded = Client::start(apart.enter(&jobs.sandbox.wrap_command(&[], &["well-behaved"])));
    guarded.initialize();
    assert_eq!(guarded.tool_text("echo", json!({"text": "hello"})), "hello");
    guarded.finish();
    fs::write(jobs.sandbox.path().join("unhang.toml"), FILE).expect("the sandbox can be written");
    let mut served = Client::start(apart.enter(&jobs.command(&["serve"])));
    served.initialize();
    // A command is a job, whether its answer waits for it or not.
    for tool in ["later", "greet"] {
        let id = served.call(tool, json!({}));
        let refused = served.answer(id)["result"].clone();
        assert_eq!(refused["isError"], true, "{refused}");
        let text = refused["content"][0]["text"].as_str().expect("text");
        assert!(text.contains(&folder), "it does not name {folder}: {text}");
    }
    let id = served.request("tools/list", json!({}));
    assert!(served.answer(id)["result"]["tools"].to_string().contains("greet"), "the session goes on");
    served.finish();
}

#[test]
fn on_a_full_disk_all_but_jobs_works() {
    let jobs = Jobs::new();
    let apart = Apart::new(&jobs.command(&[]), "mount -t tmpfs -o size=1m,mode=700 none \"$UNHANG_HOME\"");
    only_jobs_do_not_work(&jobs, &apart);
    let left = apart.shell(&jobs.command(&[]), "ls -A state/jobs 2>/dev/null || true");
    assert_eq!(left, "", "what was refused leaves no folder");
}

#[test]
fn on_a_disk_without_a_free_byte_all_but_jobs_works() {
    let jobs = Jobs::new();
    let script = "mount -t tmpfs -o size=1m,mode=700 none \"$UNHANG_HOME\"; \
        dd if=/dev/zero of=\"$UNHANG_HOME/full\" bs=4k 2>/dev/null || true";
    let apart = Apart::new(&jobs.command(&[]), script);
    only_jobs_do_not_work(&jobs, &apart);
}

#[test]
fn in_a_read_only_folder_all_but_jobs_works() {
    let jobs = Jobs::new();
    let script = "mount -t tmpfs -o mode=700 none \"$UNHANG_HOME\"; mount --options-source disable -o remount,ro \"$UNHANG_HOME\"";
    let apart = Apart::new(&jobs.command(&[]), script);
    only_jobs_do_not_work(&jobs, &apart);
}

#[test]
fn what_was_accepted_is_there_again_when_the_folder_can_be_written_again() {
    let jobs = Jobs::new();
    let apart = Apart::new(&jobs.command(&[]), "mount -t tmpfs -o mode=700 none \"$UNHANG_HOME\"");
    let (code, stdout, stderr) =
        run_to_end(apart.enter(&jobs.command(&["job", "run", "--wait", "--", "true"])));
    assert_eq!(code, 0, "{stderr}");
    wait_until("the shim has gone", PATIENCE, || jobs.sandbox.survivors().len() == 1);
    let any = jobs.command(&[]);
    apart.shell(&any, "mount --options-source disable -o remount,ro \"$UNHANG_HOME\"");
    only_jobs_do_not_work(&jobs, &apart);
    apart.shell(&any, "mount --options-source disable -o remount,rw \"$UNHANG_HOME\"");
    let (code, shown, stderr) = run_to_end(apart.enter(&jobs.command(&["job", "show", stdout.trim_end()])));
    assert_eq!(code, 0, "{stderr}");
    assert!(shown.contains("\"completed\""), "{shown}");
}

/// Lets no byte more be written, without filling the memory. What the mount was made with is not repeated: in a user namespace it
/// names owners that do not exist there.
const SHRINK: &str = "mount --options-source disable -o remount,size=$(df -k --output=used \"$UNHANG_HOME\" | tail -1 | tr -d ' ')k \"$UNHANG_HOME\"";
const GROW: &str = "mount --options-source disable -o remount,size=1g \"$UNHANG_HOME\"";

/// Submits a shell script, of which one runs at a time.
#[track_caller]
fn submit(jobs: &Jobs, apart: &Apart, script: &str) -> String {
    let words = ["job", "run", "--max-concurrent", "1", "--", "sh", "-c", script];
    let (code, stdout, stderr) = run_to_end(apart.enter(&jobs.command(&words)));
    assert_eq!(code, 0, "{stderr}");
    stdout.trim_end().to_owned()
}

#[test]
fn a_disk_that_fills_up_meanwhile_loses_no_job() {
    let jobs = Jobs::new();
    let any = jobs.command(&[]);
    let apart = Apart::new(&any, "mount -t tmpfs -o size=1g,mode=700 none \"$UNHANG_HOME\"");
    let unhang = |words: &[&str]| run_to_end(apart.enter(&jobs.command(words)));
    let submit = |script: &str| submit(&jobs, &apart, script);
    let (first, second) = (submit(&format!("{UNTIL_GO} exit 5")), submit("echo second >> marks"));
    let folder = apart.path(&jobs.folder(&first));
    // The last that its shim writes before the end.
    wait_until("it runs", PATIENCE, || {
        fs::read_to_string(folder.join("job.json")).is_ok_and(|record| record.contains("\"running\""))
    });
    apart.shell(&any, SHRINK);
    let (code, _, stderr) = unhang(&["job", "run", "--", "true"]);
    assert_eq!(code, 1, "{stderr}");
    // A file that was removed or replaced since has made room.
    apart.shell(&any, SHRINK);
    let run = fs::read_to_string(folder.join("run.json")).expect("it is there");
    let run: Value = serde_json::from_str(&run).expect("JSON");
    let shim = i32::try_from(run["shim"]["pid"].as_i64().expect("a pid")).expect("a pid");
    // It has tried to write more than once, or has given up.
    let before = writes(shim);
    jobs.go();
    wait_until("the shim meets the full disk", PATIENCE, || !is_alive(shim) || writes(shim) >= before + 3);
    apart.shell(&any, GROW);
    let show = |id: &str| -> Value {
        let (code, shown, stderr) = unhang(&["job", "show", id]);
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str(&shown).expect("JSON")
    };
    for (id, status, code) in [(&first, "failed", 5), (&second, "completed", 0)] {
        let mut shown = Value::Null;
        wait_until("both end", PATIENCE, || {
            shown = show(id);
            shown["completed_at"].is_string()
        });
        assert_eq!((&shown["status"], &shown["exit_code"]), (&json!(status), &json!(code)), "{shown}");
    }
    assert_eq!(jobs.tally("marks"), ["second"]);
}

/// Cancels a running and a queued job on a disk without a free byte. `before_full` runs before the disk is full.
#[track_caller]
fn cancelled_on_a_full_disk<T>(before_full: impl FnOnce(&Jobs, &Apart) -> T) {
    let jobs = Jobs::new();
    let any = jobs.command(&[]);
    let apart = Apart::new(&any, "mount -t tmpfs -o size=1g,mode=700 none \"$UNHANG_HOME\"");
    let unhang = |words: &[&str]| run_to_end(apart.enter(&jobs.command(words)));
    let (id, waits) = (submit(&jobs, &apart, UNTIL_GO), submit(&jobs, &apart, "echo never >> marks"));
    let folder = apart.path(&jobs.folder(&id));
    wait_until("it runs", PATIENCE, || {
        fs::read_to_string(folder.join("job.json")).is_ok_and(|record| record.contains("\"running\""))
    });
    let run = fs::read_to_string(folder.join("run.json")).expect("it is there");
    let run: Value = serde_json::from_str(&run).expect("JSON");
    let work = i32::try_from(run["work"]["pid"].as_i64().expect("a pid")).expect("a pid");
    let kept = before_full(&jobs, &apart);
    apart.shell(&any, SHRINK);
    // The queued one first, so that it does not start.
    for id in [&waits, &id] {
        let (code, _, stderr) = unhang(&["job", "cancel", id]);
        assert!(code == 0 || stderr.contains("was told to end"), "{code}: {stderr}");
    }
    // One that is not there is told of beside one that is.
    let (code, _, stderr) = unhang(&["job", "cancel", &id, "aaaaaaaaaaaa"]);
    assert!(code != 0 && stderr.lines().count() > 1, "{code}: {stderr}");
    wait_until("its work has gone", PATIENCE, || !is_alive(work));
    apart.shell(&any, GROW);
    wait_until("both are cancelled", PATIENCE, || {
        [&waits, &id].iter().all(|id| unhang(&["job", "show", id]).1.contains("\"cancelled\""))
    });
    assert_eq!(jobs.tally("marks"), [""; 0]);
    drop(kept);
}

/// The finding: the wish could not be written down, so that no job could be ended to make room.
#[test]
fn on_a_full_disk_a_job_can_be_cancelled() {
    cancelled_on_a_full_disk(|jobs, apart| {
        fs::write(jobs.sandbox.path().join("unhang.toml"), FILE).expect("the sandbox can be written");
        let mut served = Client::start(apart.enter(&jobs.command(&["serve"])));
        served.initialize();
        served
    });
}

/// The database has files beside it while anybody has it open. A full disk has no room for them.
#[test]
fn on_a_full_disk_a_job_can_be_cancelled_whose_database_nobody_can_open() {
    cancelled_on_a_full_disk(|jobs, apart| {
        let has_it_open = |pid: i32| descriptors(pid).iter().any(|(_, file)| file.contains("unhang.db"));
        wait_until("nobody has the database open", PATIENCE, || {
            jobs.sandbox.survivors().into_iter().all(|(pid, _)| !has_it_open(pid))
        });
        // Only a process that closes the database in order removes it, and not every command takes the time.
        let _absent = fs::remove_file(apart.path(&jobs.sandbox.path().join("state/unhang.db-shm")));
    });
}

/// Lets a job start in a folder that has so many free blocks, which is too few, and demands that it goes on once there are more.
#[track_caller]
fn started_without_room(free_blocks: u32, runs_meanwhile: bool) {
    let jobs = Jobs::new();
    let any = jobs.command(&[]);
    let apart = Apart::new(&any, "mount -t tmpfs -o size=1g,mode=700 none \"$UNHANG_HOME\"");
    let submit = |script: &str| submit(&jobs, &apart, script);
    let (_first, second) =
        (submit(UNTIL_GO), submit("echo begin >> marks; until [ -e on ]; do sleep 0.02; done; exit 5"));
    // It waits in the queue. That `launch.json` goes shall make no room.
    let own_disk = format!(
        "cd \"$UNHANG_HOME/jobs\"; cp -rp {second} ../aside; mount -t tmpfs none {second}; cp -rp ../aside/* {second}; \
        rm -r ../aside; ln {second}/launch.json {second}/kept; used=$(df -k --output=used {second} | tail -1); \
        mount --options-source disable -o remount,size=$((used + 4 * {free_blocks}))k {second}"
    );
    apart.shell(&any, &own_disk);
    jobs.go();
    let mut shim = None;
    wait_until("it has a shim", PATIENCE, || {
        let survivors = jobs.sandbox.survivors();
        let is_shim = |pid: i32, command: &str| {
            command.contains(&second) && entry(pid).is_some_and(|entry| entry.name == "mcp-job")
        };
        shim = survivors.into_iter().find(|(pid, command)| is_shim(*pid, command)).map(|(pid, _)| pid);
        shim.is_some() && (!runs_meanwhile || jobs.tally("marks") == ["begin"])
    });
    let shim = shim.expect("it was found");
    // It has tried to write more than once, or has given up.
    let before = writes(shim);
    wait_until("the shim meets the full disk", PATIENCE, || !is_alive(shim) || writes(shim) >= before + 3);
    assert_eq!(jobs.tally("marks").len(), usize::from(runs_meanwhile));
    let grow = format!("mount --options-source disable -o remount,size=1m \"$UNHANG_HOME/jobs/{second}\"");
    apart.shell(&any, &grow);
    let folder = apart.path(&jobs.folder(&second));
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(folder.join(name)).unwrap_or_default()).unwrap_or_default()
    };
    // Without any unhang but its shim.
    wait_until("that it runs is told", PATIENCE, || {
        read("run.json")["work"].is_object() && read("job.json")["status"] == "running"
    });
    jobs.open("on");
    wait_until("it ends", PATIENCE, || read("job.json")["ending"].is_object());
    assert_eq!((read("exit.json")["exit_code"].as_i64(), jobs.tally("marks").len()), (Some(5), 1));
}

#[test]
fn a_job_that_has_no_room_to_start_waits_for_it() {
    started_without_room(0, false);
}

#[test]
fn a_job_that_has_no_room_right_after_its_start_goes_on_and_tells_later() {
    started_without_room(1, true);
}

/// F-08: a folder that could not be opened at the start is opened by the next request once it can be.
#[test]
fn f_08_what_was_mended_is_used_by_the_next_request() {
    let jobs = Jobs::new();
    jobs.demand(0, &["job", "run", "--wait", "--", "true"]);
    let (state, aside) = (jobs.sandbox.path().join("state"), jobs.sandbox.path().join("aside"));
    let database = state.join("unhang.db");
    for name in ["unhang.db", "unhang.db-wal", "unhang.db-shm"] {
        // Not all of them are there when nobody has it open.
        let _none = fs::remove_file(state.join(name));
    }
    fs::write(&database, "not a database at all, but longer than a header of one would be".repeat(100))
        .expect("the sandbox can be written");
    fs::write(jobs.sandbox.path().join("unhang.toml"), FILE).expect("the sandbox can be written");
    let mut served = Client::start(jobs.command(&["serve"]));
    served.initialize();
    let refused = called(&mut served, "list_jobs", json!({}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(refused["content"][0]["text"].to_string().contains("unhang job rebuild"), "{refused}");
    jobs.demand(0, &["job", "rebuild"]);
    let listed = called(&mut served, "list_jobs", json!({}))["structuredContent"].clone();
    assert_eq!(listed["jobs"].as_array().map(Vec::len), Some(1), "{listed}");
    let greeted = called(&mut served, "greet", json!({}));
    assert!(greeted["content"][0]["text"].to_string().contains("hello"), "{greeted}");
    served.finish();
    // What was damaged is kept for whoever wants to look at it.
    let names = fs::read_dir(&state).expect("a folder").map(|entry| entry.expect("an entry").path());
    let damaged = names.filter(|path| path.to_string_lossy().contains(".damaged-"));
    damaged.for_each(|path| fs::remove_file(path).expect("it is ours"));

    // The same where the folder was a file.
    fs::rename(&state, &aside).expect("it is ours");
    fs::write(&state, "").expect("the sandbox can be written");
    let mut served = Client::start(jobs.command(&["serve"]));
    served.initialize();
    assert_eq!(called(&mut served, "greet", json!({}))["isError"], true);
    fs::remove_file(&state).expect("it is ours");
    fs::rename(&aside, &state).expect("it is ours");
    let greeted = called(&mut served, "greet", json!({}));
    assert!(greeted["content"][0]["text"].to_string().contains("hello"), "{greeted}");
    served.finish();
}
