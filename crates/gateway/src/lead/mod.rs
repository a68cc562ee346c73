//! The lead: what is to be moved, what has been, and what is to be deleted in the end. No object byte passes here.
//!
//! - [`select`] decides by name, size and time which objects are taken;
//! - [`pages`] lists a store by key ranges, [`join`] walks source and destination listings side by side, [`compare`]
//!   says whether two objects are the same, and [`survey`] makes work of all three; [`probe`] asks the destinations first, and
//!   [`places`] refuses those that overlap with the source, and [`names`] finds names that a destination may take for one;
//! - [`state_dir`] is the job's folder: [`journal`] remembers what is done, [`status`] tells others how far it is;
//! - [`backlog`] keeps on disk what must be looked at when all else is done;
//! - [`report`] writes a verdict per object; [`deletion`] deletes after all copies are proven, and
//!   [`copies`] looks at them once more before their sources go; [`sweep`] clears uploads
//!   that nobody will finish.

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
