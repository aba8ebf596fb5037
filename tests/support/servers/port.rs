//! Ports for the servers that tests start.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below every port that the kernel gives to whoever asks for any: those begin at 32,768.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// A TCP port on the loopback address that belongs to one test.
///
/// The kernel never gives it to another connection, not even while the test's server is down. Other tests leave it alone, because
/// this one holds the UDP port of the same number; that goes with the process, however it ends.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    _held: UdpSocket,
}

impl Port {
    /// Takes a port that nobody has.
    pub(crate) fn take() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Processes begin in different places, so that they seldom meet.
        let begin = std::process::id().wrapping_mul(251);
        for _ in 0..COUNT {
            let next = u32::from(NEXT.fetch_add(1, Ordering::Relaxed)).wrapping_add(begin);
            let number = FIRST + (next % u32::from(COUNT)) as u16;
            match UdpSocket::bind((Ipv4Addr::LOCALHOST, number)) {
                Ok(held) if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() => {
                    return Self { number, _held: held };
                }
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}"),
            }
        }
        panic!("no free port from {FIRST} on");
    }
}
