//! Whose turn it is where more want a permit than there are: pure, without a clock, a task or a lock.
//!
//! # Theory of operation
//!
//! Who asks is told from others by a name, and has a line of their own. A free permit goes to the one of those who wait that has the
//! fewest permits, weighed by what they may have more than others; among equals it is the turn of who was served longest ago. So whoever
//! asks five hundred times at once has a long line, and who asks once is next.
//!
//! All lines together are bounded. Where there is no more room, whoever has the longest line pays for it: with what they ask last, be it
//! what comes now or what came before. So nobody can fill the room so that there is none for others.
//!
//! # Invariants
//!
//! - At most as many permits are taken as there are, and nobody waits while one is free.
//! - Who waits is served, withdraws or has to give way: one of these, and once. In one line it is first come, first served.
//! - Of whoever has no permit and waits for none nothing is kept.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    num::NonZeroU32,
    sync::Arc,
};

use unhang_switches::stands;

use crate::wording::shortened;

/// What one permit costs whoever has the weight 1. Weights divide it with little left over, and turns go on for 2^44 permits.
const COST: u64 = 1 << 20;

/// Of what somebody says that they are called, in characters.
const LONGEST_SAID: usize = 100;

/// Who asks, as far as that says whose turn it is. Clones are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairnessKey {
    name: Arc<str>,
    weight: NonZeroU32,
    /// Others may be called so as well.
    is_vague: bool,
}

impl FairnessKey {
    /// Whoever is called so.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), weight: NonZeroU32::MIN, is_vague: false }
    }

    /// The same, who may have so many times as much as others.
    #[must_use]
    pub fn weighing(self, weight: NonZeroU32) -> Self {
        Self { weight, ..self }
    }

    /// One of several who are called so: what they say of themselves counts as well.
    #[must_use]
    pub fn one_of(name: &str) -> Self {
        Self { is_vague: true, ..Self::new(name) }
    }

    /// The same, once they have said what they are called.
    #[must_use]
    pub fn saying(&self, name: Option<&str>) -> Self {
        match name.filter(|_| self.is_vague) {
            Some(name) => Self::new(&format!("{} {}", self.name, shortened(name, LONGEST_SAID))),
            None => self.clone(),
        }
    }

    /// What tells them from others.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// How much there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many may have a permit at the same time.
    pub permits: usize,
    /// How many may wait for one.
    pub room: usize,
}

/// Names one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueTicket(u64);

/// One who waits no more, and what was kept for them.
#[derive(Debug, PartialEq, Eq)]
pub struct Served<Waiter> {
    /// Whose turn it is.
    pub fairness_key: FairnessKey,
    /// What was kept for them.
    pub waiter: Waiter,
}

/// See the module's text.
#[derive(Debug)]
pub struct Fair<Waiter> {
    bounds: Bounds,
    taken: usize,
    waiting: usize,
    tickets: u64,
    /// The turn that was served last. Who comes anew is not owed the turns that went before.
    now: u64,
    lines: HashMap<Arc<str>, ClientQueue<Waiter>>,
    /// Those who have lines in which somebody waits, the next one first.
    order: BTreeMap<TurnOrder, FairnessKey>,
    /// The same lines, the shortest first.
    lengths: BTreeSet<(u64, Arc<str>)>,
}

/// One client.
#[derive(Debug)]
struct ClientQueue<Waiter> {
    fairness_key: FairnessKey,
    /// Places that they have.
    taken: u64,
    /// From when on it is their turn.
    turn: u64,
    waiters: VecDeque<(QueueTicket, Waiter)>,
}

/// What lines are ordered by: how much their clients have, whose turn it is, and who came first.
type TurnOrder = (u64, u64, QueueTicket);

impl<Waiter> ClientQueue<Waiter> {
    fn cost(&self) -> u64 {
        COST / u64::from(self.fairness_key.weight.get())
    }

    /// Nothing where nobody waits.
    fn order(&self) -> Option<TurnOrder> {
        let (first, _) = self.waiters.front()?;
        Some(match stands("turns-are-fair") {
            true => (self.taken.saturating_mul(self.cost()), self.turn, *first),
            false => (0, 0, *first),
        })
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

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes a permit that is free; whether there was one.
    pub fn take(&mut self, fairness_key: &FairnessKey) -> bool {
        // Where one is free nobody waits for it.
        let is_free = self.taken < self.bounds.permits;
        if is_free {
            self.seat(fairness_key, |_| {});
        }
        is_free
    }

    /// Waits for a permit, since none is free. Gives who has to give way for that, if anybody has to.
    ///
    /// # Errors
    /// There is no more room, and nobody has a longer line. What would have been kept comes back.
    pub fn wait(
        &mut self,
        fairness_key: &FairnessKey,
        waiter: Waiter,
    ) -> Result<(QueueTicket, Option<Waiter>), Waiter> {
        let mut displaced = None;
        if self.waiting >= self.bounds.room && stands("waiting-is-bounded") {
            let own = self.lines.get(&fairness_key.name).map_or(0, |line| line.length().0);
            let one = COST / u64::from(fairness_key.weight.get());
            let longest = self.lengths.last().filter(|(longest, _)| own.saturating_add(one) < *longest);
            let longest =
                longest.and_then(|(_, name)| self.lines.get(name)).map(|line| line.fairness_key.clone());
            let Some(longest) = longest.filter(|_| stands("longest-line-gives-way")) else {
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

    /// Gives a permit back; it is the next one's, who is to be told.
    pub fn leave(&mut self, fairness_key: &FairnessKey) -> Option<Served<Waiter>> {
        self.taken -= 1;
        self.change(fairness_key, |line| line.taken -= 1);
        self.serve()
    }

    /// Waits no more. Nothing where that was over already.
    pub fn withdraw(&mut self, fairness_key: &FairnessKey, ticket: QueueTicket) -> Option<Waiter> {
        if !self.lines.contains_key(&fairness_key.name) {
            return None;
        }
        let (_, waiter) = self.change(fairness_key, |line| {
            // They are in the order in which they came.
            let position = line.waiters.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
            line.waiters.remove(position)
        })?;
        self.waiting -= 1;
        Some(waiter)
    }

    /// From now on there is so much; those who are served by that are to be told. Nobody loses what they have.
    pub fn bound(&mut self, bounds: Bounds) -> Vec<Served<Waiter>> {
        self.bounds = bounds;
        std::iter::from_fn(|| self.serve()).collect()
    }

    /// Gives a free permit to the next one.
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
