use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

/// What `serde_json` makes of bytes that are to be one value.
fn reference(bytes: &[u8]) -> Option<&str> {
    serde_json::from_slice::<&RawValue>(bytes).ok().map(RawValue::get)
}

/// What `serde_json` finds at the beginning of bytes, and how long that is.
fn reference_prefix(bytes: &[u8]) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<&RawValue>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

#[track_caller]
fn check(bytes: &[u8]) {
    let shown = String::from_utf8_lossy(bytes);
    assert_eq!(Json::new(bytes).map(Json::get), reference(bytes), "{shown}");
    let found = match bytes.first() {
        Some(b'{') => object(bytes, |name, value| Json::in_utf8(name).and(Json::in_utf8(value)).map(|_| ())),
        Some(b'[') => array(bytes, |value| Json::in_utf8(value).map(|_| ())),
        _ => return,
    };
    assert_eq!(found, reference_prefix(bytes), "{shown}");
}

#[test]
fn what_is_json_and_what_is_not() {
    let texts = [
        "",
        " ",
        "null",
        "nul",
        "nulll",
        "true",
        "false",
        "tru e",
        "True",
        "0",
        "-0",
        "00",
        "01",
        "-01",
        "-",
        "--1",
        "+1",
        "1.",
        ".1",
        "1.5",
        "1.e1",
        "1e",
        "1e+",
        "1e+5",
        "1E-05",
        "1.5e3x",
        "1 2",
        "1e999999",
        "\"\"",
        "\"",
        "\"\\\"",
        "\"\\u00e9\"",
        "\"\\u00e\"",
        "\"\\u00eg\"",
        "\"\\ud800\"",
        "\"\\x\"",
        "\"\\\"",
        "\"\\",
        "\"\\u",
        "\"\u{7f}\u{80}\"",
        "\"\t\"",
        "\"\n\"",
        "\"\0\"",
        "[]",
        "[ ]",
        "[,]",
        "[1,]",
        "[1,2]",
        "[1 2]",
        "[1",
        "[",
        "]",
        "[}",
        "[[],[]]",
        "[[]",
        "{}",
        "{ }",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1}",
        "{\"a\":1,}",
        "{\"a\" : 1 , \"b\":[{}]}",
        "{a:1}",
        "{1:1}",
        "{\"a\":1]",
        "[{]}",
        "[{\"a\":1},{}]x",
        "{} x",
        " {}\r\n\t ",
        "{\"a\":{\"b\":[1,{\"c\":null}]}} {",
        "\u{feff}{}",
        "nan",
        "{\"a\":1,2}",
        "{\"a\":1 \"b\":2}",
        "{\"a\"\"b\"}",
        "[\"a\",\"b\"",
        "[tru]",
        "[1,,2]",
        "{\"a\":1}}",
        "\"a\" \"b\"",
    ];
    for text in texts {
        check(text.as_bytes());
    }
}

#[test]
fn every_byte_at_every_place_of_a_string() {
    for length in [0, 1, 62, 63, 64, 65, 130] {
        for offset in 0..=length {
            for byte in 0..=u8::MAX {
                let mut text = [b"[\"", "x".repeat(length).as_bytes(), b"\"]"].concat();
                text.insert(2 + offset, byte);
                check(&text);
            }
        }
    }
}

#[test]
fn deep_nesting_needs_no_stack() {
    let nested = format!("{}{}", "[{\"a\":".repeat(100_000), "}]".repeat(100_000));
    let cut = nested[..nested.len() - 1].to_owned();
    // What is innermost is missing a value.
    assert!(Json::new(nested.as_bytes()).is_none());
    let whole = nested.replacen(":}", ":1}", 1);
    let look = move || Json::new(whole.as_bytes()).is_some() && Json::new(cut.as_bytes()).is_none();
    assert!(std::thread::Builder::new().stack_size(128 * 1024).spawn(look).unwrap().join().unwrap());
}

#[test]
fn members_are_found_by_their_decoded_name() {
    let value = Json::new(br#" {"a":1,"\u0062":"\u0063","a":[2, 3],"":null} "#).unwrap();
    assert_eq!(value.member("a").map(Json::get), Some("[2, 3]"), "the last one counts");
    assert_eq!(value.member("b").and_then(Json::text).as_deref(), Some("c"));
    assert_eq!(value.member("").map(Json::get), Some("null"));
    assert_eq!(value.member("c"), None);
    assert_eq!(Json::new(b"[1]").unwrap().member("a"), None);
    assert_eq!(Json::new(br#""\ud800""#).unwrap().text(), None);
}

/// Pieces of JSON, put together in ways that are seldom right.
fn tokens() -> impl Strategy<Value = Vec<u8>> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        " ",
        "\n",
        "\"",
        "\\",
        "\"a\"",
        "\"\\n\"",
        "\"\\u12aF\"",
        "\"\\u12\"",
        "null",
        "true",
        "false",
        "0",
        "-",
        "1",
        "12.5e-3",
        ".",
        "e",
        "\"a\":1",
        "{\"a\":[",
        "]}",
        "é",
        "\u{1}",
    ]);
    prop::collection::vec(token, 0..14).prop_map(|tokens| tokens.concat().into_bytes())
}

