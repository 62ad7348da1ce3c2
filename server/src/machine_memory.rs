//! How much memory the server may use: that of its cgroup (version 2, then 1), else that of the machine.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// What is assumed where neither can be read.
const UNKNOWN: u64 = 4 * 1024 * 1024 * 1024;

/// Three quarters of it: the rest is for connections, buffers, the log and the allocator.
pub(crate) fn share() -> usize {
    usize::try_from(all() / 4 * 3).unwrap_or(usize::MAX)
}

/// A part of it for the windows of connections. In the worst case they hold twelve times as much.
pub(crate) fn window_share() -> usize {
    usize::try_from(all() / 32).unwrap_or(usize::MAX)
}

fn all() -> u64 {
    static BYTES: LazyLock<u64> = LazyLock::new(|| bytes(Path::new("/")).unwrap_or(UNKNOWN));
    *BYTES
}

/// The memory that this process may use, with the files of the system below `root`. `None`: they do not tell.
fn bytes(root: &Path) -> Option<u64> {
    let machine = machine(root);
    let limits = version_2(root).into_iter().chain(version_1(root));
    // Without a limit version 1 tells a number near 2^63, which is more than any machine has.
    limits.chain(machine).min()
}

/// The smallest limit of the cgroup and of those that it is in.
fn version_2(root: &Path) -> Option<u64> {
    let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounted = root.join("sys/fs/cgroup");
    // A container may see its own cgroup as the root of the tree, under whatever name.
    let of = |path: &Path| number(&path.join("memory.max"));
    let above = Path::new(own).ancestors().map(|each| mounted.join(each));
    above.filter_map(|path| of(&path)).min()
}

fn version_1(root: &Path) -> Option<u64> {
    number(&root.join("sys/fs/cgroup/memory/memory.limit_in_bytes"))
}

fn machine(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_smallest_limit_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(bytes(root), None);
        write(root, "proc/meminfo", "MemFree: 1 kB\nMemTotal:       8388608 kB\n");
        assert_eq!(bytes(root), Some(8 * GIB));
        write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(bytes(root), Some(8 * GIB));
        write(root, "proc/self/cgroup", "0::/outer/inner\n");
        write(root, "sys/fs/cgroup/outer/inner/memory.max", "max\n");
        assert_eq!(bytes(root), Some(8 * GIB));
        write(root, "sys/fs/cgroup/outer/memory.max", "2147483648\n");
        assert_eq!(bytes(root), Some(2 * GIB));
        write(root, "sys/fs/cgroup/memory.max", "1073741824\n");
        assert_eq!(bytes(root), Some(GIB), "as a container sees its own");
    }
}
