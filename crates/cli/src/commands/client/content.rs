//! The results of servers, as a person reads them.
//!
//! Invariants: names and titles stay on their line, and the printer keeps texts from steering a terminal. Data that is not text goes to a
//! file of a free name, which the text tells. A part that cannot be saved is lost, so the writer reports it as an error.

use unhang_terminal::{output, text::escaped};

use std::{
    cell::RefCell,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use data_encoding::BASE64;
use serde_json::Value;

/// The number of files that are tried before the search for a free name ends.
const MOST_FILES: u32 = 10_000;

/// A maker of text out of results.
pub(in crate::commands) struct Writer<'a> {
    /// The folder for files.
    folder: &'a Path,
    /// The beginning of the files' names.
    name: &'a str,
    /// Messages about the parts that could not be saved.
    unsaved: RefCell<Vec<String>>,
}

impl<'a> Writer<'a> {
    /// Makes a writer that saves files in this folder, under names with this beginning.
    pub(in crate::commands) fn new(folder: &'a Path, name: &'a str) -> Self {
        Self { folder, name, unsaved: RefCell::default() }
    }

    /// Reports the parts that could not be saved, and returns whether there were any.
    pub(in crate::commands) fn tell_unsaved(&self) -> bool {
        let unsaved = self.unsaved.take();
        unsaved.iter().for_each(|message| output::error(message, Some("--save names the folder for it")));
        !unsaved.is_empty()
    }

    /// Returns the text of a tool's result.
    pub(in crate::commands) fn tool(&self, result: &Value) -> String {
        let mut text = self.all(&result["content"]);
        if text.is_empty()
            && let Some(structured) = result.get("structuredContent")
        {
            text = format!("{structured:#}\n");
        }
        text
    }

    /// Returns the text of a resource.
    pub(in crate::commands) fn resource(&self, result: &Value) -> String {
        let contents = result["contents"].as_array().map(Vec::as_slice).unwrap_or_default();
        contents.iter().map(|content| self.embedded(content)).collect()
    }

    /// Returns the text of a prompt: its description and its messages.
    pub(in crate::commands) fn prompt(&self, result: &Value) -> String {
        let described = result["description"].as_str().map(|description| lines(description.trim_end()));
        let messages = result["messages"].as_array().into_iter().flatten().map(|message| {
            let role = message["role"].as_str().unwrap_or("?");
            format!("{}:\n{}", escaped(role), self.one(&message["content"]))
        });
        described.into_iter().chain(messages).collect::<Vec<_>>().join("\n")
    }

    fn all(&self, content: &Value) -> String {
        content.as_array().into_iter().flatten().map(|item| self.one(item)).collect()
    }

    fn one(&self, item: &Value) -> String {
        let text_of = |name: &str| item[name].as_str().unwrap_or_default();
        match text_of("type") {
            "text" => lines(text_of("text")),
            kind @ ("image" | "audio") => self.file(text_of("data"), text_of("mimeType"), kind),
            "resource" => self.embedded(&item["resource"]),
            "resource_link" => {
                let title = ["title", "name"]
                    .map(text_of)
                    .into_iter()
                    .find(|title| !title.is_empty())
                    .unwrap_or("resource");
                format!("{}: {}\n", escaped(title), escaped(text_of("uri")))
            }
            _ => format!("{item:#}\n"),
        }
    }

    fn embedded(&self, resource: &Value) -> String {
        match (resource["text"].as_str(), resource["blob"].as_str()) {
            (Some(text), _) => lines(text),
            (None, Some(blob)) => {
                self.file(blob, resource["mimeType"].as_str().unwrap_or_default(), "resource")
            }
            (None, None) => format!("{resource:#}\n"),
        }
    }

