use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn envelope_scan(text: &[u8], size: usize) -> ScannedEnvelope {
    let mut envelope_scan = EnvelopeScan::default();
    text.chunks(size).for_each(|chunk| envelope_scan.feed(chunk));
    envelope_scan.finish()
}

#[track_caller]
fn check(text: &str, id: impl Into<Option<Id>>, method: Option<&str>, shape: MessageShape) {
    let id = id.into();
    for size in [1, 2, 1000] {
        let found = envelope_scan(text.as_bytes(), size);
        assert_eq!((found.id, found.method.as_deref(), found.shape), (id.clone(), method, shape), "{text}");
    }
}

#[test]
fn members_of_the_top_level_are_read_wherever_they_stand() {
    let one = Some(Id::Integer(1));
    check(r#"{"id":1,"method":"m"}"#, one.clone(), Some("m"), MessageShape::Request);
    check(r#" { "method" : "m" , "id" : 1 } "#, one.clone(), Some("m"), MessageShape::Request);
    check(r#"{"params":{"id":2,"x":["}",{"method":"n"}]},"id":1}"#, one.clone(), None, MessageShape::Request);
    check(r#"{"result":{"method":"n"},"id":1}"#, one.clone(), None, MessageShape::Response);
    check(r#"{"error":{"id":3},"id":"a\"b\\"}"#, Some(Id::from("a\"b\\")), None, MessageShape::Response);
    check(r#"{"\u0069d":"\u0031","x":"\\"}"#, Some(Id::from("1")), None, MessageShape::Response);
    check(r#"{"id":1}"#, one.clone(), None, MessageShape::Response);
    check(r#"{"id":1} trailing {"id":2}"#, one, None, MessageShape::Response);
    check("{}", None, None, MessageShape::Unknown);
    check("[{\"id\":1}]", None, None, MessageShape::Unknown);
    check("x {\"id\":1}", None, None, MessageShape::Unknown);
    check("", None, None, MessageShape::Unknown);
}

#[test]
fn what_is_no_id_is_none() {
    for value in ["null", "1.5", "1e3", "true", "[1]", "{\"id\":1}", "\"\\ud800\"", "1 2", "nope"] {
        check(&format!(r#"{{"id":{value},"method":"m"}}"#), None, Some("m"), MessageShape::Request);
    }
    for value in ["\"a\"b\"", "", "\"a\" 1", "1 \"a\""] {
        check(&format!(r#"{{"id":{value},"method":"m"}}"#), None, None, MessageShape::Response);
    }
    let long = format!("\"{}\"", "x".repeat(Id::MAX_JSON));
    check(&format!(r#"{{"id":{long},"method":"m"}}"#), None, Some("m"), MessageShape::Request);
    let longest = "x".repeat(Id::MAX_JSON - 2);
    check(&format!(r#"{{"id":"{longest}"}}"#), Id::from(longest.as_str()), None, MessageShape::Response);
    let longer = "x".repeat(Id::MAX_JSON - 1);
    check(&format!(r#"{{"id":"{longer}"}}"#), None, None, MessageShape::Response);
    check(r#"{"id":1,"method":"m","id":1}"#, None, Some("m"), MessageShape::Request);
    let long = "x".repeat(MAX_METHOD);
    check(&format!(r#"{{"method":"{long}","id":1}}"#), Some(Id::Integer(1)), None, MessageShape::Request);
}

#[test]
fn of_broken_objects_only_what_is_certain_is_read() {
    let one = Some(Id::Integer(1));
    check(r#"{"id":1,"method":"m","params":{"x"#, one.clone(), Some("m"), MessageShape::Request);
    check(r#"{"params":{x},"id":1}"#, one.clone(), None, MessageShape::Request);
    check(r#"{"result":{"a":1,},"id":1}"#, one, None, MessageShape::Response);
    // Cut off: it may have been 12, or "ab".
    check(r#"{"id":1"#, None, None, MessageShape::Response);
    check(r#"{"id":"a"#, None, None, MessageShape::Response);
    check(r#"{"id":"a""#, Some(Id::from("a")), None, MessageShape::Response);
    check(r#"{"id":"#, None, None, MessageShape::Response);
    // A quote is missing: strings and text have changed places.
    check(r#"{"a":"b,"c":"},","id":7,"x":1}"#, None, None, MessageShape::Unknown);
    check(r#"{"params":{"a":"b,"c":"}"},"id":7}"#, None, None, MessageShape::Unknown);
    check(r#"{"a":[1"x"],"id":7}"#, None, None, MessageShape::Unknown);
    check(r#"{"a":["x"1],"id":7}"#, None, None, MessageShape::Unknown);
    check(r#"{"a":[\],"id":7}"#, None, None, MessageShape::Unknown);
    check(r#"{"id":}"#, None, None, MessageShape::Response);
    // A brace is missing: the depth is unknown.
    check(r#"{"params":[{"a":1],"id":7}"#, None, None, MessageShape::Unknown);
    check(r#"{"params":[{"a":1]},"id":7}"#, None, None, MessageShape::Unknown);
    check(r#"{"params":{"a":1,"id":7}"#, None, None, MessageShape::Unknown);
    check(r#"{"params":{"a":1}},"id":7}"#, None, None, MessageShape::Unknown);
    check(r#"{"a":{}"id":7}"#, None, None, MessageShape::Unknown);
    check(r#"{"a":\"id":7}"#, None, None, MessageShape::Unknown);
}

#[test]
fn nesting_of_any_depth_is_stepped_over() {
    for (open, close) in [("[", "]"), (r#"{"id":"#, "}"), ("[{\"a\":", "}]")] {
        let nested = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        check(
            &format!(r#"{{"result":{nested},"id":1}}"#),
            Some(Id::Integer(1)),
            None,
            MessageShape::Response,
        );
    }
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\"\\\\{}\\[\\],:]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..4).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec!["id", "method", "params", "result", "error", "jsonrpc", "x"])
            .prop_map(Into::into),
        any::<String>(),
    ]
}

proptest! {
    #[test]
    fn it_agrees_with_a_full_parser(value in prop::collection::vec((name(), json()), 0..6), size in 1_usize..20, pretty: bool) {
        let object: serde_json::Map<String, Value> = value.into_iter().collect();
        let text = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) }.unwrap();
        let found = envelope_scan(text.as_bytes(), size);
        let id = object.get("id").and_then(|id| Id::from_json(&id.to_string()));
        let method = object.get("method").and_then(Value::as_str).filter(|_| text.len() < MAX_METHOD);
        let outcome = object.contains_key("result") || object.contains_key("error");
        let shape = MessageShape::of(
            object.contains_key("method"), outcome, object.contains_key("id"), object.contains_key("params"));
        prop_assert_eq!(found.id, id);
        prop_assert_eq!(found.shape, shape);
        if method.is_some() {
            prop_assert_eq!(found.method.as_deref(), method);
        }
    }

    #[test]
    fn any_bytes_in_any_chunks_give_the_same(text in "[{}\\[\\]\",:\\\\ idx1]{0,40}", size in 1_usize..9) {
        let (whole, parts) = (envelope_scan(text.as_bytes(), usize::MAX), envelope_scan(text.as_bytes(), size));
        prop_assert_eq!(format!("{whole:?}"), format!("{parts:?}"));
    }
}
