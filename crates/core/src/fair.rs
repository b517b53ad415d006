//! Decides whose turn it is if more clients want a permit than there are: pure, without a clock, a task or a lock.
//!
//! # Theory of operation
//!
//! A key tells each client from the others, and each client has a line of its own. A free permit goes to the waiting client that has the
//! fewest permits, weighed by its share. Among equals it is the turn of the client that was served longest ago. So a client that asks five
//! hundred times at once has a long line, and a client that asks once is next.
//!
//! All lines together are bounded. If there is no more room, the client with the longest line pays for it, with its latest request. That is
//! the new request or an earlier one. So no client can fill the room until there is none for others.
//!
//! # Invariants
//!
//! - At most as many permits are taken as there are, and nobody waits while one is free.
//! - A waiter is served, withdraws or has to give way: one of these, and once. In one line it is first come, first served.
//! - Nothing is kept of a client that has no permit and waits for none.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    num::NonZeroU32,
    sync::Arc,
};

use crate::wording::shortened;

/// The cost of one permit for a client of weight 1. Weights divide it with little left over, and turns go on for 2^44 permits.
const COST: u64 = 1 << 20;

/// The longest part of a client's own name for itself that counts, in characters.
const LONGEST_SAID: usize = 100;

/// The identity of a client, as far as it decides whose turn it is. Clones are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairnessKey {
    name: Arc<str>,
    weight: NonZeroU32,
    /// Whether other clients may have the same name.
    is_vague: bool,
}

impl FairnessKey {
    /// Makes the key of the client with this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), weight: NonZeroU32::MIN, is_vague: false }
    }

    /// Returns the same key with this weight: the client may have so many times as much as others.
    #[must_use]
    pub fn weighing(self, weight: NonZeroU32) -> Self {
        Self { weight, ..self }
    }

    /// Makes the key of one of several clients with the same name: the name that each gives itself counts as well.
    #[must_use]
    pub fn one_of(name: &str) -> Self {
        Self { is_vague: true, ..Self::new(name) }
    }

    /// Returns the key of the client once it has given itself a name; the same key if that does not count.
    #[must_use]
    pub fn saying(&self, name: Option<&str>) -> Self {
        match name.filter(|_| self.is_vague) {
            Some(name) => Self::new(&format!("{} {}", self.name, shortened(name, LONGEST_SAID))),
            None => self.clone(),
        }
    }

    /// Returns the name that tells the client from others.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The number of permits, and the room for waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most permits that are taken at the same time.
    pub permits: usize,
    /// The most waiters.
    pub room: usize,
}

/// Names one waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueTicket(u64);

/// A waiter that was given a permit, and the value that was kept for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Served<Waiter> {
    /// The client whose turn it is.
    pub fairness_key: FairnessKey,
    /// The value that was kept for the waiter.
    pub waiter: Waiter,
}

/// Hands out permits fairly; see the module's text.
#[derive(Debug)]
pub struct Fair<Waiter> {
    bounds: Bounds,
    taken: usize,
    waiting: usize,
    tickets: u64,
    /// The turn that was served last. A client that comes anew is not owed the turns that went before.
    now: u64,
    lines: HashMap<Arc<str>, ClientQueue<Waiter>>,
    /// The clients that have waiters, the next one first.
    order: BTreeMap<TurnOrder, FairnessKey>,
    /// The same lines, the shortest first.
    lengths: BTreeSet<(u64, Arc<str>)>,
}

/// One client.
#[derive(Debug)]
struct ClientQueue<Waiter> {
    fairness_key: FairnessKey,
    /// The permits that the client has.
    taken: u64,
    /// The time of its turn.
    turn: u64,
    waiters: VecDeque<(QueueTicket, Waiter)>,
}

/// The order of lines: how much their clients have, whose turn it is, and who came first.
type TurnOrder = (u64, u64, QueueTicket);

impl<Waiter> ClientQueue<Waiter> {
    fn cost(&self) -> u64 {
        COST / u64::from(self.fairness_key.weight.get())
    }

    /// Returns the position of the line; `None` if nobody waits in it.
    fn order(&self) -> Option<TurnOrder> {
        let (first, _) = self.waiters.front()?;
        Some((self.taken.saturating_mul(self.cost()), self.turn, *first))
    }

    fn length(&self) -> (u64, Arc<str>) {
        let waiters = u64::try_from(self.waiters.len()).unwrap_or(u64::MAX);
        (waiters.saturating_mul(self.cost()), Arc::clone(&self.fairness_key.name))
    }
}

