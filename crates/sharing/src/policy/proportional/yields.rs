//! Yield of a medium: the part of its time that its busy tenants really get.
//!
//! A medium on which reads and writes mix does less than their costs promise. The tenant whose
//! requests wait longest would bear the whole loss, since the others use all that they are given;
//! so each busy tenant is given its share of what the medium does.

use std::collections::{BTreeMap, BTreeSet};

use super::{Claim, Ended, MediumId, Place, Proportional, TenantId, Tick};
use crate::settings::Donation;

/// Least yield to go by. A tenant that only looks busy takes no more than the rest from others.
const LEAST: f64 = 0.98;
/// Rise above the yield seen, lest shares that are too low hide that the medium does more.
const RISE: f64 = 0.001;

#[derive(Debug)]
pub(super) struct Yield {
    part: f64,
    busy: BTreeSet<TenantId>,
}

impl Proportional {
    /// Part of its share that a tenant gets.
    pub(super) fn part_of(&self, (tenant, medium): Place) -> f64 {
        match self.yields.get(&medium) {
            Some(known) if known.busy.contains(&tenant) => known.part,
            _ => 1.0,
        }
    }

    /// Learns the yield from a round that the same busy tenants spent on the medium. With epochs,
    /// and where nothing is lent adaptively, shares are those of the paper.
    pub(super) fn learn_yield(
        &mut self,
        tick: &Tick<'_>,
        medium: MediumId,
        claims: &[Claim],
        ended: &Ended,
    ) {
        let claims = tick.tenants.keys().zip(claims).filter(|(_, claim)| claim.wanted >= 1.0);
        let busy: BTreeSet<TenantId> = claims.map(|(&tenant, _)| tenant).collect();
        let as_printed = self.epochs.is_some() || self.settings.donation != Donation::Adaptive;
        if as_printed || busy.len() < 2 {
            self.yields.remove(&medium);
            return;
        }
        // A round that an owner's return has cut short shows too little.
        let whole = self.windows.elapsed >= self.settings.period;
        let known = self.yields.get(&medium).filter(|known| known.busy == busy);
        let part = match known {
            Some(_) if whole => {
                let sum = |of: &BTreeMap<Place, f64>| -> f64 {
                    busy.iter().filter_map(|&tenant| of.get(&(tenant, medium))).sum()
                };
                (sum(&ended.used) / sum(&self.assigned) + RISE).clamp(LEAST, 1.0)
            }
            Some(known) => known.part,
            None => 1.0,
        };
        self.yields.insert(medium, Yield { part, busy });
    }
}
