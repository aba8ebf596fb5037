use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;
use std::sync::Arc;
use std::time::Duration;

use super::parcel;
use super::text::milliseconds;
use crate::store::ClaimToken;
use crate::store::queue::{KindLimits, LAPSED, LeaseBudget, LeaseRequest};

/// More than this are not leased in one statement.
const LARGEST_LEASE: usize = 512;

/// What a worker asks for.
pub(super) struct Wanted {
    pub(super) limit: usize,
    pub(super) lease: Duration,
    pub(super) endpoints: Box<[Box<str>]>,
    per_endpoint: Option<KindLimits>,
    per_type: Option<KindLimits>,
}

impl Wanted {
    pub(super) fn new(request: &LeaseRequest<'_>) -> Self {
        Self {
            limit: request.limit.min(LARGEST_LEASE),
            lease: request.lease,
            endpoints: request.endpoints.into(),
            per_endpoint: request.per_endpoint.cloned(),
            per_type: request.per_type.cloned(),
        }
    }

    /// Whether events of every kind will do, and any number of them.
    pub(super) fn is_of_any_kind(&self) -> bool {
        self.endpoints.is_empty() && self.per_endpoint.is_none() && self.per_type.is_none()
    }

    pub(super) fn rooms(&self) -> LeaseBudget<'_> {
        let mut request = LeaseRequest::new(self.limit, self.lease);
        request.endpoints = &self.endpoints;
        (request.per_endpoint, request.per_type) = (self.per_endpoint.as_ref(), self.per_type.as_ref());
        LeaseBudget::new(&request)
    }

    /// How many events of one kind there is room for.
    pub(super) fn room(&self, endpoint: &str, event_type: Option<&str>) -> usize {
        let of = |limits: &Option<KindLimits>, kind| limits.as_ref().map_or(usize::MAX, |limits| limits.of(kind));
        let of_type = event_type.map_or(usize::MAX, |event_type| of(&self.per_type, event_type));
        self.limit.min(of(&self.per_endpoint, endpoint)).min(of_type)
    }

    /// Endpoints that there is no room for.
    pub(super) fn full_endpoints(&self) -> Vec<&str> {
        let left = self.per_endpoint.iter().flat_map(|limits| &limits.left);
        left.filter(|(_, left)| **left == 0).map(|(endpoint, _)| &**endpoint).collect()
    }

    /// What every statement that leases is told, whichever events it is about.
    pub(super) fn lease<'q>(
        &self,
        sql: &Arc<str>,
        bound: Option<i64>,
        tokens: &[ClaimToken],
    ) -> Query<'q, Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(bound)
            .bind(tokens.iter().map(|token| token.as_bytes().to_vec()).collect::<Vec<_>>())
            .bind(milliseconds(self.lease))
            .bind(LAPSED)
            .bind(i64::try_from(parcel::HEAVIEST).unwrap_or(i64::MAX))
    }
}
