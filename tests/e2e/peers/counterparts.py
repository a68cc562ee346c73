"""The tests of other tools that no case here repeats, and why: another test has them, or Tradewind differs.

Each list, together with the cases of the tool's file, has all tests of the files that it names. Its keys are

- a test of ours: `file::name`
- `case: ` and a case of the tool, as all are repeated between buckets, too
- `differs: ` and a sentence of docs/guides/coming-from.md
- `absent: ` and an option that this page says is absent
- `own: ` and what the tests are about, if only the tool itself has it
"""

from __future__ import annotations

Counterparts = dict[str, str]

#: rclone's `fs/sync/sync_test.go` of August 2026.
RCLONE: Counterparts = {
    "e2e/test_attributes.py::test_attributes_are_guessed_set_kept_and_replaced": "CopyMetadata",
    "differs: Directories keep nothing": """CopyMetadataNoEmptyDirs SyncNoUpdateDirModtime SyncSetDelayedModTimes
        SyncReplaceDirModTime SyncReplaceDirModTimeWithEmptyDirs NothingToTransferWithoutEmptyDirs""",
    "differs: Empty directories are copied": "CopyNoEmptyDirectories MoveNoEmptyDirectories SyncNoEmptyDirectories",
    "own: how much is listed before and during a copy": """CopyNoTraverse CopyNoTraverseDeadlock CopyCheckFirst
        SyncNoTraverse CopyWithFilesFromAndNoTraverse""",
    "e2e/test_names.py::test_every_key_survives_a_server_side_copy": "ServerSideCopy",
    "case: TestServerSideMove": "ServerSideMoveLocal",
    "case: TestCopyOverSelf": "ServerSideCopyOverSelf",
    "case: TestMoveOverSelf": "ServerSideMoveOverSelf",
    "e2e/test_outcomes.py::test_mv_removes_the_directories_it_empties_and_no_others": """MoveWithDeleteEmptySrcDirs
        ServerSideMoveDeleteEmptySourceDirs""",
    "e2e/test_links.py::test_a_dangling_link_causes_no_deletion": """
        SyncAfterRemovingAFileAndAddingAFileSubDirWithErrors""",
    "absent: --ignore-errors": "SyncIgnoreErrors",
    "absent: --ignore-size": "SyncIgnoreSize",
    "differs: rclone compares their hashes and only sets the time": "SyncAfterChangingModtimeOnlyWithNoUpdateModTime",
    "e2e/test_stories.py::test_sync_copies_only_what_changed_and_deletes_only_on_request": """SyncDeleteAfter
        SyncDeleteDuring SyncDeleteBefore""",
    "absent: --delete-excluded": "SyncWithExcludeAndDeleteExcluded",
    "absent: --update": "SyncWithUpdateOlder",
    "absent: --max-duration": "SyncWithMaxDuration",
    "absent: --track-renames": """ParseRenamesStrategyModtime RenamesStrategyModtime SyncWithTrackRenamesStrategyModtime
        SyncWithTrackRenamesStrategyLeaf""",
    "absent: --compare-dest": "SyncCompareDest SyncMultipleCompareDest",
    "absent: --copy-dest": "SyncCopyDest",
    "absent: --backup-dir": """SyncBackupDir SyncBackupDirWithSuffix SyncBackupDirWithSuffixKeepExtension
        SyncBackupDirSuffixOnly""",
    "absent: --suffix": "SyncSuffix SyncSuffixKeepExtension",
    "absent: --immutable": "SyncImmutable",
    "absent: --fix-case": "FixCase",
    "e2e/test_store_faults.py::test_a_source_object_deleted_during_its_copy_is_reported": "SyncConcurrentDelete",
    "e2e/test_versions.py::test_a_source_that_keeps_shrinking_has_changed": "SyncConcurrentTruncate",
}

