//! The filter that answers for most absent keys: a Bloom filter whose bits for one key lie in one
//! cache line (F. Putze, P. Sanders, J. Singler, "Cache-, Hash- and Space-Efficient Bloom Filters",
//! section 3), in pages that are verified and cached one by one.

use super::block::{BlockKind, CRC_BYTES, PAGE_BYTES};
use super::bytes::{u32_at, u64_at};

/// Bits of one cache line.
const LINE_BITS: u32 = 512;
const LINE_BYTES: usize = LINE_BITS as usize / 8;
/// Lines of a page for keys. The first line is the header, and the last one has the checksum.
const LINES: usize = PAGE_BYTES / LINE_BYTES - 2;
/// Bits of a page for keys.
const PAGE_BITS: u64 = LINES as u64 * LINE_BITS as u64;
/// Most bits that are set for one key: seven times nine bits are taken from a hash.
const PROBES_MAX: u32 = 7;

/// Returns the number of bits that are set for a key, given the filter's bits per key. In lines of
/// 512 bits, six are as good as seven at ten bits a key, and cheaper.
pub(in crate::run) fn probes_for(bits_per_key: u32) -> u32 {
    (bits_per_key * 3 / 5).clamp(1, PROBES_MAX)
}

/// The page of a filter, the line of the page and the bits of the line that belong to a key.
#[derive(Debug, Clone, Copy)]
pub(in crate::run) struct Probe {
    pub(in crate::run) page: u32,
    line: usize,
    bits: u64,
    probes: u32,
}

