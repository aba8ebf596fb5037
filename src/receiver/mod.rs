//! The webhook receiver: a layer, its service, and the story of one delivery.
//!
//! Read it in the order in which a delivery passes: `layer` → `service` (the head is checked) → `future` and
//! `intake` (the body arrives and is verified) → `delivery` (the event is claimed, run, settled) → `answer`. `report` tells
//! telemetry.

mod advice;
mod answer;
mod config;
mod delivery;
mod endpoint;
mod explainer;
mod future;
mod intake;
mod layer;
mod report;
mod service;

pub use self::{answer::AnswerBody, future::ResponseFuture, layer::WebhookLayer, service::WebhookService};
