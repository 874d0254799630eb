//! Files and directories of a simulated disk, and their states after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::entries::{Change, Entries, Names};
use super::file::File;

/// Number of a file or directory.
pub(super) type NodeId = u64;

/// Node of the root directory.
pub(super) const ROOT: NodeId = 0;

/// A file or a directory.
#[derive(Debug, Clone)]
pub(super) enum Node {
    File(File),
    Directory(Names),
}

/// Everything on a disk.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    /// Shared with images until one of the two changes them.
    nodes: BTreeMap<NodeId, Arc<Node>>,
    next: NodeId,
    /// Open files, which are locked against other users.
    open: BTreeSet<NodeId>,
    /// Locked directories.
    locked: BTreeSet<NodeId>,
    /// Files without a name that are still open, or that a crash might bring back.
    nameless: BTreeSet<NodeId>,
    /// Position on the device for the next file.
    device_end: u64,
    pub(super) sector: u64,
    /// Bytes that files take.
    pub(super) used: u64,
}

/// Granularity of the positions of files on the device.
const DEVICE_STEP: u64 = 1 << 20;

impl Tree {
    /// Makes a disk with an empty directory.
    pub(super) fn new(sector: u64) -> Tree {
        Tree {
            nodes: BTreeMap::from([(ROOT, Arc::new(Node::Directory(Names::default())))]),
            next: ROOT + 1,
            open: BTreeSet::new(),
            locked: BTreeSet::new(),
            nameless: BTreeSet::new(),
            device_end: 0,
            sector,
            used: 0,
        }
    }

    pub(super) fn names(&self, node: NodeId) -> Option<&Names> {
        match self.nodes.get(&node)?.as_ref() {
            Node::Directory(names) => Some(names),
            Node::File(_) => None,
        }
    }

    pub(super) fn names_mut(&mut self, node: NodeId) -> Option<&mut Names> {
        match Arc::make_mut(self.nodes.get_mut(&node)?) {
            Node::Directory(names) => Some(names),
            Node::File(_) => None,
        }
    }

    pub(super) fn file(&self, node: NodeId) -> Option<&File> {
        match self.nodes.get(&node)?.as_ref() {
            Node::File(file) => Some(file),
            Node::Directory(_) => None,
        }
    }

    pub(super) fn file_mut(&mut self, node: NodeId) -> Option<&mut File> {
        match Arc::make_mut(self.nodes.get_mut(&node)?) {
            Node::File(file) => Some(file),
            Node::Directory(_) => None,
        }
    }

    /// Makes a file of this many bytes, without a name.
    pub(super) fn add_file(&mut self, bytes: u64, order: u64) -> NodeId {
        let mut file = File::new(self.sector, self.device_end);
        file.set_len(bytes, order);
        self.device_end += bytes.max(1).next_multiple_of(DEVICE_STEP);
        self.used += file.allocated();
        self.add(Node::File(file))
    }

    pub(super) fn add_directory(&mut self) -> NodeId {
        self.add(Node::Directory(Names::default()))
    }

    fn add(&mut self, node: Node) -> NodeId {
        self.next += 1;
        self.nodes.insert(self.next, Arc::new(node));
        self.next
    }

    /// Changes a file, and the disk's used bytes with it.
    pub(super) fn resize(&mut self, node: NodeId, change: impl FnOnce(&mut File)) {
        if let Some(file) = self.file_mut(node) {
            let before = file.allocated();
            change(file);
            let after = file.allocated();
            self.used = (self.used + after).saturating_sub(before);
        }
    }

    /// Changes the names in a directory. A node that loses its name is dropped once it is not
    /// needed.
    pub(super) fn change(&mut self, directory: NodeId, change: Change, order: u64) {
        let Some(names) = self.names_mut(directory) else { return };
        let replaced = match &change {
            Change::Put(name, _) | Change::Remove(name) | Change::Rename { to: name, .. } => {
                names.get(name)
            }
        };
        names.change(change, order);
        if let Some(node) = replaced.filter(|node| !self.has_name(*node)) {
            self.nameless.insert(node);
            self.give_up_space(node);
        }
    }

    fn has_name(&self, node: NodeId) -> bool {
        self.directories().any(|names| names.live().values().any(|&named| named == node))
    }

