//! The store as an inbox. How it is kept in Redis is told in the [module's documentation](super#the-inbox).
//!
//! Read in this order: `accepting` → `leasing` → `handing` → `settling`; `strays`, `waking`, `operating` and `housekeeping`
//! stand beside them.
//! What is atomic is in the scripts, `lua/`.

mod accepting;
mod entry;
mod handing;
mod housekeeping;
mod leasing;
mod operating;
mod scripts;
mod settling;
mod strays;
mod verbs;
mod waking;

pub(super) use self::accepting::Acceptor;
use self::accepting::Offer;
pub(super) use self::housekeeping::Housekeeping;
pub(super) use self::waking::Listener;

use super::fault::Fault;
use super::store::Shared;

/// What the keys of an inbox begin with, behind the store's prefix. Those of events begin with a digit or a brace.
const EVENTS: &str = "inbox:events";
const PARCEL: &str = "inbox:parcel:";

impl Shared {
    /// The key of the stream.
    fn events(&self) -> Result<String, Fault> {
        self.check_slot()?;
        Ok([&*self.prefix, EVENTS].concat())
    }

    /// The key of a parcel.
    fn parcel_key(&self, name: &[u8]) -> Vec<u8> {
        [self.prefix.as_bytes(), PARCEL.as_bytes(), name].concat()
    }

    /// On a Cluster, a prefix without a hash tag would have the stream and its events on several nodes.
    fn check_slot(&self) -> Result<(), Fault> {
        match self.listener.is_cluster() && !has_tag(&self.prefix) {
            true => Err(Fault::Scattered),
            false => Ok(()),
        }
    }
}

/// Whether what begins with this is all in one slot: the first name in braces decides, unless it is empty.
fn has_tag(prefix: &str) -> bool {
    prefix.split_once('{').and_then(|(_, rest)| rest.split_once('}')).is_some_and(|(tag, _)| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_name_in_braces_is_a_tag() {
        for (prefix, expected) in [
            ("{hooks}:", true),
            ("a:{b}c:", true),
            ("hooks:", false),
            ("{}:{a}", false),
            ("{hooks", false),
            ("}{", false),
        ] {
            assert_eq!(has_tag(prefix), expected, "{prefix}");
        }
    }
}
