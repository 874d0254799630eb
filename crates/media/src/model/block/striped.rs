//! Several equal drives used as one: data lies on them in stripes, in turn.

use entresol_base::Picos;

use super::{BlockModel, BlockParameters};
use crate::access::Access;

/// Arrangement of striped drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripes {
    /// Number of drives; 0 means one.
    pub drives: u32,
    /// Bytes on one drive before the next has its turn; 0 means 1.
    pub bytes: u32,
}

impl Default for Stripes {
    /// One drive, and the default stripe of Linux' volume manager.
    fn default() -> Stripes {
        Stripes { drives: 1, bytes: 64 << 10 }
    }
}

/// Striped drives, each with its own controller, interface and media. The part of a request on one
/// of them is contiguous there, and is one request.
#[derive(Debug, Clone)]
pub struct StripedModel {
    drives: Vec<BlockModel>,
    stripe: u64,
}

impl StripedModel {
    /// Makes idle drives that have been written to their steady state.
    #[must_use]
    pub fn new(parameters: &BlockParameters, stripes: Stripes) -> StripedModel {
        let drive = BlockModel::new(parameters);
        let drives = vec![drive; stripes.drives.max(1) as usize];
        StripedModel { drives, stripe: u64::from(stripes.bytes.max(1)) }
    }

    /// Submits a request at `at`, not before the previous one, and returns its completion time:
    /// that of the last drive's part.
    pub fn submit(&mut self, at: Picos, access: Access, offset: u64, bytes: u32) -> Picos {
        if let [drive] = self.drives.as_mut_slice() {
            return drive.submit(at, access, offset, bytes);
        }
        let (stripe, count) = (self.stripe, self.drives.len() as u64);
        let end = offset + u64::from(bytes.max(1));
        let mut done = at;
        for (number, drive) in (0..count).zip(&mut self.drives) {
            // Number of this drive's bytes before a position.
            let before = |position: u64| {
                let round = position % (stripe * count);
                position / (stripe * count) * stripe
                    + round.saturating_sub(number * stripe).min(stripe)
            };
            let (first, last) = (before(offset), before(end));
            if first < last {
                let bytes = u32::try_from(last - first).unwrap_or(u32::MAX);
                done = done.max(drive.submit(at, access, first, bytes));
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelName;

    const STRIPE: u64 = 64 << 10;

    fn qlc(drives: u32) -> StripedModel {
        let parameters = BlockParameters::of(ModelName::Qlc5210).expect("a drive");
        StripedModel::new(&parameters, Stripes { drives, ..Stripes::default() })
    }

    /// Returns the bytes in a second that 128 MiB of such accesses reach, in ascending order.
    fn rate(drives: u32, access: Access) -> f64 {
        let (mut model, piece) = (qlc(drives), 256 << 10);
        let count = (128 << 20) / piece;
        let done = (0..count).map(|number| {
            model.submit(Picos(0), access, u64::from(number) * u64::from(piece), piece)
        });
        f64::from(count) * f64::from(piece) / done.max().expect("some").as_secs_f64()
    }

    #[test]
    fn one_drive_is_the_drive_itself() {
        let (mut one, mut drive) = (qlc(0), BlockModel::of(ModelName::Qlc5210).expect("a drive"));
        for number in 0..100_u64 {
            let (at, offset) = (Picos::from_micros(number * 50), number * 7919 * 4096);
            let access = if number % 3 == 0 { Access::Write } else { Access::Read };
            assert_eq!(
                one.submit(at, access, offset, 8192),
                drive.submit(at, access, offset, 8192)
            );
        }
    }

    #[test]
    fn four_drives_move_four_times_as_much() {
        for access in [Access::Read, Access::Write] {
            let ratio = rate(4, access) / rate(1, access);
            assert!((3.6..4.4).contains(&ratio), "{access:?}: {ratio}");
        }
    }

    #[test]
    fn a_small_request_is_one_drives_alone() {
        let mut four = qlc(4);
        // The second drive's stripe is busy; the third's is not.
        let busy = (0..64).map(|_| four.submit(Picos(0), Access::Read, STRIPE, 65_536)).max();
        let (mut alone, mut idle) = (qlc(1), qlc(4));
        let expected = alone.submit(Picos(0), Access::Read, 0, 4096);
        assert_eq!(four.submit(Picos(0), Access::Read, 2 * STRIPE, 4096), expected);
        assert_eq!(idle.submit(Picos(0), Access::Read, 5 * STRIPE + 4096, 4096), expected);
        assert!(busy > Some(expected));
    }
}
