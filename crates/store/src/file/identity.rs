//! Compares two paths by identity: same directory or file, through symbolic links and bind mounts.
//!
//! Two things are compared: device and inode of each path and of every directory above it, and the part of a file
//! system that each path shows, according to the kernel's mount table. The second also finds a bind mount below one of
//! the paths.

use crate::identity::{Kinship, Likeness, Relation};
use nix::sys::stat::FileStat;
use nix::sys::statfs::{FUSE_SUPER_MAGIC, FsType, NFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, SMB_SUPER_MAGIC, statfs};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The mounts of this process. Missing outside Linux and in a container without `/proc`; then the inodes decide.
const MOUNTS: &str = "/proc/self/mountinfo";

/// File systems that may show another file system's files, or a server's files twice, under device numbers of their
/// own.
const VIEWS: [FsType; 4] = [OVERLAYFS_SUPER_MAGIC, NFS_SUPER_MAGIC, FUSE_SUPER_MAGIC, SMB_SUPER_MAGIC];

/// Device and inode.
type Inode = (u64, u64);

/// When a file or directory was last modified and last changed, in seconds and nanoseconds. No program can set the
/// time of the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A part of a file system: everything below one path in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Region {
    /// `major:minor`.
    device: String,
    path: PathBuf,
}

/// One line of the mount table.
#[derive(Debug)]
struct Mount {
    id: u64,
    at: PathBuf,
    shows: Region,
}

/// A directory that may not exist yet.
#[derive(Debug)]
struct Directory {
    /// The deepest part that exists, with links resolved.
    existing: PathBuf,
    /// The rest.
    missing: PathBuf,
    /// Inodes from the root directory down to `existing`.
    inodes: Vec<Inode>,
    /// Their times.
    times: Vec<Times>,
}

/// Returns how two directories, which need not exist yet, relate.
pub(crate) async fn directory_kinship(one: PathBuf, other: PathBuf) -> io::Result<Kinship> {
    blocking(move || {
        let (one, other) = (Directory::find(&one), Directory::find(&other));
        let relation = one.relation_to(&other)?;
        // Within one file system, inodes identify directories; another file system may show the same files again.
        let one_device = one.inodes.last().map(|inode| inode.0) == other.inodes.last().map(|inode| inode.0);
        Ok(Kinship { relation, proven: one_device || relation != Relation::Apart })
    })
    .await?
}

/// Returns the relation of two directories, which need not exist yet. Blocks.
pub(super) fn directory_relation(one: &Path, other: &Path) -> io::Result<Relation> {
    Directory::find(one).relation_to(&Directory::find(other))
}

/// Returns whether `path`, with links followed, leads to the file or directory that `stat` describes. Blocks.
pub(super) fn is_same_inode(path: &Path, stat: &FileStat) -> bool {
    fs::metadata(path).is_ok_and(|meta| inode(&meta) == (stat.st_dev, stat.st_ino))
}

/// Returns how two files relate. They are the same if they share an inode, or would have one name in one directory.
pub(crate) async fn file_kinship(one: PathBuf, other: PathBuf) -> Kinship {
    let compared = blocking(move || {
        let (of_one, of_other) = (fs::metadata(&one).ok(), fs::metadata(&other).ok());
        if let (Some(one), Some(other)) = (&of_one, &of_other)
            && inode(one) == inode(other)
        {
            return Kinship { relation: Relation::Same, proven: true };
        }
        let parents = (Directory::find(&parent(&one)), Directory::find(&parent(&other)));
        // If the innermost directories are the same, so are all directories above them.
        let one_parent = parents.0.inodes.last() == parents.1.inodes.last() && parents.0.missing == parents.1.missing;
        let one_view = parents.0.is_seen_to_hold(&parents.1) && parents.1.is_seen_to_hold(&parents.0);
        let same = (one_parent || one_view) && one.file_name() == other.file_name();
        let one_device = parents.0.inodes.last().map(|inode| inode.0) == parents.1.inodes.last().map(|inode| inode.0);
        Kinship { relation: if same { Relation::Same } else { Relation::Apart }, proven: same || one_device }
    });
    // The work cannot panic; if it did, the result would be unknown.
    compared.await.unwrap_or(Kinship { relation: Relation::Apart, proven: false })
}

/// Compares two files by their lengths and times, including the change time, which no program can set. Two views of one
/// file have these in common, for example when a directory is mounted twice over different file systems.
pub(crate) async fn compare_states(one: PathBuf, other: PathBuf) -> Likeness {
    let state = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.len(), Times::of(&meta)));
    let compared = blocking(move || match state(&one) {
        None => Likeness::Absent,
        Some(ours) if state(&other) == Some(ours) => Likeness::Alike,
        Some(ours) if state(&one) == Some(ours) => Likeness::Different,
        Some(_) => Likeness::Unstable,
    });
    // The work cannot panic; if it did, the result would be unknown.
    compared.await.unwrap_or(Likeness::Unstable)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}