    fn directories(&self) -> impl Iterator<Item = &Names> {
        self.nodes.values().filter_map(|node| match node.as_ref() {
            Node::Directory(names) => Some(names),
            Node::File(_) => None,
        })
    }

    /// Frees the space of a file without a name, unless it is open.
    fn give_up_space(&mut self, node: NodeId) {
        if let Some(file) = self.file(node)
            && !self.open.contains(&node)
        {
            self.used = self.used.saturating_sub(file.allocated());
        }
    }

    /// Opens a file; false if it is open already.
    pub(super) fn open(&mut self, node: NodeId) -> bool {
        self.open.insert(node)
    }

    /// Locks a directory; false if it is locked already.
    pub(super) fn lock(&mut self, node: NodeId) -> bool {
        self.locked.insert(node)
    }

    pub(super) fn unlock(&mut self, node: NodeId) {
        self.locked.remove(&node);
    }

    /// Closes a file.
    pub(super) fn close(&mut self, node: NodeId) {
        self.open.remove(&node);
        if self.nameless.contains(&node) {
            self.give_up_space(node);
        }
        self.forget_nameless();
    }

    /// Drops nodes that have no name, are not open, and cannot come back.
    pub(super) fn forget_nameless(&mut self) {
        let gone: Vec<NodeId> = self
            .nameless
            .iter()
            .copied()
            .filter(|node| !self.open.contains(node))
            .filter(|&node| !self.directories().any(|names| names.mentions(node)))
            .collect();
        for node in gone {
            self.nameless.remove(&node);
            self.nodes.remove(&node);
        }
    }

    /// Returns the nodes that may be found after a crash, in the order of numbers.
    fn may_be_found(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let may_return = |node: NodeId| self.directories().any(|names| names.mentions(node));
        self.nodes
            .iter()
            .filter(move |&(&id, _)| !self.nameless.contains(&id) || may_return(id))
            .map(|(&id, node)| (id, node.as_ref()))
    }

    /// Returns the number of states of every unsettled part, besides the durable one.
    pub(super) fn units(&self) -> Vec<u16> {
        let mut units = Vec::new();
        for (_, node) in self.may_be_found() {
            match node {
                Node::File(file) => units.extend(file.units()),
                Node::Directory(names) => units.extend(std::iter::repeat_n(1, names.units())),
            }
        }
        units
    }

    /// Returns the moments of the changes that are not settled.
    pub(super) fn moments(&self) -> Vec<u64> {
        let mut moments = Vec::new();
        for (_, node) in self.may_be_found() {
            match node {
                Node::File(file) => moments.extend(file.moments()),
                Node::Directory(names) => moments.extend(names.moments()),
            }
        }
        moments
    }

    /// Returns the states of [`Tree::units`] with all changes before a moment.
    pub(super) fn states_before(&self, moment: u64) -> Vec<u16> {
        let mut states = Vec::new();
        for (_, node) in self.may_be_found() {
            match node {
                Node::File(file) => states.extend(file.states_before(moment)),
                Node::Directory(names) => states.extend(names.states_before(moment)),
            }
        }
        states
    }

    /// Moves choices to states that are possible together, and of equal ones to the first.
    pub(super) fn settle_choices(&self, choices: &mut [u16]) {
        let mut rest = choices;
        let mut parts: Vec<(NodeId, &Node, &mut [u16])> = Vec::new();
        for (id, node) in self.may_be_found() {
            let units = match node {
                Node::File(file) => file.units().count(),
                Node::Directory(names) => names.units(),
            };
            let Some(own) = rest.split_off_mut(..units) else { return };
            if let Node::Directory(names) = node {
                names.settle_choices(own);
            }
            parts.push((id, node, own));
        }
        let found = self.found(&parts);
        for (id, node, own) in parts {
            match node {
                _ if found.as_ref().is_some_and(|found| !found.contains(&id)) => own.fill(0),
                Node::File(file) if !own.is_empty() => file.settle_choices(own),
                _ => {}
            }
        }
    }

