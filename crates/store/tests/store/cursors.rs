//! Cursors that are positioned and updated during writes, compared with a map.

use std::collections::BTreeMap;

use crate::common::Place;
use entresol_base::rng::Rng;
use entresol_store::{Cursor, CursorOptions, Kvs, KvsOptions};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Expected contents of a cursor: those at its creation or last update, from a key on, or behind
/// the key shown last.
struct Model {
    options: CursorOptions,
    map: Map,
    from: Option<(Vec<u8>, bool)>,
}

impl Model {
    fn next(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let CursorOptions { backward, prefix, .. } = &self.options;
        let is_wanted = |key: &&Vec<u8>| {
            let is_behind = self.from.as_ref().is_none_or(|(from, included)| {
                let is_beyond = if *backward { *key < from } else { *key > from };
                is_beyond || (*included && *key == from)
            });
            is_behind && key.starts_with(prefix)
        };
        let mut wanted = self.map.keys().filter(is_wanted);
        let key = if *backward { wanted.next_back() } else { wanted.next() }?.clone();
        self.from = Some((key.clone(), false));
        Some((key.clone(), self.map[&key].clone()))
    }
}

fn key(rng: &mut Rng) -> Vec<u8> {
    let len = 1 + rng.below(3);
    (0..len).map(|_| b"abc"[rng.below(3) as usize]).collect()
}

fn write(kvs: &Kvs, map: &mut Map, rng: &mut Rng) {
    let key = key(rng);
    if rng.below(3) == 0 {
        kvs.delete(&key).expect("room");
        map.remove(&key);
    } else {
        // Some values lie apart from their keys.
        let value = vec![rng.below(256) as u8; [3, 700][rng.below(2) as usize]];
        kvs.put(&key, &value).expect("room");
        map.insert(key, value);
    }
}

fn made(kvs: &Kvs, map: &Map, rng: &mut Rng) -> (Cursor, Model) {
    let prefix = if rng.below(2) == 0 { Vec::new() } else { key(rng) };
    let options = CursorOptions { backward: rng.below(2) == 0, prefix, ..CursorOptions::default() };
    let cursor = kvs.cursor(options.clone()).expect("open");
    (cursor, Model { options, map: map.clone(), from: None })
}

#[test]
fn a_cursor_goes_on_from_where_it_was_set_or_behind_what_it_showed_last() {
    for seed in 0..10 {
        let place = Place::new();
        let store = place.create();
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("new");
        let (mut rng, mut map) = (Rng::new(seed), Map::new());
        let (mut cursor, mut model) = made(&kvs, &map, &mut rng);
        for step in 0..1500 {
            match rng.below(100) {
                0 => store.compact().expect("room"),
                1..6 => (cursor, model) = made(&kvs, &map, &mut rng),
                6..12 => {
                    let key = key(&mut rng);
                    cursor.seek(&key);
                    model.from = Some((key, true));
                }
                12..30 => {
                    cursor.update().expect("open");
                    model.map.clone_from(&map);
                }
                30..50 => write(&kvs, &mut map, &mut rng),
                _ => {
                    let shown = cursor.next().expect("readable");
                    let shown = shown.map(|(key, value)| (key.to_vec(), value.to_vec()));
                    assert!(shown == model.next(), "seed {seed}, step {step}");
                }
            }
        }
    }
}
