//! The credentials that are in force, and the connections and streams that they allow.
//!
//! Files are looked at every few seconds, and at once when the server is told to. A change is in force as a
//! whole or not at all: files that cannot be used leave the old credentials in force. When new ones are in
//! force, all open connections and streams are verified with them, and those that they do not allow end.
//! Requests that were accepted before stay accepted (SPEC F8a).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use rustls::pki_types::{CertificateDer, UnixTime};
use stickycas_certificates::seconds_since_1970;
use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::active_sessions::{ActiveSessions, Proof, RevocationReason, StreamProof};
use super::audit;
use super::credentials::{CredentialSource, Credentials};
use super::folder::{CredentialsError, FileReader};
use super::principal::Principal;
use super::roles::Roles;
use crate::config::{AuthMode, Config};

/// See the module.
#[derive(Debug)]
pub(crate) struct CredentialStore {
    source: CredentialSource,
    /// The interval at which files are looked at.
    look_every: Duration,
    current: ArcSwap<Credentials>,
    sessions: Mutex<ActiveSessions>,
    reload_now: Notify,
    /// The number of the generation in force, from 1.
    generation: watch::Sender<u64>,
    status: ReloadStatus,
}

/// The outcomes of the readings of the files.
#[derive(Debug, Default)]
struct ReloadStatus {
    failed: AtomicU64,
    is_failing: AtomicBool,
    /// The warnings that were logged and still hold.
    warnings: Mutex<Vec<String>>,
}

/// The state of the credentials, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CredentialsState {
    /// Counted from 1.
    pub(crate) generation: u64,
    /// Readings that failed.
    pub(crate) failed_reloads: u64,
    /// Whether the latest reading has failed.
    pub(crate) is_failing: bool,
    /// Seconds until the server's certificate, or one of those behind it, expires; negative afterwards.
    pub(crate) certificate_expiry: f64,
    /// The same of the CAs of clients.
    pub(crate) client_ca_expiry: f64,
    /// Whether a revocation list has expired.
    pub(crate) revocation_list_expired: bool,
    /// Verified tokens that are remembered.
    pub(crate) cached_tokens: usize,
}

/// Keeps a connection or a stream registered until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    store: Arc<CredentialStore>,
    key: usize,
    end: CancellationToken,
}

/// The interval at which expired tokens and certificates are looked for.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);
/// The number of chains of connections that are verified again in one piece: some milliseconds.
const AT_ONCE: usize = 64;
/// The number of connections and streams that are looked at in one piece where no signature is verified.
const NAMES_AT_ONCE: usize = 1_024;

impl CredentialStore {
    /// The store that this configuration needs; `None`: none.
    ///
    /// # Errors
    /// If the files of its folder cannot be used.
    pub(crate) fn of(config: &Config) -> Result<Option<Arc<Self>>, CredentialsError> {
        let AuthMode::Certificates(folder) = &config.auth_mode else { return Ok(None) };
        let source = CredentialSource {
            folder: folder.clone(),
            files: FileReader::new(&folder.path),
            tokens: config.tokens.clone(),
            cached_tokens: config.limits.cached_tokens,
            roles: Roles::of_settings(config),
        };
        let current = ArcSwap::from_pointee(source.read()?);
        Ok(Some(Arc::new(Self {
            source,
            look_every: config.reload_every,
            current,
            sessions: Mutex::default(),
            reload_now: Notify::new(),
            generation: watch::Sender::new(1),
            status: ReloadStatus::default(),
        })))
    }

    /// The credentials in force.
    pub(crate) fn current(&self) -> Arc<Credentials> {
        self.current.load_full()
    }

    /// The credentials in force, for a moment.
    pub(crate) fn now(&self) -> Guard<Arc<Credentials>> {
        self.current.load()
    }

    /// Calls this with the roles in force, and again whenever others are, for ever.
    pub(crate) async fn with_roles(self: Arc<Self>, mut set: impl FnMut(&Roles)) {
        let mut generation = self.generation.subscribe();
        loop {
            generation.mark_unchanged();
            set(&self.now().roles);
            if generation.changed().await.is_err() {
                return;
            }
        }
    }

