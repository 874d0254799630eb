//! The towers over the list's nodes: links in DRAM, each level over half of the one below.

use entresol_base::rng::Rng;

/// Most levels of a tower: enough for a list longer than any memory.
const LEVELS: usize = 25;
const NONE: u32 = u32::MAX;
/// The tower before all others, as high as any.
const HEAD: u32 = 0;

/// Towers in the order of their keys, linked at each of their levels.
#[derive(Debug)]
pub(super) struct Towers {
    towers: Vec<Tower>,
    /// Towers that are not in use.
    free: Vec<u32>,
    /// Number of levels in use.
    height: usize,
    links: u64,
    heights: Rng,
    /// Last tower at each level, while the list is walked from its beginning.
    last: [u32; LEVELS],
}

#[derive(Debug, Clone)]
struct Tower {
    key: u64,
    /// Node under the tower.
    node: u64,
    /// Next tower at each level.
    next: Vec<u32>,
}

impl Default for Towers {
    fn default() -> Towers {
        Towers::new(0)
    }
}

impl Towers {
    /// Makes the one tower that stands before all nodes.
    pub(super) fn new(head: u64) -> Towers {
        let head = Tower { key: 0, node: head, next: vec![NONE; LEVELS] };
        Towers {
            towers: vec![head],
            free: Vec::new(),
            height: 0,
            links: LEVELS as u64,
            heights: Rng::new(0),
            last: [HEAD; LEVELS],
        }
    }

    /// Returns the node of the last tower at this level before a key.
    pub(super) fn before(&self, key: u64, level: usize) -> u64 {
        self.towers[self.find(level, |found| found < key) as usize].node
    }

    /// Returns the node of the last tower at this level whose key is this one or before it.
    pub(super) fn not_after(&self, key: u64, level: usize) -> u64 {
        self.towers[self.find(level, |found| found <= key) as usize].node
    }

    fn find(&self, level: usize, is_before: impl Fn(u64) -> bool) -> u32 {
        let levels = (level..self.height).rev();
        levels.fold(HEAD, |from, level| self.last_at(from, level, &is_before))
    }

    fn last_at(&self, from: u32, level: usize, is_before: impl Fn(u64) -> bool) -> u32 {
        let mut at = from;
        loop {
            let next = self.towers[at as usize].next[level];
            if next == NONE || !is_before(self.towers[next as usize].key) {
                return at;
            }
            at = next;
        }
    }

    /// Returns the last tower before a key at each level.
    fn path(&self, key: u64) -> [u32; LEVELS] {
        let mut path = [HEAD; LEVELS];
        let mut at = HEAD;
        for level in (0..self.height).rev() {
            at = self.last_at(at, level, |found| found < key);
            path[level] = at;
        }
        path
    }

    /// Enters a new node, which may get a tower.
    pub(super) fn add(&mut self, key: u64, node: u64) {
        let levels = self.draw();
        if levels > 0 {
            let path = self.path(key);
            self.link(key, node, &path[..levels]);
        }
    }

    /// Enters a new node behind all others.
    pub(super) fn append(&mut self, key: u64, node: u64) {
        let levels = self.draw();
        if levels > 0 {
            let path = self.last;
            let tower = self.link(key, node, &path[..levels]);
            self.last[..levels].fill(tower);
        }
    }

    /// Draws the height of a node's tower: 0 for half of them, and so on.
    fn draw(&mut self) -> usize {
        (self.heights.next_u64().trailing_ones() as usize).min(LEVELS)
    }

    fn link(&mut self, key: u64, node: u64, path: &[u32]) -> u32 {
        let number = self.free.pop().unwrap_or(self.towers.len() as u32);
        let mut next = Vec::with_capacity(path.len());
        for (level, &before) in path.iter().enumerate() {
            debug_assert!(
                before == HEAD || self.towers[before as usize].key < key,
                "{key} is linked behind a greater key"
            );
            let link = &mut self.towers[before as usize].next[level];
            next.push(std::mem::replace(link, number));
        }
        self.links += next.len() as u64;
        self.height = self.height.max(next.len());
        let tower = Tower { key, node, next };
        match self.towers.get_mut(number as usize) {
            Some(free) => *free = tower,
            None => self.towers.push(tower),
        }
        number
    }

    /// Removes a node's tower, if it has one.
    pub(super) fn remove(&mut self, key: u64) {
        let path = self.path(key);
        let number = self.towers[path[0] as usize].next[0];
        if number == NONE || self.towers[number as usize].key != key {
            return;
        }
        let next = std::mem::take(&mut self.towers[number as usize].next);
        for (level, (&after, &before)) in next.iter().zip(&path).enumerate() {
            debug_assert!(
                self.towers[before as usize].next[level] == number,
                "{key} is not linked"
            );
            self.towers[before as usize].next[level] = after;
        }
        self.links -= next.len() as u64;
        self.free.push(number);
    }

    /// Returns the number of levels in use.
    pub(super) fn height(&self) -> u32 {
        self.height as u32
    }

    /// Returns the bytes in DRAM, without the allocator's overhead.
    pub(super) fn bytes(&self) -> u64 {
        (self.towers.capacity() * size_of::<Tower>() + 4 * self.free.capacity()) as u64
            + 4 * self.links
    }
}
