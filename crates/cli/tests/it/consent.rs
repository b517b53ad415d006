//! Files of a project count after consent to their content (F-22), and what a project says of jobs counts for `unhang job` (F-05).

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::harness::{Client, Sandbox, lab_program, run_to_end};

/// A project below the home of somebody.
pub(crate) struct Project {
    pub(crate) sandbox: Sandbox,
    pub(crate) folder: PathBuf,
}

impl Project {
    pub(crate) fn new(sandbox: Sandbox) -> Project {
        let folder = sandbox.path().join("project");
        fs::create_dir(&folder).expect("a folder");
        Project { sandbox, folder }
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    /// Runs a command in the project.
    #[track_caller]
    pub(crate) fn run(&self, words: &[&str]) -> (i32, String, String) {
        let mut command = self.sandbox.unhang();
        command.current_dir(&self.folder).args(words);
        run_to_end(command)
    }

    /// The file of a client with one server that leaves a mark where it starts.
    pub(crate) fn with_server(self, more: &str) -> Project {
        let mark = self.folder.join("started");
        let line = format!("touch '{}'; exec '{}' zoo well-behaved", mark.display(), lab_program());
        self.write(
            ".mcp.json",
            &format!(
                "{{\"mcpServers\": {{\"theirs\": {{\"command\": \"sh\", \"args\": [\"-c\", {}]{more}}}}}}}",
                json!(line)
            ),
        );
        self
    }

    pub(crate) fn has_started(&self) -> bool {
        self.folder.join("started").exists()
    }
}

fn error(stderr: &str) -> Value {
    serde_json::from_str(stderr).unwrap_or_else(|error| panic!("{error}: {stderr}"))
}

#[test]
fn f_22_nothing_of_a_project_runs_before_consent_to_its_content() {
    let project = Project::new(Sandbox::new()).with_server(", \"env\": {\"KEY\": \"hidden-value\"}");
    for words in [&["tools"][..], &["servers"], &["ping", "theirs"], &["doctor", "theirs"]] {
        let (code, stdout, stderr) = project.run(words);
        assert_eq!((code, stdout.as_str()), (2, ""), "{words:?}: {stderr}");
        let path = project.folder.canonicalize().expect("a folder").join(".mcp.json");
        for expect in [format!("unhang trust {}", path.display()), "--trust".to_owned()] {
            assert!(stderr.contains(&expect), "{words:?}: {stderr}");
        }
        assert!(!project.has_started(), "{words:?}");
    }
    let (code, _, stderr) = project.run(&["ping", "--output", "json"]);
    assert_eq!((code, error(&stderr)["error"]["kind"].as_str()), (2, Some("untrusted")), "{stderr}");

    // For one run, and no longer.
    let (code, stdout, stderr) = project.run(&["ping", "--trust"]);
    assert_eq!((code, project.has_started()), (0, true), "{stdout} {stderr}");
    fs::remove_file(project.folder.join("started")).expect("it was started");
    assert_eq!(project.run(&["ping"]).0, 2);
    // To name a file, a command or a URL is to consent to it.
    assert_eq!(project.run(&["ping", "--config", ".mcp.json"]).0, 0);
    assert_eq!(project.run(&["ping", "--", lab_program(), "zoo", "well-behaved"]).0, 0);

    let (code, stdout, stderr) = project.run(&["trust", "--output", "text"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("server theirs: sh -c") && stdout.contains("[KEY]"), "{stdout}");
    assert!(!stdout.contains("hidden-value"), "{stdout}");
    assert_eq!(project.run(&["ping", "theirs"]).0, 0);
    let kept = fs::read_dir(project.sandbox.path().join("state/trust")).expect("consents");
    let kept: Vec<String> =
        kept.map(|entry| fs::read_to_string(entry.expect("a file").path()).expect("text")).collect();
    assert!(matches!(&kept[..], [one] if one.contains("KEY") && !one.contains("hidden-value")), "{kept:?}");

    let (_, listed, _) = project.run(&["trust", "--list"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!((&listed[0]["status"], listed.as_array().map(Vec::len)), (&json!("trusted"), Some(1)));
    let (code, removed, _) = project.run(&["trust", "--remove", ".mcp.json", "--output", "text"]);
    assert!(code == 0 && removed.contains("no longer trusted"), "{removed}");
    assert_eq!(project.run(&["ping", "theirs"]).0, 2);
}

#[test]
fn f_22_a_changed_file_needs_consent_again_and_what_changed_is_shown() {
    let project =
        Project::new(Sandbox::new()).with_server(", \"envFile\": \".env\", \"env\": {\"A\": \"1\"}");
    project.write(".env", "COLOUR=blue\n");
    assert_eq!(project.run(&["trust"]).0, 0);
    let (code, stdout, stderr) =
        project.run(&["call", "theirs", "environment", "name=COLOUR", "--output", "text"]);
    assert!(code == 0 && stdout.contains("blue"), "{stdout} {stderr}");

    project.write(".env", "COLOUR=red\n");
    let (code, _, stderr) = project.run(&["tools", "theirs"]);
    assert!(
        code == 2 && stderr.contains("has changed") && stderr.contains("the content of"),
        "{code} {stderr}"
    );
    project.write(".env", "COLOUR=blue\n");
    assert_eq!(project.run(&["ping", "theirs"]).0, 0, "it is as it was");

    let text = fs::read_to_string(project.folder.join(".mcp.json")).expect("text");
    project.write(
        ".mcp.json",
        &text.replace("\"sh\"", "\"bash\"").replace("\"A\": \"1\"", "\"A\": \"2\", \"B\": \"3\""),
    );
    let (code, _, stderr) = project.run(&["tools", "theirs"]);
    assert_eq!(code, 2, "{stderr}");
    for expect in ["changed: server theirs: bash -c", "was: sh -c", "A has another value", "B is new"] {
        assert!(stderr.contains(expect), "{expect}: {stderr}");
    }
}

#[test]
fn f_22_files_of_the_user_need_no_consent_and_a_link_in_a_project_is_no_file_of_theirs() {
    let project = Project::new(Sandbox::new());
    let home = project.sandbox.path();
    let lab = lab_program();
    let server = format!(
        "{{\"mcpServers\": {{\"mine\": {{\"command\": \"{lab}\", \"args\": [\"zoo\", \"well-behaved\"]}}}}}}"
    );
    fs::write(home.join(".claude.json"), &server).expect("a file");
    let (code, _, stderr) = project.run(&["ping", "mine"]);
    assert_eq!(code, 0, "{stderr}");
    // Directly in the home folder, also where that is the working folder.
    fs::write(home.join(".mcp.json"), &server).expect("a file");
    let mut command = project.sandbox.unhang();
    command.args(["ping", "mine"]);
    assert_eq!(run_to_end(command).0, 0);
    assert_eq!(project.run(&["trust", "../.mcp.json"]).0, 0);
    // The same bytes under the same path, and their relative paths begin in another folder.
    std::os::unix::fs::symlink(home.join(".mcp.json"), project.folder.join(".mcp.json")).expect("a link");
    let (code, _, stderr) = project.run(&["ping", "mine"]);
    assert!(code == 2 && stderr.contains("is not trusted"), "{code} {stderr}");
}

#[test]
fn f_22_serve_never_takes_the_file_of_the_working_folder() {
    let project = Project::new(Sandbox::with_jobs());
    project.write("unhang.toml", "[tools.a]\ncommand = ['true']\n");
    fs::write(project.sandbox.path().join(".claude.json"), "{\"mcpServers\": {}}").expect("a file");
    let (code, _, stderr) = project.run(&["serve"]);
    assert_eq!(code, 2, "{stderr}");
    for expect in ["--config unhang.toml", ".claude.json"] {
        assert!(stderr.contains(expect), "{expect}: {stderr}");
    }
    let mut command = project.sandbox.unhang();
    command.current_dir(&project.folder).args(["serve", "--config", "unhang.toml"]);
    let mut client = Client::start(command);
    client.close_stdin();
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
}

#[test]
fn f_05_the_file_says_how_jobs_are_kept_and_one_that_is_wrong_is_noticed() {
    let project = Project::new(Sandbox::with_jobs());
    let file = project.sandbox.path().join(".config/unhang/unhang.toml");
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    let pruned = |words: &[&str]| {
        let (code, stdout, stderr) = project.run(&[&["job"], words, &["prune", "--output", "text"]].concat());
        assert_eq!(code, 0, "{stderr}");
        stdout
    };
    assert!(pruned(&[]).contains("7 days") || pruned(&[]).contains("7d"), "{}", pruned(&[]));
    fs::write(&file, "[jobs]\nretention = '30d'\n[servers.a]\nurl = '${NOWHERE}'\n").expect("a file");
    assert!(pruned(&[]).contains("30d"), "{}", pruned(&[]));
    assert!(pruned(&["--retention", "3d"]).contains("3d"));
    for (text, expect) in
        [("[jobs", "unhang.toml:1:"), ("[jobs]\nretention = 30", "jobs.retention: expected a length of time")]
    {
        fs::write(&file, text).expect("a file");
        let (code, _, stderr) = project.run(&["job", "list"]);
        assert!(code == 2 && stderr.contains(expect), "{code} {stderr}");
    }
    fs::remove_file(&file).expect("it is there");
    // That of a project after consent.
    project.write("unhang.toml", "[jobs]\nretention = '9d'\n");
    let (code, _, stderr) = project.run(&["job", "prune"]);
    assert!(code == 2 && stderr.contains("unhang trust "), "{code} {stderr}");
    assert!(pruned(&["--trust"]).contains("9d"));
    assert_eq!(project.run(&["trust"]).0, 0);
    assert!(pruned(&[]).contains("9d"));
}

#[test]
fn f_22_commands_about_jobs_need_consent_only_where_the_file_speaks_of_jobs() {
    let project = Project::new(Sandbox::with_jobs());
    let servers = "[servers.theirs]\ncommand = \"true\"\n";
    project.write("unhang.toml", servers);
    for words in [&["job", "list"][..], &["state", "list"]] {
        let (code, stdout, stderr) = project.run(words);
        assert_eq!((code, &*stderr), (0, ""), "{words:?}: {stdout}");
    }
    for text in [
        format!("{servers}[jobs]\nretention = \"1h\"\n"),
        format!("{servers}[state]\nshared = [\"a\"]\n"),
        format!("jobs.retention = \"1h\"\n{servers}"),
    ] {
        project.write("unhang.toml", &text);
        let (code, _, stderr) = project.run(&["job", "list"]);
        assert!(code == 2 && stderr.contains("is not trusted"), "{text}: {code} {stderr}");
    }
    project.write("unhang.toml", "[servers");
    assert_eq!(project.run(&["job", "list"]).0, 2, "nobody knows what it says");
}