    /// Registers a connection that was let in with these credentials.
    ///
    /// # Errors
    /// If the credentials in force have changed meanwhile and do not allow it.
    pub(crate) fn register_connection(
        self: &Arc<Self>,
        principal: Principal,
        certificates: &Arc<[CertificateDer<'static>]>,
        let_in_with: &Arc<Credentials>,
    ) -> Result<Registration, rustls::Error> {
        let proof = Proof::Connection { principal, certificates: certificates.clone() };
        let registration = self.register(proof, CancellationToken::new());
        // A change that came before the registration has not seen it.
        let current = self.current();
        if !Arc::ptr_eq(&current, let_in_with) {
            current.identify(certificates, UnixTime::now())?;
        }
        Ok(registration)
    }

    /// Registers a stream, which is told by `end` when what has been proven for it does not count any more.
    /// `None`: it stands on nothing that could change before its connection ends.
    ///
    /// # Errors
    /// If it does not count already.
    pub(crate) fn register_stream(
        self: &Arc<Self>,
        proof: &StreamProof,
        end: CancellationToken,
    ) -> Result<Option<Registration>, RevocationReason> {
        if proof.is_empty() {
            return Ok(None);
        }
        let registration = self.register(Proof::Stream(proof.clone()), end);
        proof.check(&self.now(), seconds_since_1970())?;
        Ok(Some(registration))
    }

    fn register(self: &Arc<Self>, proof: Proof, end: CancellationToken) -> Registration {
        let ends = proof.ends();
        let key = self.sessions().insert(proof, ends, end.clone());
        Registration { store: self.clone(), key, end }
    }

    /// Reads the files again. Returns whether other credentials are in force now.
    ///
    /// # Errors
    /// If they cannot be used: the old ones stay in force, but CAs of clients that have ended.
    pub(crate) fn reload(&self) -> Result<bool, CredentialsError> {
        let (next, read) = self.source.read_changed(&self.current());
        let Some(next) = next else { return read.map(|()| false) };
        let next = Arc::new(next);
        self.current.store(next.clone());
        self.generation.send_modify(|generation| *generation += 1);
        audit::generation(*self.generation.borrow());
        self.verify_open(&next);
        read.map(|()| true)
    }

    /// Verifies all open connections and streams with new credentials, and ends those that they do not allow.
    /// First come the checks without signatures: a denied client is out at once, however many others are to
    /// be verified. A connection that comes meanwhile is verified with the new credentials anyway.
    fn verify_open(&self, credentials: &Credentials) {
        self.end_refused(NAMES_AT_ONCE, |proof, now| proof.check_names(credentials, now));
        self.end_refused(AT_ONCE, |proof, now| proof.check_chain(credentials, now));
    }

    /// Ends what is open and does not pass this check at the present moment. In pieces of so many, since all
    /// of it may take seconds: the lock is never held while something is checked, other threads have their
    /// turns, and what expires meanwhile ends in time.
    fn end_refused(&self, at_once: usize, check: impl Fn(&Proof, u64) -> Result<(), RevocationReason>) {
        let mut from = 0;
        loop {
            let now = seconds_since_1970();
            let (open, next) = self.sessions().some(from, at_once);
            for entry in open {
                self.end_unless(check(&entry.1, now), entry);
            }
            let Some(next) = next else { return };
            from = next;
            while self.end_expired(seconds_since_1970()) {
                std::thread::yield_now();
            }
            std::thread::yield_now();
        }
    }

    /// Tells the task that runs [`Self::run`] to look at the files now.
    pub(crate) fn reload_now(&self) {
        self.reload_now.notify_one();
    }

    /// Looks at the files, and ends what has expired, for ever. Neither waits for the other.
    pub(crate) async fn run(self: Arc<Self>) {
        let every = |period| {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        let (mut look, mut expire) = (every(self.look_every), every(EXPIRE_EVERY));
        let expiring = async {
            loop {
                expire.tick().await;
                while self.end_expired(seconds_since_1970()) {
                    tokio::task::yield_now().await;
                }
            }
        };
        let reloading = async {
            // The first tick comes at once.
            look.tick().await;
            loop {
                self.warn();
                tokio::select! {
                    _ = look.tick() => self.clone().reload_and_tell(false).await,
                    () = self.reload_now.notified() => self.clone().reload_and_tell(true).await,
                }
            }
        };
        let ((), ()) = tokio::join!(expiring, reloading);
    }

    /// Ends what does not count any more among that of which something has expired, one piece of it. Returns
    /// whether there may be more.
    fn end_expired(&self, now: u64) -> bool {
        let expired = self.sessions().take_expired(now, AT_ONCE);
        let may_be_more = expired.len() == AT_ONCE;
        let credentials = self.now();
        for entry in expired {
            let names = entry.1.check_names(&credentials, now);
            self.end_unless(names.and_then(|()| entry.1.check_chain(&credentials, now)), entry);
        }
        may_be_more
    }

    fn end_unless(
        &self,
        checked: Result<(), RevocationReason>,
        (key, proof, end): (usize, Proof, CancellationToken),
    ) {
        let Err(why) = checked else { return };
        audit::ended(proof.what(), proof.principal(), &why);
        self.sessions().end(key, &end, why);
        end.cancel();
    }

    /// The faults in the credentials in force, which are used all the same.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.now().warnings(seconds_since_1970())
    }

    /// Logs it, once.
    fn warn(&self) {
        let warnings = self.warnings();
        let mut logged = self.status.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings.iter().filter(|warning| !logged.contains(warning)) {
            tracing::warn!(warning, "something is wrong with the credentials, which are used all the same");
        }
        *logged = warnings;
    }

    /// Reads the files again, and logs the outcome. A failure is logged again only if somebody `asked`: while
    /// it lasts the metric tells of it.
    async fn reload_and_tell(self: Arc<Self>, asked: bool) {
        let store = self.clone();
        let reloaded = tokio::task::spawn_blocking(move || store.reload()).await;
        let why = match reloaded {
            Ok(Ok(changed)) => {
                if self.status.is_failing.swap(false, Ordering::Relaxed) || (asked && !changed) {
                    tracing::info!(changed, "credentials are read again");
                }
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.status.failed.fetch_add(1, Ordering::Relaxed);
        if !self.status.is_failing.swap(true, Ordering::Relaxed) || asked {
            tracing::error!(error = why, "credentials cannot be used: the old ones stay in force");
        }
    }

    /// The state of the credentials.
    pub(crate) fn state(&self) -> CredentialsState {
        let current = self.now();
        let now = seconds_since_1970();
        let next = current.next_revocation_list;
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact")]
        let until = |moment: u64| moment as f64 - now as f64;
        CredentialsState {
            generation: *self.generation.borrow(),
            failed_reloads: self.status.failed.load(Ordering::Relaxed),
            is_failing: self.status.is_failing.load(Ordering::Relaxed),
            certificate_expiry: until(current.not_after),
            client_ca_expiry: until(current.client_cas.not_after()),
            revocation_list_expired: next.is_some_and(|next| next < now),
            cached_tokens: current.tokens.as_ref().map_or(0, super::tokens::Tokens::cached),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, ActiveSessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registration {
    /// Completes when what is registered is not allowed any more.
    pub(crate) async fn ended(&self) {
        self.end.cancelled().await;
    }

    /// The reason for which it is not allowed any more; `None`: it is.
    pub(crate) fn why(&self) -> Option<RevocationReason> {
        self.store.sessions().why(self.key)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.store.sessions().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake};

    use rustls::pki_types::pem::PemObject as _;
    use stickycas_certificates::development::DevelopmentCas;
    use tempfile::TempDir;
    use time::OffsetDateTime;

    use super::*;
    use crate::config::CredentialFolder;

    /// A store of the credentials of these CAs, and their folder.
    fn store() -> (Arc<CredentialStore>, DevelopmentCas, TempDir) {
        let mut cas = DevelopmentCas::new("example.org", Duration::from_secs(3600)).unwrap();
        let server = cas.server(&["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        cas.write_server(folder.path(), &server).unwrap();
        let credentials = CredentialFolder {
            path: folder.path().to_owned(),
            trust_domain: "example.org".to_owned(),
            allow_missing_revocation_list: false,
        };
        let config = Config { auth_mode: AuthMode::Certificates(credentials), ..Config::insecure([]) };
        (CredentialStore::of(&config).unwrap().unwrap(), cas, folder)
    }

    /// The certificates that a client of this principal shows.
    fn shown(cas: &mut DevelopmentCas, principal: &str) -> Arc<[CertificateDer<'static>]> {
        let client = cas.client(principal).unwrap();
        Arc::new([CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap()])
    }

    #[tokio::test]
    async fn a_list_that_another_key_has_signed_is_not_taken() {
        let (store, mut cas, folder) = store();
        let ann = shown(&mut cas, "ann");
        store.current().identify(&ann, UnixTime::now()).unwrap();
        cas.namesakes().unwrap().write_revocation_list(folder.path()).unwrap();
        let why = store.reload().unwrap_err().to_string();
        assert!(why.contains("client-ca.crl: the revocation list of CA CN=StickyCAS"), "{why}");
        assert!(why.contains("is not signed by the key of that CA"), "{why}");
        store.clone().reload_and_tell(true).await;
        let state = store.state();
        assert_eq!((state.generation, state.failed_reloads, state.is_failing), (1, 1, true));
        store.current().identify(&ann, UnixTime::now()).expect("the old list stays in force");
        // The right one again.
        cas.write_revocation_list(folder.path()).unwrap();
        store.clone().reload_and_tell(true).await;
        let state = store.state();
        assert_eq!((state.generation, state.is_failing), (2, false));
        store.current().identify(&ann, UnixTime::now()).unwrap();
    }

    #[tokio::test]
    async fn a_handshake_verifies_a_chain_once() {
        let (store, mut cas, folder) = store();
        let ann = shown(&mut cas, "ann");
        let used = store.current();
        let verified = || used.verifier.verified.load(Ordering::Relaxed);
        let registered = store.register_connection(Principal::new("ann"), &ann, &used);
        assert_eq!((registered.is_ok(), verified()), (true, 0));
        // Unless other credentials have come into force since.
        std::fs::write(folder.path().join("denied"), "ann\n").unwrap();
        assert!(store.reload().unwrap());
        let refused = store.register_connection(Principal::new("ann"), &ann, &used);
        assert!(refused.unwrap_err().to_string().contains("Denied"));
    }

    #[tokio::test]
    async fn a_reload_verifies_all_that_is_open() {
        // Of several pieces, with gaps.
        const OPEN: usize = 5 * AT_ONCE + 7;
        let (store, mut cas, folder) = store();
        let (ann, bob) = (shown(&mut cas, "ann"), shown(&mut cas, "bob"));
        let used = store.current();
        let register = |number: usize| {
            let (name, shown) = if number.is_multiple_of(3) { ("ann", &ann) } else { ("bob", &bob) };
            store.register_connection(Principal::new(name), shown, &used).unwrap()
        };
        let mut open: Vec<_> = (0..OPEN).map(|number| (number, register(number))).collect();
        open.retain(|(number, _)| !number.is_multiple_of(5));
        std::fs::write(folder.path().join("denied"), "ann\n").unwrap();
        assert!(store.reload().unwrap());
        let allowed = open.iter().filter(|(number, _)| !number.is_multiple_of(3)).count();
        assert_eq!(store.current().verifier.verified.load(Ordering::Relaxed), allowed, "each once");
        for (number, registration) in &open {
            assert_eq!(registration.why().is_some(), number.is_multiple_of(3), "{number}");
            assert_eq!(registration.end.is_cancelled(), number.is_multiple_of(3), "{number}");
        }
    }

    /// Notes how many chains had been verified when it was woken.
    struct VerifiedBefore(Arc<CredentialStore>, AtomicUsize);

    impl Wake for VerifiedBefore {
        fn wake(self: Arc<Self>) {
            self.1.store(self.0.current().verifier.verified.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn the_denied_are_out_before_any_chain_is_verified() {
        const OTHERS: usize = 3 * AT_ONCE;
        let (store, mut cas, folder) = store();
        let (ann, bob) = (shown(&mut cas, "ann"), shown(&mut cas, "bob"));
        let used = store.current();
        let register = |name, shown| store.register_connection(Principal::new(name), shown, &used).unwrap();
        let others: Vec<_> = (0..OTHERS).map(|_| register("bob", &bob)).collect();
        let last = register("ann", &ann);
        let woken = Arc::new(VerifiedBefore(store.clone(), AtomicUsize::new(usize::MAX)));
        let mut ended = pin!(last.ended());
        let waker = woken.clone().into();
        assert!(ended.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        std::fs::write(folder.path().join("denied"), "ann\n").unwrap();
        assert!(store.reload().unwrap());
        assert_eq!(woken.1.load(Ordering::Relaxed), 0);
        assert!(last.why().unwrap().to_string().contains("Denied"));
        assert_eq!(store.current().verifier.verified.load(Ordering::Relaxed), OTHERS);
        assert!(others.iter().all(|other| other.why().is_none()));
    }

    /// By the clock of the calendar, which may step: no timer was set for that moment.
    #[tokio::test]
    async fn a_connection_ends_when_its_certificate_has_expired() {
        let (store, mut cas, _folder) = store();
        let soon = OffsetDateTime::now_utc() + Duration::from_secs(60);
        let sooner = cas.changed_client("ann", |params| params.not_after = soon).unwrap();
        let sooner: Arc<[_]> =
            Arc::new([CertificateDer::from_pem_slice(sooner.certificate.as_bytes()).unwrap()]);
        let later = shown(&mut cas, "bob");
        // Behind its own one that nobody needs, and that expires sooner.
        let with_another: Arc<[_]> = Arc::new([later[0].clone(), sooner[0].clone()]);
        let used = store.current();
        let register = |name, shown| store.register_connection(Principal::new(name), shown, &used).unwrap();
        let (ann, bob, eve) =
            (register("ann", &sooner), register("bob", &later), register("eve", &with_another));
        let end = soon.unix_timestamp().cast_unsigned();
        store.end_expired(end);
        assert_eq!([&ann, &bob, &eve].map(|it| it.why().is_some()), [false; 3], "it is valid to its end");
        store.end_expired(end + 1);
        assert_eq!([&ann, &bob, &eve].map(|it| it.end.is_cancelled()), [true, false, false]);
        assert!(ann.why().unwrap().to_string().contains("the certificate is not valid any more"));
        store.end_expired(end + 24 * 3600);
        assert_eq!([&ann, &bob, &eve].map(|it| it.why().is_some()), [true; 3]);
    }

    /// In a time that stands still: the first tick comes at once, and no other one.
    #[tokio::test(start_paused = true)]
    async fn what_has_expired_ends_in_pieces() {
        const OPEN: usize = 2 * AT_ONCE + 3;
        let (store, mut cas, _folder) = store();
        let past = OffsetDateTime::now_utc() - Duration::from_secs(60);
        let expired = cas.changed_client("ann", |params| params.not_after = past).unwrap();
        let shown: Arc<[_]> =
            Arc::new([CertificateDer::from_pem_slice(expired.certificate.as_bytes()).unwrap()]);
        let used = store.current();
        let register = |_| store.register_connection(Principal::new("ann"), &shown, &used).unwrap();
        let open: Vec<_> = (0..OPEN).map(register).collect();
        let mut running = pin!(store.clone().run());
        for ended in [AT_ONCE, 2 * AT_ONCE, OPEN] {
            assert!(running.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
            assert_eq!(open.iter().filter(|open| open.why().is_some()).count(), ended, "in one poll");
        }
    }

    /// A list that has expired still counts: that nobody renews it must not shut everybody out.
    #[tokio::test]
    async fn an_expired_list_is_kept_with_an_alarm() {
        let (store, mut cas, folder) = store();
        let (ann, bob) = (cas.client("ann").unwrap(), shown(&mut cas, "bob"));
        assert!(!store.state().revocation_list_expired);
        cas.revoke(&ann);
        let yesterday = OffsetDateTime::now_utc() - Duration::from_secs(24 * 3600);
        cas.write_changed_revocation_list(folder.path(), |list| {
            (list.this_update, list.next_update) = (yesterday - Duration::from_secs(3600), yesterday);
        })
        .unwrap();
        assert!(store.reload().unwrap(), "it comes into force");
        let state = store.state();
        assert!(state.revocation_list_expired && !state.is_failing);
        store.current().identify(&bob, UnixTime::now()).unwrap();
        let ann = CertificateDer::from_pem_slice(ann.certificate.as_bytes()).unwrap();
        let refused = store.current().identify(&[ann], UnixTime::now()).unwrap_err().to_string();
        assert!(refused.contains("Revoked"), "{refused}");
        cas.write_revocation_list(folder.path()).unwrap();
        assert!(store.reload().unwrap());
        assert!(!store.state().revocation_list_expired);
    }

    /// In a time that stands still while anything is done: nothing is waited for.
    #[tokio::test(start_paused = true)]
    async fn what_has_changed_is_in_force_at_once_when_asked_for() {
        let (store, _cas, folder) = store();
        let mut generation = store.generation.subscribe();
        let running = tokio::spawn(store.clone().run());
        // It waits for its first look.
        tokio::task::yield_now().await;
        let asked = tokio::time::Instant::now();
        std::fs::write(folder.path().join("denied"), "ann\n").unwrap();
        store.reload_now();
        generation.changed().await.unwrap();
        assert_eq!(*generation.borrow_and_update(), 2);
        assert!(asked.elapsed() < Duration::from_secs(1));
        // Without being asked it looks every few seconds.
        let changed = tokio::time::Instant::now();
        std::fs::write(folder.path().join("denied"), "ann\nbob\n").unwrap();
        generation.changed().await.unwrap();
        let after = changed.elapsed();
        assert!(after > Duration::from_secs(1) && after <= Duration::from_secs(10), "{after:?}");
        running.abort();
    }
}
