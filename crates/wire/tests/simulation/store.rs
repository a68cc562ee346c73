//! The two stores. They outlive every process.

use crate::message::{Etag, Key, Upload, Version, digest};
use std::collections::{BTreeMap, BTreeSet};
use tradewind_wire::Fault;

/// Source objects; each change adds a version, and all versions are kept.
#[derive(Default)]
pub(crate) struct SourceStore {
    current: BTreeMap<Key, Version>,
    lengths: BTreeMap<(Key, Version), u64>,
    pub(crate) forbidden: BTreeSet<Key>,
}

impl SourceStore {
    pub(crate) fn put(&mut self, key: Key, bytes: u64) {
        let version = self.versions(key).count() as Version;
        self.lengths.insert((key, version), bytes);
        self.current.insert(key, version);
    }

    pub(crate) fn delete(&mut self, key: Key) {
        self.current.remove(&key);
    }

    pub(crate) fn look(&self, key: Key) -> Option<(Version, u64)> {
        let version = *self.current.get(&key)?;
        Some((version, self.lengths[&(key, version)]))
    }

    pub(crate) fn list(&self) -> Vec<Key> {
        self.current.keys().copied().collect()
    }

    pub(crate) fn versions(&self, key: Key) -> impl Iterator<Item = Version> + '_ {
        self.lengths.range((key, 0)..=(key, Version::MAX)).map(|((_, version), _)| *version)
    }

    /// Reads a range, with the listed version as precondition.
    pub(crate) fn read(&self, key: Key, version: Version, offset: u64, bytes: u64) -> Result<Vec<u8>, Fault> {
        if self.forbidden.contains(&key) {
            return Err(Fault::Permanent);
        }
        match self.current.get(&key) {
            None => Err(Fault::Permanent),
            Some(current) if *current != version => Err(Fault::Changed),
            Some(_) => Ok((offset..offset + bytes).map(|at| byte(key, version, at)).collect()),
        }
    }

    pub(crate) fn content(&self, key: Key, version: Version) -> Vec<u8> {
        (0..self.lengths[&(key, version)]).map(|at| byte(key, version, at)).collect()
    }
}

fn byte(key: Key, version: Version, at: u64) -> u8 {
    let mixed = (u64::from(key) << 40 ^ u64::from(version) << 32 ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

pub(crate) struct OpenUpload {
    pub(crate) key: Key,
    parts: BTreeMap<u32, Vec<u8>>,
}

/// Destination: what a reader sees, and uploads that are open.
#[derive(Default)]
pub(crate) struct SinkStore {
    visible: BTreeMap<Key, (Vec<u8>, Vec<Etag>)>,
    pub(crate) uploads: BTreeMap<Upload, OpenUpload>,
    next_upload: Upload,
    pub(crate) impossible: BTreeSet<Key>,
}

impl SinkStore {
    pub(crate) fn visible(&self, key: Key) -> Option<&[u8]> {
        self.visible.get(&key).map(|(bytes, _)| bytes.as_slice())
    }

    pub(crate) fn put(&mut self, key: Key, bytes: Vec<u8>) -> Result<(), Fault> {
        self.possible(key)?;
        self.visible.insert(key, (bytes, Vec::new()));
        Ok(())
    }

    pub(crate) fn open(&mut self, key: Key) -> Result<Upload, Fault> {
        self.possible(key)?;
        self.next_upload += 1;
        self.uploads.insert(self.next_upload, OpenUpload { key, parts: BTreeMap::new() });
        Ok(self.next_upload)
    }

    pub(crate) fn put_part(&mut self, upload: Upload, part: u32, bytes: Vec<u8>) -> Result<Etag, Fault> {
        let upload = self.uploads.get_mut(&upload).ok_or(Fault::UploadGone)?;
        let etag = digest(&bytes);
        upload.parts.insert(part, bytes);
        Ok(etag)
    }

    /// Completes the upload. If repeated after a lost answer, finds the completed object in its place.
    pub(crate) fn close(&mut self, key: Key, upload: Upload, etags: &[Etag]) -> Result<(), Fault> {
        let Some(open) = self.uploads.get(&upload) else {
            let there = self.visible.get(&key).is_some_and(|(_, parts)| parts == etags && !parts.is_empty());
            return if there { Ok(()) } else { Err(Fault::UploadGone) };
        };
        let held: Vec<(u32, Etag)> = open.parts.iter().map(|(part, bytes)| (*part, digest(bytes))).collect();
        let wanted: Vec<(u32, Etag)> = (1..).zip(etags.iter().copied()).collect();
        if held != wanted {
            return Err(Fault::Corrupt);
        }
        let whole = open.parts.values().flatten().copied().collect();
        self.uploads.remove(&upload);
        self.visible.insert(key, (whole, etags.to_vec()));
        Ok(())
    }

    pub(crate) fn abort(&mut self, upload: Upload) {
        self.uploads.remove(&upload);
    }

    fn possible(&self, key: Key) -> Result<(), Fault> {
        if self.impossible.contains(&key) { Err(Fault::Permanent) } else { Ok(()) }
    }
}
