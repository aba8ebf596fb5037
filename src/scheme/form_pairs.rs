//! `application/x-www-form-urlencoded`, as far as schemes need it.

use std::borrow::Cow;

/// The names and values of a query or a form, in their order.
pub(super) fn pairs(text: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=');
        let (name, value) = at.map_or((pair, &[][..]), |at| (&pair[..at], &pair[at + 1..]));
        (decoded(name), decoded(value))
    })
}

/// The value of `name`, if it is there exactly once and is text.
pub(super) fn value_of<'a>(text: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    let mut values = pairs(text).filter(|(own, _)| **own == *name.as_bytes()).map(|(_, value)| value);
    let value = match values.next()? {
        Cow::Borrowed(bytes) => Cow::Borrowed(std::str::from_utf8(bytes).ok()?),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8(bytes).ok()?),
    };
    values.next().is_none().then_some(value)
}

/// Plus signs as spaces, and escapes undone; what is no escape stays as it is.
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
    super::hex::decode(digits).map(|[byte]| byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_come_decoded() {
        let found: Vec<_> = pairs(b"a=1&b=%2B1+2&&c&=d&e=%zz%4&f=%C3%A9").collect();
        let expected: [(&[u8], &[u8]); 6] =
            [(b"a", b"1"), (b"b", b"+1 2"), (b"c", b""), (b"", b"d"), (b"e", b"%zz%4"), (b"f", "é".as_bytes())];
        assert_eq!(found.len(), expected.len());
        for ((name, value), (expected_name, expected_value)) in found.iter().zip(expected) {
            assert_eq!((&**name, &**value), (expected_name, expected_value));
        }
    }

    #[test]
    fn repeated_names_have_no_value() {
        assert_eq!(value_of(b"x=1&y=2", "y").as_deref(), Some("2"));
        assert_eq!(value_of(b"y=1&y=2", "y"), None);
        assert_eq!(value_of(b"y=%ff", "y"), None);
    }
}
