//! Which data folder is used: none that another user owns or can write to.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    gateway::{server, window},
    harness::{Sandbox, lab_program, run_to_end},
};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").mode() & 0o777
}

/// Commands that keep something, or look at what is kept.
fn commands(sandbox: &Sandbox) -> Vec<Command> {
    fs::write(sandbox.path().join("unhang.toml"), server("one", &["well-behaved"], "")).expect("a file");
    let words: [&[&str]; 6] = [
        &["job", "list"],
        &["job", "run", "--", "true"],
        &["state", "list"],
        &["serve"],
        &["wrap", "--", lab_program(), "zoo", "well-behaved"],
        &["tools", "http://127.0.0.1:1/mcp"],
    ];
    let command = |words: &&[&str]| {
        let mut command = sandbox.unhang();
        command.args(*words).stdin(Stdio::null()).current_dir(sandbox.path());
        command
    };
    words.iter().map(command).collect()
}

#[test]
fn f_23_a_data_folder_that_others_can_write_to_is_refused_with_the_command_that_helps() {
    let sandbox = Sandbox::with_jobs();
    let data = sandbox.path().join("state");
    fs::create_dir(&data).expect("a folder");
    for (at, wrong) in [(&data, 0o777), (&data, 0o775), (&data.join("jobs"), 0o702)] {
        fs::create_dir_all(at).expect("a folder");
        set_mode(at, wrong);
        for command in commands(&sandbox) {
            let words = format!("{command:?}");
            let (code, stdout, stderr) = run_to_end(command);
            assert_eq!((code, &*stdout), (2, ""), "{words}: {stderr}");
            let why = format!("{} is not used: other users can write to it", at.display());
            let hint = format!("`chmod go-w {}`", at.display());
            assert!(stderr.contains(&why) && stderr.contains(&hint), "{words}: {stderr}");
        }
        // What is told helps.
        let (code, _, stderr) = run_to_end(sandbox.shell(&format!("chmod go-w {}", at.display())));
        assert_eq!(code, 0, "{stderr}");
    }
    let mut json = sandbox.unhang();
    json.args(["job", "list", "--output", "json"]);
    let (code, stdout, stderr) = run_to_end(json);
    assert_eq!((code, stdout.trim()), (0, "[]"), "{stderr}");
    set_mode(&data, 0o777);
    let mut told = sandbox.unhang();
    told.args(["job", "list", "--output", "json"]);
    let (code, _, stderr) = run_to_end(told);
    let told: Value = serde_json::from_str(&stderr).expect("JSON");
    assert_eq!((code, &told["error"]["kind"]), (2, &json!("unsafe_data_folder")), "{told}");
}

#[test]
fn f_23_a_data_folder_of_another_user_is_refused() {
    let sandbox = Sandbox::with_jobs();
    let data = sandbox.path().join("state");
    fs::create_dir(&data).expect("a folder");
    // Only root can give a folder away; whoever runs the tests as somebody else has the pure test alone.
    if chown(&data, Some(65534), None).is_err() {
        return;
    }
    for command in commands(&sandbox) {
        let words = format!("{command:?}");
        let (code, _, stderr) = run_to_end(command);
        assert!(
            code == 2 && stderr.contains("belongs to the user with the number 65534"),
            "{words}: {stderr}"
        );
    }
    chown(&data, Some(rustix::process::geteuid().as_raw()), None).expect("it is ours again");
}

#[test]
fn f_23_the_socket_that_windows_meet_at_is_in_a_folder_of_its_owner() {
    let sandbox = Sandbox::with_jobs();
    let data = sandbox.path().join("state");
    fs::create_dir(&data).expect("a folder");
    // As `mkdir` makes one.
    set_mode(&data, 0o755);
    fs::write(sandbox.path().join("unhang.toml"), server("one", &["well-behaved"], "")).expect("a file");
    let mut leader = window(&sandbox, &[]);
    leader.tool_text("one__pid", json!({}));
    let folder = data.join("gateway");
    let socket = fs::read_dir(&folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .expect("a socket");
    assert_eq!((mode(&folder), mode(&socket)), (0o700, 0o600));
    leader.close_stdin();
    assert_eq!(leader.exit_code(), 0, "{}", leader.stderr());
}
