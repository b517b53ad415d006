use proptest::prelude::*;

use super::*;
use crate::read;

/// A line that can be kept and compared.
#[derive(Clone, Debug, PartialEq)]
enum Owned {
    Whole(Vec<u8>),
    Oversized(Oversized),
}

fn owned(line: Line<'_>) -> Owned {
    match line {
        Line::Whole(bytes) => Owned::Whole(bytes.to_vec()),
        Line::Oversized(oversized) => Owned::Oversized(oversized),
    }
}

/// The lines of a stream that arrives in these chunks, and the most memory that was held.
fn lines_of<'a>(max_message: usize, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Owned>, usize) {
    let mut lines = Lines::new(max_message);
    let mut found = Vec::new();
    let mut peak = 0;
    for chunk in chunks {
        lines.push(chunk);
        peak = peak.max(lines.capacity());
        while let Some(line) = lines.next_line() {
            found.push(owned(line));
        }
    }
    while let Some(line) = lines.finish() {
        found.push(owned(line));
    }
    assert!(lines.finish().is_none() && lines.next_line().is_none());
    (found, peak)
}

#[track_caller]
fn check(stream: &[u8], expected: &[&[u8]]) {
    let expected: Vec<_> = expected.iter().map(|line| Owned::Whole(line.to_vec())).collect();
    assert_eq!(lines_of(1000, [stream]).0, expected);
    assert_eq!(lines_of(1000, stream.chunks(1)).0, expected);
}

#[test]
fn endings_blank_lines_and_the_byte_order_mark_are_removed() {
    check(b"", &[]);
    check(b"a\n", &[b"a"]);
    check(b"a\nb\r\nc", &[b"a", b"b", b"c"]);
    check(b"\n\r\n \t \n\r\r\na\n\n", &[b"a"]);
    check(b"a\r\r\n", &[b"a\r"]);
    check(b"a\rb\n", &[b"a\rb"]);
    check(b" a \n", &[b" a "]);
    check(b"a\r", &[b"a"]);
    check(b"  ", &[]);
    check(b"\xef\xbb\xbfa\nb\n", &[b"a", b"b"]);
    check(b"\xef\xbb\xbf", &[]);
    check(b"\xef\xbb\xbf\n\na", &[b"a"]);
    check(b"\xef\xbb", &[b"\xef\xbb"]);
    check(b"\xef\nb", &[b"\xef", b"b"]);
    check(b"a\n\xef\xbb\xbfb\n", &[b"a", b"\xef\xbb\xbfb"]);
    check(b"\x0c\n", &[b"\x0c"]);
    check(b"\xff\0\n", &[b"\xff\0"]);
}

#[test]
fn the_limit_is_for_the_line_without_its_ending() {
    let oversized =
        |length| Owned::Oversized(Oversized { length, id: None, method: None, shape: MessageShape::Unknown });
    let whole = |bytes: &[u8]| Owned::Whole(bytes.to_vec());
    let cases: [(&[u8], Vec<Owned>); 8] = [
        (b"1234\n", vec![whole(b"1234")]),
        (b"1234\r\n", vec![whole(b"1234")]),
        (b"1234\r", vec![whole(b"1234")]),
        (b"12345\n1\n", vec![oversized(5), whole(b"1")]),
        (b"12345\r\n1\n", vec![oversized(5), whole(b"1")]),
        (b"1234\r\r\n1\n", vec![oversized(5), whole(b"1")]),
        (b"12345", vec![oversized(5)]),
        (b"123456789\r", vec![oversized(9)]),
    ];
    for (stream, expected) in cases {
        assert_eq!(lines_of(4, [stream]).0, expected, "{stream:?}");
        assert_eq!(lines_of(4, stream.chunks(1)).0, expected, "{stream:?}");
    }
}

