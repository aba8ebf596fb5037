//! The key under which a store remembers an event.

use std::fmt;

/// The key of one event at one endpoint: `endpoint / tenant / id`.
///
/// Senders deliver one event id to every endpoint registered with them, and two tenants may use the same id, so events
/// would be lost if the id alone were the key. The text form starts with the lengths of the first two parts, so that no
/// two keys share it, whatever characters the parts contain. Nothing is normalised.
///
/// ```
/// use tower_webhook::EventKey;
///
/// let key = EventKey::new("/webhooks/stripe", None, "evt_1");
/// assert_eq!(key.as_str(), "16.0:/webhooks/stripe//evt_1");
/// assert_ne!(EventKey::new("a", Some("b/c"), "d"), EventKey::new("a", Some("b"), "c/d"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventKey {
    text: Box<str>,
    tenant_at: u32,
    id_at: u32,
}

impl EventKey {
    /// Builds the key. An absent tenant and an empty one are the same.
    #[must_use]
    pub fn new(endpoint: &str, tenant: Option<&str>, id: &str) -> Self {
        let tenant = tenant.unwrap_or_default();
        let lengths = digits(endpoint.len()) + digits(tenant.len());
        let mut text = String::with_capacity(lengths + endpoint.len() + tenant.len() + id.len() + 4);
        push_number(&mut text, endpoint.len());
        text.push('.');
        push_number(&mut text, tenant.len());
        text.push(':');
        text.push_str(endpoint);
        text.push('/');
        let tenant_at = text.len() as u32;
        text.push_str(tenant);
        text.push('/');
        let id_at = text.len() as u32;
        text.push_str(id);
        Self { text: text.into_boxed_str(), tenant_at, id_at }
    }

    /// Parses the text of a key; `None` if no key has this text.
    ///
    /// ```
    /// use tower_webhook::EventKey;
    ///
    /// let key = EventKey::new("/webhooks/stripe", Some("acme"), "evt_1");
    /// assert_eq!(EventKey::parse(key.as_str()), Some(key));
    /// assert_eq!(EventKey::parse("evt_1"), None);
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (lengths, parts) = text.split_once(':')?;
        let (endpoint, tenant) = lengths.split_once('.')?;
        let (endpoint, tenant): (usize, usize) = (endpoint.parse().ok()?, tenant.parse().ok()?);
        let tenant_at = endpoint.checked_add(1)?;
        let id_at = tenant_at.checked_add(tenant)?.checked_add(1)?;
        let key = Self::new(parts.get(..endpoint)?, Some(parts.get(tenant_at..id_at - 1)?), parts.get(id_at..)?);
        (*key.text == *text).then_some(key)
    }

    /// The whole key as text, unique per key, as stores write it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The endpoint's name.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        let start = self.text.find(':').map_or(0, |colon| colon + 1);
        &self.text[start..self.tenant_at as usize - 1]
    }

    /// The tenant, on a route that has tenants.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        let tenant = &self.text[self.tenant_at as usize..self.id_at as usize - 1];
        (!tenant.is_empty()).then_some(tenant)
    }

    /// The part of the text that the keys of one endpoint and tenant share.
    pub(crate) fn scope(&self) -> &str {
        &self.text[..self.id_at as usize]
    }

    /// The event's id, as the sender wrote it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.text[self.id_at as usize..]
    }
}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventKey({:?})", self.text)
    }
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |power| power as usize + 1)
}

/// Formats a number without the machinery of `write!`, since this runs once per delivery.
fn push_number(text: &mut String, number: usize) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    text.push(char::from(b'0' + (number % 10) as u8));
}

/// The prefix of the ids of this crate's own keys. An event's id with this prefix is refused.
pub(crate) const RESERVED: &str = "tower-webhook:";

/// The longest part of a key, in bytes.
pub(crate) const LONGEST_PART: usize = 255;

/// Whether a text can be part of a key and be shown to people: of 1 to 255 bytes, and without control characters.
#[inline(always)] // as `is_plain`: a call costs as much as the look
pub(crate) fn is_name(text: &str) -> bool {
    (1..=LONGEST_PART).contains(&text.len()) && (is_plain(text) || !text.contains(char::is_control))
}

/// Whether the text is all visible ASCII. It nearly always is, and the check is quick.
#[inline(always)]
pub(crate) fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_as_given() {
        for (endpoint, tenant, id) in
            [("/a/b", None, "evt"), ("", Some("t"), ""), ("1.2:x", Some("3:y/z"), "4.5:/w"), ("é", Some("日本"), "🦀")]
        {
            let key = EventKey::new(endpoint, tenant, id);
            assert_eq!((key.endpoint(), key.tenant(), key.id()), (endpoint, tenant, id));
            assert_eq!(EventKey::parse(key.as_str()), Some(key.clone()));
            let lengths = digits(endpoint.len()) + digits(tenant.unwrap_or_default().len());
            let parts = endpoint.len() + tenant.unwrap_or_default().len() + id.len();
            assert_eq!(key.as_str().len(), lengths + parts + 4, "allocated once, and exactly");
        }
    }

    #[test]
    fn what_is_no_key_is_not_parsed() {
        for text in ["", ":", "1.0:", "1.0:a", "1.0:a/", "0.0:", "+1.0:a//x", "01.0:a//x", "1.0:é//x", "9.9:a//x"] {
            assert_eq!(EventKey::parse(text), None, "{text:?}");
        }
        assert!(EventKey::parse("0.0://").is_some());
    }

    #[test]
    fn shifted_boundaries_never_collide() {
        let all = ["", "a", "/", "a/", "/a", "1", "1.0:"];
        let mut seen = std::collections::HashSet::new();
        for endpoint in all {
            for tenant in all {
                for id in all {
                    assert!(seen.insert(EventKey::new(endpoint, Some(tenant), id).as_str().to_owned()));
                }
            }
        }
    }
}