/// A document as it is seldom seen, but valid.
fn document() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![".{0,6}", "[a-zé\"\\\\\u{1}\n]{50,150}"];
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        text.prop_map(Into::into),
    ];
    let value = leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
            prop::collection::btree_map(".{0,3}", inner, 0..5)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    });
    (value, any::<bool>()).prop_map(|(value, pretty)| {
        if pretty { format!("{value:#}").into_bytes() } else { value.to_string().into_bytes() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_tokens_are_judged_as_by_serde_json(text in tokens()) {
        check(&text);
    }

    #[test]
    fn any_document_is_judged_as_by_serde_json_whole_and_damaged(
        text in document(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4), 1..3),
    ) {
        check(&text);
        prop_assert!(Json::new(&text).is_some());
        let mut damaged = text;
        for (offset, byte, kind) in damage {
            let offset = offset.index(damaged.len().max(1));
            match kind {
                0 => damaged.insert(offset, byte),
                1 => damaged.insert(offset, b"{}[]\",:\\0e.- "[usize::from(byte) % 13]),
                2 if offset < damaged.len() => damaged[offset] = byte,
                _ => damaged.truncate(offset),
            }
        }
        check(&damaged);
    }
}

#[test]
fn members_and_elements_say_whether_there_are_any_to_pass() {
    let value = |text: &'static str| Json::new(text.as_bytes()).expect("JSON");
    let mut names = Vec::new();
    assert!(value(r#"{"a":1,"b":[2]}"#).each_member(|name, _| names.push(name.get())));
    assert_eq!(names, ["\"a\"", "\"b\""]);
    let mut elements = Vec::new();
    assert!(value(r#"[1,{"a":2}]"#).each_element(|element| elements.push(element.get())));
    assert_eq!(elements, ["1", r#"{"a":2}"#]);
    assert!(!value("[1]").each_member(|_, _| unreachable!("an array has no members")));
    assert!(!value(r#"{"a":1}"#).each_element(|_| unreachable!("an object has no elements")));
}

/// The words of a run are looked at one, four and many at a time, so each length and each place of its end counts.
#[test]
fn a_run_ends_at_the_first_byte_that_ends_it() {
    let ends = [b'"', b'\\', 0x00, 0x1f];
    for length in [0, 1, 7, 8, 9, 31, 63, 64, 65, 71, 72, 95, 96, 97, 130, 200] {
        let run = vec![b'x'; length];
        assert_eq!(plain(&run), length);
        for (at, end) in (0..length).flat_map(|at| ends.map(|end| (at, end))) {
            let mut ended = run.clone();
            ended[at] = end;
            assert_eq!(plain(&ended), at, "{end} at {at} of {length}");
        }
    }
}

#[test]
fn a_long_run_ends_in_any_of_its_stretches() {
    let run = vec![b'x'; 2 * STRETCH + SHORT_RUN + 40];
    assert_eq!(plain(&run), run.len());
    for at in [SHORT_RUN + STRETCH - 1, SHORT_RUN + STRETCH, SHORT_RUN + STRETCH + 33, run.len() - 1] {
        let mut ended = run.clone();
        ended[at] = b'"';
        assert_eq!(plain(&ended), at);
    }
}

#[test]
fn of_two_ends_the_first_counts_also_at_the_same_place_of_a_word() {
    for distance in [1, 8, 16, 24, 32] {
        for at in SHORT_RUN..SHORT_RUN + 64 {
            let mut run = vec![b'x'; SHORT_RUN + 128];
            (run[at], run[at + distance]) = (0x1f, 0x1f);
            assert_eq!(plain(&run), at, "{at} and {distance} behind it");
        }
    }
}

#[test]
fn brackets_fit_one_another_however_deep_they_are() {
    for levels in [1, FEW_LEVELS - 1, FEW_LEVELS, FEW_LEVELS + 1, 3 * FEW_LEVELS] {
        let brackets = |level| if level % 2 == 0 { (r#"{"a":"#, "}") } else { ("[", "]") };
        let open: String = (0..levels).map(|level| brackets(level).0).collect();
        let close: Vec<&str> = (0..levels).rev().map(|level| brackets(level).1).collect();
        let text = format!("{open}1{}", close.concat());
        assert_eq!(Json::new(text.as_bytes()).map(Json::get), Some(&*text));
        for wrong in 0..levels {
            let mut close = close.clone();
            close[wrong] = if close[wrong] == "}" { "]" } else { "}" };
            let text = format!("{open}1{}", close.concat());
            assert!(Json::new(text.as_bytes()).is_none(), "{text}");
        }
    }
}

#[test]
fn a_member_is_found_by_its_name_with_and_without_escapes() {
    let text = r#"{"name":1,"na\u006de":2,"n":3,"":4,"a\"b":5}"#;
    let json = Json::new(text.as_bytes()).expect("it is JSON");
    for (name, value) in
        [("name", Some("2")), ("n", Some("3")), ("", Some("4")), ("a\"b", Some("5")), ("x", None)]
    {
        assert_eq!(json.member(name).map(Json::get), value, "{name}");
    }
}
