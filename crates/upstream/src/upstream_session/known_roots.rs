//! The last answers of clients to `roots/list`, for the process that goes on with calls of the server when this one has ended.
//!
//! Invariants
//!
//! - The roots that a session has given during its calls count for no other session. Those that were given outside calls, by the only client
//!   of that time, count for each session that has given none: the server has them already.
//! - The memory is bounded: the oldest roots go first.

use std::collections::BTreeMap;

use serde_json::Value;

use super::audience::Audience;
use crate::{
    keeping::{KeptRoots, LONGEST_ROOTS},
    question::SessionKey,
};

/// The party that a question for roots was put to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RootsOwner {
    /// The client of a session.
    Session(SessionKey),
    /// The only client, outside calls.
    OnlyClient,
}

impl RootsOwner {
    /// Returns the party that answers a question by this method; `None` if the question is not for roots, or its client is not known.
    pub(super) fn of(method: &str, audience: &Audience<'_>) -> Option<Self> {
        match audience {
            _ if method != "roots/list" => None,
            Audience::One { session: Some(session), .. } | Audience::AfterCallsOf(session) => {
                Some(Self::Session(*session))
            }
            Audience::Nobody => Some(Self::OnlyClient),
            Audience::One { session: None, .. }
            | Audience::Call { .. }
            | Audience::Task(_)
            | Audience::Several => None,
        }
    }
}

/// The last answers. See the module's text.
#[derive(Debug, Default)]
pub(super) struct KnownRoots {
    /// The newest last.
    known: Vec<(RootsOwner, Box<str>)>,
    /// Whether nobody has looked at them since the last change.
    are_new: bool,
}

impl KnownRoots {
    /// Notes an answer, unless it is too long to be kept.
    pub(super) fn note(&mut self, owner: RootsOwner, roots: &str) {
        if self.known.last().is_some_and(|(last, known)| *last == owner && **known == *roots) {
            return;
        }
        self.are_new = true;
        self.known.retain(|(known, _)| *known != owner);
        if roots.len() <= LONGEST_ROOTS {
            self.known.push((owner, roots.into()));
        }
        while self.known.iter().map(|(_, roots)| roots.len() + ROOTS_OVERHEAD).sum::<usize>() > MOST_ROOTS {
            self.known.remove(0);
        }
    }

    /// Returns whether the answers have changed since the last look.
    pub(super) fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.are_new)
    }

    /// Returns the roots for the plan of a call holder.
    pub(super) fn kept(&self) -> KeptRoots {
        let (mut all, mut of_sessions) = (None, BTreeMap::new());
        for (owner, roots) in &self.known {
            let Ok(roots) = serde_json::from_str::<Value>(roots) else { continue };
            match owner {
                RootsOwner::OnlyClient => all = Some(roots),
                RootsOwner::Session(session) => _ = of_sessions.insert(session.number(), roots),
            }
        }
        KeptRoots { all, of_sessions }
    }
}

/// The bytes of a plan that the roots of one session take besides themselves.
const ROOTS_OVERHEAD: usize = 32;

/// The most bytes of all roots: a word of a command line has room for little more.
const MOST_ROOTS: usize = LONGEST_ROOTS + ROOTS_OVERHEAD;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(uri: &str) -> String {
        json!({ "roots": [{ "uri": uri }] }).to_string()
    }

    #[test]
    fn the_last_roots_of_each_session_are_known() {
        let [one, two, silent] = [(); 3].map(|()| SessionKey::drawn());
        let mut roots = KnownRoots::default();
        assert!(!roots.take_new() && roots.kept() == KeptRoots::default());
        roots.note(RootsOwner::OnlyClient, &text("file:///first"));
        for (session, uri) in [(one, "file:///old"), (two, "file:///two"), (one, "file:///one")] {
            roots.note(RootsOwner::Session(session), &text(uri));
        }
        assert!(roots.take_new() && !roots.take_new());
        roots.note(RootsOwner::Session(one), &text("file:///one"));
        assert!(!roots.take_new(), "nothing has changed");
        let kept = roots.kept();
        for (session, uri) in [
            (Some(one), "file:///one"),
            (Some(two), "file:///two"),
            (Some(silent), "file:///first"),
            (None, "file:///first"),
        ] {
            let known = kept.of(session.map(SessionKey::number)).expect("roots");
            assert_eq!(known["roots"][0]["uri"], uri);
        }
    }

    #[test]
    fn the_oldest_roots_go_and_long_ones_are_not_kept() {
        let sessions: Vec<SessionKey> = (0..100).map(|_| SessionKey::drawn()).collect();
        let mut roots = KnownRoots::default();
        for session in &sessions {
            roots.note(RootsOwner::Session(*session), &text(&"x".repeat(2000)));
        }
        let kept = roots.kept();
        let is_known = |session: &SessionKey| kept.of(Some(session.number())).is_some();
        assert!(!is_known(&sessions[0]) && is_known(&sessions[99]));
        assert!(serde_json::to_string(&kept).expect("JSON").len() < LONGEST_ROOTS + 100);
        roots.note(RootsOwner::Session(sessions[99]), &text(&"x".repeat(LONGEST_ROOTS)));
        assert_eq!(roots.kept().of(Some(sessions[99].number())), None, "the older ones are not the last");
    }

    #[test]
    fn roots_are_those_of_the_client_that_was_asked() {
        let session = SessionKey::drawn();
        for (audience, expect) in [
            (Audience::AfterCallsOf(session), Some(RootsOwner::Session(session))),
            (Audience::Nobody, Some(RootsOwner::OnlyClient)),
            (Audience::Several, None),
            (Audience::Task("7".to_owned()), None),
        ] {
            assert_eq!(RootsOwner::of("roots/list", &audience), expect);
            assert_eq!(RootsOwner::of("ping", &audience), None);
        }
    }
}
