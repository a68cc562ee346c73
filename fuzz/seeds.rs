//! The seeds of the tests that drive fuzz entries on stable Rust, as a corpus for libFuzzer.

/// Writes `seeds` to the folder `entry` below the one that the environment variable FUZZ_CORPUS names, if it is set.
pub(crate) fn keep(entry: &str, seeds: &[Vec<u8>]) {
    let Some(corpus) = std::env::var_os("FUZZ_CORPUS") else { return };
    let folder = std::path::Path::new(&corpus).join(entry);
    std::fs::create_dir_all(&folder).expect("the corpus can be written");
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number}")), seed).expect("the corpus can be written");
    }
}
