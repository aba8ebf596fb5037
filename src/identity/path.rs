use std::fmt;

/// The most keys a path may have. It bounds the reader's recursion, whatever the body nests.
const MAX_KEYS: usize = 8;

/// Where a field stands in a JSON body: object keys from the top, such as `event.id`.
///
/// Dots separate the keys; a key that itself contains a dot cannot be named.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct JsonPath {
    text: Box<str>,
    keys: Box<[Box<str>]>,
}

impl JsonPath {
    /// `None` when the text, or a key in it, is empty, or when there are more than eight keys.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let keys: Box<[Box<str>]> = text.split('.').map(Box::from).collect();
        let sound = keys.len() <= MAX_KEYS && keys.iter().all(|key| !key.is_empty());
        sound.then(|| Self { text: text.into(), keys })
    }

    /// The path to one key at the top.
    pub(crate) fn key(key: &str) -> Self {
        Self { text: key.into(), keys: [key.into()].into() }
    }

    /// The path as it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the key at `level`, counted from the top, is `key`.
    pub(super) fn names(&self, level: usize, key: &str) -> bool {
        self.keys.get(level).is_some_and(|own| **own == *key)
    }

    /// Whether the key at `level` is the last.
    pub(super) fn ends_at(&self, level: usize) -> bool {
        self.keys.len() == level + 1
    }
}

impl fmt::Debug for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonPath({})", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_back_as_written() {
        for text in ["id", "event.id", "a.b.c.d.e.f.g.h", "日本.🦀", " ", "data/0"] {
            assert_eq!(JsonPath::parse(text).expect(text).as_str(), text);
        }
        assert_eq!(JsonPath::parse("id"), Some(JsonPath::key("id")));
    }

    #[test]
    fn empty_and_overlong_paths_are_refused() {
        for text in ["", ".", ".id", "id.", "event..id", "a.b.c.d.e.f.g.h.i"] {
            assert_eq!(JsonPath::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn each_level_names_its_own_key() {
        let path = JsonPath::parse("event.id").expect("a sound path");
        assert!(path.names(0, "event") && path.names(1, "id"));
        assert!(!path.names(0, "id") && !path.names(1, "i") && !path.names(2, "id") && !path.names(2, ""));
        assert!(!path.ends_at(0) && path.ends_at(1) && !path.ends_at(2));
    }
}
