//! SHA-256 and base64 for URLs, by the book (FIPS 180-4, RFC 4648): what PKCE is checked with.
//!
//! # Invariants
//!
//! - Nothing here is fast or secret; it only has to be right, and to be ours alone.

/// The first 32 bits of the fractional parts of the square roots of the first 8 primes.
const BEGIN: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Returns what an S256 challenge must be for this verifier.
pub(super) fn challenge(verifier: &str) -> String {
    base64(&sha256(verifier.as_bytes()))
}

fn sha256(message: &[u8]) -> [u8; 32] {
    let rounds = round_constants();
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend((message.len() as u64 * 8).to_be_bytes());
    let mut state = BEGIN;
    for block in padded.chunks_exact(64) {
        mix(&mut state, block, &rounds);
    }
    let mut digest = [0; 32];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn mix(state: &mut [u32; 8], block: &[u8], rounds: &[u32; 64]) {
    let mut words = [0_u32; 64];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for at in 16..64 {
        let (near, far) = (words[at - 2], words[at - 15]);
        let near = near.rotate_right(17) ^ near.rotate_right(19) ^ near >> 10;
        let far = far.rotate_right(7) ^ far.rotate_right(18) ^ far >> 3;
        words[at] = words[at - 16].wrapping_add(far).wrapping_add(words[at - 7]).wrapping_add(near);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, round) in words.iter().zip(rounds) {
        let high = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = e & f ^ !e & g;
        let first = h.wrapping_add(high).wrapping_add(choice).wrapping_add(*round).wrapping_add(*word);
        let low = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = a & b ^ a & c ^ b & c;
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(low.wrapping_add(majority)));
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(more);
    }
}

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes, found by counting: the cube root of a
/// prime, times 2 to the 32nd, is the largest number whose cube is no more than the prime times 2 to the 96th.
fn round_constants() -> [u32; 64] {
    let is_prime =
        |number: &u128| (2..*number).take_while(|by| by * by <= *number).all(|by| !number.is_multiple_of(by));
    let mut primes = (2_u128..).filter(is_prime);
    std::array::from_fn(|_| {
        let prime = primes.next().unwrap_or_default();
        let mut root = 0_u128;
        for bit in (0..36).rev() {
            let more = root | 1 << bit;
            // The cube of 36 bits has 108.
            if more * more * more <= prime << 96 {
                root = more;
            }
        }
        (root & u128::from(u32::MAX)) as u32
    })
}

/// Returns bytes as base64 for URLs.
pub(super) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            (0..3).fold(0_usize, |bits, at| bits << 8 | chunk.get(at).map_or(0, |byte| usize::from(*byte)));
        for index in 0..=chunk.len() {
            text.push(char::from(LETTERS[bits >> (18 - 6 * index) & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard_is_right() {
        // RFC 7636, appendix B.
        assert_eq!(
            challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
        // The one of FIPS 180-4 for an empty text, and one that needs a second block.
        assert_eq!(base64(&sha256(b"")), "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU");
        let two_blocks = sha256(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq");
        assert_eq!(two_blocks[..4], [0x24, 0x8d, 0x6a, 0x61]);
    }
}
