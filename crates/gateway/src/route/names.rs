//! Public names of tools and prompts: `server__name`, and a replacement if that cannot be.
//!
//! A name may be too long, or have letters that makers of models do not allow. Such a name gets another spelling and a number made of the
//! whole name. The later of two equal names, in the order of the configuration, gets a number too. The number is always the same.

use std::collections::HashMap;

/// The separator and the length of public names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Style {
    /// The text between a server's prefix and the server's own name.
    pub separator: String,
    /// The most characters of a whole name.
    pub longest: usize,
}

impl Default for Style {
    /// Returns the default: two underlines, since names have single ones, and 64 characters. The interfaces of models take no more, which
    /// is less than the 128 of the protocol (2025-11-25, server/tools).
    fn default() -> Self {
        Self { separator: "__".to_owned(), longest: 64 }
    }
}

/// The longest separator.
const LONGEST_SEPARATOR: usize = 8;

impl Style {
    /// Makes a style with this text between prefix and name. Returns `None` if the text is empty, has more than eight characters, or has
    /// characters that names may not have (2025-11-25, server/tools). So no name is spelt otherwise for its sake.
    #[must_use]
    pub fn separated_by(separator: &str) -> Option<Style> {
        let is_usable = (1..=LONGEST_SEPARATOR).contains(&separator.len()) && separator.chars().all(is_plain);
        is_usable.then(|| Style { separator: separator.to_owned(), ..Style::default() })
    }

    /// Returns the beginning of the public names of a server with this prefix, whatever it turns out to offer. Empty if they can be
    /// anything.
    #[must_use]
    pub fn beginning(&self, prefix: &str) -> String {
        if prefix.is_empty() {
            return String::new();
        }
        let whole = prefix.chars().chain(self.separator.chars());
        // A longer name is cut to make room for its number.
        whole.map(plain).take(self.longest.saturating_sub(NUMBER + 1)).collect()
    }
}

/// The items that one server offers, by its own names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNames<'a> {
    /// The beginning of its public names; empty if they are to stay as they are.
    pub prefix: &'a str,
    /// Its own names.
    pub names: Vec<&'a str>,
}

/// The owner of a public name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The place of the server in the order of the configuration.
    pub server: usize,
    /// The server's name for the item.
    pub name: String,
}

/// Two items that would have had the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameClash {
    /// The name that both would have had. The first keeps it.
    pub requested_name: String,
    /// The item that keeps the name.
    pub first: Owner,
    /// The item that got another name.
    pub second: Owner,
    /// The other name.
    pub given: String,
}

/// All public names of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    owners: HashMap<String, Owner>,
    /// In the order of the servers and of their lists.
    listed: Vec<String>,
    clashes: Vec<NameClash>,
}

