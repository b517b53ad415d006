//! The words of both sides, in the protocol's form.
//!
//! Invariants: each request and each good answer carries a number of its own, so that arrivals can be told apart. Nothing here depends on
//! the session.

use unhang_wire::{Id, Json, Line, Piece, read};

use super::script::{Packing, ScriptedAnswer};

/// The ids that both sides use. They are few, so that they repeat, and some of them are ids that the guard might use itself.
pub(super) const IDS: [&str; 8] =
    ["1", "2", "3", "\"1\"", "\"a\"", "\"unhang-2\"", "\"unhang-3\"", "18446744073709551616"];

const METHODS: [&str; 11] = [
    "tools/call",
    "tools/list",
    "resources/read",
    "ping",
    "subscriptions/listen",
    "initialize",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "tasks/result",
    "server/discover",
];

const SERVER_METHODS: [&str; 3] = ["sampling/createMessage", "roots/list", "ping"];

const NOTES: [&str; 3] =
    ["notifications/initialized", "notifications/roots/list_changed", "notifications/other"];

const SERVER_NOTES: [&str; 6] = [
    "notifications/message",
    "notifications/progress",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/updated",
    "notifications/other",
];

/// The progress that a server reports: lower than that of any heartbeat, and higher than that of the first ones.
pub(super) const PROGRESS: [&str; 2] = ["0", "1"];

/// Clients with and without a known clock.
const CLIENTS: [&str; 3] = ["claude-ai", "test", "cai"];

pub(super) fn pick(from: &[&'static str], which: u8) -> &'static str {
    from[usize::from(which) % from.len()]
}

/// A request of the client. The text before and behind its id must arrive unchanged.
#[derive(Debug)]
pub(super) struct ScriptedRequest {
    pub(super) before: String,
    pub(super) id: &'static str,
    pub(super) after: String,
}

impl ScriptedRequest {
    pub(super) fn new(id: u8, method: u8, token: u8, number: u64) -> ScriptedRequest {
        let method = pick(&METHODS, method);
        let more = match (method, token % 8) {
            ("initialize", client) => format!(
                r#","protocolVersion":"2025-11-25","clientInfo":{{"name":"{}"}}"#,
                pick(&CLIENTS, client)
            ),
            ("resources/subscribe" | "resources/unsubscribe", uri) => format!(r#","uri":"file:///{uri}""#),
            ("resources/read", 3) => r#","uri":"job://abcdefgh2345""#.to_owned(),
            (_, 7) => r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#.to_owned(),
            (_, token @ 4..) => format!(r#","_meta":{{"progressToken":{}}}"#, pick(&IDS, token)),
            _ => String::new(),
        };
        ScriptedRequest {
            before: r#"{"jsonrpc":"2.0","id":"#.to_owned(),
            id: pick(&IDS, id),
            after: format!(r#","method":"{method}","params":{{"number":{number}{more}}}}}"#),
        }
    }

    pub(super) fn text(&self) -> Vec<u8> {
        [&self.before, self.id, &self.after].concat().into_bytes()
    }
}

pub(super) fn cancel(id: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
        .into_bytes()
}

pub(super) fn client_note(kind: u8) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, pick(&NOTES, kind)).into_bytes()
}

pub(super) fn server_note(kind: u8, token: u8) -> Vec<u8> {
    let (method, progress, token) =
        (pick(&SERVER_NOTES, kind), pick(&PROGRESS, token / 8), pick(&IDS, token));
    format!(
        r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"progressToken":{token},"progress":{progress}}}}}"#
    )
        .into_bytes()
}

pub(super) fn ask(id: u8, method: u8) -> Vec<u8> {
    let (id, method) = (pick(&IDS, id), pick(&SERVER_METHODS, method));
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#).into_bytes()
}

/// Writes an answer to a request with this id and this number.
pub(super) fn answer(id: &Id, number: Option<u64>, kind: ScriptedAnswer, max_message: usize) -> Vec<u8> {
    let other = id.variant().unwrap_or_else(|| id.clone());
    let version = if kind == ScriptedAnswer::OldRevision { "2025-03-26" } else { "2025-11-25" };
    let number = number.map_or_else(String::new, |number| format!(r#""number":{number},"#));
    let result = format!(r#"{{{number}"protocolVersion":"{version}"}}"#);
    let well = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    match kind {
        ScriptedAnswer::Well | ScriptedAnswer::OldRevision => well,
        ScriptedAnswer::Twice => format!(r#"{well}{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
        ScriptedAnswer::Error => {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":"m"}}}}"#)
        }
        ScriptedAnswer::OtherType => format!(r#"{{"jsonrpc":"2.0","id":{other},"result":{result}}}"#),
        ScriptedAnswer::NoOutcome => format!(r#"{{"jsonrpc":"2.0","id":{id}}}"#),
        ScriptedAnswer::NoVersion => format!(r#"{{"id":{id},"result":{result}}}"#),
        ScriptedAnswer::Cut => well[..well.len() - 2].to_owned(),
        // A line over the limit is only made if the limit is small: the life is about its consequences, not about its size.
        ScriptedAnswer::TooLong if max_message < 1000 => {
            let filling = "x".repeat(max_message);
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"filling":"{filling}"}}}}"#)
        }
        ScriptedAnswer::TooLong => well,
        ScriptedAnswer::NotText => {
            return [format!(r#"{{"jsonrpc":"2.0","id":{id},"result":""#).as_bytes(), b"\xff\"}"].concat();
        }
        ScriptedAnswer::WithoutId => r#"{"jsonrpc":"2.0","result":{}}"#.to_owned(),
    }
    .into_bytes()
}

/// Puts words together that are said at once.
pub(super) fn pack(packing: Packing, words: &[Vec<u8>]) -> Vec<u8> {
    match packing {
        Packing::Lines => [words.join(&b'\n'), b"\n".to_vec()].concat(),
        Packing::Torn => words.join(&b'\n'),
        Packing::Glued => [words.concat(), b"\n".to_vec()].concat(),
        Packing::Array => [b"[".to_vec(), words.join(&b','), b"]\n".to_vec()].concat(),
    }
}

/// Reads the number that a request or a good answer carries.
pub(super) fn number(raw: Json<'_>) -> Option<u64> {
    let digits = raw.get().strip_prefix(r#"{"number":"#)?;
    digits.split([',', '}']).next()?.parse().ok()
}

/// Cuts a line with several pieces into lines of its own, because the models are checked after each. If `splits`, arrays are split too: the
/// guard splits those of the server, whatever was negotiated.
pub(super) fn parts(line: &Line<'_>, splits: bool) -> Vec<Option<Vec<u8>>> {
    let Line::Whole(bytes) = line else { return vec![None] };
    let pieces: Vec<_> = read(bytes).collect();
    match &pieces[..] {
        [Piece::Batch(elements)] if splits => elements.iter().map(|piece| Some(text(piece))).collect(),
        [_] => vec![None],
        pieces => pieces.iter().map(|piece| Some(text(piece))).collect(),
    }
}

fn text(piece: &Piece<'_>) -> Vec<u8> {
    match piece {
        Piece::Message(message) => message.raw.to_vec(),
        Piece::Invalid(invalid) => invalid.raw.to_vec(),
        Piece::Junk(junk) => junk.to_vec(),
        Piece::Batch(pieces) => {
            let texts: Vec<_> = pieces.iter().map(text).collect();
            [b"[".to_vec(), texts.join(&b','), b"]".to_vec()].concat()
        }
    }
}
