//! The thread that starts programs which are to end together with this one.
//!
//! `setpriv --pdeathsig` has a program killed when the *thread* ends that has started it, and not the
//! process. Threads of a runtime end when they have had nothing to do for some seconds. So one thread starts
//! all of them, and never ends.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};

type Request = (Command, Sender<io::Result<Child>>);

static REQUESTS: LazyLock<Mutex<Sender<Request>>> = LazyLock::new(|| {
    let (requests, received) = channel::<Request>();
    std::thread::spawn(move || {
        while let Ok((mut command, started)) = received.recv() {
            let _ = started.send(command.spawn());
        }
    });
    Mutex::new(requests)
});

/// Starts a program.
///
/// # Errors
/// It does not start.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    let (started, child) = channel();
    let requests = REQUESTS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let gone = |_| io::Error::other("the thread that starts programs has ended");
    requests.send((command, started)).map_err(|_| gone(()))?;
    child.recv().map_err(|_| gone(()))?
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::process::Stdio;

    use super::*;

    /// By a thread that ends, so that its end would kill the program.
    #[test]
    fn a_program_outlives_the_thread_that_wanted_it() {
        let wants = std::thread::spawn(|| {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut program = spawn(command).unwrap();
            // It has begun: from here on the end of the thread would be seen.
            program.stdin.as_mut().unwrap().write_all(b"x").unwrap();
            program.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            program
        });
        let mut program = wants.join().unwrap();
        drop(program.stdin.take());
        assert!(program.wait().unwrap().success(), "it has ended by itself, and was not killed");
    }
}
