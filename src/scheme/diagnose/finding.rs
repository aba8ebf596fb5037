use std::fmt;

use super::json_form::JsonForm;
use crate::throttle::Shortened;

/// An accident that explains why a delivery was refused. `Display` says what happened and what to do about it, in one
/// sentence.
///
/// A finding never holds a secret, a signature or a body. It is for the operator: whoever sends forged deliveries
/// learns from it which of them come close.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The signature is right under a suspected secret, which is not one of the scheme's.
    #[non_exhaustive]
    OtherSecret {
        /// The secret's label, or its position among several.
        label: Option<Box<str>>,
    },
    /// The signature is right under a secret of the scheme that has expired.
    #[non_exhaustive]
    ExpiredSecret {
        /// The secret's label.
        label: Box<str>,
    },
    /// The signature is right under a suspected secret, once a slip is undone.
    #[non_exhaustive]
    MisspeltSecret {
        /// The secret's label, or its position among several.
        label: Option<Box<str>>,
        /// The mistake in the secret.
        slip: SecretSlip,
    },
    /// The signature is right for another body: something between the sender and the verification changed it.
    #[non_exhaustive]
    AlteredBody {
        /// The change to the body.
        change: BodyChange,
    },
    /// The signature is right for another URL.
    #[non_exhaustive]
    OtherUrl {
        /// That URL, without a password and without its query.
        url: Box<str>,
        /// Where it differs from the one that the scheme takes to be signed.
        differs: Vec<UrlPart>,
    },
    /// The timestamp is too old.
    #[non_exhaustive]
    Late {
        /// By how much, beyond the tolerance.
        seconds: u64,
        /// Whether the signature is right at the time of its timestamp; `None` if the body or the scheme's secrets were
        /// not at hand.
        genuine: Option<bool>,
    },
    /// The timestamp is too far in the future.
    #[non_exhaustive]
    Early {
        /// By how much, beyond the tolerance.
        seconds: u64,
        /// As of a timestamp that is too old.
        genuine: Option<bool>,
    },
    /// The body is empty. This is a suspicion: no other body was found for which the signature is right.
    EmptyBody,
    /// Every object of the JSON body has its keys in alphabetical order. This is a suspicion: their order as it was sent
    /// cannot be found out.
    SortedKeys,
    /// The body is so large that it was not tried in every form.
    LargeBody,
}

/// A mistake in a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretSlip {
    /// It has white space around it.
    WhiteSpace,
    /// It has quotes around it.
    Quotes,
    /// It begins with `whsec_`, which does not belong to it.
    Prefix,
    /// It lacks its beginning, `whsec_`.
    NoPrefix,
    /// The sender takes its text for the key, and the scheme decodes it.
    TextIsKey,
    /// The sender decodes it from base64, and the scheme does not.
    Base64,
    /// The sender decodes it from hex, and the scheme does not.
    Hex,
}

/// A change to a body on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyChange {
    /// Its lines end in CRLF now; they ended in LF when it was signed.
    LinesEndInCrlf,
    /// Its lines end in LF now; they ended in CRLF when it was signed.
    LinesEndInLf,
    /// A newline was added at the end.
    NewlineAdded,
    /// The newline at the end was lost.
    NewlineLost,
    /// It was encoded in base64.
    Base64,
    /// It is JSON and was printed anew. This is the form in which it was signed.
    Json(JsonForm),
}

/// A part of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UrlPart {
    /// `http` or `https`.
    Scheme,
    /// The host.
    Host,
    /// The port.
    Port,
    /// The path.
    Path,
    /// The query.
    Query,
}