#: s5cmd's `e2e/{cp,sync,rm,ls,du,cat,mv,pipe,head,mb,rb,presign}_test.go` of June 2025.
S5CMD: Counterparts = {
    "e2e/test_stories.py::test_one_object_lands_where_the_slash_rule_says": """CopySingleS3ObjectToLocal
        CopyS3ObjectToLocalWithTheSameFilename CopyLocalFileToS3WithCustomName CopySingleS3ObjectIntoAnotherBucket
        CopySingleS3ObjectIntoAnotherBucketWithObjName CopySingleS3ObjectIntoAnotherBucketWithPrefix
        CopySingleS3ObjectToS3 MoveSingleS3ObjectToLocal MoveSingleS3ObjectToS3 MoveSingleS3ObjectIntoAnotherBucket
        CopyLocalDirectoryToS3WithPrefixWithSlash CopyLocalDirectoryToS3WithPrefixWithoutSlash""",
    "e2e/test_stories.py::test_a_tree_arrives_whole_and_proven": """CopyMultipleFlatS3ObjectsToLocal
        CopyMultipleS3ObjectsToGivenLocalDirectory CopyMultipleFilesToS3Bucket CopyMultipleFilesToS3WithPrefixWithSlash
        MultipleLocalFileToS3Bucket CopyMultipleLocalNestedFilesToS3 CopyS3ToLocal_Issue70 MoveMultipleS3ObjectsToLocal
        CopyMultipleS3ObjectsToS3WithPrefix CopyMultipleS3ObjectsToS3WithPrefixWithoutSlash""",
    "e2e/test_patterns.py::test_cp_names_copies_by_the_fixed_directory": """
        CopyMultipleFlatS3ObjectsToLocalWithPartialMatching CopyMultipleFilesMiddleWildcardedDirectoryToS3Bucket""",
    "e2e/test_existing_objects.py::test_flatten_leaves_out_the_directories_and_refuses_a_second_object_of_a_name": """
        FlattenCopyMultipleFilesToS3Bucket FlattenCopyLocalDirectoryToS3WithPrefixWithSlash
        FlattenCopyMultipleS3ObjectsToS3WithPrefix""",
    "e2e/test_existing_objects.py::test_an_object_that_exists_is_never_replaced": """
        CopyS3ToLocalWithSameFilenameWithNoClobber""",
    "e2e/test_command_line.py::test_json_begins_with_the_job_and_ends_with_the_summary": """
        CopySingleS3ObjectToLocalJSON CopyMultipleFlatS3ObjectsToLocalJSON CopySingleFileToS3JSON
        CopySingleS3ObjectToS3JSON CopyMultipleS3ObjectsToS3JSON""",
    "e2e/test_attributes.py::test_attributes_are_guessed_set_kept_and_replaced": """
        CopySingleFileToS3WithAllMetadataFlags CopySingleFileToS3WithArbitraryMetadata
        CopyS3ToS3WithArbitraryMetadataWithDefaultDirective CopyS3ToS3WithArbitraryMetadataWithReplaceDirective
        CopySingleLocalFileToS3WithContentType CopyMultipleFilesToS3BucketWithContentType
        CopySingleS3ObjectToAnotherBucketWithContentType CopyMultipleS3ObjectsToAnotherBucketWithContentType""",
    "e2e/test_attributes.py::test_standard_input_gets_a_type_by_the_name_of_its_destination": """
        UploadStdinToS3WithoutFileExtension PipeToS3WithArbitraryMetadata UploadStdinToToS3WithAllMetadataFlags""",
    "e2e/test_request_headers.py::test_a_write_names_its_storage_class": "UploadStdinToS3WithStorageClassGlacier",
    "e2e/test_request_headers.py::test_all_kinds_of_writes_to_s3_name_the_storage_class": """
        CopySingleFileToS3WithStorageClassGlacier""",
    "e2e/test_names.py::test_every_key_survives_between_stores": """CopySingleFileToS3WithAdjacentSlashes
        CopyAllObjectsIntoAnotherBucketIncludingSpecialCharacter UploadStdinToS3WithAdjacentSlashes""",
    "own: backslashes in paths of Windows": "CopyDirBackslashedToS3",
    "differs: A name that exists wins over a pattern": """CopyLocalObjectstoS3WithRawFlag CopyLocalFilestoS3WithRawFlag
        CopyMultipleS3ObjectsToS3WithRawMode CopyMultipleS3ObjectsWithPrefixToS3WithRawMode HeadObjectRaw
        HeadObjectWildcardWithoutRawFlag""",
    "e2e/test_comparisons.py::test_sync_copies_from_files_what_check_names": """
        CopyLocalFileToS3WithSameFilenameOverrideIfSizeDiffers
        CopyLocalFileToS3WithSameFilenameOverrideIfSourceIsNewer
        CopyLocalFileToS3WithSameFilenameDontOverrideIfS3ObjectIsOlder
        SyncLocalFolderToS3BucketSameObjectsSourceOlder SyncLocalFolderToS3BucketSameObjectsSizeOnly""",
    "e2e/test_comparisons.py::test_sync_copies_to_files_with_kept_times_what_check_names": """
        CopyS3ToLocalWithSameFilenameOverrideIfSizeDiffers CopyS3ToLocalWithSameFilenameOverrideIfSourceIsNewer
        CopyS3ToLocalWithSameFilenameDontOverrideIfS3ObjectIsOlder SyncS3BucketToLocalFolderSameObjectsSourceOlder
        SyncS3BucketToLocalFolderSameObjectsSourceNewer""",
    "e2e/test_comparisons.py::test_sync_copies_between_stores_what_check_names": """
        SyncS3BucketToS3BucketSameSizesSourceNewer SyncS3BucketToS3BucketSameSizesSourceOlder""",
    "e2e/test_stories.py::test_a_dry_run_shows_what_it_would_do_and_does_nothing": "CopyS3ToDirDryRun",
    "differs: Storage classes, metadata and tags are not compared": """
        SyncS3BucketToS3BucketIsStorageClassChanging SyncLocalFolderToS3BucketIsStorageClassChanging
        SyncS3BucketToLocalFolderIsStorageClassChanging
        SyncS3BucketToS3BucketIsStorageClassChangingWithDifferentSizeAndContent
        SyncLocalFolderToS3BucketIsStorageClassChangingWithDifferentSizeAndContent
        SyncS3BucketToLocalFolderIsStorageClassChangingWithDifferentSizeAndContent""",
    "e2e/test_unlisted.py::test_a_filter_by_name_does_not_hide_a_folder_that_cannot_be_listed": """
        CopyLocalFileToS3WithFilePermissions""",
    "e2e/test_command_line.py::test_globs_match_like_gitignore": """CopyLocalDirectoryToS3WithExcludeFilter
        CopyLocalDirectoryToS3WithExcludeFilters SyncLocalDirectoryToS3WithExcludeFilter
        RemoveLocalDirectoryWithExcludeFilter RemoveLocalFilesWithExcludeFilters ListLocalFilesWithExcludeFilter
        ListLocalFilesWithExcludeFilters ListLocalFilesWithPrefixAndExcludeFilter DiskUsageWildcardWithExcludeFilter""",
    "differs: Filters of `cp` need `-r` or a pattern": """CopySingleS3ObjectsIntoAnotherBucketWithExcludeFilter
        CopySingleS3ObjectsIntoAnotherBucketWithExcludeFilters""",
    "e2e/test_out_of_reach.py": "CopyExpectExitCode1OnUnreachableHost",
    "e2e/test_outcomes.py::test_after_a_failed_request_to_open_an_upload_the_upload_is_looked_up": """
        CopySingleFileToS3WithNoSuchUploadRetryCount""",
    "absent: --version-id": """VersionedDownload RemoveByVersionID DiskUsageByVersionIDAndAllVersions CatByVersionID
        HeadObjectWithVersionID""",
    "e2e/test_store_faults.py::test_bytes_that_remain_wrong_are_reported_and_never_visible": """
        DeleteFileWhenDownloadFailed LocalFileOverridenWhenDownloadFailed""",
    "own: a counter of bytes": "CountingWriter",
    "e2e/test_diagnostics.py::test_special_files_have_their_own_words": """
        UploadingSocketFile SyncSocketDestinationEmpty""",
    "own: which options of `cp` its `sync` refuses": "SyncFailForNonsharedFlagsFromCopyCommand",
    "differs: `sync` takes directories and patterns": """SyncSinglePrefixedS3ObjectToCurrentDirectory
        SyncPrefixedSingleS3ObjectToLocalDirectory SyncSingleS3ObjectToLocalDirectory SyncLocalFileToS3Twice
        SyncLocalFileToS3Prefix SyncLocalFileInDirectoryToS3 SyncLocalFileInDirectoryToS3Prefix""",
    "e2e/test_stories.py::test_sync_copies_only_what_changed_and_deletes_only_on_request": """
        SyncLocalToS3BucketWithDelete SyncLocalToEmptyS3BucketWithDelete SyncS3BucketToS3BucketWithDeleteStorageClass
        SyncLocalFolderToS3BucketWithDeleteStorageClass""",
    "differs: `sync --delete` with a pattern deletes only names that match": "SyncS3BucketToLocalWithDeleteFlag",
    "e2e/test_stories.py::test_delete_refuses_a_source_that_is_missing_or_empty": "Issue435",
    "absent: --exit-on-error": """SyncS3BucketToEmptyS3BucketWithExitOnErrorFlag
        SyncExitOnErrorS3BucketToS3BucketThatDoesNotExist""",
    "e2e/test_outcomes.py::test_a_missing_destination_bucket_is_reported_and_requested_once": """
        SyncS3BucketToS3BucketThatDoesNotExist""",
    "e2e/test_stories.py::test_ls_du_and_rm_agree_on_the_objects": """
        RemoveSingleS3ObjectJSON RemoveMultipleS3ObjectsJSON
        RemoveSingleLocalFile ListSingleS3ObjectJSON DiskUsageSingleS3ObjectJSON DiskUsageS3ObjectsAndFolders""",
    "e2e/test_scale.py::test_100_000_tiny_files_and_a_sync_that_finds_nothing_to_do": "RemoveTenThousandS3Objects",
    "e2e/test_rm_several.py::test_rm_takes_several_places_and_one_that_is_missing_fails_alone": """
        RemoveMultipleMixedObjects""",
    "e2e/test_rm_versions.py::test_all_versions_and_markers_below_a_directory_go": "VersionedListAndRemove",
    "e2e/test_buckets.py::test_ls_of_an_account_lists_its_buckets": "ListBuckets ListBucketsJSON",
    "e2e/test_command_line.py::test_names_with_line_ends_stay_on_their_lines": "ListWildcardS3ObjectWithNewLineInName",
    "e2e/test_patterns.py::test_ls_and_du_take_wildcards": """ListMultipleWildcardS3ObjectWithPrefix
        ListNonexistingS3ObjectInGivenPrefix""",
    "differs: `ls -l` and `ls --json` show what `ls -e`, `-s` and `--show-fullpath` show": """ListS3ObjectsWithDashS
        ListS3ObjectsWithDashE ListS3ObjectsWithDashH ListS3ObjectsAndFoldersWithTheirFullpath
        DiskUsageWildcardS3ObjectsWithDashH""",
    "e2e/test_buckets.py::test_an_empty_directory_is_listed_and_a_missing_one_is_not": """
        EmptyBucket DiskUsageEmptyBucket""",
    "e2e/test_patterns.py::test_cat_writes_what_a_pattern_matches_in_order": "CatWildcard",
    "e2e/test_exit_codes.py::test_mistakes_and_missing_things_have_the_codes_of_the_table": """CatLocalFileFail
        CatInEmptyBucket HeadObjectNonExistent HeadObjectJSONNonExistent""",
    "e2e/test_stories.py::test_standard_input_and_output": "UploadStdinToS3JSON",
    "e2e/test_looking.py::test_stat_shows_what_the_store_states": """HeadObject HeadObjectJSON HeadObjectWithMetadata
        HeadObjectJSONMetadata Head""",
    "cli/test_other_tools.py::test_words_of_other_tools_get_a_hint": """HeadBucket HeadBucketNonExistent HeadBucketJSON
        HeadBucketJSONNonExistent""",
    "e2e/test_buckets.py::test_a_bucket_is_made_used_and_removed_only_when_empty": """MakeBucket_success
        MakeBucket_success_json RemoveBucketSuccess RemoveBucketSuccessJson RemoveBucketFailure RemoveBucketFailureJson
        RemoveBucketWithObject""",
    "e2e/test_buckets.py::test_a_bucket_that_exists_is_not_made": "MakeBucket_failure MakeBucket_failure_json",
    "e2e/test_presign.py::test_an_address_reads_the_object_without_credentials": "Presign",
}

