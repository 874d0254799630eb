//! Selection of the states of all media that are tested: all if they are few, else the extremes,
//! each unit alone and missing, cuts in the order of changes, cuts within units, and samples. If
//! units or moments exceed their share, different ones are chosen every time.

use entresol_base::rng::Rng;

/// Limits on the number of tested states.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// Maximum number of states that are all tested.
    pub(super) exhaustive_max: u64,
    /// Maximum number of tested states if there are more.
    pub(super) images_max: u64,
}

/// Iterator over the states to test. Some may come twice.
#[derive(Debug)]
pub(super) struct Choices {
    units: Vec<u16>,
    /// Units that are varied.
    varied: Vec<usize>,
    current: Vec<u16>,
    /// Moments of the changes.
    moments: Vec<u64>,
    budget: Budget,
    stage: Stage,
    /// Number of states returned so far.
    given: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Everything,
    /// Counts through all states.
    Exhaustive,
    /// One unit differs from all others.
    Extremes {
        index: usize,
    },
    /// Everything before a moment.
    Cuts {
        index: usize,
    },
    /// One unit in an intermediate state.
    Inner {
        index: usize,
    },
    Samples,
    Over,
}

impl Choices {
    pub(super) fn new(units: Vec<u16>, budget: Budget) -> Choices {
        let varied = (0..units.len()).collect();
        let current = vec![0; units.len()];
        let (moments, stage) = (Vec::new(), Stage::Begin);
        let mut choices = Choices { units, varied, current, moments, budget, stage, given: 0 };
        if choices.are_few() {
            choices.stage = Stage::Exhaustive;
        }
        choices
    }

    /// Adds the moments of the changes, in any order.
    pub(super) fn know(&mut self, mut moments: Vec<u64>) {
        moments.sort_unstable();
        moments.dedup();
        self.moments = moments;
    }

    /// Returns true if every state is tested.
    pub(super) fn is_exhaustive(&self) -> bool {
        self.stage == Stage::Exhaustive
    }

    /// Returns true once the two extremes were tested, when it is known which units matter.
    pub(super) fn may_restrict(&self) -> bool {
        self.given == 2 && self.stage == Stage::Extremes { index: 0 }
    }

    /// Varies only some units from now on.
    pub(super) fn restrict(&mut self, matters: &[bool]) {
        self.varied.retain(|&unit| matters[unit]);
        if self.are_few() {
            self.current.fill(0);
            self.stage = Stage::Exhaustive;
        }
    }

    fn are_few(&self) -> bool {
        let states = self.varied.iter().map(|&unit| u64::from(self.units[unit]) + 1);
        let product = states.fold(1_u64, |product, states| product.saturating_mul(states));
        product <= self.budget.exhaustive_max
    }

    /// Returns the next state: a choice for each unit. `cut` moves choices from the newest state
    /// back to that at a moment.
    pub(super) fn next(&mut self, rng: &mut Rng, cut: impl Fn(u64, &mut [u16])) -> Option<&[u16]> {
        self.given += 1;
        loop {
            let found = match self.stage {
                Stage::Begin => {
                    self.stage = Stage::Everything;
                    true
                }
                Stage::Everything => {
                    self.current.copy_from_slice(&self.units);
                    self.stage = Stage::Extremes { index: 0 };
                    true
                }
                Stage::Exhaustive => {
                    if self.given > 1 && !self.count_on() {
                        self.stage = Stage::Over;
                    }
                    true
                }
                Stage::Extremes { index } => self.extreme(index, rng),
                Stage::Cuts { index } => self.cut(index, rng, &cut),
                Stage::Inner { index } => self.inner(index, rng),
                // Some will repeat others.
                Stage::Samples if self.given > 2 * self.budget.images_max => {
                    self.stage = Stage::Over;
                    false
                }
                Stage::Samples => {
                    self.sample(rng);
                    true
                }
                Stage::Over => return None,
            };
            match self.stage {
                Stage::Over => return None,
                _ if found => return Some(&self.current),
                _ => {}
            }
        }
    }

    /// Advances to the next of all states, like a counter; false after the last one.
    fn count_on(&mut self) -> bool {
        for &unit in &self.varied {
            if self.current[unit] < self.units[unit] {
                self.current[unit] += 1;
                return true;
            }
            self.current[unit] = 0;
        }
        false
    }

    /// Returns the extremes in turn, each unit alone and each missing, for half of the budget.
    fn extreme(&mut self, index: usize, rng: &mut Rng) -> bool {
        let count = self.varied.len();
        let share = (self.budget.images_max / 4) as usize;
        if index == 0 && count > share {
            // They do not all fit into the budget, so different ones are chosen every time.
            rng.shuffle(&mut self.varied);
        }
        if index / 2 >= count.min(share) {
            self.stage = Stage::Cuts { index: 0 };
            return false;
        }
        self.stage = Stage::Extremes { index: index + 1 };
        let unit = self.varied[index / 2];
        if index.is_multiple_of(2) {
            self.current.fill(0);
            self.current[unit] = self.units[unit];
        } else {
            self.current.copy_from_slice(&self.units);
            self.current[unit] = 0;
        }
        true
    }

