//! Reads forms, and reads and edits JSON bodies, as far as schemes need it.

use std::borrow::Cow;

use super::Outgoing;
use super::encoding::decode_hex;
use crate::error::ConfigError;
use crate::identity::json_body::{self, Field, JsonPath};

/// The names and values of a query or a form, in their order.
pub(super) fn form_pairs(text: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=');
        let (name, value) = at.map_or((pair, &[][..]), |at| (&pair[..at], &pair[at + 1..]));
        (decoded(name), decoded(value))
    })
}

/// The value of `name`, if it occurs exactly once and is text.
pub(super) fn form_value<'a>(text: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    let mut values = form_pairs(text).filter(|(own, _)| **own == *name.as_bytes()).map(|(_, value)| value);
    let value = match values.next()? {
        Cow::Borrowed(bytes) => Cow::Borrowed(std::str::from_utf8(bytes).ok()?),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8(bytes).ok()?),
    };
    values.next().is_none().then_some(value)
}

/// Decodes plus signs to spaces, and escapes. Invalid escapes stay as they are.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'+' => plain.push(b' '),
            b'%' => match after.split_first_chunk::<2>().and_then(|(digits, after)| Some((escaped(digits)?, after))) {
                Some((byte, after)) => {
                    plain.push(byte);
                    rest = after;
                }
                None => plain.push(b'%'),
            },
            byte => plain.push(*byte),
        }
    }
    Cow::Owned(plain)
}

fn escaped(digits: &[u8; 2]) -> Option<u8> {
    decode_hex(digits).map(|[byte]| byte)
}

/// The strings at these paths, if all of them are present.
pub(super) fn json_texts<const N: usize>(body: &[u8], paths: [&str; N]) -> Option<[String; N]> {
    let paths: Vec<JsonPath> = paths.iter().filter_map(|path| JsonPath::parse(path)).collect();
    let paths: [&JsonPath; N] = paths.iter().collect::<Vec<_>>().try_into().ok()?;
    let fields = json_body::read(body, paths).ok()?;
    let texts: Vec<String> = fields.into_iter().filter_map(|field| Some(field.text()?.into_owned())).collect();
    texts.try_into().ok()
}

/// Sets the field at `path` in the message's body, a JSON object, to this raw value. Adds the field if it is absent.
pub(super) fn set_json_field(message: &mut Outgoing, path: &JsonPath, value: &str) -> Result<(), ConfigError> {
    let refused =
        || ConfigError::scheme(format!("the body must be a json object in which {} can be set", path.as_str()));
    let text = std::str::from_utf8(message.body()).map_err(|_| refused())?;
    let [field] = json_body::read(text.as_bytes(), [path]).map_err(|_| refused())?;
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
    let written = with_json_member(text, first, &nested).filter(|written| written != text).ok_or_else(refused)?;
    *message.request.body_mut() = written.into();
    Ok(())
}

/// Sets the member `key` of the object `text`, or adds it in front. `None` if `text` is not an object.
pub(super) fn with_json_member(text: &str, key: &str, value: &str) -> Option<String> {
    let [field] = json_body::read(text.as_bytes(), [&JsonPath::key(key)]).ok()?;
    if field != Field::Absent {
        return replaced(text, &field, value);
    }
    let members = text.trim_start().strip_prefix('{')?;
    let comma = if members.trim_start().starts_with('}') { "" } else { "," };
    Some(format!("{{\"{key}\":{value}{comma}{members}"))
}

/// Replaces the value that was found in `text`.
fn replaced(text: &str, field: &Field<'_>, value: &str) -> Option<String> {
    let (before, after) = match field {
        Field::Other(raw) => around(text, raw),
        // The quotes are not part of `inner`.
        Field::Text(Cow::Borrowed(inner)) => {
            let (before, after) = around(text, inner);
            (before.strip_suffix('"')?, after.strip_prefix('"')?)
        }
        Field::Text(Cow::Owned(_)) | Field::Absent => return None,
    };
    Some([before, value, after].concat())
}

/// The text before and after `part`, which is a slice of `text`.
pub(super) fn around<'a>(text: &'a str, part: &str) -> (&'a str, &'a str) {
    let at = part.as_ptr().addr() - text.as_ptr().addr();
    (&text[..at], &text[at + part.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_come_decoded() {
        let found: Vec<_> = form_pairs(b"a=1&b=%2B1+2&&c&=d&e=%zz%4&f=%C3%A9").collect();
        let expected: [(&[u8], &[u8]); 6] =
            [(b"a", b"1"), (b"b", b"+1 2"), (b"c", b""), (b"", b"d"), (b"e", b"%zz%4"), (b"f", "é".as_bytes())];
        assert_eq!(found.len(), expected.len());
        for ((name, value), (expected_name, expected_value)) in found.iter().zip(expected) {
            assert_eq!((&**name, &**value), (expected_name, expected_value));
        }
    }

    #[test]
    fn repeated_names_have_no_value() {
        assert_eq!(form_value(b"x=1&y=2", "y").as_deref(), Some("2"));
        assert_eq!(form_value(b"y=1&y=2", "y"), None);
        assert_eq!(form_value(b"y=%ff", "y"), None);
    }

    #[test]
    fn member_comes_first_or_where_it_was() {
        assert_eq!(with_json_member(" {}", "a", "1").as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(with_json_member(r#"{"b":2}"#, "a", "1").as_deref(), Some(r#"{"a":1,"b":2}"#));
        assert_eq!(with_json_member(r#"{"b":2,"a":2}"#, "a", "1").as_deref(), Some(r#"{"b":2,"a":1}"#));
        assert_eq!(with_json_member(r#"{"a":"x","b":2}"#, "a", "1").as_deref(), Some(r#"{"a":1,"b":2}"#));
        assert_eq!(with_json_member("[]", "a", "1"), None);
    }
}
