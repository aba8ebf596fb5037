//! A store to run receivers on: a file, or a server of the test's own.

use std::any::Any;

use crate::support::directory::Directory;
use crate::support::servers::postgres::PostgresServer;
use crate::support::servers::redis::RedisServer;

/// Where the events are. The server ends, and the file goes, when it is dropped.
pub(crate) struct Backend {
    pub(crate) name: &'static str,
    pub(crate) address: String,
    _keeper: Box<dyn Any>,
}

impl Backend {
    pub(crate) fn sqlite() -> Self {
        let directory = Directory::new("processes");
        let address = format!("sqlite:{}", directory.path().join("events.db").display());
        Self { name: "sqlite", address, _keeper: Box::new(directory) }
    }

    pub(crate) fn redis() -> Self {
        let server = RedisServer::start();
        Self { name: "redis", address: server.url(), _keeper: Box::new(server) }
    }

    pub(crate) fn postgres() -> Self {
        let server = PostgresServer::start();
        Self { name: "postgres", address: server.url(), _keeper: Box::new(server) }
    }

    /// Every store that processes can share.
    pub(crate) fn all() -> [Self; 3] {
        [Self::sqlite(), Self::redis(), Self::postgres()]
    }

    /// Those whose transactions can have the completion in them.
    pub(crate) fn transactional() -> [Self; 2] {
        [Self::sqlite(), Self::postgres()]
    }
}