#: juicefs' `pkg/sync/sync_test.go` of August 2026.
JUICEFS: Counterparts = {
    "own: listings in parallel": "Iterator IeratorSingleEmptyKey",
    "cli/test_ignore_files.py::test_git_reads_the_rules_as_it_reads_the_file": "ParseRules ParseFilterRule",
    "differs: Rules mean what they mean in `.gitignore`": "MatchObjects MatchFullPatch",
    "absent: --links": "SyncLink SingleLink SyncCheckAllLink SyncCheckNewLink",
    "absent: --limit": """Limits SyncLimitDeleteDstBoundary SyncLimitDeleteDstDefersNonEmptyDir
        SyncLimitDeleteDstIgnoreExisting SyncLimitDeleteDstLeftoverIgnoreExisting""",
    "absent: --encrypt-rsa-key": "SyncEncrypt SyncEncryptLargeFile",
    "own: limits of the rate that a server gives out": "MixedLimiterFailover GlobalLimitDrainWaitersOnFailure",
}

#: Examples of `aws s3 help`, in `awscli/examples/s3` of July 2026: command and number.
AWS: Counterparts = {
    "absent: --expires": "cp-2",
    "absent: --acl": "cp-9 mv-8",
    "absent: --grants": "cp-10 mv-9",
    "e2e/test_stories.py::test_a_tree_arrives_whole_and_proven": "cp-4 mv-3 sync-2 sync-3",
    "absent: --expected-size": "cp-12",
    "engine/test_unsupported_stores.py": "cp-14 cp-15 mv-10 sync-8 rm-5 ls-6",
    "e2e/test_outcomes.py::test_destinations_of_different_kinds_have_separate_endpoints": "sync-7",
    "e2e/test_buckets.py::test_ls_of_an_account_lists_its_buckets": "ls-1",
    "cli/test_other_tools.py::test_words_of_other_tools_get_a_hint": "ls-5",
    "e2e/test_buckets.py::test_a_bucket_is_made_used_and_removed_only_when_empty": "mb-1 mb-2 rb-1 rb-2",
    "absent: --tags": "mb-3",
    "e2e/test_presign.py::test_an_address_reads_the_object_without_credentials": "presign-1 presign-2",
}
