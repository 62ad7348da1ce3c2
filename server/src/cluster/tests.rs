//! Several servers of one cluster in one process: what they share, what passes from one to another, and what an owner can
//! still do that is none any more.

mod calls;
mod hand_over;
mod sharing;
mod sizes;
mod stale_owner;
mod take_over;
mod world;
