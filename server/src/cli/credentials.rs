//! `credentials`: folders of certificates and keys, for development and demos.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use rustls::pki_types::{CertificateDer, UnixTime};
use stickycas_certificates::development::{self, CredentialFolders, ListenerFolder, TokenClaims};
use stickycas_certificates::seconds_since_1970;

use super::{Signals, UsageError};
use crate::auth::{CredentialStore, Credentials, is_trust_domain};
use crate::config::{AuthMode, Config, CredentialFolder, TokenConfig};

#[derive(Debug, Args)]
pub(super) struct CredentialsCommand {
    /// The folder to make. It gets one for the server (server) and one for each principal (clients/NAME).
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Principals process-1 to process-N, as runs of the load generator name them.
    #[arg(long, value_name = "N", default_value_t = 16)]
    principals: u32,
    /// Name them otherwise: TEXT1 to TEXTN. Repeat the flag for several groups of N; a load with two rosters
    /// has load-1- and load-2-.
    #[arg(long = "prefix", value_name = "TEXT", default_values_t = ["process-".to_owned()])]
    prefixes: Vec<String>,
    /// Other principals. Repeat the flag for several.
    #[arg(long = "principal", value_name = "NAME", default_values_t = ["coordinator".to_owned()])]
    names: Vec<String>,
    /// Names and addresses under which the server is reached. Repeat the flag for several.
    #[arg(long = "host", value_name = "HOST", default_values_t = ["localhost", "127.0.0.1", "::1"].map(str::to_owned))]
    hosts: Vec<String>,
    /// A principal with a listener of its own, such as the judge or one server of a cluster, and the names
    /// and addresses under which that is reached: its folder gets one more (clients/NAME/listener), like that
    /// of the server. Repeat the flag for several.
    #[arg(long = "listener", value_name = "NAME=HOST,...", value_parser = parse_listener)]
    listeners: Vec<ListenerFolder>,
    /// The trust domain of the principals; the server has a setting of the same name.
    #[arg(long, value_name = "NAME", default_value = "stickycas")]
    trust_domain: String,
    /// Make bearer tokens too: the server's folder gets their keys, and each principal a second folder
    /// (tokens/NAME). A token is valid for a day at most. With --tokens=file no principal gets a certificate,
    /// and all tokens are in one file (tokens/tokens): for loads with thousands of principals.
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "folders")]
    tokens: Option<TokenForm>,
    /// The issuer of the tokens; the server has a setting of the same name.
    #[arg(long, value_name = "TEXT", default_value = "stickycas", requires = "tokens")]
    token_issuer: String,
    /// Their audience; the server has a setting of the same name.
    #[arg(long, value_name = "TEXT", default_value = "stickycas", requires = "tokens")]
    token_audience: String,
    /// The time for which all of it is valid.
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = stickycas_program::parse_duration)]
    lifetime: Duration,
    /// Leave DIR as it is if all of this is in it and valid. If tokens alone are missing, or have less than a
    /// quarter of their time left, make them anew. Otherwise make all of it, in folders that exist too: for
    /// containers, which start again and again with the same volumes.
    #[arg(long)]
    keep: bool,
    /// Then stay until SIGTERM or SIGINT, so that others can wait for it to be healthy (--check).
    #[arg(long)]
    wait: bool,
    /// Make nothing: fail unless all of this is in DIR and valid.
    #[arg(long, conflicts_with_all = ["keep", "wait"])]
    check: bool,
}

/// The places of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TokenForm {
    /// Beside the certificates, a folder for each principal (tokens/NAME)
    Folders,
    /// In one file (tokens/tokens), for a program that plays all of them; and nobody gets a certificate
    File,
}

fn parse_listener(text: &str) -> Result<ListenerFolder, String> {
    let (principal, hosts) = text.split_once('=').unwrap_or_default();
    let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
    if principal.is_empty() || hosts.iter().any(String::is_empty) {
        let why =
            "give the name of a principal and of its hosts, such as judge=localhost or judge=localhost,::1";
        return Err(why.to_owned());
    }
    Ok(ListenerFolder { principal: principal.to_owned(), hosts })
}

