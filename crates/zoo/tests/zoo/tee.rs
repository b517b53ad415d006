//! The tee passes bytes unchanged in both directions and leaves nothing behind.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Child;

use rustix::process::Signal;
use serde_json::json;

use crate::zoo_client::{ZooClient, clear, marked, marker, program, signal, start, wait_until};

/// The two files of one tee, removed at the end.
struct Copies {
    from_client: PathBuf,
    from_server: PathBuf,
}

impl Copies {
    fn new(name: &str) -> Self {
        let file = |side| std::env::temp_dir().join(format!("{}-{side}", marker(name)));
        Self { from_client: file("client"), from_server: file("server") }
    }

    fn arguments<'a>(&'a self, command: &[&'a str]) -> Vec<&'a str> {
        let path = |file: &'a PathBuf| file.to_str().expect("a plain path");
        let mut arguments = vec!["tee", path(&self.from_client), path(&self.from_server), "--"];
        arguments.extend(command);
        arguments
    }

    fn read(&self) -> (Vec<u8>, Vec<u8>) {
        let read = |file| std::fs::read(file).expect("the copy is there");
        (read(&self.from_client), read(&self.from_server))
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.from_client);
        let _ = std::fs::remove_file(&self.from_server);
    }
}

fn code(child: &mut Child) -> Option<i32> {
    wait_until("the tee ends", || child.try_wait().expect("the child can be asked")).code()
}

#[test]
fn large_binary_data_passes_unchanged() {
    let copies = Copies::new("binary");
    let mut child = start(&copies.arguments(&["cat"]));
    let data: Vec<u8> =
        (0..3_000_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let (mut stdin, mut stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    let sent = data.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).expect("the tee reads"));
    let mut received = Vec::new();
    stdout.read_to_end(&mut received).expect("the tee writes");
    writer.join().expect("all is written");
    assert_eq!(code(&mut child), Some(0));
    let (from_client, from_server) = copies.read();
    assert!(received == data && from_client == data && from_server == data);
}

#[test]
fn a_session_passes_unchanged_and_the_code_is_handed_on() {
    let copies = Copies::new("session");
    let mut client = ZooClient::meet_with(&copies.arguments(&[program(), "zoo", "well-behaved"]));
    client.shake_hands();
    assert_eq!(client.call_text(1, "big", &json!({"bytes": 300_000})).len(), 300_000);
    client.call(2, "die", &json!({"code": 42}));
    assert_eq!(client.end().code(), Some(42), "although stdin is still open");
    let (from_client, from_server) = copies.read();
    assert_eq!(from_client.split(|byte| *byte == b'\n').count(), 5);
    assert_eq!(from_server.split(|byte| *byte == b'\n').count(), 3);
}

#[test]
fn output_before_death_arrives_although_a_grandchild_holds_the_pipe() {
    let copies = Copies::new("holder");
    let marker = marker("tee-holder");
    let command = [program(), "zoo", "leaves-grandchild", "--marker", &marker];
    let mut client = ZooClient::meet_with(&copies.arguments(&command));
    client.shake_hands();
    client.close_stdin();
    assert!(client.end().success());
    wait_until("the grandchild", || (marked("lingers", &marker).len() == 1).then_some(()));
    clear(&marker);
}

#[test]
fn a_slow_reader_loses_nothing() {
    let copies = Copies::new("slow");
    let mut child = start(&copies.arguments(&["head", "-c", "1000000", "/dev/zero"]));
    let mut stdout = child.stdout.take().expect("piped");
    // The command can end only when most is read, and then the rest waits in two pipes.
    let mut first = vec![0; 900_000];
    stdout.read_exact(&mut first).expect("the tee writes");
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).expect("the tee writes");
    assert_eq!(rest.len(), 100_000);
    assert_eq!(code(&mut child), Some(0));
}

#[test]
fn a_terminated_tee_takes_its_command_along() {
    let copies = Copies::new("terminated");
    let marker = marker("tee-terminated");
    let mut client =
        ZooClient::meet_with(&copies.arguments(&[program(), "zoo", "lingers", "--marker", &marker]));
    let is_command = |pid: &u32| *pid != client.pid();
    wait_until("the command runs", || marked("lingers", &marker).into_iter().find(is_command));
    signal(client.pid(), Signal::TERM);
    client.end();
    wait_until("the command is gone", || marked("lingers", &marker).is_empty().then_some(()));
}
