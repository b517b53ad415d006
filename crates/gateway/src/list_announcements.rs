//! Announcements of changed lists (`notifications/tools/list_changed` and the like), on their way from a server to its clients.
//!
//! ```text
//! server ─ NotificationListener (ListKinds) ─ Backend::list ─ AnnouncementPace ─ KnownAnnouncements ─ front
//! ```
//!
//! # Theory of operation
//!
//! Clients hear of an announcement although the list is the same as before, as they do without unhang. The listener notes the announcement.
//! When the server has been listed again, [`AnnouncementPace`] counts the announcement together with the new list. A session compares the
//! counts that it knew with the new ones.
//!
//! # Invariants
//!
//! - An announcement counts as soon as the list that followed it is known, and never before.
//! - An announcement of a list that has not changed counts at most once in [`LIST_ANNOUNCEMENT_PAUSE`], and is not lost.
//! - A session hears what a server announces if the session has its lists, and nothing of any other server.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::route::catalog::ListedItems;
use unhang_core::{config::LIST_ANNOUNCEMENT_PAUSE, list::ServerList};

/// The lists of which a server can announce a change, with the method of each announcement. Resources include templates.
const ANNOUNCED: [(ServerList, &str); KINDS] = [
    (ServerList::Tools, "notifications/tools/list_changed"),
    (ServerList::Prompts, "notifications/prompts/list_changed"),
    (ServerList::Resources, "notifications/resources/list_changed"),
];

const KINDS: usize = 3;

/// Some of the kinds of lists, in the order of [`ANNOUNCED`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ListKinds([bool; KINDS]);

impl ListKinds {
    /// Returns the kind that a notification of this method announces, or none.
    pub(super) fn announced_by(method: &str) -> Self {
        Self(ANNOUNCED.map(|(_, announces)| announces == method))
    }

    /// Returns the kinds in which these items differ.
    fn differing(before: &ListedItems, now: &ListedItems) -> Self {
        let differ = |list| !are_same(before.items(list), now.items(list));
        Self([
            differ(ServerList::Tools),
            differ(ServerList::Prompts),
            differ(ServerList::Resources) || differ(ServerList::ResourceTemplates),
        ])
    }

    /// Adds these kinds.
    pub(super) fn add(&mut self, others: Self) {
        for (has, adds) in self.0.iter_mut().zip(others.0) {
            *has |= adds;
        }
    }
}

/// Returns whether a server has listed the same items twice, in the same order and the same words.
pub(super) fn are_same(before: &[Box<RawValue>], now: &[Box<RawValue>]) -> bool {
    before.len() == now.len() && before.iter().zip(now).all(|(before, now)| before.get() == now.get())
}

/// How often a server has announced a change of each kind of list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AnnouncementCounts([u64; KINDS]);

/// Decides when the announcements of one server count, so that a server that announces without end does not wake its clients without end.
/// Pure.
#[derive(Debug, Default)]
pub(super) struct AnnouncementPace {
    counts: AnnouncementCounts,
    /// The kinds that were announced and have not been counted yet.
    held: ListKinds,
    /// The time at which clients were last told of each kind.
    told: [Option<Instant>; KINDS],
}

impl AnnouncementPace {
    /// Returns the counts so far.
    pub(super) fn counts(&self) -> AnnouncementCounts {
        self.counts
    }

    /// Notes that the server has given the items `now` after those `before`, and has announced these kinds first.
    pub(super) fn listed(
        &mut self,
        announced: ListKinds,
        before: &ListedItems,
        now: &ListedItems,
        at: Instant,
    ) {
        self.held.add(announced);
        for (kind, differs) in ListKinds::differing(before, now).0.into_iter().enumerate() {
            if differs {
                // Clients are told of the difference at once, so nothing is left to tell.
                self.count(kind, at);
            }
        }
        self.count_due(at);
    }

    /// Counts the announcements that have waited long enough.
    pub(super) fn count_due(&mut self, now: Instant) {
        for kind in 0..KINDS {
            let is_due = self.told[kind].is_none_or(|told| told + LIST_ANNOUNCEMENT_PAUSE <= now);
            if self.held.0[kind] && is_due {
                self.count(kind, now);
            }
        }
    }

