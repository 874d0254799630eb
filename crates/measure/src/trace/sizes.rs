//! Value sizes drawn from a published distribution, in the format of `CacheLib`'s `*-sizes.json`.

use std::path::Path;

use entresol_base::hash::KeyHasher;
use entresol_media::files;
use serde::Deserialize;

use crate::error::BenchError;

/// Value sizes and their probabilities. A key always draws the same size; a trace without sizes can
/// therefore be replayed with stable ones.
#[derive(Debug, Clone)]
pub struct SizeDistribution {
    sizes: Vec<u32>,
    weight_up_to: Vec<u64>,
    hasher: KeyHasher,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SizesFile {
    val_size_range: Vec<f64>,
    val_size_range_probability: Vec<f64>,
}

impl SizeDistribution {
    /// Reads `valSizeRange` and `valSizeRangeProbability` from a JSON file.
    ///
    /// # Errors
    /// Fails if the file cannot be read or holds no distribution.
    pub fn load(path: &Path, seed: u64) -> Result<SizeDistribution, BenchError> {
        let text = files::read_to_string(path)
            .map_err(|source| BenchError::File { path: path.to_owned(), source })?;
        SizeDistribution::parse(&text, seed)
            .map_err(|problem| BenchError::Format { path: path.to_owned(), problem })
    }

    fn parse(text: &str, seed: u64) -> Result<SizeDistribution, String> {
        let file: SizesFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let (sizes, weights) = (file.val_size_range, file.val_size_range_probability);
        if sizes.is_empty() || sizes.len() != weights.len() {
            let (sizes, weights) = (sizes.len(), weights.len());
            return Err(format!("{sizes} sizes and {weights} weights: equal numbers are wanted"));
        }
        if let Some(odd) = sizes.iter().chain(&weights).find(|x| !x.is_finite() || **x < 0.0) {
            return Err(format!("{odd} is neither a size nor a weight"));
        }
        // Weights are counts in CacheLib's files, but probabilities are allowed as well.
        let unit = 1e12 / weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let mut total = 0;
        let weight_up_to = weights
            .iter()
            .map(|weight| {
                total += (weight * unit) as u64;
                total
            })
            .collect();
        if total == 0 {
            return Err("all weights are 0".to_owned());
        }
        let sizes = sizes.iter().map(|&size| size as u32).collect();
        Ok(SizeDistribution { sizes, weight_up_to, hasher: KeyHasher::seeded(seed) })
    }

    /// Returns the size of the value of `key`.
    #[must_use]
    pub fn of_key(&self, key: &[u8]) -> u32 {
        let total = self.weight_up_to.last().copied().unwrap_or(1);
        let draw = (u128::from(self.hasher.hash(key)) * u128::from(total)) >> 64;
        let at = self.weight_up_to.partition_point(|&up_to| u128::from(up_to) <= draw);
        self.sizes.get(at).or(self.sizes.last()).copied().unwrap_or(0)
    }

    /// Returns the largest size of the distribution.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        r#"{"valSizeRange":[31,63,1000,5],"valSizeRangeProbability":[7.0,2,1,0],"oneHits":0.1}"#;

    #[test]
    fn sizes_come_in_proportion_and_stay_with_their_key() {
        let sizes = SizeDistribution::parse(FILE, 1).unwrap();
        let mut counts = [0_u32; 3];
        for number in 0..100_000_u32 {
            let key = number.to_le_bytes();
            let size = sizes.of_key(&key);
            assert_eq!(size, sizes.of_key(&key));
            let at = [31, 63, 1000].iter().position(|&known| known == size);
            counts[at.expect("a size of weight 0 was drawn")] += 1;
        }
        for (count, expected) in counts.iter().zip([70_000, 20_000, 10_000]) {
            assert!(count.abs_diff(expected) < 700, "{counts:?}");
        }
        assert_eq!(sizes.largest(), 1000);
    }

    #[test]
    fn files_without_a_distribution_are_refused() {
        for text in [
            "{}",
            r#"{"valSizeRange":[1],"valSizeRangeProbability":[]}"#,
            r#"{"valSizeRange":[],"valSizeRangeProbability":[]}"#,
            r#"{"valSizeRange":[1],"valSizeRangeProbability":[0]}"#,
            r#"{"valSizeRange":[-1],"valSizeRangeProbability":[1]}"#,
        ] {
            assert!(SizeDistribution::parse(text, 1).is_err(), "{text}");
        }
    }
}
