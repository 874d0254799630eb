//! Popularity of keys: uniform, or Zipf's law with the popular keys scattered over the key space.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;

/// Zipf's exponent in YCSB and in most cache benchmarks.
pub const THETA_DEFAULT: f64 = 0.99;

/// Distribution of requests over keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Popularity {
    /// Every key is equally likely.
    Uniform,
    /// The key of rank `r` is requested in proportion to `1 / r^theta`.
    Zipf {
        /// Exponent, greater than 0.
        theta: f64,
    },
}

/// Error of a text that names no popularity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no popularity: write uniform, zipf or zipf:THETA with THETA over 0 (zipf:0.99)"
)]
pub struct ParsePopularityError {
    text: String,
}

impl FromStr for Popularity {
    type Err = ParsePopularityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParsePopularityError { text: text.to_owned() };
        match text.split_once(':') {
            None if text == "uniform" => Ok(Popularity::Uniform),
            None if text == "zipf" => Ok(Popularity::Zipf { theta: THETA_DEFAULT }),
            Some(("zipf", theta)) => {
                let theta: f64 = theta.parse().map_err(|_| error())?;
                if !theta.is_finite() || theta <= 0.0 {
                    return Err(error());
                }
                Ok(Popularity::Zipf { theta })
            }
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Popularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Popularity::Uniform => write!(f, "uniform"),
            Popularity::Zipf { theta } => write!(f, "zipf:{theta}"),
        }
    }
}

/// Draws key numbers in `0..keys`.
#[derive(Debug, Clone)]
pub struct KeyChooser {
    keys: u64,
    zipf: Option<Zipf>,
    scatter: Scatter,
}

impl KeyChooser {
    /// Creates a chooser among `keys` keys; 0 counts as 1.
    #[must_use]
    pub fn new(popularity: Popularity, keys: u64) -> Self {
        let keys = keys.max(1);
        let zipf = match popularity {
            Popularity::Uniform => None,
            Popularity::Zipf { theta } => Some(Zipf::new(keys, theta)),
        };
        KeyChooser { keys, zipf, scatter: Scatter::new(keys) }
    }

    /// Draws the number of the next key.
    #[inline]
    pub fn next(&self, rng: &mut Rng) -> u64 {
        match &self.zipf {
            None => rng.u64(0..self.keys),
            Some(zipf) => self.scatter.place(zipf.rank(rng) - 1),
        }
    }
}

/// Draws key numbers from a growing set of keys, in which the newest key is the most popular.
#[derive(Debug, Clone)]
pub struct LatestChooser {
    theta: f64,
    zipf: Zipf,
    keys: u64,
}

impl LatestChooser {
    /// Creates a chooser that follows Zipf's law with exponent `theta`.
    #[must_use]
    pub fn new(theta: f64) -> LatestChooser {
        LatestChooser { theta, zipf: Zipf::new(1, theta), keys: 1 }
    }

    /// Draws the number of the next key from `0..keys`; 0 keys count as 1.
    #[inline]
    pub fn next(&mut self, keys: u64, rng: &mut Rng) -> u64 {
        let keys = keys.max(1);
        // The distribution changes so slowly with the number of keys that an update can wait for
        // one per cent of growth.
        if keys < self.keys || keys > self.keys + self.keys / 100 {
            (self.zipf, self.keys) = (Zipf::new(keys, self.theta), keys);
        }
        keys - self.zipf.rank(rng)
    }
}

/// Draws exactly from Zipf's law over `1..=n` by rejection-inversion (Hörmann and Derflinger,
/// 1996). The method needs no table; with a million keys the generator causes no cache misses of
/// its own.
#[derive(Debug, Clone)]
struct Zipf {
    n: f64,
    theta: f64,
    area_first: f64,
    area_last: f64,
    shortcut: f64,
}

impl Zipf {
    fn new(n: u64, theta: f64) -> Self {
        let n = n as f64;
        let mut zipf = Zipf { n, theta, area_first: 0.0, area_last: 0.0, shortcut: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(n + 0.5);
        zipf.shortcut = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.weight(2.0));
        zipf
    }

    /// Returns the integral of the weight from 1 to `x`.
    fn area(&self, x: f64) -> f64 {
        let log_x = x.ln();
        expm1_over(log_x * (1.0 - self.theta)) * log_x
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.theta)).max(-1.0);
        (ln_1p_over(t) * area).exp()
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    #[inline]
    fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.area_last + rng.f64() * (self.area_first - self.area_last);
            let x = self.area_inverse(area);
            let rank = x.round().clamp(1.0, self.n);
            let near = rank - x <= self.shortcut;
            if near || area >= self.area(rank + 0.5) - self.weight(rank) {
                return rank as u64;
            }
        }
    }
}

/// Computes `(e^x - 1) / x`, also where `x` is nearly 0 (a theta of 1).
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// Computes `ln(1 + x) / x`, also where `x` is nearly 0.
fn ln_1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