    /// Saves data that is not text, and returns a line that names the file.
    fn file(&self, base64: &str, mime_type: &str, kind: &str) -> String {
        let compact: String = base64.split_ascii_whitespace().collect();
        let saved = BASE64
            .decode(compact.as_bytes())
            .map_err(|error| io::Error::other(format!("it is not base64: {error}")))
            .and_then(|bytes| Ok((self.save(&bytes, ending(mime_type))?, bytes.len())));
        match saved {
            Ok((path, length)) => format!("[{kind}, {length} bytes: {}]\n", path.display()),
            Err(error) => {
                self.unsaved
                    .borrow_mut()
                    .push(format!("{kind} that cannot be saved: {}", escaped(&error.to_string())));
                format!("[{kind} that cannot be saved: {error}]\n")
            }
        }
    }

    fn save(&self, bytes: &[u8], ending: &str) -> io::Result<PathBuf> {
        let safe =
            |letter: char| if letter.is_ascii_alphanumeric() || "_-".contains(letter) { letter } else { '-' };
        let name: String = self.name.chars().map(safe).take(64).collect();
        for number in 1..=MOST_FILES {
            let path = self.folder.join(format!("{name}-{number}.{ending}"));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => match file.write_all(bytes) {
                    Ok(()) => return Ok(path),
                    Err(error) => {
                        // A part of a file looks like the whole.
                        let _nothing_more_can_be_done = fs::remove_file(&path);
                        return Err(named(&path, &error));
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(named(&path, &error)),
            }
        }
        Err(io::Error::other(format!("{} has no free name for it", self.folder.display())))
    }
}

/// Adds the path of the file to an error of the system.
fn named(path: &Path, error: &io::Error) -> io::Error {
    let whole = std::path::absolute(path);
    io::Error::new(error.kind(), format!("{}: {error}", whole.as_deref().unwrap_or(path).display()))
}

/// Returns the text with a line feed at its end. The printer keeps it from steering a terminal.
fn lines(text: &str) -> String {
    format!("{text}{}", if text.ends_with('\n') { "" } else { "\n" })
}

/// Returns the file name extension for this type.
fn ending(mime_type: &str) -> &str {
    match mime_type.split(';').next().unwrap_or_default().trim() {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "audio/wav" | "audio/x-wav" => "wav",
        "audio/mpeg" => "mp3",
        "audio/ogg" => "ogg",
        "application/pdf" => "pdf",
        "application/json" => "json",
        "application/zip" => "zip",
        "application/gzip" => "gz",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_becomes_text_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer::new(folder.path(), "../draw");
        let result = json!({ "content": [
            { "type": "text", "text": "red" },
            { "type": "image", "data": "aGk=", "mimeType": "image/png" },
            { "type": "image", "data": "aGk=", "mimeType": "image/png" },
            { "type": "image", "data": "?", "mimeType": "image/png" },
            { "type": "resource_link", "uri": "file:///a", "name": "a" },
            { "type": "resource", "resource": { "uri": "b", "text": "inside\n" } },
        ]});
        let (first, second) = (folder.path().join("---draw-1.png"), folder.path().join("---draw-2.png"));
        let text = writer.tool(&result);
        let expect =
            format!("red\n[image, 2 bytes: {}]\n[image, 2 bytes: {}]\n", first.display(), second.display());
        assert!(text.starts_with(&expect), "{text}");
        assert!(text.ends_with("file:///a\ninside\n") && text.contains("it is not base64"), "{text}");
        assert_eq!(fs::read(&second).unwrap(), b"hi");
        assert_eq!(
            writer.tool(&json!({ "content": [], "structuredContent": { "a": 1 } })),
            "{\n  \"a\": 1\n}\n"
        );
    }

    #[test]
    fn a_prompt_and_a_resource_become_text() {
        let writer = Writer::new(Path::new("/nowhere"), "x");
        let prompt = json!({ "description": "what", "messages": [{ "role": "user", "content": { "type": "text", "text": "hi" } }] });
        assert_eq!(writer.prompt(&prompt), "what\n\nuser:\nhi\n");
        let resource = json!({ "contents": [{ "uri": "a", "text": "one" }, { "uri": "b", "blob": "aGk=" }] });
        let text = writer.resource(&resource);
        assert!(text.starts_with("one\n[resource that cannot be saved: /nowhere/x-1.bin: "), "{text}");
        assert!(writer.unsaved.borrow().iter().any(|told| told.contains("/nowhere/x-1.bin")));
    }
}