    /// Returns everything done before some moment, for an eighth of the budget.
    fn cut(&mut self, index: usize, rng: &mut Rng, cut: impl Fn(u64, &mut [u16])) -> bool {
        let share = (self.budget.images_max / 8) as usize;
        if index == 0 && self.moments.len() > share {
            rng.shuffle(&mut self.moments);
        }
        let Some(&moment) = self.moments.get(index).filter(|_| index < share) else {
            self.stage = Stage::Inner { index: 0 };
            return false;
        };
        self.stage = Stage::Cuts { index: index + 1 };
        self.current.copy_from_slice(&self.units);
        cut(moment, &mut self.current);
        true
    }

    /// Returns an intermediate state of a unit, with the others old or new, for a quarter of the
    /// budget.
    fn inner(&mut self, index: usize, rng: &mut Rng) -> bool {
        let share = (self.budget.images_max / 4) as usize;
        let Some(&unit) = self.varied.get(index).filter(|_| index < share) else {
            self.stage = if self.varied.is_empty() { Stage::Over } else { Stage::Samples };
            return false;
        };
        self.stage = Stage::Inner { index: index + 1 };
        if self.units[unit] < 2 {
            return false;
        }
        if rng.one_in(2) {
            self.current.fill(0);
        } else {
            self.current.copy_from_slice(&self.units);
        }
        self.current[unit] = rng.range(1..self.units[unit].into()) as u16;
        true
    }

    fn sample(&mut self, rng: &mut Rng) {
        let others = rng.one_in(2);
        for (choice, &states) in self.current.iter_mut().zip(&self.units) {
            *choice = if others { states } else { 0 };
        }
        for &unit in &self.varied {
            self.current[unit] = match rng.below(3) {
                0 => 0,
                1 => self.units[unit],
                _ => rng.below(u64::from(self.units[unit]) + 1) as u16,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const BUDGET: Budget = Budget { exhaustive_max: 64, images_max: 64 };

    fn all(units: &[u16], matters: Option<&[bool]>) -> Vec<Vec<u16>> {
        let mut choices = Choices::new(units.to_vec(), BUDGET);
        let mut rng = Rng::new(1);
        let mut found = Vec::new();
        loop {
            if let (true, Some(matters)) = (choices.may_restrict(), matters) {
                choices.restrict(matters);
            }
            match choices.next(&mut rng, |_, _| {}) {
                Some(choice) => found.push(choice.to_vec()),
                None => return found,
            }
        }
    }

    #[test]
    fn few_states_are_all_looked_at_once() {
        for (units, count) in [(&[][..], 1), (&[3], 4), (&[1, 3, 7], 64), (&[1; 6], 64)] {
            let found = all(units, None);
            assert_eq!(found.len(), count, "{units:?}");
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), count, "{units:?}");
        }
    }

    #[test]
    fn of_many_the_extremes_come_first_and_every_unit_is_alone_and_missing() {
        let units = [1, 2, 9, 1, 1, 1, 30];
        let found = all(&units, None);
        assert_eq!((&found[0][..], &found[1][..]), (&[0; 7][..], &units[..]));
        for unit in 0..units.len() {
            let (mut alone, mut missing) = (vec![0; 7], units.to_vec());
            (alone[unit], missing[unit]) = (units[unit], 0);
            assert!(found.contains(&alone) && found.contains(&missing), "{unit}");
        }
        let distinct: BTreeSet<_> = found.iter().collect();
        assert!(distinct.len() >= 64 && found.len() <= 128, "{} {}", distinct.len(), found.len());
        assert!(found.iter().any(|choice| (1..30).contains(&choice[6])), "cuts within a unit");
    }

    #[test]
    fn over_many_points_every_unit_is_alone_and_missing_and_every_moment_has_its_turn() {
        let units = [1; 200];
        let (mut alone, mut missing, mut cuts) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for seed in 0..100 {
            let mut choices = Choices::new(units.to_vec(), BUDGET);
            choices.know((0..200).rev().collect());
            let mut rng = Rng::new(seed);
            let before = cuts.len();
            let cut = |moment: u64, choices: &mut [u16]| choices[moment as usize..].fill(0);
            while let Some(choice) = choices.next(&mut rng, cut) {
                let new = choice.iter().filter(|&&choice| choice == 1).count();
                let first_old = choice.iter().position(|&choice| choice == 0);
                match new {
                    1 => drop(alone.insert(choice.iter().position(|&choice| choice == 1))),
                    199 => drop(missing.insert(first_old)),
                    _ => {}
                }
                if first_old == Some(new) {
                    cuts.insert(new);
                }
            }
            assert!(seed > 0 || cuts.len() - before >= 8, "{}", cuts.len());
        }
        assert_eq!((alone.len(), missing.len()), (200, 200));
        assert!(cuts.len() > 190, "{}", cuts.len());
    }

    #[test]
    fn what_nobody_looks_at_is_not_varied() {
        let mut matters = [false; 40];
        (matters[7], matters[30]) = (true, true);
        let found = all(&[1; 40], Some(&matters));
        let seen: BTreeSet<_> = found.iter().map(|choice| (choice[7], choice[30])).collect();
        // Nothing and everything, and then all but nothing.
        assert_eq!((found.len(), seen.len()), (2 + 3, 4));
        assert_eq!(all(&[1; 40], Some(&[false; 40])).len(), 2);
    }
}
