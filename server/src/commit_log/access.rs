//! The users that may reach the folder of a log beside the user of the server.
//!
//! The data of clients is in it, so no other user may. A folder that the server has made is its user's alone.
//! A platform gives others, and sets their modes again at each mount: a volume of Kubernetes belongs to root
//! and to the group of its pod (`fsGroup`, with the setgid bit on every folder), and an `emptyDir` is open to
//! all that can reach it, which is its pod. Such a group, to which the server belongs, and root are trusted.
//! The files in the folder are the server's alone in any case.

/// The owner, the group and the permissions of a folder.
#[derive(Clone, Copy, Debug)]
pub(super) struct FolderOwner {
    pub(super) owner: u32,
    pub(super) group: u32,
    pub(super) mode: u32,
}

/// Whose rights this program has.
#[derive(Clone, Debug)]
pub(super) struct Rights {
    pub(super) user: u32,
    pub(super) groups: Vec<u32>,
}

/// Whether a folder can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FolderPrivacy {
    /// Nobody else may reach it whom its platform does not trust with it.
    Private,
    /// Its platform lets everybody write to it.
    OpenToAll,
    /// Others may look into it.
    NotPrivate,
    /// It belongs to somebody else, who has not given it to this user.
    NotOwned,
}

const ROOT: u32 = 0;
const SETGID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
/// To make a file in a folder takes both rights, to write and to search.
const WRITE: u32 = 0o3;

impl FolderOwner {
    /// Whether a server with these rights can use it for its log.
    pub(super) fn privacy(self, rights: &Rights) -> FolderPrivacy {
        let (for_group, for_others) = ((self.mode >> 3) & 0o7, self.mode & 0o7);
        let is_ours = rights.groups.contains(&self.group);
        let is_shared = self.mode & SETGID != 0 && is_ours;
        if self.owner == rights.user {
            let is_private = for_others == 0 && (for_group == 0 || is_shared);
            return if is_private { FolderPrivacy::Private } else { FolderPrivacy::NotPrivate };
        }
        let may_write = if is_ours { for_group } else { for_others } & WRITE == WRITE;
        match self.owner {
            _ if rights.user == ROOT || !may_write => FolderPrivacy::NotOwned,
            ROOT if for_others & WRITE != WRITE => FolderPrivacy::Private,
            // As `/tmp` is: of no platform, and of everybody on the machine.
            ROOT if self.mode & STICKY != 0 => FolderPrivacy::NotPrivate,
            ROOT => FolderPrivacy::OpenToAll,
            _ if !is_shared => FolderPrivacy::NotOwned,
            _ if for_others == 0 => FolderPrivacy::Private,
            _ => FolderPrivacy::NotPrivate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FolderPrivacy::{NotOwned, NotPrivate, OpenToAll, Private};
    use super::*;

    const USER: u32 = 65_532;
    const GROUP: u32 = 5_000;

    #[track_caller]
    fn expect(privacy: FolderPrivacy, user: u32, groups: &[u32], folders: &[(u32, u32, u32)]) {
        let rights = Rights { user, groups: groups.to_vec() };
        for (owner, group, mode) in folders.iter().copied() {
            let found = FolderOwner { owner, group, mode }.privacy(&rights);
            assert_eq!(found, privacy, "{mode:04o} {owner}:{group} for {rights:?}");
        }
    }

    #[test]
    fn a_folder_of_ones_own_is_for_nobody_else() {
        expect(Private, USER, &[USER], &[(USER, USER, 0o700), (USER, GROUP, 0o2700), (USER, USER, 0o500)]);
        let open = [0o750, 0o710, 0o701, 0o755, 0o777, 0o2755, 0o2771, 0o1777];
        expect(NotPrivate, USER, &[USER], &open.map(|mode| (USER, USER, mode)));
        expect(NotPrivate, USER, &[USER], &[(USER, GROUP, 0o2770)]);
        expect(Private, ROOT, &[ROOT], &[(ROOT, ROOT, 0o700)]);
        expect(NotPrivate, ROOT, &[ROOT], &[(ROOT, ROOT, 0o755), (ROOT, GROUP, 0o2770), (ROOT, ROOT, 0o777)]);
    }

    #[test]
    fn a_volume_of_kubernetes_can_be_used() {
        // The volume: as drivers make it, and after `fsGroup`.
        let volume = [0o2770, 0o2775, 0o770, 0o775].map(|mode| (ROOT, GROUP, mode));
        expect(Private, USER, &[USER, GROUP], &volume);
        expect(Private, ROOT, &[ROOT, GROUP], &[(ROOT, GROUP, 0o2770)]);
        // A folder in it, at the next mount; also if the server runs as another user by then.
        expect(Private, USER, &[USER, GROUP], &[(USER, GROUP, 0o2770), (USER + 1, GROUP, 0o2770)]);
        // emptyDir, with and without fsGroup.
        expect(OpenToAll, USER, &[USER, GROUP], &[(ROOT, GROUP, 0o2777), (ROOT, ROOT, 0o777)]);
        expect(OpenToAll, USER, &[ROOT], &[(ROOT, ROOT, 0o777)]);
        // OpenShift: a user that no list knows, in the group of root; a folder of an image.
        expect(Private, 1_000_680_000, &[ROOT, 1_000_680_000], &[(ROOT, ROOT, 0o770), (ROOT, ROOT, 0o775)]);
        expect(Private, 1_000_680_000, &[ROOT, GROUP], &[(ROOT, GROUP, 0o2770)]);
    }

    #[test]
    fn a_folder_of_somebody_else_is_not_used() {
        let folders = [(USER, USER, 0o700), (USER, GROUP, 0o2770), (USER, USER, 0o777)];
        expect(NotOwned, ROOT, &[ROOT, GROUP], &folders);
        // Of root, and not given to this user.
        let folders = [(ROOT, ROOT, 0o700), (ROOT, ROOT, 0o755), (ROOT, GROUP, 0o2770), (ROOT, USER, 0o750)];
        expect(NotOwned, USER, &[USER], &folders);
        // Of another user, who has not shared it with the group.
        let folders =
            [(1_000, GROUP, 0o770), (1_000, GROUP, 0o700), (1_000, 1_000, 0o777), (1_000, 1_000, 0o2770)];
        expect(NotOwned, USER, &[USER, GROUP], &folders);
        expect(NotPrivate, USER, &[USER, GROUP], &[(1_000, GROUP, 0o2775), (1_000, GROUP, 0o2777)]);
        // As /tmp.
        expect(NotPrivate, USER, &[USER], &[(ROOT, ROOT, 0o1777)]);
    }
}
