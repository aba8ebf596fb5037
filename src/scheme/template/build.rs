use super::Template;
use super::TemplateBuilder;
use super::builder::Names;
use super::form::Form;
use super::headers::{Family, ProofHeader};
use super::signed_text::SignedText;
use crate::error::ConfigError;
use crate::identity::{IdSource, json_path};
use crate::scheme::HeaderPattern;
use crate::scheme::public_url::PublicUrl;
use crate::secrets::{Algorithm, IntoSecrets, Key, Secrets};

impl TemplateBuilder {
    /// The scheme, under these secrets.
    ///
    /// # Errors
    /// When the description cannot be read or lacks something, or a secret cannot be one.
    pub fn build(self, secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
        let (algorithm, encoding, key) = (self.algorithm, self.secret_encoding, self.key);
        let make_key = move |text: &str| match &key {
            Some(key) => key(text),
            None => Key::new(algorithm, &encoding.secret(text)?),
        };
        if self.misplaced {
            return Err(ConfigError::scheme("timestamp and id come after the signature whose headers they are"));
        }
        let mut form = Form::parse(&self.form, algorithm)?;
        for (version, algorithm) in &self.also {
            form.also(version, *algorithm)?;
        }
        let signed = SignedText::parse(&self.signed)?;
        let own_headers = self.own_headers.iter().map(|text| HeaderPattern::new(text));
        let mut profile = self.profile.own_headers(own_headers.collect::<Result<Vec<_>, _>>()?);
        let signed_id = self
            .families
            .iter()
            .find_map(|names| names.id.as_deref())
            .map(|name| IdSource::signed().described(format!("header {name}")));
        if let Some(source) = self.id_source.or(signed_id) {
            profile.id = source;
        }
        if algorithm == Algorithm::Token {
            profile.id = profile.id.unauthenticated();
        }
        let url = self.url.as_deref().map(PublicUrl::new).transpose()?;
        let template = Template {
            algorithm,
            families: self.families.iter().map(Names::parse).collect::<Result<_, _>>()?,
            form,
            signed,
            unit: self.unit,
            body_timestamp: self.body_timestamp.as_deref().map(json_path).transpose()?,
            // Whoever knows such a digest can append to what it is of, though nothing that would be JSON.
            json_body: self.json_body || algorithm == Algorithm::KeyedSha256,
            tolerance: self.tolerance,
            url: url.map(|url| url.unescaping(self.unescaped)),
            secrets: Secrets::new(secrets, make_key).map_err(|error| error.of(&self.name))?,
            profile,
            probe: self.probe,
            handshake: self.handshake,
            name: self.name,
        };
        template
            .families
            .iter()
            .try_for_each(|family| template.check(family))
            .map_err(|error| error.of(&template.name))?;
        Ok(template)
    }
}

impl Template {
    /// What is signed must come from somewhere, and what comes from the head proves nothing unless it is signed.
    fn check(&self, family: &Family) -> Result<(), ConfigError> {
        let signed = &self.signed;
        let timestamp = self.form.has_timestamp() || family.timestamp.is_some();
        let token = self.algorithm == Algorithm::Token;
        let ambiguous = signed.id_separator().is_none_or(|text| text[0].is_ascii_digit());
        let mistakes = [
            (token && !signed.is_empty(), "a token signs nothing: write signed(\"\")"),
            (!token && !signed.covers_body(), "{body} must be signed, or any body would be accepted"),
            (signed.has_timestamp() && !timestamp, "{timestamp} is signed: say where it comes from"),
            (timestamp && !signed.has_timestamp(), "the timestamp proves nothing unless {timestamp} is signed"),
            (
                timestamp && self.body_timestamp.is_some(),
                "there is a timestamp in the head and one in the body: drop one",
            ),
            (signed.has_id() && family.id.is_none(), "{id} is signed: say where it comes from"),
            (!signed.has_id() && family.id.is_some(), "the id proves nothing unless {id} is signed"),
            (signed.has_id() && ambiguous, "an id could be split elsewhere: sign {id}.{timestamp}.{body}, or the like"),
            (signed.has_url() && self.url.is_none(), "{url} is signed: say where it comes from"),
            (!signed.has_url() && self.url.is_some(), "the url proves nothing unless {url} is signed"),
        ];
        match mistakes.iter().find(|(made, _)| *made) {
            Some((_, what)) => Err(ConfigError::scheme(*what)),
            None => Ok(()),
        }
    }
}

impl Names {
    fn parse(&self) -> Result<Family, ConfigError> {
        Ok(Family {
            signature: ProofHeader::new(&self.signature)?,
            timestamp: self.timestamp.as_deref().map(ProofHeader::new).transpose()?,
            id: self.id.as_deref().map(ProofHeader::new).transpose()?,
        })
    }
}