impl Times {
    fn of(meta: &Metadata) -> Self {
        Self { modified: (meta.mtime(), meta.mtime_nsec()), changed: (meta.ctime(), meta.ctime_nsec()) }
    }
}

fn may_be_view(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| VIEWS.contains(&found.filesystem_type()))
}

fn inode(meta: &Metadata) -> Inode {
    (meta.dev(), meta.ino())
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).to_owned()
}

impl Directory {
    fn find(path: &Path) -> Self {
        let (mut existing, mut missing) = (path.to_owned(), PathBuf::new());
        let existing = loop {
            match fs::canonicalize(&existing) {
                Ok(found) => break found,
                Err(_) => {
                    let Some(name) = existing.file_name() else { break PathBuf::from("/") };
                    missing = if missing.as_os_str().is_empty() { name.into() } else { Path::new(name).join(&missing) };
                    existing = parent(&existing);
                }
            }
        };
        let mut above: Vec<Metadata> = existing.ancestors().filter_map(|path| fs::metadata(path).ok()).collect();
        above.reverse();
        let (inodes, times) = above.iter().map(|meta| (inode(meta), Times::of(meta))).unzip();
        Self { existing, missing, inodes, times }
    }

    fn relation_to(&self, other: &Self) -> io::Result<Relation> {
        match inode_relation(self, other) {
            Relation::Apart => {}
            relation => return Ok(relation),
        }
        let mounts = read_mounts()?;
        Ok(match region_relation(&self.regions(&mounts), &other.regions(&mounts)) {
            Relation::Apart => relation(self.is_seen_to_hold(other), other.is_seen_to_hold(self)),
            relation => relation,
        })
    }

    /// Returns whether `inner` lies within this directory as another file system shows it. A merged directory of
    /// overlayfs has the times of its upper directory, and a directory that is mounted twice has the same times at both
    /// places. Their files need not be the same: the upper directory lacks those of the lower one.
    fn is_seen_to_hold(&self, inner: &Self) -> bool {
        let (Some(device), Some(times)) = (self.inodes.last().map(|inode| inode.0), self.times.last()) else {
            return false;
        };
        let views = inner.inodes.iter().zip(&inner.times).enumerate();
        // A file system with whole seconds either makes its times up or has no finer ones.
        let mut views =
            views.filter(|(_, (inode, of_view))| inode.0 != device && *of_view == times && times.changed.1 != 0);
        views.any(|(depth, _)| {
            let view: PathBuf = inner.existing.components().take(depth + 1).collect();
            let below: PathBuf = inner.existing.components().skip(depth + 1).collect();
            // Elsewhere equal times prove nothing: two directories created in one tick of the kernel's clock have them.
            below.join(&inner.missing).starts_with(&self.missing) && (may_be_view(&self.existing) || may_be_view(&view))
        })
    }

    fn exists(&self) -> bool {
        self.missing.as_os_str().is_empty()
    }

    /// The parts of file systems that this directory shows: its own first, then those mounted below it.
    fn regions(&self, mounts: &[Mount]) -> Vec<Region> {
        let own = mount_id(&self.existing).and_then(|id| mounts.iter().find(|mount| mount.id == id));
        let own = own.and_then(|mount| {
            let within = self.existing.strip_prefix(&mount.at).ok()?.join(&self.missing);
            Some(Region { device: mount.shows.device.clone(), path: mount.shows.path.join(within) })
        });
        let Some(own) = own else { return Vec::new() };
        let below = mounts
            .iter()
            .filter(|mount| self.exists() && mount.at != self.existing && mount.at.starts_with(&self.existing));
        std::iter::once(own).chain(below.map(|mount| mount.shows.clone())).collect()
    }
}

fn inode_relation(one: &Directory, other: &Directory) -> Relation {
    let holds = |outer: &Directory, inner: &Directory| {
        let deepest = outer.inodes.last();
        if outer.exists() {
            inner.inodes.iter().any(|inode| Some(inode) == deepest)
        } else {
            inner.inodes.last() == deepest && inner.missing.starts_with(&outer.missing)
        }
    };
    relation(holds(one, other), holds(other, one))
}

fn relation(second_within: bool, first_within: bool) -> Relation {
    match (first_within, second_within) {
        (true, true) => Relation::Same,
        (true, false) => Relation::FirstWithin,
        (false, true) => Relation::SecondWithin,
        (false, false) => Relation::Apart,
    }
}

