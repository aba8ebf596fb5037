//! The file system that a file is on, as Linux tells it.

use std::fs;
use std::path::{Path, PathBuf};

/// File systems of other machines. SQLite's locks and its memory that processes share do not work on them, or not
/// reliably.
const NETWORK: [&str; 16] = [
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "fuse.glusterfs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.sshfs",
    "glusterfs",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "smb3",
    "smbfs",
];

/// Returns the type of the file system, such as `ext4`; `None` where it is not told.
pub(super) fn of(file: &Path) -> Option<String> {
    let file = fs::canonicalize(file).ok()?;
    type_of(&file, &fs::read_to_string("/proc/self/mountinfo").ok()?)
}

pub(super) fn is_network(file_system: &str) -> bool {
    NETWORK.contains(&file_system)
}

/// Of the mounts that the file is below, the deepest one counts, and of several at one place the last.
fn type_of(file: &Path, mounts: &str) -> Option<String> {
    let mounts = mounts.lines().filter_map(parse).filter(|(place, _)| file.starts_with(place));
    let deepest = mounts.max_by_key(|(place, _)| place.components().count())?;
    Some(deepest.1.to_owned())
}

/// `36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/sda rw`: the point of the mount, and the type after the
/// dash.
fn parse(mount: &str) -> Option<(PathBuf, &str)> {
    let (before, after) = mount.split_once(" - ")?;
    let place = before.split(' ').nth(4)?.replace("\\040", " ");
    Some((place.into(), after.split(' ').next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:21 / /srv rw shared:7 master:2 - nfs4 files:/export rw,vers=4.2
24 23 0:22 / /srv/local\\040disk rw - xfs /dev/vdb rw
25 22 0:23 / /data rw - tmpfs tmpfs rw
26 22 0:24 / /data rw - fuse.sshfs me@there:/ rw
nonsense";

    #[test]
    fn deepest_and_last_mount_counts() {
        for (file, expected) in [
            ("/var/lib/webhooks.db", "ext4"),
            ("/srv/webhooks.db", "nfs4"),
            ("/srvs/webhooks.db", "ext4"),
            ("/srv/local disk/webhooks.db", "xfs"),
            ("/data/webhooks.db", "fuse.sshfs"),
        ] {
            let found = type_of(Path::new(file), MOUNTS);
            assert_eq!(found.as_deref(), Some(expected), "{file}");
            assert_eq!(is_network(expected), matches!(expected, "nfs4" | "fuse.sshfs"));
        }
        assert_eq!(type_of(Path::new("/x"), ""), None);
    }
}
