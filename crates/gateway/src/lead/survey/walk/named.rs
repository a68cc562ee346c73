//! Looks at sources whose objects are named: one object, members, or a list.

use super::{Naming, Walk};
use crate::failure::{failed_object, object_url};
use crate::lead::names::{listed_name, short_hash};
use crate::lead::survey::error::SurveyError;
use crate::lead::survey::{BATCH_OBJECTS_MAX, HEADS_AT_ONCE_MAX, LIST_NAMES_MAX};
use futures::{StreamExt, TryStreamExt};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tradewind_contract::Member;
use tradewind_store::{Error, ErrorKind, ListRequest, ObjectInfo};

/// Reads a list of names, one a line.
pub(super) struct ListedNames<'a> {
    /// The source's URL, with which a line may begin.
    url: &'a str,
    path: PathBuf,
    lines: Lines<BufReader<File>>,
    /// Hashes of the names so far.
    seen: HashSet<[u8; 16]>,
}

impl ListedNames<'_> {
    /// Returns the next name that has not been read yet.
    pub(super) async fn next(&mut self) -> Result<Option<String>, SurveyError> {
        let failed = |error| SurveyError::ListFile { path: self.path.clone(), error };
        while let Some(line) = self.lines.next_line().await.map_err(failed)? {
            let name = listed_name(self.url, &line);
            if name.is_empty() || !self.seen.insert(short_hash(name)) {
                continue;
            }
            if self.seen.len() > LIST_NAMES_MAX {
                return Err(SurveyError::TooManyNames);
            }
            return Ok(Some(name.to_owned()));
        }
        Ok(None)
    }
}

impl Walk {
    pub(super) async fn look_at_object(&self, key: &str) -> Result<(), SurveyError> {
        let ours = match self.ask(&self.survey.source, key).await {
            Err(error) if error.kind == ErrorKind::NotFound => {
                return if self.was_moved("").await? { Ok(()) } else { Err(self.why_missing(key, error).await) };
            }
            answer => answer.map_err(SurveyError::Source)?,
        };
        let mut theirs = Vec::new();
        if self.survey.job.compare.is_some() {
            for (index, target) in self.survey.job.targets.iter().enumerate() {
                theirs.push(self.ask_target(index, &target.key).await?);
            }
        }
        self.look_at_batch(vec![(ours, theirs)], self.naming()).await
    }

    /// Requests several objects at once; lists prefixes one after the other.
    pub(super) async fn look_at_members(&self, members: &[Member]) -> Result<(), SurveyError> {
        let (prefixes, objects): (Vec<_>, Vec<_>) =
            members.iter().cloned().partition(|member| member.key.ends_with('/'));
        let asked = futures::stream::iter(objects.into_iter().map(|member| async move {
            let found = self.ask(&self.survey.source, &member.key).await;
            (member, found)
        }));
        let mut asked = std::pin::pin!(asked.buffered(HEADS_AT_ONCE_MAX));
        while let Some((member, found)) = asked.next().await {
            match self.found_or_refused(&member.name, found).await? {
                Some(ours) => {
                    let naming = Naming { prefix: &member.key, put: &member.name };
                    let theirs = match self.survey.job.compare {
                        Some(_) => self.ask_targets(&member.name).await?,
                        None => Vec::new(),
                    };
                    self.look_at_batch(vec![(ours, theirs)], naming).await?;
                }
                None => self.saw_all.store(false, Ordering::Relaxed),
            }
        }
        for member in prefixes {
            let put = format!("{}/", member.name);
            self.look_at_prefix(Naming { prefix: &member.key, put: &put }).await?;
        }
        Ok(())
    }

    /// An object that is named and missing, or may not be read, fails alone.
    /// `name` is its name at the destinations.
    async fn found_or_refused(
        &self,
        name: &str,
        found: Result<ObjectInfo, Error>,
    ) -> Result<Option<ObjectInfo>, SurveyError> {
        match found {
            Ok(ours) => Ok(Some(ours)),
            Err(error) if error.kind == ErrorKind::NotFound && self.was_moved(name).await? => Ok(None),
            Err(error) if error.kind == ErrorKind::BucketNotFound || error.kind == ErrorKind::Unauthenticated => {
                Err(SurveyError::Source(error))
            }
            Err(error) => {
                self.refuse(failed_object(error.url.clone(), String::new(), &error), None, 0).await?;
                Ok(None)
            }
        }
    }

    pub(super) async fn look_at_list(&self, list_file: &str) -> Result<(), SurveyError> {
        let mut listed = self.listed_names(list_file).await?;
        let mut names = Vec::with_capacity(BATCH_OBJECTS_MAX);
        while let Some(name) = listed.next().await? {
            names.push(name);
            if names.len() == BATCH_OBJECTS_MAX {
                self.look_at_names(std::mem::take(&mut names)).await?;
            }
        }
        self.look_at_names(names).await
    }

    /// The names of a list, each once.
    pub(super) async fn listed_names(&self, list_file: &str) -> Result<ListedNames<'_>, SurveyError> {
        let path = PathBuf::from(list_file);
        match File::open(&path).await {
            Ok(file) => {
                let lines = BufReader::new(file).lines();
                Ok(ListedNames { url: self.survey.source.url(), path, lines, seen: HashSet::new() })
            }
            Err(error) => Err(SurveyError::ListFile { path, error }),
        }
    }

    /// Asks the stores for each name. A name that is not there, or may not be read, fails alone.
    async fn look_at_names(&self, names: Vec<String>) -> Result<(), SurveyError> {
        let names = names.into_iter().filter(|name| self.selector.takes_name(name));
        let asked = futures::stream::iter(names.map(|name| async move {
            let ours = self.ask(&self.survey.source, &format!("{}{name}", self.prefix)).await;
            let theirs = match ours.is_ok() && self.survey.job.compare.is_some() {
                true => self.ask_targets(&name).await?,
                false => Vec::new(),
            };
            Ok::<_, SurveyError>((name, ours, theirs))
        }));
        let asked: Vec<_> = asked.buffered(HEADS_AT_ONCE_MAX).try_collect().await?;
        let mut batch = Vec::with_capacity(asked.len());
        for (name, ours, theirs) in asked {
            if let Some(ours) = self.found_or_refused(&name, ours).await? {
                batch.push((ours, theirs));
            }
        }
        self.look_at_batch(batch, self.naming()).await
    }

    /// The answer to a `HEAD` has no body, so that a missing bucket or unknown credentials look like a missing object:
    /// a listing tells them apart.
    async fn why_missing(&self, key: &str, missing: Error) -> SurveyError {
        let request = ListRequest { prefix: format!("{key}/"), max_keys: Some(1), ..ListRequest::default() };
        let source = &self.survey.source;
        match self.policy.run("list", source.url(), || source.list(&request)).await {
            Err(error) if matches!(error.kind, ErrorKind::BucketNotFound | ErrorKind::Unauthenticated) => {
                SurveyError::Source(error)
            }
            Ok(page) if !page.objects.is_empty() => SurveyError::IsDirectory { url: object_url(source.as_ref(), key) },
            _ => SurveyError::Source(missing),
        }
    }
}
