//! Stub.

#[test]
fn stub() {}
