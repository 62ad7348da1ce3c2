//! `view` and `play`: a run folder, or runs that a viewer makes up, on the live page, in a browser on this machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use axum::Router;
use clap::Args;
use stickycas_harness::exit::Exit;
use stickycas_harness::play;
use stickycas_harness::report::folder::Folder;
use stickycas_harness::view::{self, ViewedRun};
use stickycas_program::asked_to_stop;
use tokio::net::TcpListener;

use super::output::{show, tell};
use super::scenario::run_folder;

/// The arguments of `view`.
#[derive(Debug, Args)]
pub(super) struct ViewArgs {
    /// The folder that a run wrote, or a folder with several of them: then the newest
    #[arg(value_name = "RUN_FOLDER")]
    folder: PathBuf,
    #[command(flatten)]
    at: PageArgs,
}

/// The arguments of `play`.
#[derive(Debug, Args)]
pub(super) struct PlayArgs {
    #[command(flatten)]
    at: PageArgs,
}

/// Where the page is.
#[derive(Debug, Args)]
struct PageArgs {
    /// The port of 127.0.0.1 where the page is; without it, a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
}

/// Serves the page of a run until the program is stopped.
pub(super) fn run(args: &ViewArgs) -> anyhow::Result<Exit> {
    let place = run_folder(&args.folder);
    let run = ViewedRun::new(Folder::read(&place)?.judged_again());
    let fragment = run.fragment();
    serve(view::router(run), &fragment, &args.at)
}

/// Serves the page of runs that are made up.
pub(super) fn run_play(args: &PlayArgs) -> anyhow::Result<Exit> {
    serve(play::router(), "#/play", &args.at)
}

fn serve(pages: Router, fragment: &str, at: &PageArgs) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, at.port));
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("no page at {address}: give another --port"))?;
        show(&format!("http://{}/{fragment}\n", listener.local_addr()?))?;
        tell("the page is at this address until this program is stopped (Ctrl-C)");
        tokio::select! {
            served = view::serve(pages, listener) => served?,
            () = asked_to_stop() => {}
        }
        Ok(Exit::Done)
    })
}
