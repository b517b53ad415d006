use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::message::{Body, Message, ResponseOutcome};
use crate::{Id, replace_id};

/// A piece in one line of text.
fn summary(piece: &Piece<'_>) -> String {
    match piece {
        Piece::Message(message) => message_summary(message),
        Piece::Batch(pieces) => {
            let elements: Vec<_> = pieces.iter().map(summary).collect();
            format!("batch [{}]", elements.join("; "))
        }
        Piece::Invalid(invalid) => {
            let mut text = format!("invalid {:?} {:?}", invalid.shape, invalid.reason);
            if let Some(id) = &invalid.id {
                write!(text, " id {id}").unwrap();
            } else if let Some(raw_id) = invalid.raw_id {
                write!(text, " raw {raw_id}").unwrap();
            }
            text
        }
        Piece::Junk(junk) => format!("junk {}", String::from_utf8_lossy(junk)),
    }
}

fn message_summary(message: &Message<'_>) -> String {
    let text =
        |params: &Option<Json<'_>>| params.map_or(String::new(), |params| format!(" {}", params.get()));
    match &message.body {
        Body::Request { id, id_span, method, params } => {
            assert_eq!(
                Id::from_json(std::str::from_utf8(&message.raw[id_span.clone()]).unwrap()).as_ref(),
                Some(id)
            );
            format!("request {id} {method}{}", text(params))
        }
        Body::Notification { method, params } => format!("notification {method}{}", text(params)),
        Body::Response { id, id_span, outcome } => {
            assert_eq!(
                Id::from_json(std::str::from_utf8(&message.raw[id_span.clone()]).unwrap()).as_ref(),
                Some(id)
            );
            match outcome {
                ResponseOutcome::Result(result) => format!("result {id} {}", result.get()),
                ResponseOutcome::Error(error) => format!("error {id} {}", error.get()),
            }
        }
    }
}

#[track_caller]
fn check(line: impl AsRef<[u8]>, expected: &[&str]) {
    let pieces: Vec<_> = read(line.as_ref()).collect();
    let found: Vec<_> = pieces.iter().map(summary).collect();
    assert_eq!(found, expected, "{}", String::from_utf8_lossy(line.as_ref()));
}