impl Finding {
    /// Whether the finding explains the rejection for certain, and is not only a suspicion.
    pub(super) fn is_certain(&self) -> bool {
        !matches!(self, Self::EmptyBody | Self::SortedKeys | Self::LargeBody)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherSecret { label } => {
                f.write_str("wrong secret: the signature is right for the suspected secret")?;
                write_label(f, label.as_deref())?;
                f.write_str(": give it to the scheme, unless the sender should have signed with another")
            }
            Self::ExpiredSecret { label } => {
                let label = Shortened(label);
                write!(f, "the secret \"{label}\" has expired, and the signature is right for it: ")?;
                f.write_str("let it expire later, or have the sender sign with the new one")
            }
            Self::MisspeltSecret { label, slip } => {
                write!(f, "wrong secret: the signature is right {slip}")?;
                if let Some(label) = label {
                    write!(f, " (the suspected secret \"{}\")", Shortened(label))?;
                }
                Ok(())
            }
            Self::AlteredBody { change } => write!(f, "the body was altered: the signature is right {change}"),
            Self::OtherUrl { url, differs } => write_other_url(f, url, differs),
            Self::Late { seconds, genuine } => {
                write!(f, "the timestamp is too old, by {seconds} s: check both clocks, or raise the tolerance")?;
                write_genuine(f, *genuine, "the sender signed it, and it came late, somebody replays it, or a clock is off")
            }
            Self::Early { seconds, genuine } => {
                write!(f, "the timestamp is in the future, by {seconds} s: check both clocks, or raise the tolerance")?;
                write_genuine(f, *genuine, "the sender signed it, and a clock is off")
            }
            Self::EmptyBody => f.write_str(
                "the body is empty: if the sender sent one, something has read it before it was verified",
            ),
            Self::SortedKeys => f.write_str(
                "the body may have been altered: its keys are all in alphabetical order, as after parsing and printing \
                 json: verify the bytes received",
            ),
            Self::LargeBody => f.write_str(
                "the body is too large to be tried in every form while the receiver runs: capture a delivery, and give it \
                 to scheme::diagnose",
            ),
        }
    }
}

fn write_label(f: &mut fmt::Formatter<'_>, label: Option<&str>) -> fmt::Result {
    label.map_or(Ok(()), |label| write!(f, " \"{}\"", Shortened(label)))
}

fn write_genuine(f: &mut fmt::Formatter<'_>, genuine: Option<bool>, conclusion: &str) -> fmt::Result {
    match genuine {
        Some(true) => write!(f, "; the signature is right for that time: {conclusion}"),
        Some(false) => f.write_str("; the signature is not right for that time either"),
        None => Ok(()),
    }
}

fn write_other_url(f: &mut fmt::Formatter<'_>, url: &str, differs: &[UrlPart]) -> fmt::Result {
    write!(f, "the URL is another one: the signature is right for {}", Shortened(url))?;
    for (part, number) in differs.iter().zip(1..) {
        f.write_str(match number {
            1 => ", which differs in its ",
            _ if number == differs.len() => " and ",
            _ => ", ",
        })?;
        write!(f, "{part}")?;
    }
    f.write_str(": give the scheme the URL that the sender calls, or have the proxy pass it on unchanged")
}

impl fmt::Display for SecretSlip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WhiteSpace => "for the secret without the white space around it: remove it",
            Self::Quotes => "for the secret without the quotes around it: remove them",
            Self::Prefix => "for the part after `whsec_`: leave the prefix away",
            Self::NoPrefix => "for `whsec_` and the secret: the prefix belongs to it",
            Self::TextIsKey => {
                "for the secret's text as the key, and this scheme decodes it first: is it the scheme of this sender?"
            }
            Self::Base64 => {
                "for the secret decoded from base64, and this scheme takes its text: is it the scheme of this sender?"
            }
            Self::Hex => {
                "for the secret decoded from hex, and this scheme takes its text: is it the scheme of this sender?"
            }
        })
    }
}

impl fmt::Display for BodyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinesEndInCrlf => f.write_str("with every CRLF as LF: keep line breaks as they come"),
            Self::LinesEndInLf => f.write_str("with every LF as CRLF: keep line breaks as they come"),
            Self::NewlineAdded => f.write_str("without the newline at the end: it was not sent"),
            Self::NewlineLost => f.write_str("with a newline at the end: it was lost"),
            Self::Base64 => f.write_str("for the body decoded from base64: decode it before it is verified"),
            Self::Json(form) => {
                write!(f, "{form}: verify the bytes received, not JSON that was parsed and printed anew")
            }
        }
    }
}

impl fmt::Display for UrlPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "scheme",
            Self::Host => "host",
            Self::Port => "port",
            Self::Path => "path",
            Self::Query => "query",
        })
    }
}
