//! Other spellings of a name, which some servers and file systems treat as the name itself.

use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};

/// The name with the other case of each ASCII letter.
pub(crate) fn other_ascii_case(name: &str) -> String {
    let other = |letter: char| match letter.is_ascii_lowercase() {
        true => letter.to_ascii_uppercase(),
        false => letter.to_ascii_lowercase(),
    };
    name.chars().map(other).collect()
}

/// The decomposed and the composed form of a name.
pub(crate) fn unicode_forms(name: &str) -> [String; 2] {
    [
        DecomposingNormalizerBorrowed::new_nfd().normalize(name).into_owned(),
        ComposingNormalizerBorrowed::new_nfc().normalize(name).into_owned(),
    ]
}

/// Spellings of a name with ASCII letters, of which a file system finds one if it ignores case or Unicode form.
pub(crate) fn other_spellings(name: &str) -> Vec<String> {
    let mut spellings = vec![other_ascii_case(name)];
    spellings.extend(unicode_forms(name));
    spellings.retain(|spelling| spelling != name);
    spellings
}
