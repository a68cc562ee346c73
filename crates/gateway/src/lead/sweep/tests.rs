use super::*;
use crate::directory_tree::DirectoryTree;
use crate::lead::state_dir::StateDir;
use crate::lead::status::now_unix_ms;
use tradewind_contract::Limits;
use tradewind_store::PutOptions;

fn intent(key: &str, intent_unix_ms: i64) -> Entry {
    Entry::Intent(Box::new(Intent {
        target: 0,
        target_key: key.to_owned(),
        source_key: key.to_owned(),
        size_bytes: 10,
        fingerprint: 1,
        chunk_bytes: 5,
        options: PutOptions::default(),
        intent_unix_ms,
    }))
}

#[tokio::test]
async fn orphans_of_an_intent_go_and_known_uploads_stay_until_all_is_given_up() {
    let (tree, folder) = (DirectoryTree::new(), tempfile::tempdir().unwrap());
    let journal = Journal::create(&StateDir::create(folder.path()).unwrap()).unwrap();
    let policy = RetryPolicy::from(&Limits::default());
    let targets = [tree.store.clone()];
    for key in ["d/orphan", "d/known", "d/foreign"] {
        let upload = tree.store.open_upload(key, &PutOptions::default()).await.unwrap();
        // A job that begins much later has nothing to do with an upload of now.
        let later_ms = if key == "d/foreign" { 2 * CLOCK_DIFFERENCE_MS_MAX } else { 0 };
        journal.record(intent(key, now_unix_ms() + later_ms)).await.unwrap();
        if key == "d/known" {
            let (target_key, has_unnamed) = (key.to_owned(), false);
            journal.record(Entry::Opened { target: 0, target_key, upload, has_unnamed }).await.unwrap();
        }
    }
    assert_eq!(tree.keys().len(), 3);

    let end = abort_orphans(&journal, &targets, policy, Intents::Kept).await.unwrap();
    assert_eq!((end.aborted, end.failed.len(), tree.keys().len()), (1, 0, 2));

    // A gateway of the killed run opens it after all.
    tree.store.open_upload("d/orphan", &PutOptions::default()).await.unwrap();
    let end = abort_orphans(&journal, &targets, policy, Intents::Forgotten).await.unwrap();
    assert_eq!((end.aborted, end.failed.len(), tree.keys().len()), (1, 0, 2));
    assert!(journal.pending_intents().await.unwrap().is_empty());
    assert_eq!(journal.unfinished().await.unwrap().len(), 1);

    let end = abort_all(&journal, &targets, policy).await.unwrap();
    assert_eq!((end.aborted, end.failed.len(), tree.keys().len()), (1, 0, 1));
    assert!(journal.unfinished().await.unwrap().is_empty());
}

#[tokio::test]
async fn uploads_opened_by_a_repeated_request_are_found_after_the_one_with_a_name_is_abandoned() {
    let (tree, folder) = (DirectoryTree::new(), tempfile::tempdir().unwrap());
    let journal = Journal::create(&StateDir::create(folder.path()).unwrap()).unwrap();
    let policy = RetryPolicy::from(&Limits::default());
    let (target, target_key, has_unnamed) = (0, "d/asked-twice".to_owned(), true);
    journal.record(intent(&target_key, now_unix_ms())).await.unwrap();
    let _unnamed = tree.store.open_upload(&target_key, &PutOptions::default()).await.unwrap();
    let upload = tree.store.open_upload(&target_key, &PutOptions::default()).await.unwrap();
    let opened = Entry::Opened { target, target_key: target_key.clone(), upload: upload.clone(), has_unnamed };
    journal.record(opened).await.unwrap();
    tree.store.abort_upload(&target_key, &upload).await.unwrap();
    journal.record(Entry::Abandoned { target, target_key, upload: Some(upload) }).await.unwrap();

    let end = abort_orphans(&journal, std::slice::from_ref(&tree.store), policy, Intents::Forgotten).await.unwrap();
    assert_eq!((end.aborted, end.failed.len(), tree.keys().len()), (1, 0, 0));
    assert!(journal.pending_intents().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_destination_that_the_job_does_not_have_is_a_failure_and_not_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::create(&StateDir::create(folder.path()).unwrap()).unwrap();
    journal.record(intent("a", 0)).await.unwrap();
    let end = abort_all(&journal, &[], RetryPolicy::from(&Limits::default())).await.unwrap();
    assert_eq!((end.aborted, end.failed.len()), (0, 1));
    assert_eq!(journal.pending_intents().await.unwrap().len(), 1);
}
