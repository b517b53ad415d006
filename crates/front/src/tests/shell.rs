//! The shell with real pipes and real tasks.

use std::{
    io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write},
    sync::Arc,
    thread,
};

use tokio::sync::{mpsc, watch};

use super::*;
use crate::{FrontSpec, run};
use unhang_core::{exit, limits::Limits, shell::Stop};
use unhang_tools::{ToolAnswerFuture, ToolCall, Toolbox};

/// Tools that misbehave.
struct MisbehavingTools;

impl Toolbox for MisbehavingTools {
    fn definitions(&self) -> Arc<[Definition]> {
        ["echo", "panics", "panics_at_once", "never_ends", "ends_when_cancelled", "soon", "large"]
            .map(|name| Definition { name: name.to_owned(), ..echo() })
            .into()
    }

    fn call(&self, mut call: ToolCall) -> ToolAnswerFuture {
        assert!(call.tool != "panics_at_once", "at once");
        Box::pin(async move {
            match &*call.tool {
                "panics" => panic!("in the task"),
                "never_ends" => std::future::pending().await,
                "ends_when_cancelled" => {
                    call.cancellation.cancelled().await;
                    answer("cancelled")
                }
                "soon" => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    answer("soon")
                }
                "large" => answer(&"x".repeat(20_000)),
                _ => answer("hi"),
            }
        })
    }
}

struct Client {
    input: PipeWriter,
    output: BufReader<PipeReader>,
}

impl Client {
    fn call(&mut self, id: u32, tool: &str) {
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#);
        writeln!(self.input, "{line}").expect("the front reads");
    }

    fn hears(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the front writes");
        serde_json::from_str(&line).expect("JSON")
    }
}

/// Runs a front on this thread and its client on another; returns the exit code and what the client came to.
fn serve<T: Send + 'static>(
    limits: Limits,
    talk: impl FnOnce(Client, mpsc::Sender<Stop>) -> T + Send + 'static,
) -> (u8, T) {
    let (client_input, input) = io::pipe().expect("a pipe");
    let (output, client_output) = io::pipe().expect("a pipe");
    let (stop, stops) = mpsc::channel(4);
    // Its end would be a signal too.
    let _open = stop.clone();
    let client = thread::spawn(move || {
        let mut client = Client { input, output: BufReader::new(output) };
        let initialize =
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
        writeln!(client.input, "{initialize}").expect("the front reads");
        assert_eq!(client.hears()["id"], 0);
        talk(client, stop)
    });
    let spec = FrontSpec {
        jobs: None,
        limits,
        toolbox: Arc::new(MisbehavingTools),
        servers: None,
        instructions: None,
        telemetry: None,
        at_end: None,
        ending: watch::Sender::new(false),
        client_input: client_input.into(),
        client_output: client_output.into(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let code = runtime.block_on(run(spec, stops)).expect("its descriptors can be used");
    (code, client.join().expect("the client is content"))
}

#[test]
fn promise_8_calls_that_panic_or_hang_delay_no_other() {
    let limits = Limits { call_timeout: seconds(20), ..Limits::default() };
    let (code, received) = serve(limits, |mut client, _stop| {
        for (id, tool) in [(1, "never_ends"), (2, "panics"), (3, "panics_at_once"), (4, "echo")] {
            client.call(id, tool);
        }
        let mut received = [client.hears(), client.hears(), client.hears()];
        received.sort_by_key(|answer| answer["id"].as_u64());
        received
    });
    assert_eq!(code, exit::DONE);
    for (answer, id) in received[..2].iter().zip([2, 3]) {
        assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(id), &json!(true)), "{answer}");
    }
    assert_eq!((&received[2]["id"], &received[2]["result"]["content"][0]["text"]), (&json!(4), &json!("hi")));
}

#[test]
fn what_is_cancelled_ends_and_is_not_answered() {
    let limits = Limits { max_in_flight: 1, ..Limits::default() };
    let (code, last) = serve(limits, |mut client, _stop| {
        client.call(1, "ends_when_cancelled");
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        writeln!(client.input, "{cancel}").expect("the front reads");
        // The place of the one call in flight is free again once it has ended.
        for id in 2.. {
            client.call(id, "echo");
            let received = client.hears();
            if received["error"].is_null() {
                return received;
            }
            assert_eq!(
                (&received["id"], &received["error"]["code"]),
                (&json!(id), &json!(-31005)),
                "{received}"
            );
        }
        unreachable!("ids do not end")
    });
    assert_eq!((code, &last["result"]["content"][0]["text"]), (exit::DONE, &json!("hi")));
}

#[test]
fn a_signal_ends_the_session_with_its_own_code() {
    let (code, received) = serve(Limits::default(), |mut client, stop| {
        client.call(1, "ends_when_cancelled");
        client.call(2, "echo");
        let first = client.hears();
        stop.blocking_send(Stop::Terminate).expect("the front listens");
        (first, client.hears(), client.input)
    });
    assert_eq!((code, &received.0["id"], &received.1["id"]), (exit::TERMINATED, &json!(2), &json!(1)));
    assert_eq!(received.1["error"]["code"], -31008);
}

#[test]
fn a_call_that_is_nearly_done_when_the_signal_comes_is_answered() {
    let (code, received) = serve(Limits::default(), |mut client, stop| {
        client.call(1, "soon");
        client.call(2, "echo");
        // Both are in flight.
        assert_eq!(client.hears()["id"], 2);
        stop.blocking_send(Stop::Terminate).expect("the front listens");
        (client.hears(), client.input)
    });
    assert_eq!((code, &received.0["result"]["content"][0]["text"]), (exit::TERMINATED, &json!("soon")));
}

#[test]
fn promise_3_a_client_that_reads_nothing_is_held_back_and_then_gets_everything() {
    const CALLS: u32 = 300;
    let limits = Limits { queue_bytes: 64 << 10, ..Limits::default() };
    let (code, count) = serve(limits, |mut client, _stop| {
        let Client { mut input, output } = client;
        let writer = thread::spawn(move || {
            for id in 1..=CALLS {
                let line = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"large"}}}}"#
                );
                writeln!(input, "{line}").expect("the front reads on once it is read");
            }
        });
        client = Client { input: io::pipe().expect("a pipe").1, output };
        let ids: std::collections::BTreeSet<_> = (0..CALLS).map(|_| client.hears()["id"].as_u64()).collect();
        writer.join().expect("everything was written");
        ids.len()
    });
    assert_eq!((code, count), (exit::DONE, CALLS as usize));
}
