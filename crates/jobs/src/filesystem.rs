//! The file systems on which jobs can be kept (F-17).
//!
//! SQLite's write-ahead log needs memory that all processes share, and each job has a lock that goes with the process that holds it. Over a
//! network neither works: two machines would both take themselves for the only one.

use std::path::Path;

use crate::folder::FileError;

/// Magic numbers of network file systems (`statfs(2)`), and their common names.
///
/// FUSE and 9p are left out: containers and virtual machines also show a local folder by them, and the number does not tell which.
const NETWORK: &[(u32, &str)] = &[
    (0x0000_6969, "NFS"),
    (0x0000_517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0000_564c, "NCP"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0xaad7_aaea, "PanFS"),
];

/// Returns the common name of the network file system with this magic number; `None` if it is not one.
#[must_use]
pub fn network_file_system(magic: i64) -> Option<&'static str> {
    // Some systems give the 32 bits with a sign.
    let magic = u32::try_from(magic & 0xffff_ffff).ok()?;
    NETWORK.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

/// Returns the common name of the network file system on which a folder lies; `None` if it does not lie on one.
#[cfg(target_os = "linux")]
pub(crate) fn network_below(folder: &Path) -> Result<Option<&'static str>, FileError> {
    let found = rustix::fs::statfs(folder)
        .map_err(|error| FileError::system("cannot tell the file system of", folder, error.into()))?;
    #[expect(clippy::useless_conversion, reason = "its width depends on the processor")]
    let magic = i64::from(found.f_type);
    Ok(network_file_system(magic))
}

/// Returns `None`: other systems tell the file system by a name, and nothing reads it.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "the system may refuse to say it on Linux")]
pub(crate) fn network_below(_folder: &Path) -> Result<Option<&'static str>, FileError> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_17_network_file_systems_are_told_by_their_numbers() {
        for (magic, name) in [(0x6969, "NFS"), (0x517b, "SMB"), (0xff53_4d42, "CIFS"), (0x00c3_6400, "Ceph")]
        {
            assert_eq!(network_file_system(magic), Some(name));
        }
        // As a signed number of 32 bits.
        assert_eq!(network_file_system(i64::from(0xff53_4d42_u32.cast_signed())), Some("CIFS"));
        // ext, xfs, btrfs, tmpfs, overlay, zfs, f2fs, FUSE, 9p.
        for local in [
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0x0102_1994,
            0x794c_7630,
            0x2fc1_2fc1,
            0xf2f5_2010,
            0x6573_5546,
            0x0102_1997,
        ] {
            assert_eq!(network_file_system(local), None, "{local:x}");
        }
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(network_below(folder.path()).unwrap(), None);
    }
}