impl Names {
    /// Makes the public names for the items of these servers, which are in the order of the configuration. A name that a server lists twice
    /// is there once.
    #[must_use]
    pub fn new(style: &Style, server_names: &[ServerNames<'_>]) -> Self {
        let mut names = Names::default();
        for (server, offer) in server_names.iter().enumerate() {
            let mut own = std::collections::HashSet::new();
            for name in offer.names.iter().filter(|name| own.insert(**name)) {
                names.add(style, offer.prefix, Owner { server, name: (*name).to_owned() });
            }
        }
        names
    }

    /// Returns the owner of this public name, or `None` if there is none.
    #[must_use]
    pub fn owner(&self, public: &str) -> Option<&Owner> {
        self.owners.get(public)
    }

    /// Returns all public names, with their owners.
    pub fn listed(&self) -> impl Iterator<Item = (&str, &Owner)> {
        self.listed.iter().filter_map(|public| Some((public.as_str(), self.owners.get(public)?)))
    }

    /// Returns the names that two items would have had.
    #[must_use]
    pub fn clashes(&self) -> &[NameClash] {
        &self.clashes
    }

    fn add(&mut self, style: &Style, prefix: &str, owner: Owner) {
        let whole = match prefix {
            "" => owner.name.clone(),
            prefix => format!("{prefix}{}{}", style.separator, owner.name),
        };
        let requested_name = spelt(&whole, style.longest);
        let given = match self.owners.get(&requested_name) {
            Some(first) => {
                // The text that made both the same is left out, so that the numbers differ.
                let number = number(&format!("{prefix}\0{}", owner.name));
                let given = numbered(&requested_name, &number, style.longest);
                let (first, second) = (first.clone(), owner.clone());
                self.clashes.push(NameClash { requested_name, first, second, given: given.clone() });
                given
            }
            _ => requested_name,
        };
        // Nobody meets this by accident. A server that does it on purpose does not replace the item that was there first.
        if !self.owners.contains_key(&given) {
            self.listed.push(given.clone());
            self.owners.insert(given, owner);
        }
    }
}

/// Digits of the number behind a name that is spelt in another way.
const NUMBER: usize = 8;

/// Returns the character that names have in the place of this one.
fn plain(character: char) -> char {
    if is_plain(character) { character } else { '_' }
}

/// Returns whether names may have this character.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}

/// Returns the name as it can be used everywhere.
fn spelt(whole: &str, longest: usize) -> String {
    let plain: String = whole.chars().map(plain).collect();
    if plain == whole && plain.len() <= longest && !plain.is_empty() {
        return plain;
    }
    numbered(&plain, &number(whole), longest)
}

/// Returns the name with a number behind it, cut if it has to be.
fn numbered(name: &str, number: &str, longest: usize) -> String {
    let room = longest.saturating_sub(number.len() + 1);
    // The name is ASCII, so that every place is the end of a character.
    format!("{}_{number}", &name[..name.len().min(room)])
}

/// Returns a hash of a text as eight digits, always the same (FNV-1a).
fn number(text: &str) -> String {
    let hash =
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(server_names: &[(&str, &[&str])]) -> Names {
        let server_names: Vec<ServerNames<'_>> = server_names
            .iter()
            .map(|(prefix, names)| ServerNames { prefix, names: names.to_vec() })
            .collect();
        Names::new(&Style::default(), &server_names)
    }

    fn listed(names: &Names) -> Vec<&str> {
        names.listed().map(|(public, _)| public).collect()
    }

    #[test]
    fn a_name_says_whose_it_is_and_is_looked_up_whole() {
        let names = names(&[("time", &["now", "in__zone"]), ("", &["echo", "time__now2"])]);
        assert_eq!(listed(&names), ["time__now", "time__in__zone", "echo", "time__now2"]);
        assert_eq!(names.owner("time__in__zone"), Some(&Owner { server: 0, name: "in__zone".to_owned() }));
        assert_eq!(names.owner("time__now2"), Some(&Owner { server: 1, name: "time__now2".to_owned() }));
        assert_eq!((names.owner("now"), names.owner("time__")), (None, None));
        assert!(names.clashes().is_empty());
    }

    #[test]
    fn what_cannot_be_a_name_is_spelt_in_another_way_that_stays() {
        let long = "x".repeat(100);
        let names = names(&[("s", &["a b", "a_b", "a,b", "größe", &long, "", "a/b.c-d"])]);
        let listed = listed(&names);
        assert_eq!(
            listed,
            [
                "s__a_b_d9335809",
                "s__a_b",
                "s__a_b_c128a4e5",
                "s__gr__e_57b5aa51",
                &format!("s__{}_b2fd0308", "x".repeat(52)),
                "s__",
                "s__a_b.c-d_0921867c",
            ]
        );
        let is_plain = |one: char| one.is_ascii_alphanumeric() || "_-.".contains(one);
        assert!(listed.iter().all(|name| name.len() <= 64 && name.chars().all(is_plain)));
    }

    #[test]
    fn f_52_every_name_of_a_server_begins_as_its_prefix_says() {
        let style = Style::default();
        let long = "p".repeat(70);
        for prefix in ["time", "a b", "gr\u{f6}\u{df}e", &long] {
            let (long_name, beginning) = ("x".repeat(100), style.beginning(prefix));
            let server_names = [ServerNames { prefix, names: vec!["now", "a b", &long_name] }];
            let names = Names::new(&style, &server_names);
            assert_eq!(listed(&names).len(), 3);
            assert!(listed(&names).iter().all(|name| name.starts_with(&beginning)), "{beginning}");
        }
        assert_eq!((style.beginning("time").as_str(), style.beginning("").as_str()), ("time__", ""));
    }

    #[test]
    fn a_separator_has_what_names_may_have() {
        for (separator, is_usable) in [
            ("__", true),
            (".", true),
            ("-to-", true),
            ("", false),
            ("::", false),
            ("ä", false),
            ("123456789", false),
        ] {
            assert_eq!(Style::separated_by(separator).is_some(), is_usable, "{separator}");
        }
    }

    #[test]
    fn of_two_that_would_be_the_same_the_first_keeps_the_name() {
        let names = names(&[("a", &["b__c", "x", "x"]), ("a__b", &["c"]), ("", &["x"]), ("", &["x"])]);
        let owners: Vec<(usize, &str)> =
            names.listed().map(|(_, owner)| (owner.server, owner.name.as_str())).collect();
        assert_eq!(owners, [(0, "b__c"), (0, "x"), (1, "c"), (2, "x"), (3, "x")]);
        let clashes: Vec<(&str, usize, usize)> = names
            .clashes()
            .iter()
            .map(|clash| (clash.requested_name.as_str(), clash.first.server, clash.second.server))
            .collect();
        assert_eq!(clashes, [("a__b__c", 0, 1), ("x", 2, 3)]);
        let NameClash { given, .. } = &names.clashes()[0];
        assert_eq!(names.owner(given).map(|owner| owner.server), Some(1));
        assert_eq!(names.owner("a__b__c").map(|owner| owner.server), Some(0));
    }
}
