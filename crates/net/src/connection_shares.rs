//! How many connections there are of each machine, so that none has what others need.
//!
//! Invariants: what is counted is given back, however a connection ends; a machine that has gone is forgotten.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use unhang_switches::stands;

/// How many connections there are of each address.
#[derive(Clone, Default)]
pub(crate) struct ConnectionCounts(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl ConnectionCounts {
    /// Counts one more of this address; none where it has its share.
    pub(crate) fn take_share(&self, address: IpAddr, share: usize) -> Option<ConnectionShare> {
        let address = network_of(address);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= share && stands("connections-of-one-bounded") {
            return None;
        }
        *count += 1;
        Some(ConnectionShare { counts: self.clone(), address })
    }
}

/// Whether two addresses are of one machine, as far as that can be told.
pub(crate) fn is_one(one: IpAddr, other: IpAddr) -> bool {
    network_of(one) == network_of(other)
}

/// A connection counts for its address while this lives.
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

/// What tells one machine from others: its address, or of IPv6 the network that it has for itself.
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
