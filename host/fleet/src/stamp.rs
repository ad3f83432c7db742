//! The order of what an agent says.

/// The place of a record in everything that an agent says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// A number that grows whenever the agent's database is new or restored. In practice the time of that, in seconds
    /// since 1970.
    pub epoch: u32,
    /// Grows with each record of the epoch. Zero only in the stamp that is older than every record.
    pub counter: u32,
}

/// Returns the part of a device's digest that one record contributes. The digest is the wrapping sum over the device's
/// records, so that both sides can keep it up to date without an order. It detects lost records, not forged ones.
pub fn digest(deployment: &str, stamp: Stamp) -> u64 {
    // FNV-1a (draft-eastlake-fnv) over the name, then the finalizer of SplitMix64 (Steele, Lea and Flood 2014) over
    // name and stamp: both are fixed, because agents and operators may run different versions.
    let name = deployment
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mixed = |value: u64| {
        let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    };
    mixed(mixed(name) ^ (u64::from(stamp.epoch) << 32 | u64::from(stamp.counter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_the_same_in_every_version_and_differs_by_name_and_stamp() {
        let at = |epoch, counter| Stamp { epoch, counter };
        // Computed with another program; agents of earlier versions send this value.
        assert_eq!(digest("edge-dns", at(1_796_000_000, 7)), 7_602_177_557_049_446_073);
        let all =
            [("a", at(1, 2)), ("a", at(2, 1)), ("b", at(1, 2)), ("", at(1, 2))].map(|(name, at)| digest(name, at));
        for (n, one) in all.iter().enumerate() {
            assert!(all[n + 1..].iter().all(|other| other != one));
        }
        assert!(at(1, 9) < at(2, 1));
    }
}