impl CredentialsCommand {
    /// Makes the folders.
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let folders = self.folders()?;
        let mut stdout = io::stdout();
        if self.check {
            return Ok(match folders.check::<ServerVerifier>() {
                Ok(()) => ExitCode::SUCCESS,
                Err(why) => {
                    writeln!(stdout, "{why:#}")?;
                    ExitCode::FAILURE
                }
            });
        }
        // Installed before anything is made, so that nothing is left half done without need.
        let signals = Signals::install()?;
        let out = self.out.display();
        if self.keep && folders.check::<ServerVerifier>().is_ok() {
            writeln!(stdout, "{out}: kept, all of it is there and valid")?;
        } else if self.keep
            && let Some(renewed) = folders.renew_tokens::<ServerVerifier>()?
        {
            writeln!(stdout, "{out}: kept, and {renewed} tokens made anew")?;
        } else {
            folders.make()?;
            self.tell(&folders, &mut stdout)?;
        }
        if self.wait {
            stdout.flush()?;
            signals.split().0.await;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The folders that the flags ask for.
    fn folders(&self) -> anyhow::Result<CredentialFolders> {
        if !is_trust_domain(&self.trust_domain) {
            let why = "give 1 to 255 lower-case letters, digits, '.', '_' or '-'";
            return Err(UsageError(format!("--trust-domain {:?}: {why}", self.trust_domain)).into());
        }
        if self.out.exists() && !self.keep && !self.check {
            let why = format!("{} exists already: give a folder that does not", self.out.display());
            return Err(UsageError(why).into());
        }
        let of_group = |prefix| (1..=self.principals).map(move |number| format!("{prefix}{number}"));
        let principals: Vec<String> =
            self.names.iter().cloned().chain(self.prefixes.iter().flat_map(of_group)).collect();
        let unknown = self.listeners.iter().find(|listener| !principals.contains(&listener.principal));
        if let Some(ListenerFolder { principal, .. }) = unknown {
            let why = format!("--listener {principal}: give --principal {principal} as well");
            return Err(UsageError(why).into());
        }
        let claims = TokenClaims { issuer: self.token_issuer.clone(), audience: self.token_audience.clone() };
        let form = self.tokens.map(|form| match form {
            TokenForm::Folders => development::TokenForm::Folders,
            TokenForm::File => development::TokenForm::File,
        });
        Ok(CredentialFolders {
            out: self.out.clone(),
            principals,
            hosts: self.hosts.clone(),
            listeners: self.listeners.clone(),
            trust_domain: self.trust_domain.clone(),
            tokens: form.map(|form| (form, claims)),
            lifetime: self.lifetime,
        })
    }

    fn tell(&self, folders: &CredentialFolders, out: &mut impl io::Write) -> io::Result<()> {
        let (folder, count) = (self.out.display(), folders.principals.len());
        writeln!(out, "{folder}/server: for stickycas-server serve --credentials {folder}/server")?;
        if self.tokens != Some(TokenForm::File) {
            writeln!(
                out,
                "{folder}/clients: a folder for each of {count} principals, for --credentials of its client"
            )?;
        }
        for listener in &self.listeners {
            let path = folders.listener(listener);
            writeln!(out, "{}: for the listener of {}", path.display(), listener.principal)?;
        }
        let tokens = match self.tokens {
            None => return Ok(()),
            Some(TokenForm::Folders) => "the same with tokens".to_owned(),
            Some(TokenForm::File) => {
                format!("the tokens of {count} principals, for --credentials of whoever plays them")
            }
        };
        writeln!(
            out,
            "{folder}/tokens: {tokens}, for a server with --token-listen ADDRESS; {folder}/token-signing-key.pem \
             signs them"
        )
    }
}

/// The verification of the server itself.
struct ServerVerifier(Arc<Credentials>);

impl development::Verifier for ServerVerifier {
    fn read(folder: &Path, trust_domain: &str, claims: Option<&TokenClaims>) -> anyhow::Result<Self> {
        let (path, trust_domain) = (folder.to_owned(), trust_domain.to_owned());
        let folder = CredentialFolder { path, trust_domain, allow_missing_revocation_list: false };
        let tokens = claims.cloned().map(|TokenClaims { issuer, audience }| TokenConfig { issuer, audience });
        let config = Config { auth_mode: AuthMode::Certificates(folder), tokens, ..Config::insecure([]) };
        let store = CredentialStore::of(&config)?.context("this mode has credentials")?;
        Ok(Self(store.current()))
    }

    fn principal_of_certificates(&self, certificates: &[CertificateDer<'_>]) -> anyhow::Result<String> {
        let identity = self.0.identify(certificates, UnixTime::now())?;
        Ok(identity.principal.as_str().to_owned())
    }

    fn principal_of_token(&self, token: &[u8]) -> anyhow::Result<(String, u64)> {
        let tokens = self.0.tokens.as_ref().context("tokens are not taken")?;
        let verified = tokens.verify(token, seconds_since_1970())?;
        Ok((verified.principal.as_str().to_owned(), verified.expires))
    }
}