impl Probe {
    #[inline]
    pub(in crate::run) fn new(hash: u64, pages: u32, probes: u32) -> Probe {
        let page = (u128::from(hash) * u128::from(pages)) >> 64;
        let again = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let line = (u128::from(again) * LINES as u128) >> 64;
        let bits = (again ^ (again >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Probe { page: page as u32, line: 1 + line as usize, bits: bits ^ (bits >> 32), probes }
    }

    /// Iterates over the bytes of a page in which bits are set, with the bit of each.
    #[inline]
    fn volumes(self) -> impl Iterator<Item = (usize, u8)> {
        let start = self.line * LINE_BYTES;
        (0..self.probes).map(move |probe| {
            let bit = (self.bits >> (9 * probe)) as usize % LINE_BITS as usize;
            (start + bit / 8, 1 << (bit % 8))
        })
    }

    fn set(self, page: &mut [u8]) {
        for (byte, bit) in self.volumes() {
            if let Some(byte) = page.get_mut(byte) {
                *byte |= bit;
            }
        }
    }

    /// Returns true if a key with these bits may have been added to the page.
    #[inline]
    pub(in crate::run) fn may_be_in(self, page: &[u8]) -> bool {
        self.volumes().all(|(byte, bit)| page.get(byte).is_some_and(|byte| byte & bit != 0))
    }
}

/// Returns the number of pages of a filter for so many keys.
pub(in crate::run) fn pages_for(keys: usize, bits_per_key: u32) -> u32 {
    (keys as u64 * u64::from(bits_per_key)).div_ceil(PAGE_BITS) as u32
}

/// Builds the pages of a filter for keys with these hashes, without checksums.
pub(in crate::run) fn build(hashes: &[u64], bits_per_key: u32) -> Vec<u8> {
    let pages = pages_for(hashes.len(), bits_per_key);
    let mut bytes = vec![0; pages as usize * PAGE_BYTES];
    for page in bytes.chunks_exact_mut(PAGE_BYTES) {
        page[0] = BlockKind::Filter as u8;
        page[4..8].copy_from_slice(&((PAGE_BYTES - CRC_BYTES) as u32).to_le_bytes());
        page[12..16].copy_from_slice(&1_u32.to_le_bytes());
    }
    for &hash in hashes {
        let probe = Probe::new(hash, pages, probes_for(bits_per_key));
        let start = probe.page as usize * PAGE_BYTES;
        if let Some(page) = bytes.get_mut(start..start + PAGE_BYTES) {
            probe.set(page);
        }
    }
    bytes
}

const PRIMES: [u64; 5] = [
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
];

/// Returns the hash of a key. It is XXH64, which is published and implemented in every language:
/// bytes on a medium must be readable by other programs. (The hash of `base` is for tables in
/// memory, and may change.)
pub(crate) fn hash(key: &[u8], seed: u64) -> u64 {
    let [p1, p2, p3, p4, p5] = PRIMES;
    let mut rest = key;
    let mut hash = seed.wrapping_add(p5);
    if key.len() >= 32 {
        let mut lanes = [
            seed.wrapping_add(p1).wrapping_add(p2),
            seed.wrapping_add(p2),
            seed,
            seed.wrapping_sub(p1),
        ];
        let stripes = key.chunks_exact(32);
        rest = stripes.remainder();
        for stripe in stripes {
            for (at, lane) in lanes.iter_mut().enumerate() {
                *lane = round(*lane, u64_at(stripe, at * 8).unwrap_or_default());
            }
        }
        hash = [1, 7, 12, 18]
            .iter()
            .zip(lanes)
            .fold(0, |sum: u64, (turn, lane)| sum.wrapping_add(lane.rotate_left(*turn)));
        for lane in lanes {
            hash = (hash ^ round(0, lane)).wrapping_mul(p1).wrapping_add(p4);
        }
    }
    hash = hash.wrapping_add(key.len() as u64);
    while let Some(word) = u64_at(rest, 0) {
        hash = (hash ^ round(0, word)).rotate_left(27).wrapping_mul(p1).wrapping_add(p4);
        rest = &rest[8..];
    }
    if let Some(word) = u32_at(rest, 0) {
        hash = (hash ^ u64::from(word).wrapping_mul(p1)).rotate_left(23);
        hash = hash.wrapping_mul(p2).wrapping_add(p3);
        rest = &rest[4..];
    }
    for &byte in rest {
        hash = (hash ^ u64::from(byte).wrapping_mul(p5)).rotate_left(11).wrapping_mul(p1);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(p2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(p3);
    hash ^ (hash >> 32)
}

fn round(lane: u64, word: u64) -> u64 {
    let [p1, p2, ..] = PRIMES;
    lane.wrapping_add(word.wrapping_mul(p2)).rotate_left(31).wrapping_mul(p1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(hash(b"", 0), 0xEF46_DB37_51D8_E999);
        assert_eq!(hash(b"a", 0), 0xD24E_C4F1_A98C_6E5B);
        assert_eq!(hash(b"abc", 0), 0x44BC_2CF5_AD77_0999);
        assert_eq!(hash(b"Nobody inspects the spammish repetition", 0), 0xFBCE_A83C_8A37_8BF1);
    }

    #[test]
    fn all_that_was_added_may_be_there_and_little_else() {
        for (keys, bits_per_key, most) in
            [(3_000, 10, 0.012), (100_000, 10, 0.012), (50_000, 16, 0.002)]
        {
            let key = |number: u64| hash(&number.to_be_bytes(), 7);
            let hashes: Vec<u64> = (0..keys).map(key).collect();
            let filter = build(&hashes, bits_per_key);
            let may = |hash: u64| {
                let probe = Probe::new(
                    hash,
                    pages_for(hashes.len(), bits_per_key),
                    probes_for(bits_per_key),
                );
                probe.may_be_in(&filter[probe.page as usize * PAGE_BYTES..][..PAGE_BYTES])
            };
            assert!(hashes.iter().all(|&hash| may(hash)));
            let others = 500_000;
            let wrong = (keys..keys + others).filter(|&number| may(key(number))).count();
            let rate = wrong as f64 / others as f64;
            assert!(rate < most && rate > 0.0, "{rate} of {keys} keys at {bits_per_key} bits");
        }
    }
}
