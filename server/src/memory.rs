//! The memory that the server may use, and the defaults that follow from it.
//!
//! It is the setting `memory`; else the smallest limit of the cgroups that the process is in (version 2 and
//! 1), or the memory of the machine. `memory.high` counts as `memory.max` does: above it the kernel slows a
//! process down until it hardly runs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

const MIB: u64 = 1024 * 1024;

/// The memory that is assumed where no source tells.
const UNKNOWN: u64 = 512 * MIB;
/// The memory of the program itself: its code, the stacks of its threads, the calls that are being handled,
/// and the reserves of the allocator. The parts are parts of the rest.
pub(crate) const PROGRAM: u64 = 32 * MIB;
/// The least with which a server starts.
pub(crate) const LEAST: u64 = 96 * MIB;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) bytes: u64,
    pub(crate) source: MemorySource,
}

/// The source of the figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemorySource {
    /// The setting.
    Given,
    /// This file of a cgroup.
    Cgroup(PathBuf),
    /// The memory of the machine.
    Machine,
    /// No source tells.
    Unknown,
}

impl fmt::Display for Memory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} MiB, {}", self.bytes / MIB, self.source)
    }
}

impl fmt::Display for MemorySource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => write!(out, "as it is set"),
            Self::Cgroup(file) => write!(out, "of its cgroup, {}", file.display()),
            Self::Machine => write!(out, "of the machine"),
            Self::Unknown => write!(out, "assumed, since neither a cgroup nor the machine tells"),
        }
    }
}

static PROCESS: OnceLock<Memory> = OnceLock::new();

impl Memory {
    /// That of this process.
    pub(crate) fn of_process() -> &'static Self {
        PROCESS.get_or_init(Self::found)
    }

    /// The memory that the system tells.
    pub(crate) fn found() -> Self {
        Self::below(Path::new("/"), machine())
    }

    /// The memory that the setting gives.
    pub(crate) fn given(bytes: u64) -> Self {
        Self { bytes, source: MemorySource::Given }
    }

    /// Makes this the memory of the process, and logs it, with a warning if it may be wrong. Called first.
    pub(crate) fn adopt(self) {
        let memory = PROCESS.get_or_init(|| self);
        let found = Self::found();
        match memory.source {
            MemorySource::Unknown => tracing::warn!("memory is {memory}: give --memory SIZE"),
            MemorySource::Given if found.bytes < memory.bytes => tracing::warn!(
                "memory is {memory}, and the server may use {found}: it may be killed when clients fill its bounds"
            ),
            _ => tracing::info!("memory is {memory}: the bounds of memory follow from it"),
        }
    }

    /// With the files of the system below `root`. `machine`: the memory of the machine.
    fn below(root: &Path, machine: Option<u64>) -> Self {
        let machine = machine.map(|bytes| Self { bytes, source: MemorySource::Machine });
        let all = limits(root).into_iter().chain(machine);
        all.min_by_key(|memory| memory.bytes)
            .unwrap_or(Self { bytes: UNKNOWN, source: MemorySource::Unknown })
    }
}

/// The limits of the cgroups that the process is in. A container may see its own as the root of the tree,
/// under whatever name.
fn limits(root: &Path) -> Vec<Memory> {
    let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let own = |controller: &str| {
        let line = cgroups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let found = line.into_iter().find(|(all, _)| all.split(',').any(|it| it == controller));
        found.map_or(String::new(), |(_, path)| path.trim_start_matches('/').to_owned())
    };
    let trees = [
        ("sys/fs/cgroup", own(""), &["memory.max", "memory.high"][..]),
        ("sys/fs/cgroup/unified", own(""), &["memory.max", "memory.high"]),
        ("sys/fs/cgroup/memory", own("memory"), &["memory.limit_in_bytes"]),
    ];
    let mut limits = Vec::new();
    for (tree, own, files) in trees {
        for cgroup in Path::new(&own).ancestors() {
            for file in files {
                let file = Path::new(tree).join(cgroup).join(file);
                let bytes = number(&root.join(&file));
                limits.extend(
                    bytes.map(|bytes| Memory {
                        bytes,
                        source: MemorySource::Cgroup(Path::new("/").join(file)),
                    }),
                );
            }
        }
    }
    limits
}

/// A limit. Without one version 2 tells `max`, and version 1 a number near 2^63.
fn number(path: &Path) -> Option<u64> {
    let number = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    (1..1 << 60).contains(&number).then_some(number)
}

/// The memory of the machine.
#[cfg(target_os = "linux")]
fn machine() -> Option<u64> {
    let info = rustix::system::sysinfo();
    #[expect(clippy::useless_conversion, reason = "the type depends on the architecture")]
    let total = u64::try_from(info.totalram).ok()?;
    total.checked_mul(info.mem_unit.into()).filter(|bytes| *bytes > 0)
}

#[cfg(not(target_os = "linux"))]
fn machine() -> Option<u64> {
    None
}

/// A default that follows from the memory: so many for each `of` bytes of it, and `most` at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPart {
    pub(crate) share: u64,
    pub(crate) of: u64,
    pub(crate) most: u64,
}

/// See [`MemoryPart`].
pub(crate) const fn part(share: u64, of: u64, most: u64) -> MemoryPart {
    MemoryPart { share, of, most }
}

