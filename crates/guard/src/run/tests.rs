//! Tests of the guard's loop without a server: the client's lines that it reads, and its end.

use std::{
    io::{Read, Write},
    thread,
};

use unhang_proc::{server::LifelineCommand, spawn::Environment};

use super::*;
use crate::tests::recall::bridge;
use unhang_core::{config::FLUSH_PAUSE, queue::Class};

/// More than any pipe holds.
const ANSWER: usize = 4 << 20;

/// Makes a guard that ends while an answer waits for its client, and the client's end of the pipe.
fn ending() -> (GuardLoop, io::PipeReader) {
    let (client_input, _) = io::pipe().expect("a pipe");
    let (mut shell, reader) = started(client_input);
    shell.effects.to_client.send(Class::Kept, &vec![b'x'; ANSWER], None);
    (shell, reader)
}

/// Makes a guard of a client that writes there, and the client's other end.
fn started(client_input: io::PipeReader) -> (GuardLoop, io::PipeReader) {
    let (reader, client_output) = io::pipe().expect("a pipe");
    let limits = Limits::default();
    let server = ServerSpec {
        program: "never-started".into(),
        arguments: Vec::new(),
        environment: Environment::Inherit,
        folder: None,
        grace: limits.stop_grace,
        stop_limit: limits.stop_limit(),
        lifeline: LifelineCommand { program: "never-started".into(), arguments: Vec::new() },
    };
    let shell = GuardLoop::new(GuardSpec {
        name: "srv".to_owned(),
        limits,
        server,
        client_input: client_input.into(),
        client_output: client_output.into(),
        notices: LossyWriter::new("test", io::sink(), 1),
        jobs: None,
        call_holder: None,
    })
    .expect("its descriptors can be used");
    (shell, reader)
}

#[tokio::test]
async fn what_was_written_until_the_end_is_refused_and_not_lost() {
    let (client_input, mut client) = io::pipe().expect("a pipe");
    let (mut shell, mut reader) = started(client_input);
    let now = shell.now();
    writeln!(client, r#"{{"jsonrpc":"2.0","id":0,"method":"initialize"}}"#).expect("it is open");
    let outcome = shell.from_client.read_now();
    shell.client_read(outcome);
    shell.wrap_session.start_failed(now, "no program", &mut shell.effects);
    for id in 1..=200 {
        writeln!(client, r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#).expect("it is open");
    }
    shell.finish().await;
    writeln!(client).expect_err("nothing can be written that nobody reads");
    let mut received = String::new();
    reader.read_to_string(&mut received).expect("text");
    let told = received.lines().filter(|line| line.contains("-31003") && line.contains("no program"));
    assert_eq!(told.count(), 201, "{received:.500}");
}

#[tokio::test]
async fn nothing_is_read_of_a_client_before_the_calls_of_earlier_sessions_are_known() {
    let (mut shell, _reader) = started(io::pipe().expect("a pipe").0);
    assert!(shell.reads_client(), "without jobs");
    let (bridge, opens, _folder) = bridge(true);
    shell.effects.bridge = Some(bridge);
    assert!(!shell.reads_client() && shell.next_tick().is_some());
    drop(opens);
    let event = bridge_event(&mut shell.effects.bridge).await;
    shell.job_event(event);
    assert!(shell.reads_client());
}

#[tokio::test]
async fn the_last_answers_are_delivered() {
    let (shell, mut reader) = ending();
    let client = thread::spawn(move || {
        let mut received = Vec::new();
        reader.read_to_end(&mut received).map(|_| received.len())
    });
    shell.finish().await;
    assert_eq!(client.join().expect("the client reads").expect("to the end"), ANSWER + 1);
}

#[tokio::test(start_paused = true)]
async fn the_last_answers_are_not_waited_for_beyond_the_limit() {
    let (shell, _unread) = ending();
    let end = timeout(FLUSH_PAUSE * 2, shell.finish()).await;
    assert!(end.is_ok(), "the client does not read, and is not waited for");
}
