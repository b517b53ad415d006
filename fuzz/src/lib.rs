//! What is fuzzed, one function a target: any bytes, and a panic when an invariant is broken.
//!
//! `docs/reference/fuzzing.md` lists the invariants and the commands.
//!
//! Invariants: a target depends on its bytes alone; what it judges by is written without the code under test, apart from
//! `guard`, which takes the reading of single lines from `unhang-wire` because `envelope` judges that.

mod envelope;
mod framing;
mod json;

pub use envelope::envelope;
pub use framing::framing;

/// What a target does with its input.
pub type FuzzTarget = fn(&[u8]);

/// The targets, by the names of their folders.
pub const TARGETS: [(&str, FuzzTarget); 3] = [("framing", framing), ("envelope", envelope), ("guard", guard)];

/// A whole life of the guard: client, server and clock in any order, against the promises.
///
/// # Panics
/// When one is broken.
pub fn guard(bytes: &[u8]) {
    unhang::guard::fuzzing::FuzzScript::read(bytes).live();
}

/// What an input stands for, in words, where the bytes alone say little.
pub fn story(target: &str, bytes: &[u8]) -> String {
    match target {
        "guard" => format!("{:?}", unhang::guard::fuzzing::FuzzScript::read(bytes)),
        _ => bytes.escape_ascii().to_string(),
    }
}
