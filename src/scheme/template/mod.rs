//! Schemes that are described instead of written.

mod builder;
mod signature_format;
mod signed_text;
#[allow(clippy::module_inception, reason = "the template is what this module is about")]
mod template;

pub use self::{builder::TemplateBuilder, template::Template};
