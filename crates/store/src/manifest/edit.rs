//! Edits: the parts in which a manifest differs from the one before it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::{KvsState, LogState, Manifest, VolumeState};

/// Parts of a manifest that have changed; others are left out.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Edit {
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_ahead: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<LogState>,
    #[serde(skip_serializing_if = "Changes::is_empty")]
    segments: Changes<u64, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_run: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_value_segment: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_kvs: Option<u32>,
    #[serde(skip_serializing_if = "Changes::is_empty")]
    kvs: Changes<u32, KvsState>,
    #[serde(rename = "places", skip_serializing_if = "Changes::is_empty")]
    volumes: Changes<u32, VolumeState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_place: Option<u32>,
}

/// Changes of a list whose members have numbers.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes<N, T> {
    /// Numbers of members that are gone.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    gone: Vec<N>,
    /// Members that take the place of those with their numbers, or come behind all others.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    put: Vec<T>,
}

impl Edit {
    /// Returns the edit that leads from one manifest to the next, which must be of one store.
    /// Returns `None` if no edit does, as when a list has another order.
    pub(super) fn between(before: &Manifest, next: &Manifest) -> Option<Edit> {
        let edit = Edit {
            seconds: changed(&before.seconds, &next.seconds),
            seconds_ahead: changed(&before.seconds_ahead, &next.seconds_ahead),
            log: changed(&before.log, &next.log),
            segments: Changes::between(&before.segments, &next.segments, |number| *number),
            next_run: changed(&before.next_run, &next.next_run),
            next_value_segment: changed(&before.next_value_segment, &next.next_value_segment),
            next_kvs: changed(&before.next_kvs, &next.next_kvs),
            kvs: Changes::between(&before.kvs, &next.kvs, |kvs| kvs.id),
            volumes: Changes::between(&before.volumes, &next.volumes, |place| place.place),
            next_place: changed(&before.next_place, &next.next_place),
        };
        let mut made = before.clone();
        edit.apply(&mut made).ok()?;
        (made == *next).then_some(edit)
    }

    /// Changes a manifest by this edit.
    ///
    /// # Errors
    /// Fails if the edit was made for another manifest.
    pub(super) fn apply(&self, manifest: &mut Manifest) -> Result<(), String> {
        set(&mut manifest.seconds, self.seconds.as_ref());
        set(&mut manifest.seconds_ahead, self.seconds_ahead.as_ref());
        set(&mut manifest.log, self.log.as_ref());
        self.segments.apply(&mut manifest.segments, "segment", |number| *number)?;
        set(&mut manifest.next_run, self.next_run.as_ref());
        set(&mut manifest.next_value_segment, self.next_value_segment.as_ref());
        set(&mut manifest.next_kvs, self.next_kvs.as_ref());
        self.kvs.apply(&mut manifest.kvs, "Kvs", |kvs| kvs.id)?;
        self.volumes.apply(&mut manifest.volumes, "volume", |place| place.place)?;
        set(&mut manifest.next_place, self.next_place.as_ref());
        Ok(())
    }
}

fn changed<T: Clone + PartialEq>(before: &T, next: &T) -> Option<T> {
    (before != next).then(|| next.clone())
}

fn set<T: Clone>(part: &mut T, changed: Option<&T>) {
    if let Some(changed) = changed {
        part.clone_from(changed);
    }
}

impl<N: Copy + Ord + Display, T: Clone + PartialEq> Changes<N, T> {
    fn between(before: &[T], next: &[T], number: impl Fn(&T) -> N) -> Changes<N, T> {
        let old: BTreeMap<N, &T> = before.iter().map(|it| (number(it), it)).collect();
        let new: BTreeSet<N> = next.iter().map(&number).collect();
        let is_new = |it: &&T| old.get(&number(it)).is_none_or(|old| old != it);
        Changes {
            gone: old.keys().filter(|number| !new.contains(number)).copied().collect(),
            put: next.iter().filter(is_new).cloned().collect(),
        }
    }

    fn apply(&self, list: &mut Vec<T>, what: &str, number: impl Fn(&T) -> N) -> Result<(), String> {
        let gone: BTreeSet<N> = self.gone.iter().copied().collect();
        let before = list.len();
        list.retain(|it| !gone.contains(&number(it)));
        if before - list.len() != self.gone.len() {
            let gone: Vec<String> = self.gone.iter().map(N::to_string).collect();
            return Err(format!("it removes a {what} that is not there, of {}", gone.join(", ")));
        }
        let places: BTreeMap<N, usize> =
            list.iter().enumerate().map(|(place, it)| (number(it), place)).collect();
        for it in &self.put {
            match places.get(&number(it)).and_then(|&place| list.get_mut(place)) {
                Some(old) => old.clone_from(it),
                None => list.push(it.clone()),
            }
        }
        Ok(())
    }
}

impl<N, T> Default for Changes<N, T> {
    fn default() -> Changes<N, T> {
        Changes { gone: Vec::new(), put: Vec::new() }
    }
}

impl<N, T> Changes<N, T> {
    fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.put.is_empty()
    }
}
