//! The synthetic source and discarding sink.

use futures::TryStreamExt;
use std::sync::Arc;
use tradewind_store::{KeyRange, ListRequest, Store, StoreConfig, list_range, open};

fn source(objects: u32, size_bytes: u32) -> Arc<dyn Store> {
    let extra = [("objects", objects), ("size_bytes", size_bytes)];
    let extra = extra.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect();
    open(&StoreConfig { url: "mem:".to_owned(), extra, ..StoreConfig::default() }).expect("open")
}

#[tokio::test]
async fn a_synthetic_listing_is_in_order_and_pages() {
    let store = source(2500, 10);
    let pages: Vec<_> = list_range(Arc::clone(&store), "", &KeyRange::default()).try_collect().await.unwrap();
    let keys: Vec<String> = pages.into_iter().flat_map(|page| page.objects).map(|object| object.key).collect();
    assert_eq!(keys.len(), 2500);
    assert!(keys.is_sorted());
    let request = ListRequest {
        start_after: Some("object-000010".to_owned()),
        end_at: Some("object-000012".to_owned()),
        ..ListRequest::default()
    };
    let page = store.list(&request).await.unwrap();
    let keys: Vec<&str> = page.objects.iter().map(|object| object.key.as_str()).collect();
    assert_eq!(keys, ["object-000011", "object-000012"]);
    assert_eq!(page.continuation, None);
}
