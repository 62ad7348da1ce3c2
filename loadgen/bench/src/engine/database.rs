//! The engine of the server: redb, with the settings of `server/src/commit_log/engine/redb.rs`, which is not
//! public.

use std::path::Path;

use redb::{Database, Durability, TableDefinition};

use super::BatchLog;

const BATCHES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("batches");
/// Memory that the database may take for pages.
const CACHE: usize = 64 * 1024 * 1024;

/// See the module.
pub(super) struct DatabaseLog {
    database: Database,
    two_phase: bool,
}

impl DatabaseLog {
    /// A new log in this folder. `two_phase`: as the server commits.
    pub(super) fn create(folder: &Path, two_phase: bool) -> anyhow::Result<Self> {
        let database = Database::builder().set_cache_size(CACHE).create(folder.join("log.redb"))?;
        Ok(Self { database, two_phase })
    }
}

impl BatchLog for DatabaseLog {
    fn append(&mut self, place: u64, batch: &[u8], trim: Option<u64>) -> anyhow::Result<()> {
        let mut write = self.database.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        write.set_two_phase_commit(self.two_phase);
        {
            let mut batches = write.open_table(BATCHES)?;
            let sealed = [batch, &crc32fast::hash(batch).to_le_bytes()].concat();
            batches.insert(place, &*sealed)?;
            if let Some(trim) = trim {
                batches.retain_in(..trim, |_, _| false)?;
            }
        }
        write.commit()?;
        Ok(())
    }
}
