use std::sync::Arc;

use tokio::runtime::Handle;

use super::question::Question;
use super::writer::Writer;
use crate::store::group::Group;

/// Whoever waits for a claim. Gone before the answer has come, its token is released: nobody knows that it holds the claim.
///
/// The release is asked for before the same token can ask anything else, and batches keep the order, so a later claim of that token is
/// safe from it.
pub(super) struct Leaving<'a> {
    group: &'a Group<Arc<Writer>>,
    release: Option<Question>,
}

impl<'a> Leaving<'a> {
    pub(super) fn new(group: &'a Group<Arc<Writer>>, release: Question) -> Self {
        Self { group, release: Some(release) }
    }

    /// The answer has come.
    pub(super) fn stays(mut self) {
        self.release = None;
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        // Without a runtime there is nobody to ask, and the lease ends by itself.
        if let Some(release) = self.release.take()
            && Handle::try_current().is_ok()
        {
            self.group.tell(release);
        }
    }
}