/// Fixed permutation of `0..n` that keeps popular keys from being neighbours in a table filled in
/// order. It permutes the next power of two and repeats the step until the result is below `n`.
#[derive(Debug, Clone)]
struct Scatter {
    n: u64,
    mask: u64,
    shift: u32,
}

impl Scatter {
    fn new(n: u64) -> Self {
        let bits = n.next_power_of_two().trailing_zeros().max(1);
        Scatter { n, mask: u64::MAX >> (64 - bits), shift: bits.div_ceil(2) }
    }

    #[inline]
    fn place(&self, mut x: u64) -> u64 {
        loop {
            for multiplier in [0x9e37_79b9_7f4a_7c15_u64, 0xbf58_476d_1ce4_e5b9] {
                x = x.wrapping_mul(multiplier).wrapping_add(0x2545_f491) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.n {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws `draws` keys and returns the share of each, most frequent first.
    fn frequencies(popularity: Popularity, keys: u64, draws: u32) -> Vec<f64> {
        let chooser = KeyChooser::new(popularity, keys);
        let mut rng = Rng::with_seed(7);
        let mut counts = vec![0_u32; keys as usize];
        for _ in 0..draws {
            counts[chooser.next(&mut rng) as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts.into_iter().map(|count| f64::from(count) / f64::from(draws)).collect()
    }

    fn check_zipf(theta: f64) {
        const KEYS: u64 = 1000;
        let total: f64 = (1..=KEYS).map(|rank| (rank as f64).powf(-theta)).sum();
        let drawn = frequencies(Popularity::Zipf { theta }, KEYS, 2_000_000);
        // The expected counts of these ranks lie far enough apart that sorting cannot swap them.
        for rank in [1_usize, 2, 3, 5, 10] {
            let expected = (rank as f64).powf(-theta) / total;
            let relative = drawn[rank - 1] / expected;
            assert!((relative - 1.0).abs() < 0.03, "theta {theta} rank {rank}: {relative}");
        }
        let top_tenth: f64 = drawn[..100].iter().sum();
        let expected: f64 = (1..=100).map(|rank| f64::from(rank).powf(-theta)).sum::<f64>() / total;
        assert!((top_tenth - expected).abs() < 0.01, "theta {theta}: {top_tenth} {expected}");
    }

    #[test]
    fn zipf_draws_follow_the_law() {
        for theta in [0.5, 0.99, 1.0, 1.4] {
            check_zipf(theta);
        }
    }

    #[test]
    fn the_newest_is_the_most_popular_whatever_the_count() {
        let mut chooser = LatestChooser::new(THETA_DEFAULT);
        let mut rng = Rng::with_seed(5);
        for keys in [1000_u64, 5000, 2000] {
            let mut newest = [0_u32; 2];
            for _ in 0..200_000 {
                let number = chooser.next(keys, &mut rng);
                assert!(number < keys);
                for (rank, count) in newest.iter_mut().enumerate() {
                    *count += u32::from(number == keys - 1 - rank as u64);
                }
            }
            let total: f64 = (1..=keys).map(|rank| (rank as f64).powf(-THETA_DEFAULT)).sum();
            let first = f64::from(newest[0]) / 2e5 * total;
            let second = f64::from(newest[1]) / 2e5 * total * 2_f64.powf(THETA_DEFAULT);
            assert!((first - 1.0).abs() < 0.05 && (second - 1.0).abs() < 0.05, "{keys}: {first}");
        }
    }

    #[test]
    fn uniform_draws_are_even() {
        let drawn = frequencies(Popularity::Uniform, 100, 1_000_000);
        assert!(drawn[0] < 0.011 && drawn[99] > 0.009, "{} {}", drawn[0], drawn[99]);
    }

    #[test]
    fn scattering_is_one_to_one_and_parts_neighbours() {
        for n in [1, 2, 3, 1000, 1024, 65_537] {
            let scatter = Scatter::new(n);
            let mut seen = vec![false; n as usize];
            for x in 0..n {
                let place = scatter.place(x) as usize;
                assert!(!seen[place], "{n}: two land on {place}");
                seen[place] = true;
            }
        }
        let scatter = Scatter::new(1_000_000);
        let mut near = 0;
        for x in 0..100 {
            near += u32::from(scatter.place(x).abs_diff(scatter.place(x + 1)) < 1000);
        }
        assert!(near < 5, "{near} of 100 popular neighbours are still neighbours");
    }

    #[test]
    fn popularity_as_text() {
        for text in ["uniform", "zipf:0.99", "zipf:1.2"] {
            assert_eq!(text.parse::<Popularity>().unwrap().to_string(), text);
        }
        assert_eq!("zipf".parse(), Ok(Popularity::Zipf { theta: 0.99 }));
        for text in ["", "zipf:", "zipf:-1", "zipf:0", "zipf:nan", "latest"] {
            assert!(text.parse::<Popularity>().is_err(), "{text}");
        }
    }
}
