//! A command in one argument, split into its words without a shell. White space separates words, and quotes keep them together.

/// Splits a command into words. Between quotes, single or double, every character stands for itself.
///
/// # Errors
/// Fails if a quote does not end, or if there is no word at all.
pub(crate) fn split(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some(end) if end == letter => break,
                        Some(other) => word.push(other),
                        None => return Err("a quote has no end"),
                    }
                }
            }
            space if space.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    if words.is_empty() { Err("a command is missing") } else { Ok(words) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_person_expects() {
        let table: [(&str, &[&str]); 5] = [
            ("proxy --stdio", &["proxy", "--stdio"]),
            ("  proxy\t-x \n", &["proxy", "-x"]),
            ("proxy 'a b' \"c 'd'\"", &["proxy", "a b", "c 'd'"]),
            ("--name='a b'c ''", &["--name=a bc", ""]),
            (r"a\b $HOME *", &[r"a\b", "$HOME", "*"]),
        ];
        for (text, words) in table {
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for text in ["", "  ", "proxy 'a", "\""] {
            assert!(split(text).is_err(), "{text}");
        }
    }
}
