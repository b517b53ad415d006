//! No server steers the terminal that its words are shown at, whichever stream that is.

use std::{
    fs::File,
    io::Read,
    process::{Command, Stdio},
    thread,
};

use serde_json::Value;

use crate::{
    harness::{Client, Sandbox, lab_program},
    terminal::terminal,
};

/// What a person sees at the terminal and what went into the pipe, where one stream is the one and the other the other.
struct Seen {
    code: i32,
    screen: String,
    piped: String,
}

/// Reads to the end, which a terminal reports as an error.
fn all(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ended = stream.read_to_end(&mut bytes);
        String::from_utf8(bytes).expect("text")
    })
}

fn seen(mut command: Command, is_stdout_the_terminal: bool) -> Seen {
    let (master, screen) = terminal();
    let (pipe, into) = std::io::pipe().expect("a pipe");
    let (screen, into) = (Stdio::from(screen), Stdio::from(into));
    let (stdout, stderr) = if is_stdout_the_terminal { (screen, into) } else { (into, screen) };
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    let (screen, piped) = (all(File::from(master)), all(pipe));
    let mut client = Client::start_alone(command);
    let code = client.exit_code();
    Seen { code, screen: screen.join().expect("text"), piped: piped.join().expect("text") }
}

fn call(sandbox: &Sandbox, flags: &[&str], tool: &str) -> Command {
    let mut command = sandbox.unhang();
    command.arg("call").args(flags).args([tool, "--", lab_program(), "zoo", "steers-terminal"]);
    command
}

/// Whether a person would read something else than is there: the direction of text is turned, lines break, or nothing is seen.
fn misleads(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{2060}' | '\u{3164}' | '\u{feff}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// Whether a terminal would take any of it as a command; what our own progress draws is none of the server's.
#[track_caller]
fn assert_calm(screen: &str) {
    let own = screen.replace("\r\u{1b}[K", "");
    let steers = |character: char| character.is_control() && !matches!(character, '\r' | '\n' | '\t');
    assert!(!own.contains(steers), "{screen:?}");
    assert!(!own.contains(misleads), "{screen:?}");
}

#[test]
fn f_40_no_error_steers_the_terminal_of_stderr() {
    for (flags, tool) in [
        (&["--output", "text"][..], "error"),
        (&["--output", "json"], "error"),
        (&["--output", "text"], "fail"),
        (&["--output", "text", "--verbose"], "echo"),
    ] {
        let sandbox = Sandbox::new();
        let Seen { code, screen, piped } = seen(call(&sandbox, flags, tool), false);
        assert_eq!(code, i32::from(tool != "echo"), "{flags:?} {tool}: {screen}");
        assert_calm(&screen);
        let told = if tool == "echo" { "about to answer" } else { &format!("from {tool}") };
        assert!(screen.contains(told), "{flags:?} {tool}: {screen:?}");
        // A pipe is given what the server wrote.
        assert_eq!(piped.contains("from echo \u{1b}]52;c;"), tool == "echo", "{piped:?}");
    }
}

#[test]
fn f_40_no_result_steers_the_terminal_of_stdout() {
    let sandbox = Sandbox::new();
    let Seen { code, screen, .. } = seen(call(&sandbox, &["--output", "text"], "echo"), true);
    assert_eq!((code, screen.as_str()), (0, "from echo red end\r\n"));
    // JSON keeps its meaning.
    let Seen { code, screen, .. } = seen(call(&sandbox, &["--output", "json"], "echo"), true);
    assert_eq!(code, 0, "{screen}");
    assert_calm(&screen);
    let result: Value = serde_json::from_str(&screen).expect("JSON");
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("\u{9d}52;c;") && text.contains("\u{1b}]52;c;"), "{text:?}");
    assert!(text.contains('\u{202e}') && text.contains('\u{e0041}'), "{text:?}");
    // The content alone, and a report for a CI.
    let Seen { code, screen, .. } = seen(call(&sandbox, &["--raw"], "echo"), true);
    assert_eq!((code, screen.trim_end()), (0, "from echo red end"));
    // What goes to a pipe is as it was, though the other stream is a terminal.
    let Seen { code, piped, .. } = seen(call(&sandbox, &["--output", "text"], "fail"), true);
    assert!(code == 1 && piped.contains("from fail \u{1b}]52;c;"), "{code} {piped:?}");
    assert_eq!(piped.matches(misleads).count(), 12, "{piped:?}");
}

#[test]
fn f_40_what_a_guarded_server_writes_to_stderr_steers_no_terminal() {
    let sandbox = Sandbox::new();
    let (master, screen) = terminal();
    let (stdin, stdout) = (std::io::pipe().expect("a pipe"), std::io::pipe().expect("a pipe"));
    let mut command = sandbox.wrap_command(&[], &["steers-terminal"]);
    command.stdin(stdin.0).stdout(stdout.1).stderr(screen);
    let screen = all(File::from(master));
    let mut client = Client::start_alone(command).reading(stdout.0).writing(stdin.1);
    client.initialize();
    let text = client.tool_text("echo", serde_json::json!({}));
    assert!(text.contains("\u{1b}]52;c;"), "the wire is no terminal: {text:?}");
    client.close_stdin();
    assert_eq!(client.exit_code(), 0);
    let screen = screen.join().expect("text");
    assert_calm(&screen);
    assert!(screen.contains("about to answer red"), "{screen:?}");
}
