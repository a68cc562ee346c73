//! A file system that can lose power: it carries out every operation, records each change, and can produce any tree
//! that may be left after a power loss.
//!
//! POSIX alone allows these states (most file systems promise more):
//! - Changes to a directory's entries (new files and directories, renames, removals) made before its last sync
//!   survive. Any subset of the later changes survives; each survives completely or not at all.
//! - Bytes of a file written before its last sync survive. Later writes may be lost in any of their blocks (512 or 4096
//!   bytes), in any order: a lost block has its old bytes, or zeros where the file was shorter. The file may also have
//!   its old length. Changes of length and time may be lost too.
//! - A sync of a file does not cover its name, and a sync of a directory does not cover its files' bytes.

use nix::errno::Errno;
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::unistd::UnlinkatFlags;
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio_util::sync::CancellationToken;
use tradewind_store::{Disk, Kernel};

type Node = usize;
const ROOT: Node = 0;

#[derive(Clone, Debug)]
enum Change {
    Create { directory: Node, name: String, node: Node },
    MakeDirectory { directory: Node, name: String, node: Node },
    Rename { directory: Node, from: String, to: String },
    Remove { directory: Node, name: String },
    Write { node: Node, offset: u64, bytes: Vec<u8> },
    SetLength { node: Node, bytes: u64 },
    SetModified { node: Node, time: SystemTime },
    Sync { node: Node },
}

/// The contents of the disk before the first change, and all changes since.
#[derive(Debug, Default)]
struct Log {
    base_entries: BTreeMap<Node, BTreeMap<String, Node>>,
    base_bytes: BTreeMap<Node, Vec<u8>>,
    changes: Vec<Change>,
    /// By device and inode. An inode may be used again after its file is removed; then it is another node.
    nodes: HashMap<(u64, u64), Node>,
    next: Node,
    numbers: HashMap<Node, u64>,
}

/// The number that a file had before the power loss, by its device and inode after it: a real disk keeps the inodes.
pub(crate) type Numbers = HashMap<(u64, u64), u64>;

/// A file system that can lose power.
pub(crate) struct LosingDisk {
    boot: String,
    /// Number of changes before the power loss.
    changes_max: usize,
    log: Mutex<Log>,
    /// Cancelled at the power loss; every change fails from then on.
    pub(crate) off: CancellationToken,
    /// Called before each change, and at the power loss.
    watch: Box<dyn Fn(Moment<'_>) + Send + Sync>,
}

/// The next operation of a [`LosingDisk`].
pub(crate) enum Moment<'a> {
    /// A file of this name is created.
    Create(&'a str),
    /// The power fails.
    Off,
}

impl std::fmt::Debug for LosingDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LosingDisk").field("boot", &self.boot).finish_non_exhaustive()
    }
}

