//! Changes single members of a JSON object.
//!
//! Invariants
//!
//! - Every byte that belongs to no change stays as it stood, white space included.
//! - A text without changes is not copied.
//! - If several members have the same name, all of them are changed: readers differ in which one counts.

use std::borrow::Cow;

use unhang_wire::Json;

/// A set of changes to one object, to be applied together.
#[derive(Debug)]
pub struct Splice<'a> {
    object: Json<'a>,
    set: Vec<(&'a str, Cow<'a, str>)>,
    removed: Vec<&'a str>,
    removed_prefix: Option<&'a str>,
}

impl<'a> Splice<'a> {
    /// Starts without changes.
    #[must_use]
    pub fn new(object: Json<'a>) -> Self {
        Self { object, set: Vec::new(), removed: Vec::new(), removed_prefix: None }
    }

    /// Sets a member to this value, which is JSON. A member that does not exist is added at the end.
    #[must_use]
    pub fn set(mut self, name: &'a str, value: impl Into<Cow<'a, str>>) -> Self {
        self.set.push((name, value.into()));
        self
    }

    /// Removes a member.
    #[must_use]
    pub fn remove(mut self, name: &'a str) -> Self {
        self.removed.push(name);
        self
    }

    /// Removes every member whose name begins with `prefix`, except for those that are set.
    #[must_use]
    pub fn remove_all(mut self, prefix: &'a str) -> Self {
        self.removed_prefix = Some(prefix);
        self
    }

    /// Returns the object with its changes, or `None` if it is not an object.
    #[must_use]
    pub fn apply(&self) -> Option<Cow<'a, str>> {
        let text = self.object.get();
        let mut work = SpliceWork { text, output: String::new(), copied: 0, kept_end: None, last_end: 1 };
        let mut found = vec![false; self.set.len()];
        let is_object = self.object.each_member(|name, value| {
            let (begin, end) = (work.offset(name), work.offset(value) + value.get().len());
            // A name with half a surrogate pair never equals one of our names.
            let name = name.text().unwrap_or_default();
            let set = self.set.iter().position(|(known, _)| *known == name);
            match set {
                Some(index) => {
                    found[index] = true;
                    work.keep(begin, end);
                    let new = &self.set[index].1;
                    if *new != value.get() {
                        work.replace(work.offset(value), end, new);
                    }
                }
                None if self.removes(&name) => work.remove(end),
                None => work.keep(begin, end),
            }
            work.last_end = end;
        });
        is_object.then(|| {
            let missing = self.set.iter().zip(found).filter(|(_, found)| !found).map(|(member, _)| member);
            work.finish(missing)
        })
    }

    fn removes(&self, name: &str) -> bool {
        self.removed.contains(&name) || self.removed_prefix.is_some_and(|prefix| name.starts_with(prefix))
    }
}

/// The state of one run: how much has been copied, and which part stays until something changes.
struct SpliceWork<'a> {
    text: &'a str,
    output: String,
    /// The end of the text that is already in the output, or left out of it for good.
    copied: usize,
    /// The end of the last member that stays.
    kept_end: Option<usize>,
    /// The end of the last member, kept or removed. Before the first member it stands behind the brace.
    last_end: usize,
}

impl<'a> SpliceWork<'a> {
    fn offset(&self, part: Json<'_>) -> usize {
        part.get().as_ptr().addr() - self.text.as_ptr().addr()
    }

    fn copy_to(&mut self, end: usize) {
        if end > self.copied {
            self.output.push_str(&self.text[self.copied..end]);
            self.copied = end;
        }
    }

    /// Keeps a member.
    fn keep(&mut self, begin: usize, end: usize) {
        if self.kept_end.is_none() && self.last_end > 1 {
            // All members before this one were removed. The comma behind them goes as well.
            self.copy_to(1);
            self.copied = begin;
        }
        self.kept_end = Some(end);
    }

    fn replace(&mut self, begin: usize, end: usize, new: &str) {
        self.copy_to(begin);
        self.output.push_str(new);
        self.copied = end;
    }