impl MemoryPart {
    /// The value with so much memory.
    pub(crate) fn with(self, memory: u64) -> u64 {
        let rest = memory.saturating_sub(PROGRAM);
        (rest / self.of).saturating_mul(self.share).clamp(1, self.most)
    }
}

/// The default of a limit: a value, or a part of the memory.
pub(crate) trait LimitDefault<T> {
    /// The value with so much memory.
    fn with_memory(self, memory: u64) -> T;
    /// `None`: it does not depend on the memory.
    fn part(self) -> Option<MemoryPart>;
}

macro_rules! defaults {
    (plain $($type:ty),+) => {$(
        impl LimitDefault<$type> for $type {
            fn with_memory(self, _: u64) -> $type {
                self
            }

            fn part(self) -> Option<MemoryPart> {
                None
            }
        }
    )+};
    (part $($type:ty),+) => {$(
        impl LimitDefault<$type> for MemoryPart {
            fn with_memory(self, memory: u64) -> $type {
                self.with(memory).try_into().unwrap_or(<$type>::MAX)
            }

            fn part(self) -> Option<MemoryPart> {
                Some(self)
            }
        }
    )+};
}

defaults!(plain u32, usize, Duration);
defaults!(part u32, usize);

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The figure and the file that it is of.
    fn found(files: &[(&str, &str)], machine: Option<u64>) -> (u64, String) {
        let root = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| write(root.path(), name, text));
        let Memory { bytes, source } = Memory::below(root.path(), machine);
        (bytes, source.to_string())
    }

    const MACHINE: Option<u64> = Some(8 * GIB);
    const NESTED: (&str, &str) =
        ("proc/self/cgroup", "4:cpu,memory:/old/one\n1:name=systemd:/\n0::/outer/inner\n");

    #[test]
    fn without_a_limit_it_is_what_the_machine_has() {
        assert_eq!(found(&[], MACHINE), (8 * GIB, "of the machine".to_owned()));
        let (bytes, source) = found(&[], None);
        assert_eq!(bytes, UNKNOWN);
        assert!(source.contains("neither"), "{source}");
        for none in ["max\n", "9223372036854771712\n", "18446744073709551615\n", "0\n", "\n", "x"] {
            let files = [
                NESTED,
                ("sys/fs/cgroup/outer/inner/memory.max", none),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", none),
            ];
            assert_eq!(found(&files, MACHINE).0, 8 * GIB, "{none:?}");
            assert_eq!(found(&files, None).0, UNKNOWN, "{none:?}");
        }
    }

    #[test]
    fn the_smallest_limit_of_all_cgroups_counts_and_is_named() {
        for (file, at) in [
            ("sys/fs/cgroup/outer/inner/memory.max", true),
            ("sys/fs/cgroup/outer/inner/memory.high", true),
            ("sys/fs/cgroup/outer/memory.max", true),
            ("sys/fs/cgroup/outer/memory.high", true),
            ("sys/fs/cgroup/memory.max", true),
            ("sys/fs/cgroup/unified/outer/memory.max", true),
            ("sys/fs/cgroup/memory/old/one/memory.limit_in_bytes", true),
            ("sys/fs/cgroup/memory/old/memory.limit_in_bytes", true),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", true),
            ("sys/fs/cgroup/memory/other/memory.limit_in_bytes", false),
            ("sys/fs/cgroup/other/memory.max", false),
        ] {
            let others = [("sys/fs/cgroup/outer/inner/memory.max", "3221225472\n")];
            let files = [&[NESTED][..], &others, &[(file, "2147483648\n")]].concat();
            let (bytes, source) = found(&files, MACHINE);
            assert_eq!(bytes == 2 * GIB, at, "{file}: {bytes}");
            assert_eq!(source.ends_with(&format!("/{file}")), at, "{file}: {source}");
        }
    }

    #[test]
    fn a_container_sees_its_own_cgroup_as_the_root() {
        let own = ("proc/self/cgroup", "0::/../../system.slice/docker-1.scope\n");
        let files = [own, ("sys/fs/cgroup/memory.max", "1073741824\n")];
        assert_eq!(found(&files, MACHINE).0, GIB);
        let files = [("sys/fs/cgroup/memory.max", "1073741824\n")];
        assert_eq!(found(&files, MACHINE).0, GIB, "without /proc/self/cgroup");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_machine_tells_how_much_it_has() {
        let told = machine().unwrap();
        let Ok(files) = fs::read_to_string("/proc/meminfo") else { return };
        let total =
            files.lines().find_map(|line| line.strip_prefix("MemTotal:")?.strip_suffix(" kB")).unwrap();
        let read = total.trim().parse::<u64>().unwrap() * 1024;
        assert!(told.abs_diff(read) <= told / 100, "{told} {read}");
    }

    #[test]
    fn a_part_has_a_bound_and_is_never_nothing() {
        assert_eq!(part(1, 4, 100).with(PROGRAM + 80), 20);
        assert_eq!(part(3, 4, u64::MAX).with(PROGRAM + 80), 60);
        assert_eq!(part(1, 4, 100).with(u64::MAX), 100);
        assert_eq!(part(1, 4, 100).with(0), 1);
    }
}
