//! The lead: decides what is moved, records what is done, and deletes at the end. Object bytes never pass through it.
//!
//! - [`select`] filters objects by name, size and time;
//! - [`pages`] lists a store by key ranges, [`join`] merges the listings of source and destination, [`compare`] decides
//!   whether two objects are the same, and [`survey`] turns the results into work; before that, [`probe`] checks the
//!   destinations and [`places`] refuses those that overlap with the source; [`names`] finds names that a destination
//!   may treat as one;
//! - [`state_dir`] is the job's folder: [`journal`] remembers what is done, [`status`] shows the progress to other
//!   processes;
//! - [`backlog`] keeps on disk the objects that must wait until all others are done;
//! - [`report`] writes a verdict per object; [`deletion`] deletes after all copies are proven, and [`copies`] checks
//!   them once more before their sources are deleted; [`sweep`] aborts abandoned uploads.

pub mod availability;
pub mod backlog;
pub mod compare;
pub mod copies;
pub mod deletion;
pub mod join;
pub mod journal;
pub mod local_sums;
pub mod names;
pub mod pages;
pub mod places;
pub mod probe;
pub mod report;
pub mod run;
pub mod select;
pub mod state_dir;
pub mod status;
pub mod survey;
pub mod sweep;
