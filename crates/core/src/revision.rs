//! The revisions of MCP that unhang speaks with clients and with servers, and the features of each (protocol.md 1).
//!
//! Invariants: pure; members that a revision does not know are not sent to a client of that revision.

use unhang_bridge::Era;

/// A revision of the protocol, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// 2024-11-05.
    V2024November,
    /// 2025-03-26: batches, annotations of tools.
    V2025March,
    /// 2025-06-18: structured results, titles; no batches.
    V2025June,
    /// 2025-11-25.
    V2025November,
    /// 2026-07-28: no handshake, every request names its revision.
    V2026July,
}

use Revision::*;

const NAMES: [(Revision, &str); 5] = [
    (V2024November, "2024-11-05"),
    (V2025March, "2025-03-26"),
    (V2025June, "2025-06-18"),
    (V2025November, "2025-11-25"),
    (V2026July, "2026-07-28"),
];

impl Revision {
    /// Returns the name on the wire.
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// Returns the revision of this name; `None` if unhang does not know it.
    pub fn named(name: &str) -> Option<Revision> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(revision, _)| *revision)
    }

    /// Returns the revision of a session for which the client's `initialize` asks for this one. It is the one asked for, if that is known
    /// and begins with a handshake. Otherwise it is the newest that begins with a handshake.
    pub fn negotiated(asked: &str) -> Revision {
        Revision::of_handshake(asked).unwrap_or(V2025November)
    }

    /// Finds the revision of this name, if it begins with a handshake.
    pub fn of_handshake(name: &str) -> Option<Revision> {
        Revision::named(name).filter(|revision| !revision.is_stateless())
    }

    /// Finds the revision that a request names for itself, if a request can name it.
    pub fn of_request(name: &str) -> Option<Revision> {
        Revision::named(name).filter(|revision| revision.is_stateless())
    }

    /// Lists the names of the revisions that a request may name.
    pub fn stateless() -> Vec<&'static str> {
        NAMES.iter().filter(|(revision, _)| revision.is_stateless()).map(|(_, name)| *name).collect()
    }

    /// Returns whether requests stand alone: no handshake, no session.
    pub fn is_stateless(self) -> bool {
        self >= V2026July
    }

    /// Returns the era of the revision.
    pub fn era(self) -> Era {
        if self.is_stateless() { Era::Modern } else { Era::Legacy }
    }

    /// Returns whether an array of messages may be sent.
    pub fn has_batches(self) -> bool {
        self == V2025March
    }

    /// Returns whether progress may carry a message beside its numbers.
    pub fn has_progress_messages(self) -> bool {
        self >= V2025March
    }

    /// Returns whether tools have hints about their effects.
    pub fn has_annotations(self) -> bool {
        self >= V2025March
    }

    /// Returns whether a question to open a URL has an id, under which the server tells later that a person has done so.
    pub fn has_elicitation_ids(self) -> bool {
        self == V2025November
    }

    /// Returns whether tools have an output schema and a title, and results a structured part.
    pub fn has_structured_results(self) -> bool {
        self >= V2025June
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_negotiated_as_every_revision_says() {
        for (asked, expect) in [
            ("2024-11-05", V2024November),
            ("2025-03-26", V2025March),
            ("2025-06-18", V2025June),
            ("2025-11-25", V2025November),
            ("2026-07-28", V2025November),
            ("1999-01-01", V2025November),
            ("", V2025November),
        ] {
            assert_eq!(Revision::negotiated(asked), expect, "{asked}");
        }
        assert_eq!(Revision::of_request("2026-07-28"), Some(V2026July));
        assert_eq!(Revision::of_request("2025-11-25"), None, "it has a handshake");
        assert_eq!(Revision::stateless(), ["2026-07-28"]);
        for (revision, name) in NAMES {
            assert_eq!(revision.name(), name);
        }
    }

    #[test]
    fn each_revision_has_the_features_that_came_with_it_or_before() {
        for (revision, progress_messages, annotations, batches, structured, stateless) in [
            (V2024November, false, false, false, false, false),
            (V2025March, true, true, true, false, false),
            (V2025June, true, true, false, true, false),
            (V2025November, true, true, false, true, false),
            (V2026July, true, true, false, true, true),
        ] {
            assert_eq!(revision.has_progress_messages(), progress_messages, "{revision:?}");
            assert_eq!(revision.has_annotations(), annotations, "{revision:?}");
            assert_eq!(revision.has_batches(), batches, "{revision:?}");
            assert_eq!(revision.has_structured_results(), structured, "{revision:?}");
            assert_eq!(revision.is_stateless(), stateless, "{revision:?}");
            assert_eq!(revision.era(), if stateless { Era::Modern } else { Era::Legacy }, "{revision:?}");
            let of_request = Revision::of_request(revision.name());
            let of_handshake = Revision::of_handshake(revision.name());
            let expect = if stateless { (Some(revision), None) } else { (None, Some(revision)) };
            assert_eq!((of_request, of_handshake), expect);
        }
        assert_eq!((Revision::of_request("1999-01-01"), Revision::of_handshake("1999-01-01")), (None, None));
    }
}
