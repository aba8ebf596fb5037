use super::Template;
use super::signed_text::Values;
use crate::error::ConfigError;
use crate::scheme::{Head, Outgoing, Proof, json};
use crate::secrets::{Key, SecretSet};

impl Template {
    /// Adds the headers that make this message one that is accepted.
    pub(super) fn sign_message(&self, message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError> {
        let family = &self.families[0];
        let timestamp = self.unit.write(message.unix_millis()?);
        if let Some(header) = &family.timestamp {
            message.set_header(&header.name, &timestamp)?;
        }
        if let Some(header) = &family.id {
            let id = message.id.clone();
            message.set_header(&header.name, &id)?;
        }
        if let Some(path) = &self.body_timestamp {
            json::set_field(message, path, &timestamp)?;
        }
        let parts = message.parts();
        let head = Head::new(&parts, message.signed_at);
        let url = self.url.as_ref().map(|url| url.of(&head)).transpose();
        let url = url.map_err(|refused| ConfigError::unsignable(&refused))?;
        let values = Values {
            timestamp: timestamp.as_bytes(),
            id: message.id.as_bytes(),
            url: url.as_deref().unwrap_or_default(),
            method: parts.method.as_str(),
        };
        let mut signed = Proof::new();
        self.signed.fill(&mut signed, &values);
        // Where private keys and public ones are together, the public ones are there to verify.
        let mut keys: Vec<&Key> = secrets.active(message.signed_at).map(|(_, key)| key).collect();
        keys.retain(|key| key.can_sign());
        if keys.is_empty() {
            keys.push(secrets.first_active(message.signed_at)?);
        }
        let value = self.form.write(&timestamp, &keys, |key| key.sign(&signed.message(message.body())))?;
        message.set_header(&family.signature.name, &value)
    }
}
