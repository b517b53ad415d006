//! The fast server: answers `tools/call` with a text of the size asked for, made once and written with one write.
//!
//! # Invariants
//!
//! - One answer is one write, as with the real servers, so that nothing is cheaper here than it is there.
//! - Everything but a call is answered as the plain server does.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::process::ExitCode;

use rustix::stdio::{stdin, stdout};
use unhang_demo_servers::{
    arguments::ProgramArguments,
    pipe::{self, ClientMessage},
    plain_server::Plain,
};

use super::answers::number_after;

/// The size from which on a text is refused.
const TOO_LARGE: usize = 64 << 20;

/// `echoes`: serves until stdin ends.
pub(crate) fn echo(_: &ProgramArguments) -> io::Result<ExitCode> {
    let plain = Plain::new("echoes");
    let mut texts = HashMap::new();
    let (mut chunk, mut waiting) = (vec![0; 64 << 10], Vec::new());
    loop {
        let count = rustix::io::retry_on_intr(|| rustix::io::read(stdin(), &mut chunk[..]))?;
        if count == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        waiting.extend_from_slice(&chunk[..count]);
        let mut start = 0;
        while let Some(length) = waiting[start..].iter().position(|byte| *byte == b'\n') {
            answer(&waiting[start..start + length], &plain, &mut texts)?;
            start += length + 1;
        }
        waiting.drain(..start);
    }
}

fn answer(line: &[u8], plain: &Plain, texts: &mut HashMap<usize, Vec<u8>>) -> io::Result<()> {
    let Some((id, size)) = call(line) else {
        let answer = ClientMessage::parse(line).and_then(|message| plain.answer(&message));
        return answer.map_or(Ok(()), |answer| pipe::send(&answer));
    };
    let text = texts.entry(size).or_insert_with(|| rest_of_answer(size));
    let head = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":");
    write_both(head.as_bytes(), text)
}

/// Returns id and size of a call for a text; `None` for any other message.
pub(super) fn call(line: &[u8]) -> Option<(u64, usize)> {
    let is_call = line.windows(12).any(|window| window == b"\"tools/call\"");
    let size = usize::try_from(number_after(line, b"\"bytes\":").filter(|_| is_call)?).ok()?;
    number_after(line, b"\"id\":").filter(|_| size < TOO_LARGE).map(|id| (id, size))
}

/// Returns what follows the id of an answer, with its line end.
pub(super) fn rest_of_answer(size: usize) -> Vec<u8> {
    format!("{}}}\n", pipe::text(&"x".repeat(size))).into_bytes()
}

/// Writes both pieces, with one system call as long as nothing interrupts it.
fn write_both(head: &[u8], rest: &[u8]) -> io::Result<()> {
    let mut pieces = [IoSlice::new(head), IoSlice::new(rest)];
    let mut pieces = &mut pieces[..];
    while !pieces.is_empty() {
        let count = rustix::io::retry_on_intr(|| rustix::io::writev(stdout(), pieces))?;
        IoSlice::advance_slices(&mut pieces, count);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_from_the_rest() {
        let spaced = br#"{"id": 7, "method": "tools/call", "params": {"arguments": {"bytes": 12}}}"#;
        assert_eq!(call(spaced), Some((7, 12)));
        assert_eq!(call(br#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#), None);
        assert_eq!(call(br#"{"id":"a","method":"tools/call","params":{"arguments":{"bytes":12}}}"#), None);
        assert_eq!(
            call(br#"{"id":7,"method":"tools/call","params":{"arguments":{"bytes":99999999}}}"#),
            None
        );
    }

    #[test]
    fn a_stored_answer_is_whole() {
        let line = [br#"{"jsonrpc":"2.0","id":1,"result":"#, rest_of_answer(5).as_slice()].concat();
        let message: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
        assert_eq!(message["result"]["content"][0]["text"], "xxxxx");
        assert_eq!(line.last(), Some(&b'\n'));
    }
}
