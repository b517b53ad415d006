use std::path::Path;

use unhang_wire::Line;

use super::*;

/// What was read: the text of each line, or its length if it was too long.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Text(Vec<u8>),
    TooLong(u64),
}

/// Reads a stream in pieces, as the actor does.
fn seen(long_answers: &mut LongAnswers, stream: &[u8], piece: usize) -> Vec<Seen> {
    let (mut lines, mut all) = (Lines::new(long_answers.max_message), Vec::new());
    let take = |line: Line<'_>| match line {
        Line::Whole(text) => Seen::Text(text.to_vec()),
        Line::Oversized(oversized) => Seen::TooLong(oversized.length),
    };
    for piece in stream.chunks(piece) {
        lines.push(piece);
        if let Some(line) = long_answers.take(&mut lines) {
            long_answers.read(&line, |line| all.push(take(line))).unwrap();
        }
        while let Some(line) = lines.next_line() {
            all.push(take(line));
        }
        long_answers.begin(&mut lines);
        assert!(long_answers.current.is_none() || lines.held().is_empty(), "the line is in one place");
    }
    long_answers.give_up(&mut lines);
    while let Some(line) = lines.finish() {
        all.push(take(line));
    }
    all
}

fn answer(id: u32, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn result(length: usize, more: &str) -> String {
    format!(r#"{{"content":[{{"type":"text","text":"{}"}}]{more}}}"#, "x".repeat(length))
}

#[test]
fn a_long_result_goes_into_a_file_and_every_other_line_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for piece in [1 << 16, (1 << 20) + 3] {
        let mut long_answers = LongAnswers::new(folder.path().to_owned(), 4 << 20);
        let [mut first, second, third] = [1, 2, 3].map(|id| long_answers.wanted(Id::Integer(id)));
        let whole = result(3 << 20, r#","isError":true,"resultType":"complete""#);
        let asks = answer(2, &result(2 << 20, r#","resultType":"input_required""#));
        let unasked = answer(9, &result(2 << 20, ""));
        let (junk, after) = ("j".repeat(2 << 20), answer(3, "{}"));
        let too_long = "z".repeat(5 << 20);
        // One byte too long, and as long as may be with an ending of two bytes.
        let (just_too_long, longest) = ("y".repeat((4 << 20) + 1), "w".repeat(4 << 20));
        let stream = format!(
            "{}\r\n{asks}\n{unasked}\n{junk}\n{after}\n{too_long}\n{just_too_long}\n{longest}\r\n{junk}",
            answer(1, &whole)
        );
        let short = r#"{"jsonrpc":"2.0","id":1,"result":{"isError":true,"resultType":"complete"}}"#;
        let expected = [short, &asks, &unasked, &junk, &after].map(|line| Seen::Text(line.into()));
        let mut expected = Vec::from(expected);
        expected.extend([
            Seen::TooLong(5 << 20),
            Seen::TooLong((4 << 20) + 1),
            Seen::Text(longest.into()),
            Seen::Text(junk.clone().into()),
        ]);
        let found = seen(&mut long_answers, stream.as_bytes(), piece);
        assert!(
            found == expected,
            "{:?}",
            found.iter().map(|line| format!("{line:.60?}")).collect::<Vec<_>>()
        );
        let mut copied = Vec::new();
        let part = first.try_recv().expect("it is in a file");
        part.copy_to(&mut copied).unwrap();
        assert!(copied == whole.as_bytes());
        assert!([second, third].iter_mut().all(|none| none.try_recv().is_err()));
    }
}

#[test]
fn without_a_file_a_long_line_stays_in_memory() {
    let mut long_answers = LongAnswers::new(Path::new("/nowhere").to_owned(), 4 << 20);
    let mut wanted = long_answers.wanted(Id::Integer(1));
    let (one, other) = (answer(1, &result(2 << 20, "")), answer(2, "{}"));
    let found = seen(&mut long_answers, format!("{one}\n{other}\n").as_bytes(), 1 << 16);
    assert!(found == [one, other].map(|line| Seen::Text(line.into())));
    assert!(wanted.try_recv().is_err());
}
