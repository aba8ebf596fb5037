/// How much of a delivery is signed: what an id or a type must be part of to be authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Coverage {
    /// A token was sent along.
    Nothing,
    /// What the scheme took out of the delivery, and not the whole body.
    Message,
    Body,
}
