//! The number of connections of each machine, so that none takes those that others need.
//!
//! Invariants: each count is given back, however a connection ends. A machine that has gone is forgotten.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// The number of connections of each address.
#[derive(Clone, Default)]
pub(crate) struct ConnectionCounts(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl ConnectionCounts {
    /// Counts one more connection of this address; `None` if the address has its share already.
    pub(crate) fn take_share(&self, address: IpAddr, share: usize) -> Option<ConnectionShare> {
        let address = network_of(address);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= share {
            return None;
        }
        *count += 1;
        Some(ConnectionShare { counts: self.clone(), address })
    }
}

/// Returns whether two addresses are of one machine, as far as that can be told.
pub(crate) fn is_one(one: IpAddr, other: IpAddr) -> bool {
    network_of(one) == network_of(other)
}

/// Counts a connection for its address, for as long as this value lives.
pub(crate) struct ConnectionShare {
    counts: ConnectionCounts,
    address: IpAddr,
}

impl Drop for ConnectionShare {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Returns the network that tells one machine from others: its address, or the network of 64 bits that a machine has in IPv6.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into())
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_told_by_its_address_or_its_network() {
        for (one, other, is_one) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::2:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("::1", "::2", false),
        ] {
            let network = |text: &str| network_of(text.parse().expect("an address"));
            assert_eq!(network(one) == network(other), is_one, "{one} {other}");
        }
    }
}
