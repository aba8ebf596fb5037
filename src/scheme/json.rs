//! Writes a field into a JSON body, for schemes whose sender signs inside it.

use std::borrow::Cow;

use super::Outgoing;
use crate::error::ConfigError;
use crate::identity::envelope::{self, Field, JsonPath};

/// Gives the message's body, a JSON object, a field at this path with this raw value, or this value to the one it has.
pub(super) fn set_field(message: &mut Outgoing, path: &JsonPath, value: &str) -> Result<(), ConfigError> {
    let refused = || ConfigError::scheme(format!("the body must be a json object that can get {}", path.as_str()));
    let text = std::str::from_utf8(message.body()).map_err(|_| refused())?;
    let [field] = envelope::read(text.as_bytes(), [path]).map_err(|_| refused())?;
    if field != Field::Absent {
        *message.request.body_mut() = replaced(text, &field, value).ok_or_else(refused)?.into();
        return Ok(());
    }
    let (first, rest) =
        path.as_str().split_once('.').map_or((path.as_str(), None), |(first, rest)| (first, Some(rest)));
    let nested = rest
        .into_iter()
        .flat_map(|rest| rest.rsplit('.'))
        .fold(value.to_owned(), |value, key| format!("{{\"{key}\":{value}}}"));
    let written = with_member(text, first, &nested).filter(|written| written != text).ok_or_else(refused)?;
    *message.request.body_mut() = written.into();
    Ok(())
}

/// The object `text` with the member `key` in front, or this value for the one it has; `None` when it is no object.
pub(super) fn with_member(text: &str, key: &str, value: &str) -> Option<String> {
    let [field] = envelope::read(text.as_bytes(), [&JsonPath::key(key)]).ok()?;
    if field != Field::Absent {
        return replaced(text, &field, value);
    }
    let members = text.trim_start().strip_prefix('{')?;
    let comma = if members.trim_start().starts_with('}') { "" } else { "," };
    Some(format!("{{\"{key}\":{value}{comma}{members}"))
}

/// `text` with another value in place of the one that was found in it.
fn replaced(text: &str, field: &Field<'_>, value: &str) -> Option<String> {
    let (before, after) = match field {
        Field::Other(raw) => around(text, raw),
        // The quotes are not part of it.
        Field::Text(Cow::Borrowed(inner)) => {
            let (before, after) = around(text, inner);
            (before.strip_suffix('"')?, after.strip_prefix('"')?)
        }
        Field::Text(Cow::Owned(_)) | Field::Absent => return None,
    };
    Some([before, value, after].concat())
}

/// What stands before and after `part`, which is a piece of `text`.
pub(super) fn around<'a>(text: &'a str, part: &str) -> (&'a str, &'a str) {
    let at = part.as_ptr().addr() - text.as_ptr().addr();
    (&text[..at], &text[at + part.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_comes_first_or_where_it_was() {
        assert_eq!(with_member(" {}", "a", "1").as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(with_member(r#"{"b":2}"#, "a", "1").as_deref(), Some(r#"{"a":1,"b":2}"#));
        assert_eq!(with_member(r#"{"b":2,"a":2}"#, "a", "1").as_deref(), Some(r#"{"b":2,"a":1}"#));
        assert_eq!(with_member(r#"{"a":"x","b":2}"#, "a", "1").as_deref(), Some(r#"{"a":1,"b":2}"#));
        assert_eq!(with_member("[]", "a", "1"), None);
    }
}