/// Compares two lists of regions. Each has the directory's own region first.
fn region_relation(one: &[Region], other: &[Region]) -> Relation {
    let (Some(own), Some(others_own)) = (one.first(), other.first()) else { return Relation::Apart };
    let covered = |regions: &[Region], own: &Region| regions.iter().any(|region| region.holds(own));
    match relation(covered(one, others_own), covered(other, own)) {
        Relation::Apart if one.iter().any(|a| other.iter().any(|b| a.holds(b) || b.holds(a))) => Relation::Crossed,
        relation => relation,
    }
}

impl Region {
    fn holds(&self, other: &Self) -> bool {
        self.device == other.device && other.path.starts_with(&self.path)
    }
}

fn mount_id(path: &Path) -> Option<u64> {
    let file = File::options().read(true).custom_flags(nix::libc::O_PATH | nix::libc::O_CLOEXEC).open(path).ok()?;
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

fn read_mounts() -> io::Result<Vec<Mount>> {
    match fs::read(MOUNTS) {
        Ok(table) => Ok(table.split(|byte| *byte == b'\n').filter_map(parse_mount).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Parses a line as in `proc_pid_mountinfo(5)`: id, parent, major:minor, root, mount point, …
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = std::str::from_utf8(fields.nth(1)?).ok()?.to_owned();
    let (path, at) = (unescape(fields.next()?), unescape(fields.next()?));
    Some(Mount { id, at, shows: Region { device, path } })
}

/// Decodes a path: the kernel writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let code = (byte == b'\\').then(|| after.get(..3)).flatten();
        let code = code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    std::ffi::OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    async fn of(one: &Path, other: &Path) -> Relation {
        directory_kinship(one.to_owned(), other.to_owned()).await.unwrap().relation
    }

    #[tokio::test]
    async fn links_and_missing_directories_are_seen_through() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("real/deep")).unwrap();
        symlink("real", path("link")).unwrap();
        for (one, other, relation) in [
            ("real", "link", Relation::Same),
            ("real", "link/", Relation::Same),
            ("link/deep", "real", Relation::FirstWithin),
            ("real", "link/new/er", Relation::SecondWithin),
            ("new", "link", Relation::Apart),
            ("new", "new", Relation::Same),
            ("new/a", "new", Relation::FirstWithin),
            ("new", "newer", Relation::Apart),
            ("real", "realm", Relation::Apart),
        ] {
            assert_eq!(of(&path(one), &path(other)).await, relation, "{one} {other}");
        }
    }

    #[tokio::test]
    async fn directories_of_two_disks_that_were_made_in_one_moment_are_apart() {
        let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
        let disk = tempfile::tempdir().unwrap();
        if may_be_view(memory.path()) || may_be_view(disk.path()) {
            return;
        }
        for number in 0..1000 {
            let (one, other) = (disk.path().join(number.to_string()), memory.path().join(number.to_string()));
            fs::create_dir(&one).unwrap();
            fs::create_dir(&other).unwrap();
            assert_eq!(of(&one, &other).await, Relation::Apart);
            if Times::of(&fs::metadata(&one).unwrap()) == Times::of(&fs::metadata(&other).unwrap()) {
                return;
            }
        }
        panic!("no two directories were made in one tick of the clock");
    }

    #[tokio::test]
    async fn names_of_one_file_are_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("a"), "x").unwrap();
        fs::hard_link(path("a"), path("b")).unwrap();
        symlink(".", path("here")).unwrap();
        for (other, same) in [("b", true), ("here/a", true), ("c", false), ("here/c", false)] {
            let found = file_kinship(path("a"), path(other)).await;
            assert_eq!(found.relation == Relation::Same, same, "{other}");
            assert!(found.proven);
        }
        assert_eq!(file_kinship(path("new"), path("here/new")).await.relation, Relation::Same);
    }

    #[test]
    fn a_part_that_is_mounted_elsewhere_is_found() {
        let mounts = |lines: &str| lines.lines().filter_map(|line| parse_mount(line.as_bytes())).collect::<Vec<_>>();
        let all = mounts("1 0 8:1 / / rw - ext4 x rw\n2 1 8:1 /par/a\\040b /view rw - ext4 x rw\n3 1 0:5 / /proc rw");
        assert_eq!(all.iter().map(|mount| mount.id).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(all[1].shows.path, Path::new("/par/a b"));
        let region = |path: &str| Region { device: "8:1".to_owned(), path: path.into() };
        let view = all[1].shows.clone();
        assert_eq!(region_relation(&[region("/par")], std::slice::from_ref(&view)), Relation::SecondWithin);
        assert_eq!(region_relation(&[region("/top"), view.clone()], &[region("/par")]), Relation::Crossed);
        assert_eq!(region_relation(&[region("/top"), view], &[region("/par/a b/c")]), Relation::SecondWithin);
        assert_eq!(region_relation(&[region("/pa")], &[region("/par")]), Relation::Apart);
    }
}
