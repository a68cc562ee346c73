//! The checksums of the objects in a body, computed while it is sealed and while it is opened, because each segment is in
//! the cache then.

use super::parcel::parse_manifest;
use super::work::{Entry, Manifest};
use tradewind_store::{Checksums, Crcs, PassingChecksums};
use tradewind_wire::frame::{CHECKSUM_BYTES, Head};

/// The bytes of one object, or of a part, in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectBytes {
    /// Their length.
    pub size_bytes: u64,
    /// True if their checksums follow the bytes of all objects, because the manifest has none.
    pub sums_follow: bool,
}

/// Returns the objects whose bytes follow a manifest, in their order. A part has all of the `data_bytes`.
pub(super) fn objects_of(manifest: &Manifest, data_bytes: u64) -> Vec<ObjectBytes> {
    let object = |size_bytes, checksums: &Checksums| ObjectBytes {
        size_bytes,
        sums_follow: size_bytes > 0 && *checksums == Checksums::default(),
    };
    match manifest {
        Manifest::Part { checksums, .. } => vec![object(data_bytes, checksums)],
        Manifest::Bundle(entries) => {
            let written = |entry: &Entry| match entry {
                Entry::Write { size_bytes, checksums, .. } => Some(object(*size_bytes, checksums)),
                _ => None,
            };
            entries.iter().filter_map(written).collect()
        }
        _ => Vec::new(),
    }
}

/// Gives the checksums that followed its objects to a manifest. Returns false if there are not as many as it lacks.
pub(super) fn complete(manifest: &mut Manifest, data_bytes: u64, followed: Vec<Checksums>) -> bool {
    let objects = objects_of(manifest, data_bytes);
    if objects.iter().filter(|object| object.sums_follow).count() != followed.len() {
        return false;
    }
    let entries = match manifest {
        Manifest::Part { checksums, .. } => {
            followed.into_iter().for_each(|followed| *checksums = followed);
            return true;
        }
        Manifest::Bundle(entries) => entries,
        _ => return true,
    };
    let written = entries.iter_mut().filter_map(|entry| match entry {
        Entry::Write { checksums, .. } => Some(checksums),
        _ => None,
    });
    let without = written.zip(objects).filter(|(_, object)| object.sums_follow).map(|(checksums, _)| checksums);
    without.zip(followed).for_each(|(checksums, followed)| *checksums = followed);
    true
}

/// Computes checksums of objects whose bytes pass one after the other.
pub(super) struct Summing {
    objects: std::vec::IntoIter<ObjectBytes>,
    only_following: bool,
    crcs: Crcs,
    /// Content before the object bytes that has not passed yet.
    before: u64,
    /// The object that is passing; `None` before and after all of them.
    object: Option<ObjectBytes>,
    /// Its bytes that have not passed yet.
    left: u64,
    passing: PassingChecksums,
    computed: Vec<Checksums>,
}

impl Summing {
    /// Computes the checksums that follow a body whose objects come after `before` bytes.
    pub(super) fn following(objects: &[ObjectBytes], before: u64) -> Self {
        Self::new(objects.to_vec(), before, true, Crcs::Crc64)
    }

    fn new(objects: Vec<ObjectBytes>, before: u64, only_following: bool, crcs: Crcs) -> Self {
        let computed = Vec::with_capacity(objects.len());
        let (objects, passing) = (objects.into_iter(), PassingChecksums::new(crcs));
        let mut summing = Self { objects, only_following, crcs, before, object: None, left: 0, passing, computed };
        summing.begin_next();
        summing
    }

    /// Takes the next content. After the last object, anything may follow.
    pub(super) fn update(&mut self, content: &[u8]) {
        let skipped = self.before.min(content.len() as u64) as usize;
        self.before -= skipped as u64;
        let mut data = &content[skipped..];
        while let Some(object) = self.object
            && !data.is_empty()
        {
            let (piece, rest) = data.split_at(self.left.min(data.len() as u64) as usize);
            if self.is_wanted(object) {
                self.passing.update(piece);
            }
            self.left -= piece.len() as u64;
            data = rest;
            if self.left == 0 {
                self.end(object);
                self.begin_next();
            }
        }
    }

    fn is_wanted(&self, object: ObjectBytes) -> bool {
        object.sums_follow || !self.only_following
    }

    /// Begins with the next object that has bytes.
    fn begin_next(&mut self) {
        loop {
            self.object = self.objects.next();
            match self.object {
                Some(object) if object.size_bytes == 0 => self.end(object),
                object => return self.left = object.map_or(0, |object| object.size_bytes),
            }
        }
    }

    fn end(&mut self, object: ObjectBytes) {
        if self.is_wanted(object) {
            let passed = std::mem::replace(&mut self.passing, PassingChecksums::new(self.crcs));
            self.computed.push(passed.checksums());
        }
    }

    /// The checksums of all objects that have passed.
    pub(super) fn computed(&self) -> &[Checksums] {
        &self.computed
    }
}

/// Computes the checksums of all objects in a body that arrives. The manifest at its front says where they begin.
pub(super) struct ArrivingSums {
    manifest_bytes: usize,
    data_bytes: u64,
    crcs: Crcs,
    front: Vec<u8>,
    manifest: Option<Manifest>,
    summing: Option<Summing>,
}

impl ArrivingSums {
    /// For a body that is neither compressed nor has a recipe.
    pub(super) fn of(head: &Head, crcs: Crcs) -> Self {
        let (manifest_bytes, data_bytes) = (head.manifest_bytes as usize, head.data_bytes());
        Self { manifest_bytes, data_bytes, crcs, front: Vec::new(), manifest: None, summing: None }
    }

    /// Takes the next content.
    pub(super) fn update(&mut self, content: &[u8]) {
        if let Some(summing) = &mut self.summing {
            return summing.update(content);
        }
        let missing = self.manifest_bytes - self.front.len();
        let (front, data) = content.split_at(missing.min(content.len()));
        self.front.extend_from_slice(front);
        if self.front.len() < self.manifest_bytes {
            return;
        }
        // One that does not parse is refused when the body is decoded.
        self.manifest = parse_manifest(&self.front);
        let objects = self.manifest.as_ref().map(|manifest| objects_of(manifest, self.data_bytes)).unwrap_or_default();
        let mut summing = Summing::new(objects, 0, false, self.crcs);
        summing.update(data);
        self.summing = Some(summing);
    }

    /// Returns the manifest, if it has arrived and parses, and the checksums of the objects.
    pub(super) fn finish(self) -> (Option<Manifest>, Vec<Checksums>) {
        (self.manifest, self.summing.map(|summing| summing.computed).unwrap_or_default())
    }
}

/// Encodes the checksums at the end of a body.
pub(super) fn encode_checksums(all: &[Checksums]) -> Vec<u8> {
    all.iter().flat_map(|checksums| checksums.crc64nvme.unwrap_or_default().to_le_bytes()).collect()
}

/// Reverses [`encode_checksums`].
pub(super) fn parse_checksums(bytes: &[u8]) -> Vec<Checksums> {
    let (each, _) = bytes.as_chunks::<CHECKSUM_BYTES>();
    let parse =
        |crc: &[u8; CHECKSUM_BYTES]| Checksums { crc64nvme: Some(u64::from_le_bytes(*crc)), ..Checksums::default() };
    each.iter().map(parse).collect()
}

#[cfg(test)]
mod tests;
