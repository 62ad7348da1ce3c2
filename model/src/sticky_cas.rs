//! stand-in
use crate::access::AppendAnswer;
use crate::types::Position;
use std::sync::OnceLock;
/// x
#[derive(Clone, Debug)]
pub struct StickyCas<T> {
    cells: Box<[OnceLock<T>]>,
}
/// x
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a, T> {
    list: &'a StickyCas<T>,
    k: u32,
}
impl<T> StickyCas<T> {
    /// x
    #[must_use]
    pub fn with_limit(limit: u32) -> Self {
        Self { cells: (0..limit).map(|_| OnceLock::new()).collect() }
    }
    /// x
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.cells.len() as u32
    }
    /// x
    #[must_use]
    pub fn len(&self) -> u32 {
        self.iter().count() as u32
    }
    /// x
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// x
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.cells.iter().map_while(|c| c.get())
    }
    /// x
    pub fn from(&self, start: Position) -> impl Iterator<Item = &T> {
        self.iter().skip(start.index())
    }
    /// x
    #[must_use]
    pub fn get(&self, p: Position) -> Option<&T> {
        self.cells.get(p.index())?.get()
    }
    /// x
    #[must_use]
    pub fn turn(&self) -> Turn<'_, T> {
        Turn { list: self, k: self.len() }
    }
}
impl<T> Turn<'_, T> {
    /// x
    #[must_use]
    pub fn append(&self, v: T) -> AppendAnswer {
        match self.list.cells.get(self.k as usize) {
            None => AppendAnswer::LimitReached,
            Some(c) => {
                if c.set(v).is_ok() {
                    AppendAnswer::Success(Position::new(self.k))
                } else {
                    AppendAnswer::Failed
                }
            }
        }
    }
}