    /// Returns the nodes reachable by names with these choices; none if all are.
    fn found(&self, parts: &[(NodeId, &Node, &mut [u16])]) -> Option<BTreeSet<NodeId>> {
        if self.all_is_found() {
            return None;
        }
        let entries: BTreeMap<NodeId, Entries> = parts
            .iter()
            .filter_map(|(id, node, own)| match node {
                Node::Directory(names) => Some((*id, names.after(own))),
                Node::File(_) => None,
            })
            .collect();
        let inside =
            |node| entries.get(&node).into_iter().flat_map(|names| names.values().copied());
        Some(all_below(ROOT, inside))
    }

    /// Returns true if every crash leaves the names that programs see.
    fn all_is_found(&self) -> bool {
        self.nameless.is_empty() && self.directories().all(Names::is_settled)
    }

    /// Returns the disk as a crash with these choices leaves it, with nothing open and nothing
    /// locked.
    pub(super) fn image(&self, choices: &[u16]) -> Tree {
        let mut image = Tree {
            nodes: self.nodes.clone(),
            next: self.next,
            device_end: self.device_end,
            used: self.used,
            ..Tree::new(self.sector)
        };
        let mut rest = choices;
        for (id, node) in self.may_be_found() {
            let node = match node {
                Node::File(file) if file.is_quiet() => continue,
                Node::Directory(names) if names.is_settled() => continue,
                Node::File(file) => {
                    let own = rest.split_off(..file.units().count().min(rest.len()));
                    let found = file.image(own.unwrap_or_default());
                    image.used = (image.used + found.allocated()).saturating_sub(file.allocated());
                    Node::File(found)
                }
                Node::Directory(names) => {
                    let own = rest.split_off(..names.units().min(rest.len()));
                    Node::Directory(Names::of(names.after(own.unwrap_or_default())))
                }
            };
            image.nodes.insert(id, Arc::new(node));
        }
        if !self.all_is_found() {
            image.forget_unreachable();
        }
        image
    }

    /// Returns the disk after a clean stop: everything that programs see is durable.
    pub(super) fn settled(&self) -> Tree {
        let mut choices = self.units();
        self.settle_choices(&mut choices);
        self.image(&choices)
    }

    /// Returns the node at a path, whose components are separated by slashes.
    pub(super) fn walk(&self, path: &str) -> Option<NodeId> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        names.try_fold(ROOT, |node, name| self.names(node)?.get(name))
    }

    /// Returns the names and bytes of everything as programs see it.
    pub(super) fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let mut contents = BTreeMap::new();
        let mut ahead = vec![(String::new(), ROOT)];
        while let Some((path, node)) = ahead.pop() {
            match self.nodes.get(&node).map(Arc::as_ref) {
                Some(Node::File(file)) => {
                    let mut bytes = vec![0; file.len() as usize];
                    file.read(0, &mut bytes);
                    contents.insert(path, bytes);
                }
                Some(Node::Directory(names)) => {
                    if node != ROOT {
                        contents.insert(format!("{path}/"), Vec::new());
                    }
                    let slash = if node == ROOT { "" } else { "/" };
                    let inside = names.live().iter();
                    ahead
                        .extend(inside.map(|(name, &node)| (format!("{path}{slash}{name}"), node)));
                }
                None => {}
            }
        }
        contents
    }

    /// Drops a file that never got a name.
    pub(super) fn abandon(&mut self, node: NodeId) {
        self.open.remove(&node);
        if let Some(Node::File(file)) = self.nodes.remove(&node).as_deref() {
            self.used = self.used.saturating_sub(file.allocated());
        }
    }

    /// Drops nodes that no name leads to.
    fn forget_unreachable(&mut self) {
        let inside =
            |node| self.names(node).into_iter().flat_map(|names| names.live().values().copied());
        let found = all_below(ROOT, inside);
        self.nodes.retain(|id, _| found.contains(id));
        let file = |node: &Arc<Node>| match node.as_ref() {
            Node::File(file) => file.allocated(),
            Node::Directory(_) => 0,
        };
        self.used = self.nodes.values().map(file).sum();
    }
}

/// Returns a node and everything inside it.
fn all_below<I: Iterator<Item = NodeId>>(
    root: NodeId,
    inside: impl Fn(NodeId) -> I,
) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::from([root]);
    let mut ahead = vec![root];
    while let Some(node) = ahead.pop() {
        ahead.extend(inside(node).filter(|&node| found.insert(node)));
    }
    found
}
