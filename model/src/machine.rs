//! placeholder
/// x
pub const REFUSALS_RECORDED: u32 = 16;
/// x
pub const OFFENCES_RECORDED: u32 = 16;
