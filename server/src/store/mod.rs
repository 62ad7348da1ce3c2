//! Where the record of an instance is kept.
//!
//! Every input of a machine ends here before any answer to it leaves the server, so a store decides what an
//! answer is worth. There is one store so far, [`memory`]: what it holds is gone with the process, and the
//! instances with it (SPEC F11 makes that a definite answer for every client).

pub(crate) mod budget;
pub(crate) mod events;
pub(crate) mod memory;
mod packed;