impl LosingDisk {
    /// A disk that holds the tree `root` safely, whose files have these numbers if they came back from a power loss.
    pub(crate) fn new(
        root: &Path,
        numbers: &Numbers,
        boot: String,
        changes_max: usize,
        watch: impl Fn(Moment<'_>) + Send + Sync + 'static,
    ) -> Self {
        let mut log = Log { next: ROOT + 1, ..Log::default() };
        log.read_base(root, ROOT, numbers);
        let (log, off) = (Mutex::new(log), CancellationToken::new());
        Self { boot, changes_max, log, off, watch: Box::new(watch) }
    }

    /// The same disk under another process, in the same boot: what is not synced may still be lost. The power goes after
    /// `changes_more` further changes.
    pub(crate) fn under_another_process(
        before: &Self,
        changes_more: usize,
        watch: impl Fn(Moment<'_>) + Send + Sync + 'static,
    ) -> Self {
        let log = std::mem::take(&mut *before.log());
        let changes_max = log.changes.len().saturating_add(changes_more);
        let (boot, log, off) = (before.boot.clone(), Mutex::new(log), CancellationToken::new());
        Self { boot, changes_max, log, off, watch: Box::new(watch) }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one change and records it, unless the power has failed.
    fn change<T>(&self, work: impl FnOnce(&mut Log) -> Result<(T, Option<Change>), Errno>) -> Result<T, Errno> {
        let mut log = self.log();
        if self.off.is_cancelled() {
            return Err(Errno::EIO);
        }
        if log.changes.len() >= self.changes_max {
            (self.watch)(Moment::Off);
            self.off.cancel();
            return Err(Errno::EIO);
        }
        let (value, change) = work(&mut log)?;
        log.changes.extend(change);
        Ok(value)
    }

    /// Makes a tree in the empty directory `root` that may come back after the power loss.
    pub(crate) fn come_back(&self, root: &Path, random: &mut StdRng) -> Numbers {
        let log = self.log();
        let (entries, bytes) = (log.entries(random), log.bytes(random));
        let mut written = HashMap::new();
        write_tree(root, ROOT, &entries, &bytes, &mut written);
        written.into_iter().filter_map(|(after, node)| Some((after, *log.numbers.get(&node)?))).collect()
    }
}

impl Log {
    fn new_node(&mut self, file: BorrowedFd<'_>) -> Node {
        let node = self.next;
        self.next += 1;
        if let Some(identity) = identity(file) {
            self.nodes.insert(identity, node);
            self.numbers.insert(node, identity.1);
        }
        node
    }

    fn node(&self, file: BorrowedFd<'_>) -> Option<Node> {
        self.nodes.get(&identity(file)?).copied()
    }

    fn read_base(&mut self, path: &Path, node: Node, numbers: &Numbers) {
        let directory = File::open(path).unwrap();
        self.nodes.insert(identity(directory.as_fd()).unwrap(), node);
        let mut entries = BTreeMap::new();
        for entry in std::fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            let file = File::open(entry.path()).unwrap();
            let child = self.new_node(file.as_fd());
            if let Some(number) = numbers.get(&identity(file.as_fd()).unwrap()) {
                self.numbers.insert(child, *number);
            }
            entries.insert(entry.file_name().into_string().unwrap(), child);
            if entry.file_type().unwrap().is_dir() {
                self.read_base(&entry.path(), child, numbers);
            } else {
                self.base_bytes.insert(child, std::fs::read(entry.path()).unwrap());
            }
        }
        self.base_entries.insert(node, entries);
    }

    /// Returns whether the change number `index` of `node` was synced.
    fn is_synced(&self, index: usize, node: Node) -> bool {
        self.changes[index..].iter().any(|change| matches!(change, Change::Sync { node: synced } if *synced == node))
    }

    fn entries(&self, random: &mut StdRng) -> BTreeMap<Node, BTreeMap<String, Node>> {
        let mut trees = self.base_entries.clone();
        let keeps = *[0.0, 0.3, 0.7, 1.0].get(random.random_range(0..4)).unwrap();
        // The tree before the change decides what a rename moves, whichever changes survive.
        let mut real = self.base_entries.clone();
        for (index, change) in self.changes.iter().enumerate() {
            let (Change::Create { directory, .. }
            | Change::MakeDirectory { directory, .. }
            | Change::Rename { directory, .. }
            | Change::Remove { directory, .. }) = change
            else {
                continue;
            };
            let survives = self.is_synced(index, *directory) || random.random_bool(keeps);
            let now = real.entry(*directory).or_default();
            let then = trees.entry(*directory).or_default();
            match change {
                Change::Create { name, node, .. } | Change::MakeDirectory { name, node, .. } => {
                    now.insert(name.clone(), *node);
                    if survives {
                        then.insert(name.clone(), *node);
                    }
                }
                Change::Rename { from, to, .. } => {
                    let Some(node) = now.remove(from) else { continue };
                    now.insert(to.clone(), node);
                    if survives {
                        then.retain(|name, held| name != from || *held != node);
                        then.insert(to.clone(), node);
                    }
                }
                Change::Remove { name, .. } => {
                    let node = now.remove(name);
                    if survives && then.get(name) == node.as_ref() {
                        then.remove(name);
                    }
                }
                _ => {}
            }
        }
        trees
    }

    fn bytes(&self, random: &mut StdRng) -> BTreeMap<Node, (Vec<u8>, Option<SystemTime>)> {
        let mut files: BTreeMap<Node, (Vec<u8>, Option<SystemTime>)> = BTreeMap::new();
        files.extend(self.base_bytes.iter().map(|(node, bytes)| (*node, (bytes.clone(), None))));
        let block = *[512, 4096].get(random.random_range(0..2)).unwrap();
        let keeps: BTreeMap<Node, f64> = (0..self.next)
            .map(|node| (node, *[0.0, 0.0, 0.5, 0.9, 1.0].get(random.random_range(0..5)).unwrap()))
            .collect();
        let grows = random.random_bool(0.5);
        for (index, change) in self.changes.iter().enumerate() {
            match change {
                Change::Create { node, .. } => drop(files.insert(*node, (Vec::new(), None))),
                Change::Write { node, offset, bytes } => {
                    let is_synced = self.is_synced(index, *node);
                    let (held, _) = files.entry(*node).or_default();
                    let (mut at, end) = (*offset as usize, *offset as usize + bytes.len());
                    if grows && held.len() < end {
                        held.resize(end, 0);
                    }
                    while at < end {
                        let until = end.min((at / block + 1) * block);
                        if is_synced || random.random_bool(keeps[node]) {
                            if held.len() < until {
                                held.resize(until, 0);
                            }
                            held[at..until].copy_from_slice(&bytes[at - *offset as usize..until - *offset as usize]);
                        }
                        at = until;
                    }
                    if is_synced && held.len() < end {
                        held.resize(end, 0);
                    }
                }
                Change::SetLength { node, bytes }
                    if self.is_synced(index, *node) || random.random_bool(keeps[node]) =>
                {
                    files.entry(*node).or_default().0.resize(*bytes as usize, 0);
                }
                // It tends to reach the disk before the bytes: the worst case for a comparison of times.
                Change::SetModified { node, time } => files.entry(*node).or_default().1 = Some(*time),
                _ => {}
            }
        }
        files
    }
}

fn write_tree(
    path: &Path,
    node: Node,
    entries: &BTreeMap<Node, BTreeMap<String, Node>>,
    bytes: &BTreeMap<Node, (Vec<u8>, Option<SystemTime>)>,
    written: &mut HashMap<(u64, u64), Node>,
) {
    for (name, child) in entries.get(&node).into_iter().flatten() {
        let path = path.join(name);
        match bytes.get(child) {
            Some((content, modified)) => {
                std::fs::write(&path, content).unwrap();
                if let Some(modified) = modified {
                    File::options().write(true).open(&path).unwrap().set_modified(*modified).unwrap();
                }
            }
            None => {
                std::fs::create_dir(&path).unwrap();
                write_tree(&path, *child, entries, bytes, written);
            }
        }
        written.insert(identity(File::open(&path).unwrap().as_fd()).unwrap(), *child);
    }
}

fn identity(file: BorrowedFd<'_>) -> Option<(u64, u64)> {
    fstat(file).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

impl Disk for LosingDisk {
    fn boot(&self) -> &str {
        &self.boot
    }

    fn file_number(&self, stat: &FileStat) -> u64 {
        let log = self.log();
        let node = log.nodes.get(&(stat.st_dev, stat.st_ino));
        node.and_then(|node| log.numbers.get(node)).copied().unwrap_or(stat.st_ino)
    }

    fn create(&self, directory: &OwnedFd, name: &str, mode: Mode) -> Result<File, Errno> {
        (self.watch)(Moment::Create(name));
        self.change(|log| {
            let file = Kernel.create(directory, name, mode)?;
            let node = log.new_node(file.as_fd());
            let parent = log.node(directory.as_fd());
            Ok((file, parent.map(|directory| Change::Create { directory, name: name.to_owned(), node })))
        })
    }

    fn make_directory(&self, parent: &OwnedFd, name: &str) -> Result<(), Errno> {
        self.change(|log| {
            Kernel.make_directory(parent, name)?;
            let made = nix::fcntl::openat(
                parent,
                name,
                nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_DIRECTORY,
                Mode::empty(),
            )?;
            let node = log.new_node(made.as_fd());
            let directory = log.node(parent.as_fd());
            Ok(((), directory.map(|directory| Change::MakeDirectory { directory, name: name.to_owned(), node })))
        })
    }

    fn write(&self, file: &File, slices: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
        self.change(|log| {
            let written = Kernel.write(file, slices, offset)?;
            let mut bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            bytes.truncate(written);
            Ok((written, log.node(file.as_fd()).map(|node| Change::Write { node, offset, bytes })))
        })
    }

    fn set_length(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.change(|log| {
            Kernel.set_length(file, bytes).map_err(|_| Errno::EIO)?;
            Ok(((), log.node(file.as_fd()).map(|node| Change::SetLength { node, bytes })))
        })
        .map_err(io::Error::from)
    }

    fn set_modified(&self, file: &File, time: SystemTime) -> io::Result<()> {
        self.change(|log| {
            Kernel.set_modified(file, time).map_err(|_| Errno::EIO)?;
            Ok(((), log.node(file.as_fd()).map(|node| Change::SetModified { node, time })))
        })
        .map_err(io::Error::from)
    }

    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        self.change(|log| Ok(((), log.node(file).map(|node| Change::Sync { node }))))
    }

    fn rename(&self, directory: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
        self.change(|log| {
            Kernel.rename(directory, from, to)?;
            let change = |directory| Change::Rename { directory, from: from.to_owned(), to: to.to_owned() };
            Ok(((), log.node(directory.as_fd()).map(change)))
        })
    }

    fn rename_new(&self, directory: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
        self.change(|log| {
            Kernel.rename_new(directory, from, to)?;
            let change = |directory| Change::Rename { directory, from: from.to_owned(), to: to.to_owned() };
            Ok(((), log.node(directory.as_fd()).map(change)))
        })
    }

    fn remove(&self, directory: &OwnedFd, name: &str, flag: UnlinkatFlags) -> Result<(), Errno> {
        self.change(|log| {
            Kernel.remove(directory, name, flag)?;
            Ok(((), log.node(directory.as_fd()).map(|directory| Change::Remove { directory, name: name.to_owned() })))
        })
    }
}