    /// Counts the announcement of this kind, if there is one. Clients are told of the kind now.
    fn count(&mut self, kind: usize, now: Instant) {
        self.counts.0[kind] += u64::from(std::mem::take(&mut self.held.0[kind]));
        self.told[kind] = Some(now);
    }

    /// Returns when the next announcement counts, if one waits.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let held = self.told.iter().zip(self.held.0).filter(|(_, is_held)| *is_held);
        held.filter_map(|(told, _)| Some((*told)? + LIST_ANNOUNCEMENT_PAUSE)).min()
    }
}

/// The process or connection of a server that has given a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListOrigin {
    /// The one in the roster.
    Roster,
    /// Its counterpart in the other era.
    Counterpart,
    /// The instance of one session.
    Instance,
}

/// The announcements of all servers, as far as a session knows of them.
#[derive(Clone, Debug, Default)]
pub struct KnownAnnouncements(BTreeMap<(usize, ListOrigin), HeardCounts>);

#[derive(Clone, Copy, Debug)]
struct HeardCounts {
    counts: AnnouncementCounts,
    /// Whether the session has the lists that were announced.
    is_heard: bool,
}

impl KnownAnnouncements {
    /// Adds the counts of a server whose lists the session has.
    pub(super) fn add(&mut self, server_index: usize, origin: ListOrigin, counts: AnnouncementCounts) {
        self.0.insert((server_index, origin), HeardCounts { counts, is_heard: true });
    }

    /// Adds the counts of a server whose lists the session may have later. The session is not told of announcements until then.
    pub(super) fn add_unheard(
        &mut self,
        server_index: usize,
        origin: ListOrigin,
        counts: AnnouncementCounts,
    ) {
        self.0.entry((server_index, origin)).or_insert(HeardCounts { counts, is_heard: false });
    }

    /// Returns whether a server has announced a change of this list since `before`, and the session has that list.
    #[must_use]
    pub fn are_news_of(&self, list: ServerList, before: &Self) -> bool {
        let kind = match list {
            ServerList::Tools => 0,
            ServerList::Prompts => 1,
            ServerList::Resources | ServerList::ResourceTemplates => 2,
            // No message announces these.
            ServerList::Skills => return false,
        };
        let mut heard = self.0.iter().filter(|(_, now)| now.is_heard);
        heard.any(|(whose, now)| {
            // An instance or a counterpart that was not there before has announced everything since then.
            let before = before.0.get(whose).map_or(0, |before| before.counts.0[kind]);
            now.counts.0[kind] > before
        })
    }

    /// Returns whether a server has announced anything since `before` in lists that the session has.
    pub(super) fn are_news(&self, before: &Self) -> bool {
        ANNOUNCED.iter().any(|(list, _)| self.are_news_of(*list, before))
    }
}

