//! `view`: shows a run folder on the live page, in a browser on this machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use stickycas_harness::exit::Exit;
use stickycas_harness::report::folder::Folder;
use stickycas_harness::view::{ViewedRun, serve};
use tokio::net::TcpListener;

use super::output::{show, tell};
use super::scenario::run_folder;

/// The arguments of `view`.
#[derive(Debug, Args)]
pub(super) struct ViewArgs {
    /// The folder that a run wrote, or a folder with several of them: then the newest
    #[arg(value_name = "RUN_FOLDER")]
    folder: PathBuf,
    /// The port of 127.0.0.1 where the page is; without it, a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
}

/// Serves the page until the program is stopped.
pub(super) fn run(args: &ViewArgs) -> anyhow::Result<Exit> {
    let place = run_folder(&args.folder);
    let run = ViewedRun::new(Folder::read(&place)?.judged_again());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("no page at {address}: give another --port"))?;
        show(&format!("http://{}/{}\n", listener.local_addr()?, run.fragment()))?;
        tell("the page is at this address until this program is stopped (Ctrl-C)");
        tokio::select! {
            served = serve(run, listener) => served?,
            stopped = tokio::signal::ctrl_c() => stopped?,
        }
        Ok(Exit::Done)
    })
}