#[test]
fn an_oversized_line_tells_its_id_and_method_wherever_they_stand() {
    let huge = "x".repeat(5000);
    let cases = [
        (
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{{"id":8,"x":"{huge}"}}}}"#),
            Some(Id::Integer(7)),
            Some("m"),
        ),
        (
            format!(r#"{{"params":{{"id":8,"x":"{huge}"}},"method":"m","id":"k"}}"#),
            Some(Id::from("k")),
            Some("m"),
        ),
        (format!(r#"{{"id":9,"result":["{huge}\"",{{"method":"n"}}]}}"#), Some(Id::Integer(9)), None),
        (format!(r#"{{"id":"{huge}","method":"m"}}"#), None, Some("m")),
        (format!(r#"{{"id":1,"method":"{huge}"}}"#), Some(Id::Integer(1)), None),
        (format!(r#"{{"id":1,"x":"{huge}","id":2}}"#), None, None),
        (format!(r#"[{{"id":1,"x":"{huge}"}}]"#), None, None),
        (format!(r#"{{"id":null,"x":"{huge}","method":5}}"#), None, None),
    ];
    for (line, id, method) in cases {
        let stream = format!("{line}\nnext\n");
        for size in [1, 7, 100_000] {
            let (found, _) = lines_of(1000, stream.as_bytes().chunks(size));
            let [Owned::Oversized(oversized), Owned::Whole(next)] = &found[..] else { panic!("{found:?}") };
            assert_eq!(oversized.length, line.len() as u64);
            assert_eq!((&oversized.id, oversized.method.as_deref()), (&id, method), "{line}");
            assert_eq!(next, b"next");
        }
    }
}

/// Feeds one line of this length, as fast reads would, and gives the most memory held and the memory held a while after.
fn feed_one_line(max_message: usize, length: usize) -> (usize, usize) {
    let mut lines = Lines::new(max_message);
    let (mut left, mut peak) = (length, 0);
    while left > 0 {
        let room = lines.spare();
        let count = room.len().min(left);
        room[..count].fill(b'x');
        lines.filled(count);
        left -= count;
        peak = peak.max(lines.capacity());
        assert!(lines.next_line().is_none());
    }
    lines.push(b"\n");
    assert!(lines.next_line().is_some());
    assert!(lines.next_line().is_none());
    peak = peak.max(lines.capacity());
    // The first look finds that the memory was needed since the one before.
    lines.release();
    assert_eq!(lines.capacity(), peak);
    lines.release();
    assert!(!lines.is_large());
    (peak, lines.capacity())
}

#[test]
fn a_line_of_200_megabytes_stays_below_70_mebibytes() {
    let (peak, after) = feed_one_line(64 << 20, 200_000_000);
    assert!(peak < 70 << 20, "{peak}");
    assert!(after <= IDLE_CAPACITY, "{after}");
}

#[test]
fn memory_goes_back_after_a_long_line() {
    let (peak, after) = feed_one_line(64 << 20, 1 << 20);
    assert!(peak <= 3 << 20, "{peak}");
    assert!(after <= IDLE_CAPACITY, "{after}");
}

#[test]
fn memory_goes_back_although_the_next_line_has_begun() {
    let mut lines = Lines::new(64 << 20);
    lines.push(&vec![b'x'; 10 << 20]);
    lines.push(b"\nabc");
    assert!(matches!(lines.next_line(), Some(Line::Whole(line)) if line.len() == 10 << 20));
    assert!(lines.next_line().is_none());
    lines.release();
    lines.release();
    assert!(lines.capacity() <= IDLE_CAPACITY, "{}", lines.capacity());
    lines.push(b"def\n");
    assert!(matches!(lines.next_line(), Some(Line::Whole(b"abcdef"))));
}

#[test]
fn memory_stays_while_long_lines_come() {
    let mut lines = Lines::new(64 << 20);
    let mut capacities = Vec::new();
    for _ in 0..5 {
        lines.push(&vec![b'x'; 10 << 20]);
        lines.push(b"\n");
        while lines.next_line().is_some() {}
        lines.release();
        capacities.push(lines.capacity());
    }
    assert!(
        capacities.iter().all(|capacity| *capacity == capacities[0] && *capacity > 10 << 20),
        "{capacities:?}"
    );
}

#[test]
fn memory_that_is_held_is_not_written_to() {
    let mut lines = Lines::new(64 << 20);
    lines.push(b"first\nsec");
    assert!(matches!(lines.next_line(), Some(Line::Whole(b"first"))));
    let memory = lines.memory();
    lines.push(b"ond\nthird\n");
    assert_eq!(&memory[..9], b"first\nsec");
    assert!(!Arc::ptr_eq(&memory, &lines.memory()));
    assert!(matches!(lines.next_line(), Some(Line::Whole(b"second"))));
    assert!(matches!(lines.next_line(), Some(Line::Whole(b"third"))));
    // As soon as nobody holds it any more it is used again.
    let memory = Arc::downgrade(&lines.memory());
    lines.push(b"fourth\n");
    assert!(memory.upgrade().is_none_or(|memory| Arc::ptr_eq(&memory, &lines.memory())));
    assert!(matches!(lines.next_line(), Some(Line::Whole(b"fourth"))));
}

#[test]
fn short_lines_keep_one_small_buffer() {
    let mut lines = Lines::new(64 << 20);
    for _ in 0..10_000 {
        lines.push(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n{\"");
        while lines.next_line().is_some() {}
        assert!(lines.capacity() <= IDLE_CAPACITY);
    }
}

#[test]
fn the_room_is_never_empty_and_grows_with_the_line() {
    let mut lines = Lines::new(10);
    assert!(lines.spare().len() >= CHUNK);
    lines.filled(usize::MAX);
    assert!(lines.spare().len() >= CHUNK);
    let mut lines = Lines::new(8 << 20);
    let (mut reads, mut growths, mut capacity) = (0, 0, 0);
    while lines.end < 8 << 20 {
        let count = lines.spare().len();
        lines.filled(count);
        assert!(lines.next_line().is_none());
        // What has been searched is not searched again.
        assert_eq!(lines.searched, lines.end);
        reads += 1;
        growths += usize::from(lines.capacity() != capacity);
        capacity = lines.capacity();
    }
    assert!(reads <= 40, "{reads}");
    assert!(growths <= 10, "{growths}");
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        prop::sample::select(vec![
            "\n", "\r\n", "\r", "\u{feff}", " ", "{", "}", "\"", "\\", "[INFO] ",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"text\":\"a text that makes the line longer than the limit\"}}",
            "{\"params\":[\"a text that makes the line longer than the limit\"],\"method\":\"m\\u0061\",\"id\":\"k\"}",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..12),
        (60_usize..70).prop_map(|length| vec![b'x'; length]),
    ];
    prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

/// Cuts a stream at these offsets.
fn cut<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut offsets: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    offsets.extend([0, stream.len()]);
    offsets.sort_unstable();
    offsets.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect()
}

fn pieces(lines: &[Owned]) -> Vec<String> {
    let whole = lines.iter().filter_map(|line| match line {
        Owned::Whole(line) => Some(line),
        Owned::Oversized(_) => None,
    });
    whole.flat_map(|line| read(line)).map(|piece| format!("{piece:?}")).collect()
}

proptest! {
    #[test]
    fn any_split_gives_the_same_lines(stream in stream(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let (at_once, _) = lines_of(64, [&stream[..]]);
        for chunks in [cut(&stream, &cuts), stream.chunks(1).collect()] {
            let (found, _) = lines_of(64, chunks);
            prop_assert_eq!(&found, &at_once);
            prop_assert_eq!(pieces(&found), pieces(&at_once));
        }
    }

    #[test]
    fn lines_are_those_of_a_naive_split(stream in stream()) {
        let text = stream.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&stream);
        let naive: Vec<_> = text
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .filter(|line| line.len() > 64 || !line.iter().all(|byte| b" \t\r".contains(byte)))
            .map(|line| line.len())
            .collect();
        let found: Vec<_> = lines_of(64, [&stream[..]]).0.iter().map(|line| match line {
            Owned::Whole(line) => line.len(),
            Owned::Oversized(oversized) => usize::try_from(oversized.length).unwrap(),
        }).collect();
        prop_assert_eq!(found, naive);
    }
}

#[test]
fn an_oversized_line_is_shown_by_what_is_known_of_it() {
    let shown = |text: &str| {
        let (lines, _) = lines_of(16, [text.as_bytes()]);
        let [Owned::Oversized(oversized)] = &lines[..] else { panic!("{lines:?}") };
        oversized.to_string()
    };
    let request = r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#;
    assert_eq!(shown(&format!("{request}\n")), format!("({} bytes, method m, id \"a\")", request.len()));
    let text = "a line of more than sixteen bytes";
    assert_eq!(shown(&format!("{text}\n")), format!("({} bytes)", text.len()));
}
