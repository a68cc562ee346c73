//! The keys that this gateway may read and write for its job, whatever its peers request.
//!
//! Orders and manifests name keys. Keys outside the job are refused here, at the gateway that holds the credentials, so
//! that a compromised peer cannot reach the rest of a store.

use super::work::{Failure, Fetch, SourceTask};
use tradewind_contract::{CopyScope, KeyScope, Program};
use tradewind_store::PartSource;
use tradewind_wire::Fault;

/// Keys that a source may read.
#[derive(Clone, Debug)]
pub struct ReadScope(KeyScope);

/// Keys that a sink may write, by destination, and those that it may copy inside a store.
#[derive(Clone, Debug, Default)]
pub struct WriteScope {
    writes: Vec<KeyScope>,
    copies: Option<CopyScope>,
}

impl ReadScope {
    /// Allows these keys and no others.
    pub fn new(keys: KeyScope) -> Self {
        Self(keys)
    }

    /// The scope in the program or, for a lead, in its job; `None` if neither has one.
    pub fn of(program: &Program) -> Option<Self> {
        program.reads.clone().or_else(|| program.lead.as_ref().map(|job| job.reads())).map(Self)
    }

    /// Checks that the job may read the keys of a task.
    ///
    /// # Errors
    /// The task reads a key that is outside the job.
    pub fn check(&self, task: &SourceTask) -> Result<(), Failure> {
        let outside = |key: &&str| !self.0.holds(key);
        let found = match task {
            SourceTask::Part { source_key, .. } => Some(source_key.as_str()).filter(outside),
            SourceTask::Bundle(fetches) => fetches.iter().map(key_of).find(outside),
            SourceTask::Pass(_) => None,
        };
        found.map_or(Ok(()), |key| Err(refused("read", key)))
    }
}

fn key_of(fetch: &Fetch) -> &str {
    &fetch.source_key
}

impl WriteScope {
    /// Allows these keys, by destination, and no others, and no copies inside a store.
    pub fn new(writes: Vec<KeyScope>) -> Self {
        Self { writes, copies: None }
    }

    /// The scope in the program or, for a lead, in its job.
    pub fn of(program: &Program) -> Self {
        match &program.lead {
            Some(job) => Self { writes: job.writes(), copies: job.copies() },
            None => Self { writes: program.writes.clone(), copies: program.copies.clone() },
        }
    }

    /// Checks that the job may write a key.
    ///
    /// # Errors
    /// The job does not write this key at this destination.
    pub fn check(&self, target: u16, key: &str) -> Result<(), Failure> {
        let is_ours = self.writes.get(usize::from(target)).is_some_and(|scope| scope.holds(key));
        if is_ours { Ok(()) } else { Err(refused("write", key)) }
    }

    /// Checks that the job may copy an object inside a store.
    ///
    /// # Errors
    /// The job does not copy this object.
    pub fn check_copy(&self, source: &PartSource) -> Result<(), Failure> {
        let is_ours = |scope: &CopyScope| scope.bucket == source.bucket && scope.keys.holds(&source.key);
        if self.copies.as_ref().is_some_and(is_ours) { Ok(()) } else { Err(refused("copy", &source.key)) }
    }
}

fn refused(verb: &str, key: &str) -> Failure {
    let message = format!("a peer asked to {verb} {key:?}, which is outside the job");
    Failure::new(Fault::Permanent, "forbidden", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_store::Precondition;

    fn below(prefix: &str) -> KeyScope {
        KeyScope::Prefix { prefix: prefix.to_owned() }
    }

    #[test]
    fn each_destination_has_keys_of_its_own() {
        let writes = vec![below("a/"), KeyScope::Object { key: "one".to_owned() }];
        let scope = WriteScope { writes, copies: None };
        assert!(scope.check(0, "a/x").is_ok() && scope.check(1, "one").is_ok());
        for (target, key) in [(0, "a"), (0, "b/x"), (0, "one"), (1, "a/x"), (1, "one/x"), (2, "a/x")] {
            assert_eq!(scope.check(target, key).unwrap_err().kind, "forbidden", "{target} {key}");
        }
    }

    #[test]
    fn copies_are_from_the_jobs_own_bucket_and_keys() {
        let source = |bucket: &str, key: &str| PartSource {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            condition: Precondition::default(),
            range: None,
        };
        let copies = Some(CopyScope { bucket: "b".to_owned(), keys: below("a/") });
        let scope = WriteScope { writes: vec![below("")], copies };
        assert!(scope.check_copy(&source("b", "a/x")).is_ok());
        assert!(scope.check_copy(&source("c", "a/x")).is_err());
        assert!(scope.check_copy(&source("b", "z")).is_err());
        assert!(WriteScope::default().check_copy(&source("b", "a/x")).is_err());
    }
}