    /// Removes a member and the comma before it.
    fn remove(&mut self, end: usize) {
        self.copy_to(self.kept_end.unwrap_or(1));
        self.copied = end;
    }

    fn finish<'m>(mut self, added: impl Iterator<Item = &'m (&'m str, Cow<'m, str>)>) -> Cow<'a, str> {
        let mut is_first = self.kept_end.is_none();
        for (name, value) in added {
            self.copy_to(self.last_end);
            if !is_first {
                self.output.push(',');
            }
            is_first = false;
            self.output.push_str(&crate::quoted(name));
            self.output.push(':');
            self.output.push_str(value);
        }
        if self.copied == 0 {
            return Cow::Borrowed(self.text);
        }
        self.copy_to(self.text.len());
        Cow::Owned(self.output)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    fn json(text: &str) -> Json<'_> {
        Json::new(text.as_bytes()).expect("JSON")
    }

    #[test]
    fn what_is_not_changed_is_not_copied() {
        let text = "{ \"a\" : 1.0e0 ,\n \"b\": [ ] }";
        let splice = Splice::new(json(text)).remove("c").remove_all("x/").set("b", "[ ]");
        assert!(matches!(splice.apply(), Some(Cow::Borrowed(same)) if same == text));
        assert_eq!(Splice::new(json("[]")).set("a", "1").apply(), None);
    }

    #[test]
    fn every_other_byte_stays() {
        for (text, expect) in [
            (r#"{}"#, r#"{"n":9}"#),
            (r#"{ }"#, r#"{"n":9 }"#),
            (r#"{"a":1}"#, r#"{"a":1,"n":9}"#),
            ("{ \"a\" : 1e2 }", "{ \"a\" : 1e2,\"n\":9 }"),
            (r#"{"n" : 1 , "a":2}"#, r#"{"n" : 9 , "a":2}"#),
            (r#"{"\u006e":1}"#, r#"{"\u006e":9}"#),
            (r#"{"r":1}"#, r#"{"n":9}"#),
            (r#"{"r":1 , "a":2 }"#, r#"{"a":2,"n":9 }"#),
            (r#"{"a":2 , "r":1 }"#, r#"{"a":2,"n":9 }"#),
            (r#"{"a":1, "r":2, "b":3}"#, r#"{"a":1, "b":3,"n":9}"#),
            (r#"{"r":1,"r":2,"n":3,"r":4,"n":5}"#, r#"{"n":9,"n":9}"#),
            (r#"{"p/1":1,"a":{"r":1},"p/":2}"#, r#"{"a":{"r":1},"n":9}"#),
        ] {
            let splice = Splice::new(json(text)).set("n", "9").remove("r").remove_all("p/");
            assert_eq!(splice.apply().as_deref(), Some(expect), "{text}");
        }
    }

    proptest! {
        /// It does what it does to a map, whatever the members are.
        #[test]
        fn it_does_what_a_map_does(
            members in prop::collection::vec(("[a-dn]|p/[a-b]", "[1-9][0-9]{0,2}|\"x\"|\\[ \\]|\\{\"n\": 1\\}"), 0..8),
            blank in "[ \n]{0,2}",
        ) {
            let mut seen = std::collections::HashSet::new();
            let unique: Vec<_> = members.into_iter().filter(|(name, _)| seen.insert(name.clone())).collect();
            let inside: Vec<String> =
                unique.iter().map(|(name, value)| format!("{blank}\"{name}\"{blank}:{blank}{value}{blank}")).collect();
            let text = format!("{{{}}}", if inside.is_empty() { blank } else { inside.join(",") });
            let mut expect: Map<String, Value> = serde_json::from_str(&text).unwrap();
            expect.retain(|name, _| name != "a" && !name.starts_with("p/"));
            expect.insert("n".to_owned(), 9.into());
            expect.insert("m".to_owned(), true.into());
            let splice = Splice::new(json(&text)).set("n", "9").set("m", "true").remove("a").remove_all("p/");
            let result = splice.apply().unwrap();
            prop_assert_eq!(serde_json::from_str::<Map<String, Value>>(&result).unwrap(), expect, "{}", result);
        }
    }
}
