//! `RedisStore`.
