//! A digest that tells several texts apart from others, in a few bytes.
//!
//! Invariants: the same texts have the same digest in every run, because some digests are kept on the disk. The places where one text ends
//! and the next begins make a difference.

use ring::digest::{Context, SHA256};

/// Returns the first bytes of the digest of these texts, at most 32.
pub fn digest<'a, const LENGTH: usize>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; LENGTH] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        // Each text is hashed with its length, so nothing of one can be taken for the beginning of the next.
        context.update(&part.len().to_be_bytes());
        context.update(part);
    }
    let digest = context.finish();
    std::array::from_fn(|index| digest.as_ref()[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_part_ends_makes_a_difference() {
        let of = |parts: &[&[u8]]| digest::<8>(parts.iter().copied());
        assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"ab"]), of(&[b"ab", b""]));
    }

    #[test]
    fn a_digest_is_the_same_in_every_run_and_a_shorter_one_is_its_beginning() {
        // Computed with `printf '\0\0\0\0\0\0\0\2ab\0\0\0\0\0\0\0\1c' | sha256sum`.
        let whole = digest::<32>([b"ab".as_slice(), b"c"]);
        assert_eq!(
            data_encoding::HEXLOWER.encode(&whole),
            "601d5476e2ccfe2c87a2bba7a322659734a05749d5b5aa781f513e4912db0d5f"
        );
        assert_eq!(digest::<8>([b"ab".as_slice(), b"c"]), whole[..8]);
    }
}
