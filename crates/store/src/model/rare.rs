//! A value that is mostly the default, and then takes no memory.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ops::{Deref, DerefMut};

/// A `T` behind a pointer that is null for the default. Records of objects travel in large numbers and are moved often, so
/// fields that few objects have should not make them longer. Serialized like a `T`.
#[derive(Clone, Debug, Default)]
pub struct Rare<T>(Option<Box<T>>);

/// A type whose default value exists once.
pub trait SharedDefault: Default + PartialEq + 'static {
    /// The default value.
    const SHARED_DEFAULT: &'static Self;
}

impl<T: SharedDefault> Rare<T> {
    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.map_or_else(T::default, |value| *value)
    }
}

impl<T: SharedDefault> From<T> for Rare<T> {
    fn from(value: T) -> Self {
        Self((value != *T::SHARED_DEFAULT).then(|| Box::new(value)))
    }
}

impl<T: SharedDefault> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::SHARED_DEFAULT)
    }
}

impl<T: SharedDefault> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<T: SharedDefault> PartialEq for Rare<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: SharedDefault + Eq> Eq for Rare<T> {}

impl<T: SharedDefault> PartialEq<T> for Rare<T> {
    fn eq(&self, other: &T) -> bool {
        **self == *other
    }
}

impl<T: SharedDefault + Serialize> Serialize for Rare<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: SharedDefault + Deserialize<'de>> Deserialize<'de> for Rare<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attributes;

    #[test]
    fn only_a_value_other_than_the_default_takes_memory() {
        let (none, some) =
            (Attributes::default(), Attributes { cache_control: Some("x".into()), ..Default::default() });
        for (value, is_kept) in [(none, false), (some, true)] {
            let rare = Rare::from(value.clone());
            assert_eq!(rare.0.is_some(), is_kept);
            assert_eq!(rare, value);
            let text = serde_json::to_string(&rare).unwrap();
            assert_eq!(text, serde_json::to_string(&value).unwrap());
            let read: Rare<Attributes> = serde_json::from_str(&text).unwrap();
            assert_eq!((read.0.is_some(), read.into_inner()), (is_kept, value));
        }
    }

    #[test]
    fn a_value_that_was_changed_back_equals_the_default() {
        let mut rare = Rare::from(Attributes { cache_control: Some("x".into()), ..Attributes::default() });
        assert_ne!(rare, Rare::default());
        rare.cache_control = None;
        assert_eq!(rare, Rare::default());
    }
}
