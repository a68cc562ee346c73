//! Opens the stores that the contract describes.

use std::path::PathBuf;
use std::sync::Arc;
use tradewind_contract::StoreSpec;
use tradewind_store::{Result, Store, StoreConfig};

/// The store crate's configuration for a contract's store.
pub fn config_of(spec: &StoreSpec) -> StoreConfig {
    StoreConfig {
        url: spec.url.clone(),
        endpoint: spec.endpoint.clone(),
        region: spec.region.clone(),
        profile: spec.profile.clone(),
        path_style: spec.path_style,
        anonymous: spec.anonymous,
        requester_pays: spec.requester_pays,
        ca_file: spec.ca_file.as_ref().map(PathBuf::from),
        fsync: spec.fsync,
        follow_symlinks: spec.follow_symlinks,
        extra: spec.extra.clone(),
    }
}

/// Opens the store that `spec` describes. Makes no request.
pub fn open(spec: &StoreSpec) -> Result<Arc<dyn Store>> {
    tradewind_store::open(&config_of(spec))
}