#[test]
fn valid_messages() {
    let cases = [
        (r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#, "request 1 a"),
        (r#"{"jsonrpc":"2.0","id":"1","method":"a","params":{"x":[1]}}"#, r#"request "1" a {"x":[1]}"#),
        (r#" { "method" : "a" , "params" : [ 1 ] , "id" : -5 , "jsonrpc" : "2.0" } "#, "request -5 a [ 1 ]"),
        (r#"{"jsonrpc":"2.0","id":12345678901234567890,"method":"a"}"#, "request 12345678901234567890 a"),
        (r#"{"jsonrpc":"2.0","id":"\u0031","method":"\u0061\/b"}"#, r#"request "1" a/b"#),
        (r#"{"\u006asonrpc":"\u0032.0","\u0069d":1,"method":"a"}"#, "request 1 a"),
        (r#"{"jsonrpc":"2.0","method":"a"}"#, "notification a"),
        (r#"{"jsonrpc":"2.0","method":"a","params":{}}"#, "notification a {}"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "result 1 {}"),
        (r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "result 1 null"),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#,
            r#"error 1 {"code":-1,"message":"no"}"#,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","x":1,"x":2,"\ud800":3}"#, "request 1 a"),
        ("\r{\"jsonrpc\":\"2.0\",\r\"id\":1,\"method\":\"a\"}\t", "request 1 a"),
    ];
    for (line, expected) in cases {
        check(line, &[expected]);
    }
}

#[test]
fn invalid_messages_keep_the_id_that_can_be_read() {
    let cases = [
        // The version.
        (r#"{"id":1,"method":"a"}"#, "invalid Request MissingVersion id 1"),
        (r#"{"id":1,"result":1}"#, "invalid Response MissingVersion id 1"),
        (r#"{"id":null,"error":1}"#, "invalid Response MissingVersion raw null"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, "invalid Request WrongVersion id 1"),
        (r#"{"jsonrpc":2.0,"id":"x","method":"a"}"#, "invalid Request WrongVersion id \"x\""),
        (r#"{"jsonrpc":null,"method":"a"}"#, "invalid Request WrongVersion"),
        (r#"{"jsonrpc":"2.0 ","id":1,"result":1}"#, "invalid Response WrongVersion id 1"),
        // The id.
        (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, "invalid Request BadId raw null"),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#, "invalid Request BadId raw 1.5"),
        (r#"{"jsonrpc":"2.0","id":1e3,"method":"a"}"#, "invalid Request BadId raw 1e3"),
        (r#"{"jsonrpc":"2.0","id":true,"method":"a"}"#, "invalid Request BadId raw true"),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"a"}"#, "invalid Request BadId raw [1]"),
        (r#"{"jsonrpc":"2.0","id":{"id":2},"method":"a"}"#, r#"invalid Request BadId raw {"id":2}"#),
        (r#"{"jsonrpc":"2.0","id":"\ud800","method":"a"}"#, r#"invalid Request BadId raw "\ud800""#),
        (r#"{"jsonrpc":"2.0","result":1}"#, "invalid Response MissingId"),
        (
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":""}}"#,
            "invalid Response BadId raw null",
        ),
        // Members that are wrong.
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, "invalid Request BadMethod id 1"),
        (r#"{"jsonrpc":"2.0","id":1,"method":null}"#, "invalid Request BadMethod id 1"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":true}"#, "invalid Request BadParams id 1"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":"x"}"#, "invalid Request BadParams id 1"),
        (r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#, "invalid Response BadError id 1"),
        (r#"{"jsonrpc":"2.0","id":1,"error":null}"#, "invalid Response BadError id 1"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":""}}"#, "invalid Response BadError id 1"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":null}}"#, "invalid Response BadError id 1"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#, "invalid Response BadError id 1"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"message":""}}"#, "invalid Response BadError id 1"),
        // Members that are missing or too many.
        (r#"{"jsonrpc":"2.0","id":1}"#, "invalid Response MissingOutcome id 1"),
        (r#"{"jsonrpc":"2.0","id":1,"params":{}}"#, "invalid Request MissingMethod id 1"),
        (r#"{"jsonrpc":"2.0","params":{}}"#, "invalid Unknown MissingMethod"),
        (r#"{"jsonrpc":"2.0"}"#, "invalid Unknown MissingMethod"),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":null}"#, "invalid Response BothOutcomes id 1"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","result":1}"#, "invalid Request ResultAndMethod id 1"),
        (r#"{"jsonrpc":"2.0","method":"a","error":{}}"#, "invalid Request ResultAndMethod"),
        (
            r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"a"}"#,
            r#"invalid Request DuplicateMember { member: "id" }"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","meth\u006fd":"b"}"#,
            r#"invalid Request DuplicateMember { member: "method" } id 1"#,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"a","method":"b","id":1,"id":2}"#,
            r#"invalid Request DuplicateMember { member: "method" }"#,
        ),
    ];
    for (line, expected) in cases {
        check(line, &[expected]);
    }
}

#[test]
fn an_id_that_is_too_long_is_not_kept() {
    let id = format!("\"{}\"", "x".repeat(Id::MAX_JSON));
    check(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"a"}}"#), &["invalid Request LongId"]);
    let longest = format!("\"{}\"", "x".repeat(Id::MAX_JSON - 2));
    let request = format!(r#"{{"jsonrpc":"2.0","id":{longest},"method":"a"}}"#);
    assert!(matches!(read(request.as_bytes()).next(), Some(Piece::Message(_))));
}

#[test]
fn json_that_is_no_json_rpc_is_junk() {
    let cases = [
        "{}",
        r#"{"level":"info","message":"x"}"#,
        r#"{"id":1,"level":"info"}"#,
        r#"{"method":"GET","path":"/"}"#,
        r#"{"result":1}"#,
        r#"{"params":{"jsonrpc":"2.0","id":1,"method":"a"}}"#,
        "1",
        "-1.5e3",
        "null",
        "true",
        r#""text""#,
        "plain text",
        "{",
        "}",
        "[",
        "]",
        "{ not json }",
        "[INFO] started",
        "\u{1b}[32mgreen\u{1b}[0m",
    ];
    for line in cases {
        check(line, &[&format!("junk {line}")]);
    }
    check(b"\xff\xfe", &["junk \u{fffd}\u{fffd}"]);
    check("\u{c}", &["junk \u{c}"]);
    check("", &[]);
    check(" \t\r\n ", &[]);
}

#[test]
fn batches() {
    const A: &str = r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#;
    const B: &str = r#"{"jsonrpc":"2.0","id":2,"result":{}}"#;
    check(format!("[{A}]"), &["batch [request 1 a]"]);
    check(format!(" [ {A} , {B} ] "), &["batch [request 1 a; result 2 {}]"]);
    check("[]", &["invalid Unknown EmptyBatch"]);
    check(
        format!(r#"[1,"x",null,[{A}],{{"id":3,"method":"a"}},{{"level":1}},{B}]"#),
        &["batch [invalid Unknown NotAnObject; invalid Unknown NotAnObject; invalid Unknown NotAnObject; \
           invalid Unknown NotAnObject; invalid Request MissingVersion id 3; junk {\"level\":1}; result 2 {}]"],
    );
    check(format!("[{}]", vec!["1"; MAX_BATCH + 1].join(",")), &["invalid Unknown LongBatch"]);
    let longest = format!("[{}]", vec!["1"; MAX_BATCH].join(","));
    assert!(
        matches!(read(longest.as_bytes()).next(), Some(Piece::Batch(pieces)) if pieces.len() == MAX_BATCH)
    );
    // Glued to something else, an array is only believed when all of it is valid.
    check(format!("[1] {A}"), &["junk [1]", "request 1 a"]);
    check(format!("[{A}] done"), &["batch [request 1 a]", "junk done"]);
    check(format!("[{A}][{B}]"), &["batch [request 1 a]", "batch [result 2 {}]"]);
    check(format!("[{A},1] done"), &[&format!("junk [{A},1] done")]);
}

#[test]
fn messages_glued_together_and_to_text_are_recovered() {
    const A: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    const B: &str = r#"{"id":2,"jsonrpc":"2.0","method":"b"}"#;
    let (a, b) = ("result 1 {}", "request 2 b");
    check(format!("{A}{B}"), &[a, b]);
    check(format!("{A} \t {B}{A}"), &[a, b, a]);
    check(format!("loading... {A}"), &["junk loading...", a]);
    check(format!("loading...{B}"), &["junk loading...", b]);
    check(format!("{A} done"), &[a, "junk done"]);
    check(format!("x {A} y {B} z"), &["junk x", a, "junk y", b, "junk z"]);
    check(format!("{A},{B}"), &[a, "junk ,", b]);
    check(format!("{A}}}"), &[a, "junk }"]);
    check(format!("[INFO] {A}"), &["junk [INFO]", a]);
    check(format!("[12:30:01] [main] {A}"), &["junk [12:30:01] [main]", a]);
    check(format!("[2026-07-28, 12] {A}"), &["junk [2026-07-28, 12]", a]);
    check(format!("[1/3] {A}"), &["junk [1/3]", a]);
    check(format!("\u{1b}[32minfo\u{1b}[0m{A}"), &["junk \u{1b}[32minfo\u{1b}[0m", a]);
    check(format!("\u{1b}[2K{A}"), &["junk \u{1b}[2K", a]);
    check(format!("tools [\"x\",\"y\"] {A}"), &["junk tools [\"x\",\"y\"]", a]);
    check(format!("{{config}} {{ a: {{ b }} }} {A}"), &["junk {config} { a: { b } }", a]);
    check(format!("{{\"level\":\"info\"}} {A}"), &["junk {\"level\":\"info\"}", a]);
    check(format!("say \"hi {A}"), &["junk say \"hi", a]);
    check(format!("\u{feff}{A}"), &["junk \u{feff}", a]);
    check([b"\xff\xfe ".as_slice(), A.as_bytes()].concat(), &["junk \u{fffd}\u{fffd}", a]);
    // Before text an invalid object is what it is; behind text it may be a quotation.
    check(format!(r#"{{"id":7,"method":"x"}}{A}"#), &["invalid Request MissingVersion id 7", a]);
    check(format!(r#"sent {{"id":7,"method":"x"}} {A}"#), &[r#"junk sent {"id":7,"method":"x"}"#, a]);
}

#[test]
fn broken_objects_take_the_rest_of_the_line_and_keep_their_id() {
    let cases = [
        (r#"{"jsonrpc":"2.0","id":1,"method":"a""#, "invalid Request NotJson id 1"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"x"#, "invalid Request NotJson id 1"),
        (r#"{"jsonrpc":"2.0","method":"a","params":{x},"id":"k"}"#, "invalid Request NotJson id \"k\""),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"a":1,}}"#, "invalid Response NotJson id 1"),
        (r#"{"jsonrpc":"2.0","result":{},"id":12"#, "invalid Response NotJson"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a",}"#, "invalid Request NotJson id 1"),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"#, "invalid Request NotJson"),
        (r#"{"jsonrpc":"2.0","params":{"id":1},"method":"a"x}"#, "invalid Request NotJson"),
        (r#"{"level":"info","#, "invalid Unknown NotJson"),
    ];
    for (line, expected) in cases {
        check(line, &[expected]);
    }
    check(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}", &["invalid Response InvalidUtf8 id 1"]);
    check(b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"result\":1}", &["invalid Response InvalidUtf8"]);
    check(b"{\"\xff\":1,\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1}", &["invalid Response InvalidUtf8 id 1"]);
    check(
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"x\":[\"\xff\"]}",
        &["invalid Response InvalidUtf8 id 1"],
    );
}

#[test]
fn nothing_is_recovered_from_inside_of_something() {
    const EVIL: &str = r#"{"jsonrpc":"2.0","id":2,"method":"evil"}"#;
    let lines = [
        // Cut off.
        format!(r#"{{"jsonrpc":"2.0","id":1,"params":{{"x":{EVIL}}}"#),
        format!(r#"{{"x":{EVIL}"#),
        format!(r#"[{EVIL}"#),
        format!(r#"[1,{EVIL}"#),
        format!(r#"log {{"x":{EVIL}"#),
        format!(r#"log [{EVIL}"#),
        // Broken before or behind.
        format!(r#"{{"jsonrpc":"2.0","id":1,"x":nope,"params":{EVIL}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":1,"params":{EVIL},,}}"#),
        format!(r#"{{"a":"b,"c":"}}","x":{EVIL}}}"#),
        format!(r#"{{"a" {EVIL}}}"#),
        format!(r#"log {{"a":1,}} {EVIL}"#),
        format!(r#"["a", oops, {EVIL}]"#),
        // Whole JSON that is no JSON-RPC.
        format!(r#"{{"x":{EVIL}}}"#),
        format!(r#"log {{"x":{EVIL}}}"#),
        format!(r#"log [1,[{EVIL}]]"#),
        format!(r#"log ["x",{EVIL}]"#),
        // Not quite JSON.
        format!(r#"{{ body: {EVIL} }}"#),
        format!(r#"{{ body: [{EVIL}] }}"#),
        format!(r#"{{'body': {EVIL}}}"#),
        format!(r#"{{jsonrpc:"2.0",id:1,params:{EVIL}}}"#),
        format!(r#"log {{ a: 1, body: {{ x: {EVIL} }} }}"#),
        // Strings.
        r#""{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"evil\"}""#.to_owned(),
        r#"{"x":"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"evil\"}"}"#.to_owned(),
    ];
    for line in lines {
        let pieces: Vec<_> = read(line.as_bytes()).collect();
        assert_eq!(pieces.len(), 1, "{line}: {pieces:?}");
        assert!(matches!(pieces[0], Piece::Invalid(_) | Piece::Junk(_)), "{line}: {pieces:?}");
    }
}

#[test]
fn deep_nesting_neither_overflows_a_small_stack_nor_is_refused() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    let (array, object) = (deep("[", "]"), format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000)));
    let check_all = move || {
        for nested in [&array, &object] {
            let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{nested}}}"#);
            assert!(matches!(read(request.as_bytes()).next(), Some(Piece::Message(_))));
            let batch = format!("[{request}]");
            assert!(matches!(read(batch.as_bytes()).next(), Some(Piece::Batch(_))));
            let result = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{nested}}}"#);
            assert!(matches!(read(result.as_bytes()).next(), Some(Piece::Message(_))));
            let error =
                format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":1,"message":"","data":{nested}}}}}"#);
            assert!(matches!(read(error.as_bytes()).next(), Some(Piece::Message(_))));
            check(format!(r#"{{"jsonrpc":"2.0","id":{nested},"method":"a"}}"#), &["invalid Request LongId"]);
            check(
                format!(r#"{{"jsonrpc":"2.0","error":{nested},"id":1}}"#),
                &["invalid Response BadError id 1"],
            );
        }
        let unclosed = "[".repeat(100_000);
        check(&unclosed, &[&format!("junk {unclosed}")]);
        check(format!("x{unclosed}"), &[&format!("junk x{unclosed}")]);
        check(&array, &["batch [invalid Unknown NotAnObject]"]);
        check(r#"{"a":"#.repeat(100_000), &["invalid Unknown NotJson"]);
        check("{".repeat(100_000), &[&format!("junk {}", "{".repeat(100_000))]);
    };
    std::thread::Builder::new().stack_size(128 * 1024).spawn(check_all).unwrap().join().unwrap();
}

/// Each of these would cost minutes if work were quadratic in the length of the line.
#[test]
fn hostile_lines_cost_linear_work() {
    const LENGTH: usize = 1 << 18;
    for part in [
        "[",
        "[1",
        "[1]",
        "[1,",
        "[s{",
        "{",
        "{ ",
        "{}",
        "{\"",
        "[{\"",
        "[{}]",
        "{\"a\":1}",
        "{\"jsonrpc\":1}",
        "x{",
        "}",
        "\"",
        "[[\"",
        "{\"jsonrpc\"",
        "[\u{1b}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"a\"}",
    ] {
        let line = part.repeat(LENGTH / part.len());
        for line in [line.clone(), format!("x{line}"), format!("{{}}{line}{{\"")] {
            loses_nothing(line.as_bytes());
        }
    }
}

#[test]
fn an_id_is_replaced_where_it_stands() {
    let line = r#"x {"params":{"id":1},"id" : "a\u0062" ,"jsonrpc":"2.0","method":"m"}"#;
    let message = read(line.as_bytes()).find_map(|piece| match piece {
        Piece::Message(message) => Some(message),
        _ => None,
    });
    let Some(Message { raw, body: Body::Request { id, id_span, .. } }) = message else {
        panic!("no request")
    };
    assert_eq!(id, Id::from("ab"));
    let replaced = replace_id(raw, id_span, &Id::Integer(42));
    assert_eq!(
        String::from_utf8(replaced).unwrap(),
        r#"{"params":{"id":1},"id" : 42 ,"jsonrpc":"2.0","method":"m"}"#
    );
}

/// Bits of lines: JSON, nearly JSON, and bytes.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let bits = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        "\"",
        ":",
        ",",
        " ",
        "\\",
        "\r",
        "\n",
        "x",
        "1",
        "null",
        "\u{e9}",
        "{\"",
        "\"}",
        "\"jsonrpc\":\"2.0\"",
        "\"id\":1",
        "\"id\":\"a\"",
        "\"method\":\"m\"",
        "\"result\":{}",
        "\"params\":",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":[1]}",
        "{\"id\":3,\"method\":\"m\"}",
        "{\"a\":1}",
        "[INFO]",
        "\u{1b}[0m",
    ]);
    let bit = prop_oneof![8 => bits.prop_map(|bit| bit.as_bytes().to_vec()), 1 => any::<u8>().prop_map(|byte| vec![byte])];
    prop::collection::vec(bit, 0..24).prop_map(|bits| bits.concat())
}

/// The bytes of a piece; those of a batch's elements one by one.
fn raws<'a>(piece: &Piece<'a>, into: &mut Vec<&'a [u8]>) {
    match piece {
        Piece::Message(message) => into.push(message.raw),
        Piece::Invalid(invalid) => into.push(invalid.raw),
        Piece::Junk(junk) => into.push(junk),
        Piece::Batch(pieces) => pieces.iter().for_each(|piece| raws(piece, into)),
    }
}

/// Every byte is in one piece, in order, or is white space, or belongs to the syntax of a batch.
fn loses_nothing(line: &[u8]) {
    let pieces: Vec<_> = read(line).collect();
    let batches = pieces.iter().any(|piece| matches!(piece, Piece::Batch(_)));
    let mut parts = Vec::new();
    pieces.iter().for_each(|piece| raws(piece, &mut parts));
    let mut at = 0;
    for (part, last) in parts.iter().map(|part| (*part, false)).chain([(&line[line.len()..], true)]) {
        let start = part.as_ptr().addr() - line.as_ptr().addr();
        assert!(start >= at && (last || blanks(part) < part.len()));
        let between = &line[at..start];
        let white = |byte: &u8| b" \t\r\n".contains(byte) || (batches && b",[]".contains(byte));
        assert!(between.iter().all(white), "lost {:?}", String::from_utf8_lossy(between));
        at = start + part.len();
    }
}

/// An accepted message is one for a full parser too, and what is before it does not end inside of a value.
fn accepts_only_valid_messages(line: &[u8]) {
    let mut parts = Vec::new();
    for piece in read(line).filter(|piece| matches!(piece, Piece::Message(_))) {
        raws(&piece, &mut parts);
    }
    for raw in parts {
        let value: serde_json::Value = serde_json::from_slice(raw).unwrap();
        assert_eq!(value["jsonrpc"], "2.0");
        assert!(
            value.get("method").is_some() != (value.get("result").is_some() || value.get("error").is_some())
        );
    }
}

proptest! {
    #[test]
    fn any_line_is_read_without_loss(line in line()) {
        loses_nothing(&line);
        accepts_only_valid_messages(&line);
    }

    #[test]
    fn any_bytes_are_read_without_loss(line in prop::collection::vec(any::<u8>(), 0..200)) {
        loses_nothing(&line);
    }

    #[test]
    fn a_message_inside_of_an_object_that_was_changed_or_cut_is_never_taken(cut in 0_usize..120, byte in any::<u8>()) {
        let line = br#"{"jsonrpc":"2.0","id":1,"params":{"x":{"jsonrpc":"2.0","id":2,"method":"evil"},"y":"z"},"method":"good"}"#;
        let mut changed = line.to_vec();
        let cut = cut % line.len();
        changed[cut] = byte;
        for line in [&line[..cut], &changed] {
            // A brace that was overwritten at the very beginning makes all of it text, and then it is a quotation.
            if line.starts_with(b"{\"") {
                prop_assert!(!read(line).any(|piece| summary(&piece) == "request 2 evil"));
            }
        }
    }
}

#[test]
fn an_array_is_told_from_brackets_that_hold_neither_object_nor_text() {
    for (text, expected) in [
        (r#"["a"]"#, Ok(())),
        (r#"[ {"a":1}]"#, Ok(())),
        (r#"[[1],"a"]"#, Ok(())),
        (r#"[[1],{}]"#, Ok(())),
        ("[1, 2] x", Err(6)),
        (r#"[[1],2] "a""#, Err(7)),
        (r#"[[[1]],2] "a""#, Err(9)),
        ("[{x", Err(1)),
        ("[1,true]", Err(3)),
        ("[1,2", Err(4)),
    ] {
        assert_eq!(begins_array(text.as_bytes()), expected, "{text}");
    }
}