#[cfg(any(test, feature = "testing"))]
impl KnownAnnouncements {
    /// Returns the announcements of one server that has announced each of these lists so often.
    #[must_use]
    pub fn of_one(tools: u64, prompts: u64, resources: u64) -> Self {
        let mut known = Self::default();
        known.add(0, ListOrigin::Roster, AnnouncementCounts([tools, prompts, resources]));
        known
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TOOLS: ListKinds = ListKinds([true, false, false]);
    const PROMPTS: ListKinds = ListKinds([false, true, false]);
    const RESOURCES: ListKinds = ListKinds([false, false, true]);

    fn raw(text: &str) -> Vec<Box<RawValue>> {
        vec![RawValue::from_string(text.to_owned()).expect("JSON")]
    }

    #[test]
    fn each_method_announces_its_own_kind_and_others_none() {
        for (method, kinds) in [
            ("notifications/tools/list_changed", TOOLS),
            ("notifications/prompts/list_changed", PROMPTS),
            ("notifications/resources/list_changed", RESOURCES),
            ("notifications/roots/list_changed", ListKinds::default()),
            ("notifications/resources/updated", ListKinds::default()),
        ] {
            assert_eq!(ListKinds::announced_by(method), kinds, "{method}");
        }
    }

    #[test]
    fn lists_differ_in_the_kinds_that_have_other_items() {
        let items = |change: fn(&mut ListedItems)| {
            let mut items = ListedItems { tools: raw("1"), prompts: raw("2"), ..ListedItems::default() };
            change(&mut items);
            ListKinds::differing(
                &ListedItems { tools: raw("1"), prompts: raw("2"), ..ListedItems::default() },
                &items,
            )
        };
        assert_eq!(items(|_| {}), ListKinds::default());
        assert_eq!(items(|items| items.tools = raw("3")), TOOLS);
        assert_eq!(items(|items| items.prompts.clear()), PROMPTS);
        assert_eq!(items(|items| items.resources = raw("3")), RESOURCES);
        assert_eq!(items(|items| items.templates = raw("3")), RESOURCES);
    }

    #[test]
    fn what_is_announced_without_end_counts_once_a_pause_and_no_announcement_is_lost() {
        let (mut pace, start, same) = (AnnouncementPace::default(), Instant::now(), ListedItems::default());
        // It is listed four times a second for ten seconds, and announces its tools each time.
        for quarter in 0..40 {
            pace.listed(TOOLS, &same, &same, start + Duration::from_millis(250) * quarter);
            assert_eq!(pace.counts().0, [u64::from(quarter / 4) + 1, 0, 0], "after {quarter} quarters");
        }
        let (last, due) = (start + 9 * LIST_ANNOUNCEMENT_PAUSE, start + 10 * LIST_ANNOUNCEMENT_PAUSE);
        assert_eq!(pace.next_due(), Some(due));
        pace.listed(PROMPTS, &same, &same, last);
        assert_eq!(pace.counts().0, [10, 1, 0], "kinds do not wait for one another");
        pace.count_due(due);
        assert_eq!((pace.counts().0, pace.next_due()), ([11, 1, 0], None));
        pace.count_due(due + LIST_ANNOUNCEMENT_PAUSE);
        assert_eq!(pace.counts().0, [11, 1, 0], "each counts once");
    }

    #[test]
    fn what_comes_with_other_items_counts_at_once_and_what_follows_waits() {
        let (mut pace, start, same) = (AnnouncementPace::default(), Instant::now(), ListedItems::default());
        let other = ListedItems { tools: raw("1"), ..ListedItems::default() };
        pace.listed(TOOLS, &same, &same, start);
        pace.listed(TOOLS, &same, &other, start);
        assert_eq!((pace.counts().0, pace.next_due()), ([2, 0, 0], None));
        pace.listed(ListKinds::default(), &other, &same, start + LIST_ANNOUNCEMENT_PAUSE / 2);
        assert_eq!(pace.counts().0, [2, 0, 0], "the difference itself is told, and nothing was announced");
        pace.listed(TOOLS, &same, &same, start + LIST_ANNOUNCEMENT_PAUSE);
        assert_eq!(pace.counts().0, [2, 0, 0], "clients have just asked for the list");
        assert_eq!(pace.next_due(), Some(start + LIST_ANNOUNCEMENT_PAUSE / 2 + LIST_ANNOUNCEMENT_PAUSE));
    }

    #[test]
    fn news_are_what_was_announced_since_then_in_lists_that_the_session_has() {
        use ListOrigin::{Counterpart, Roster};
        let counts = |tools| AnnouncementCounts([tools, 0, 0]);
        let mut before = KnownAnnouncements::default();
        before.add(0, Roster, counts(2));
        before.add_unheard(0, Roster, counts(9));
        before.add_unheard(0, Counterpart, counts(4));
        assert!(!before.are_news(&before));
        let with = |roster, counterpart, is_heard: bool| {
            let mut now = KnownAnnouncements::default();
            now.add(0, Roster, counts(roster));
            if is_heard {
                now.add(0, Counterpart, counts(counterpart));
            }
            now.add_unheard(0, Counterpart, counts(counterpart));
            now
        };
        assert!(with(3, 4, false).are_news(&before));
        assert!(!with(2, 5, false).are_news(&before), "the session does not have those lists");
        assert!(!with(2, 4, true).are_news(&before), "that was announced before it had them");
        let now = with(2, 5, true);
        assert!(
            now.are_news_of(ServerList::Tools, &before) && !now.are_news_of(ServerList::Prompts, &before)
        );
        assert!(now.are_news_of(ServerList::Tools, &KnownAnnouncements::default()), "it has just come");
        let resources = KnownAnnouncements::of_one(0, 0, 1);
        for list in [ServerList::Resources, ServerList::ResourceTemplates] {
            assert!(resources.are_news_of(list, &KnownAnnouncements::default()));
        }
    }
}
