use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use zeroize::Zeroizing;

use crate::error::ConfigError;

/// One secret as the provider shows it, with a label for telemetry and, while it is being rotated out, an expiry.
///
/// A secret never prints, and its memory is overwritten when it is dropped.
#[derive(Clone)]
pub struct Secret {
    text: Zeroizing<String>,
    label: Option<Arc<str>>,
    expires_at: Option<SystemTime>,
}

impl Secret {
    /// Takes the secret's text exactly as given.
    ///
    /// # Errors
    /// If the text is empty or blank, since a MAC accepts an empty key. Also if it begins or ends with white space,
    /// which is nearly always a line break copied along with it.
    pub fn new(text: impl Into<String>) -> Result<Self, ConfigError> {
        let text = Zeroizing::new(text.into());
        let trimmed = text.trim_matches(is_invisible);
        if trimmed.is_empty() {
            return Err(ConfigError::secret("the secret is empty: set it to what the sender signs with"));
        }
        if trimmed.len() != text.len() {
            return Err(ConfigError::secret(
                "the secret begins or ends with white space: remove it, a line break may have been copied",
            ));
        }
        Ok(Self { text, label: None, expires_at: None })
    }

    /// Sets the secret's name in telemetry. Unlabelled secrets are named by their position, from `1`.
    #[must_use]
    pub fn label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Deactivates the secret from this moment of the wall clock on.
    #[must_use]
    pub fn expires_at(mut self, time: SystemTime) -> Self {
        self.expires_at = Some(time);
        self
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn given_label(&self) -> Option<&Arc<str>> {
        self.label.as_ref()
    }

    pub(crate) fn expiry(&self) -> Option<SystemTime> {
        self.expires_at
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("label", &self.label)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// Whether a copied text may begin or end with this character unseen: white space, zero-width characters and the byte
/// order mark.
fn is_invisible(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ConfigErrorKind;

    #[test]
    fn empty_blank_and_edged_secrets_do_not_build() {
        for text in
            ["", " ", "\n", "\u{a0}", "whsec_x\n", " whsec_x", "whsec_x\t", "whsec_x\r\n", "\u{feff}x", "x\u{200b}"]
        {
            assert_eq!(Secret::new(text).expect_err("must not build").kind(), ConfigErrorKind::Secret, "{text:?}");
        }
        assert!(Secret::new("inner space is fine").is_ok());
    }

    #[test]
    fn debug_shows_no_text() {
        let secret = Secret::new("whsec_very_private").expect("valid").label("main");
        let shown = format!("{secret:?}");
        assert!(shown.contains("main") && !shown.contains("private"), "{shown}");
    }
}
