//! Schemes that are described instead of written.

mod build;
mod builder;
mod described;
mod form;
mod headers;
mod list;
mod read;
mod sign;
mod signed_text;

pub use self::{builder::TemplateBuilder, described::Template};