impl<Waiter> Fair<Waiter> {
    /// Makes a line with these bounds, in which nobody waits.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            taken: 0,
            waiting: 0,
            tickets: 0,
            now: 0,
            lines: HashMap::new(),
            order: BTreeMap::new(),
            lengths: BTreeSet::new(),
        }
    }

    /// Returns its bounds.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Returns how many wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes a permit that is free. Returns whether there was one.
    pub fn take(&mut self, fairness_key: &FairnessKey) -> bool {
        // If a permit is free, nobody waits for it.
        let is_free = self.taken < self.bounds.permits;
        if is_free {
            self.seat(fairness_key, |_| {});
        }
        is_free
    }

    /// Waits for a permit, because none is free. Returns the waiter's ticket, and the waiter that has to give way for it, if any.
    ///
    /// # Errors
    /// Fails if there is no more room, and no client has a longer line. The error gives back `waiter`.
    pub fn wait(
        &mut self,
        fairness_key: &FairnessKey,
        waiter: Waiter,
    ) -> Result<(QueueTicket, Option<Waiter>), Waiter> {
        let mut displaced = None;
        if self.waiting >= self.bounds.room {
            let own = self.lines.get(&fairness_key.name).map_or(0, |line| line.length().0);
            let one = COST / u64::from(fairness_key.weight.get());
            let longest = self.lengths.last().filter(|(longest, _)| own.saturating_add(one) < *longest);
            let longest =
                longest.and_then(|(_, name)| self.lines.get(name)).map(|line| line.fairness_key.clone());
            let Some(longest) = longest else {
                return Err(waiter);
            };
            displaced = self.change(&longest, |line| line.waiters.pop_back());
            self.waiting -= 1;
        }
        self.tickets += 1;
        let (ticket, now) = (QueueTicket(self.tickets), self.now);
        self.change(fairness_key, |line| {
            if line.waiters.is_empty() {
                line.turn = line.turn.max(now);
            }
            line.waiters.push_back((ticket, waiter));
        });
        self.waiting += 1;
        Ok((ticket, displaced.map(|(_, waiter)| waiter)))
    }

    /// Gives a permit back to the next waiter. Returns that waiter, whom the caller has to tell.
    pub fn leave(&mut self, fairness_key: &FairnessKey) -> Option<Served<Waiter>> {
        self.taken -= 1;
        self.change(fairness_key, |line| line.taken -= 1);
        self.serve()
    }

    /// Withdraws a waiter and returns it; `None` if its wait was over already.
    pub fn withdraw(&mut self, fairness_key: &FairnessKey, ticket: QueueTicket) -> Option<Waiter> {
        if !self.lines.contains_key(&fairness_key.name) {
            return None;
        }
        let (_, waiter) = self.change(fairness_key, |line| {
            // The waiters are in the order in which they came.
            let position = line.waiters.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
            line.waiters.remove(position)
        })?;
        self.waiting -= 1;
        Some(waiter)
    }

    /// Sets new bounds. Returns the waiters that are served by that, whom the caller has to tell. No client loses a permit.
    pub fn bound(&mut self, bounds: Bounds) -> Vec<Served<Waiter>> {
        self.bounds = bounds;
        std::iter::from_fn(|| self.serve()).collect()
    }

    /// Gives a free permit to the next waiter; `None` if no permit is free or nobody waits.
    fn serve(&mut self) -> Option<Served<Waiter>> {
        if self.taken >= self.bounds.permits {
            return None;
        }
        let fairness_key = self.order.first_key_value()?.1.clone();
        let (_, waiter) = self.seat(&fairness_key, |line| line.waiters.pop_front())?;
        self.waiting -= 1;
        Some(Served { fairness_key, waiter })
    }

    fn seat<T>(
        &mut self,
        fairness_key: &FairnessKey,
        change: impl FnOnce(&mut ClientQueue<Waiter>) -> T,
    ) -> T {
        self.taken += 1;
        let now = self.now;
        let (turn, changed) = self.change(fairness_key, |line| {
            line.taken += 1;
            let turn = line.turn.max(now);
            line.turn = turn.saturating_add(line.cost());
            (turn, change(line))
        });
        self.now = turn;
        changed
    }

    /// Changes a line, and puts it where it belongs after that.
    fn change<T>(
        &mut self,
        fairness_key: &FairnessKey,
        change: impl FnOnce(&mut ClientQueue<Waiter>) -> T,
    ) -> T {
        let line = || ClientQueue {
            fairness_key: fairness_key.clone(),
            taken: 0,
            turn: 0,
            waiters: VecDeque::new(),
        };
        let line = self.lines.entry(Arc::clone(&fairness_key.name)).or_insert_with(line);
        if let Some(order) = line.order() {
            self.order.remove(&order);
            self.lengths.remove(&line.length());
        }
        let changed = change(line);
        if let Some(order) = line.order() {
            self.order.insert(order, line.fairness_key.clone());
            self.lengths.insert(line.length());
        } else if line.taken == 0 {
            self.lines.remove(&fairness_key.name);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fairness_key(name: &str) -> FairnessKey {
        FairnessKey::new(name)
    }

    fn weighing(name: &str, weight: u32) -> FairnessKey {
        fairness_key(name).weighing(NonZeroU32::new(weight).expect("a weight"))
    }

    fn fair(permits: usize, room: usize) -> Fair<u32> {
        Fair::new(Bounds { permits, room })
    }

    fn waits(fair: &mut Fair<u32>, fairness_key: &FairnessKey, number: u32) {
        let (_, displaced) = fair.wait(fairness_key, number).expect("room");
        assert_eq!(displaced, None);
    }

    /// Who is served, by their names, when each gives the permit back at once.
    fn served(fair: &mut Fair<u32>, first: &FairnessKey) -> String {
        let mut names = String::new();
        let mut next = fair.leave(first);
        while let Some(Served { fairness_key, .. }) = next {
            names.push_str(fairness_key.name());
            next = fair.leave(&fairness_key);
        }
        names
    }

    #[test]
    fn who_asks_once_is_next_however_often_others_ask() {
        let (mut fair, (many, once)) = (fair(4, 1000), (fairness_key("m"), fairness_key("o")));
        (0..4).for_each(|_| assert!(fair.take(&many)));
        (0..500).for_each(|number| waits(&mut fair, &many, number));
        assert!(!fair.take(&once));
        waits(&mut fair, &once, 500);
        assert_eq!(fair.leave(&many), Some(Served { fairness_key: once.clone(), waiter: 500 }));
        assert_eq!(
            fair.leave(&once),
            Some(Served { fairness_key: many, waiter: 0 }),
            "in one line the first is first"
        );
    }

    #[test]
    fn those_who_want_much_are_served_in_turn_and_by_weight() {
        for (weights, of_first) in [([1, 1], 39..=41), ([3, 1], 59..=61)] {
            let fairness_keys = [weighing("a", weights[0]), weighing("b", weights[1])];
            let mut fair = fair(1, 1000);
            assert!(fair.take(&fairness_keys[0]));
            for number in 0..100 {
                fairness_keys.iter().for_each(|fairness_key| waits(&mut fair, fairness_key, number));
            }
            let served = served(&mut fair, &fairness_keys[0]);
            assert_eq!(served.len(), 200);
            assert!(of_first.contains(&served[..80].matches('a').count()), "{served}");
        }
    }

    #[test]
    fn places_are_shared_alike_though_calls_of_one_take_longer() {
        let (mut fair, (slow, quick)) = (fair(4, 1000), (fairness_key("s"), fairness_key("q")));
        for _ in 0..2 {
            assert!(fair.take(&slow) && fair.take(&quick));
        }
        for number in 0..100 {
            waits(&mut fair, &slow, number);
            waits(&mut fair, &quick, number);
        }
        // Those of the slow one never end.
        for _ in 0..100 {
            let next = fair.leave(&quick).expect("they wait");
            assert_eq!(next.fairness_key, quick, "it keeps its half");
        }
    }

    #[test]
    fn whoever_has_the_longest_line_gives_way() {
        let (mut fair, (many, few)) = (fair(1, 3), (fairness_key("m"), fairness_key("f")));
        assert!(fair.take(&many));
        (0..3).for_each(|number| waits(&mut fair, &many, number));
        assert_eq!(fair.wait(&many, 3), Err(3), "what comes last is what they pay with");
        assert_eq!(fair.wait(&few, 4).expect("room").1, Some(2));
        assert_eq!(fair.wait(&few, 5), Err(5), "it would be as long as the longest");
        assert_eq!(fair.waiting(), 3);
    }

    #[test]
    fn there_can_be_more_or_less_from_now_on() {
        let (mut fair, one) = (fair(1, 10), fairness_key("o"));
        assert!(fair.take(&one));
        (0..3).for_each(|number| waits(&mut fair, &one, number));
        let served = fair.bound(Bounds { permits: 3, room: 10 });
        assert_eq!(served.iter().map(|served| served.waiter).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(fair.bound(Bounds { permits: 1, room: 10 }), []);
        assert_eq!((fair.leave(&one), fair.leave(&one)), (None, None), "there are too many yet");
        assert_eq!(fair.leave(&one).map(|served| served.waiter), Some(2));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Ask(u8),
        Leave(usize),
        Withdraw(usize),
        Bound(usize, usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            8 => (0..5_u8).prop_map(Event::Ask),
            6 => any::<usize>().prop_map(Event::Leave),
            2 => any::<usize>().prop_map(Event::Withdraw),
            1 => (1..5_usize, 0..8_usize).prop_map(|(permits, room)| Event::Bound(permits, room)),
        ]
    }

    proptest! {
        /// Whatever happens: nobody waits while a permit is free, each is served, withdrawn or displaced once, a free permit goes to one
        /// who has least, and nothing is kept of those who are gone.
        #[test]
        fn everybody_has_one_fate_and_places_are_neither_lost_nor_made(
            events in prop::collection::vec(event(), 0..200),
        ) {
            let mut fair: Fair<u32> = fair(2, 4);
            let fairness_keys: Vec<FairnessKey> = (1..6).map(|weight| weighing(&format!("{weight}"), weight)).collect();
            let (mut next, mut has, mut waits) = (0, Vec::<FairnessKey>::new(), Vec::<(FairnessKey, QueueTicket, u32)>::new());
            let mut taken_most = 2;
            for event in events {
                let mut served = Vec::new();
                match event {
                    Event::Ask(who) => {
                        let fairness_key = &fairness_keys[usize::from(who)];
                        next += 1;
                        if fair.take(fairness_key) {
                            prop_assert!(waits.is_empty());
                            has.push(fairness_key.clone());
                        } else if let Ok((ticket, displaced)) = fair.wait(fairness_key, next) {
                            waits.push((fairness_key.clone(), ticket, next));
                            if let Some(displaced) = displaced {
                                let position = waits.iter().position(|(.., waiter)| *waiter == displaced);
                                waits.remove(position.expect("it waited"));
                            }
                        } else {
                            prop_assert!(waits.len() >= fair.bounds().room);
                        }
                    }
                    Event::Leave(position) if !has.is_empty() => {
                        let fairness_key = has.swap_remove(position % has.len());
                        served.extend(fair.leave(&fairness_key));
                    }
                    Event::Withdraw(position) if !waits.is_empty() => {
                        let (fairness_key, ticket, waiter) = waits.remove(position % waits.len());
                        prop_assert_eq!(fair.withdraw(&fairness_key, ticket), Some(waiter));
                        prop_assert_eq!(fair.withdraw(&fairness_key, ticket), None);
                    }
                    Event::Bound(permits, room) => {
                        taken_most = permits.max(has.len());
                        served.extend(fair.bound(Bounds { permits, room }));
                    }
                    Event::Leave(_) | Event::Withdraw(_) => {}
                }
                for Served { fairness_key, waiter } in served {
                    let share = |one: &FairnessKey| {
                        let count = has.iter().filter(|other| *other == one).count();
                        u64::try_from(count).expect("few") * (COST / u64::from(one.weight.get()))
                    };
                    prop_assert!(waits.iter().all(|(other, ..)| share(&fairness_key) <= share(other)));
                    let position = waits.iter().position(|(.., known)| *known == waiter).expect("it waited");
                    prop_assert_eq!(&waits.remove(position).0, &fairness_key);
                    has.push(fairness_key);
                }
                prop_assert_eq!((fair.taken, fair.waiting()), (has.len(), waits.len()));
                prop_assert!(has.len() <= taken_most);
                prop_assert!(waits.is_empty() || has.len() >= fair.bounds().permits);
                let known = |line: &Arc<str>| {
                    has.iter().chain(waits.iter().map(|(fairness_key, ..)| fairness_key)).any(|fairness_key| fairness_key.name == *line)
                };
                prop_assert!(fair.lines.keys().all(known));
                prop_assert_eq!(fair.order.len(), fair.lengths.len());
            }
        }
    }
}
