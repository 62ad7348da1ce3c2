//! `credentials`: folders of certificates and keys, for development and demos.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use super::UsageError;
use super::credential_folders::check_server;
use super::signals::Signals;
use super::token_folders::{TokenFolders, TokenForm};
use crate::auth::{DevelopmentCas, is_trust_domain};
use crate::config::CredentialFolder;
use crate::config::TokenConfig;

#[derive(Debug, Args)]
pub(super) struct Credentials {
    /// The folder to make. It gets one for the server (server) and one for each principal (clients/NAME).
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Principals process-1 to process-N, as runs of the load generator name them.
    #[arg(long, value_name = "N", default_value_t = 16)]
    principals: u32,
    /// Name them otherwise: TEXT1 to TEXTN. Repeat the flag for several groups of N; a load with two rosters has load-1- and
    /// load-2-.
    #[arg(long = "prefix", value_name = "TEXT", default_values_t = ["process-".to_owned()])]
    prefixes: Vec<String>,
    /// Other principals. Repeat the flag for several.
    #[arg(long = "principal", value_name = "NAME", default_values_t = ["coordinator".to_owned()])]
    names: Vec<String>,
    /// Names and addresses under which the server is reached. Repeat the flag for several.
    #[arg(long = "host", value_name = "HOST", default_values_t = ["localhost", "127.0.0.1", "::1"].map(str::to_owned))]
    hosts: Vec<String>,
    /// A principal with a listener of its own, such as the judge or one server of a cluster, and the names and addresses
    /// under which that is reached: its folder gets one more (clients/NAME/listener), like that of the server. Repeat the
    /// flag for several.
    #[arg(long = "listener", value_name = "NAME=HOST,...", value_parser = parse_listener)]
    listeners: Vec<Listener>,
    /// The trust domain of the principals; the server has a setting of the same name.
    #[arg(long, value_name = "NAME", default_value = "stickycas")]
    trust_domain: String,
    /// Make bearer tokens too: the server's folder gets their keys, and each principal a second folder (tokens/NAME). A
    /// token is valid for a day at most. With --tokens=file no principal gets a certificate, and all tokens are in one file
    /// (tokens/tokens): for loads with thousands of principals.
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "folders")]
    tokens: Option<TokenForm>,
    /// The issuer of the tokens; the server has a setting of the same name.
    #[arg(long, value_name = "TEXT", default_value = "stickycas", requires = "tokens")]
    token_issuer: String,
    /// Their audience; the server has a setting of the same name.
    #[arg(long, value_name = "TEXT", default_value = "stickycas", requires = "tokens")]
    token_audience: String,
    /// How long all of it is valid.
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = stickycas_program::parse_duration)]
    lifetime: Duration,
    /// Leave DIR as it is if all of this is in it and valid. If tokens alone are missing, or have less than a quarter of their
    /// time left, make them anew. Otherwise make all of it, in folders that exist too: for containers, which start again and
    /// again with the same volumes.
    #[arg(long)]
    keep: bool,
    /// Then stay until SIGTERM or SIGINT, so that others can wait for it to be healthy (--check).
    #[arg(long)]
    wait: bool,
    /// Make nothing: fail unless all of this is in DIR and valid.
    #[arg(long, conflicts_with_all = ["keep", "wait"])]
    check: bool,
}

/// A principal that others connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listener {
    principal: String,
    hosts: Vec<String>,
}

fn parse_listener(text: &str) -> Result<Listener, String> {
    let (principal, hosts) = text.split_once('=').unwrap_or_default();
    let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
    if principal.is_empty() || hosts.iter().any(String::is_empty) {
        let why =
            "give the name of a principal and of its hosts, such as judge=localhost or judge=localhost,::1";
        return Err(why.to_owned());
    }
    Ok(Listener { principal: principal.to_owned(), hosts })
}

impl Credentials {
    /// Makes the folders.
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        self.check_flags()?;
        let mut stdout = io::stdout();
        if self.check {
            return Ok(match self.complete() {
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
        if self.keep && self.complete().is_ok() {
            writeln!(stdout, "{out}: kept, all of it is there and valid")?;
        } else if self.keep
            && let Some(renewed) = self.renew_tokens()?
        {
            writeln!(stdout, "{out}: kept, and {renewed} tokens made anew")?;
        } else {
            self.make()?;
            self.tell(&mut stdout)?;
        }
        if self.wait {
            stdout.flush()?;
            signals.split().0.await;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn check_flags(&self) -> anyhow::Result<()> {
        if !is_trust_domain(&self.trust_domain) {
            let why = "give 1 to 255 lower-case letters, digits, '.', '_' or '-'";
            return Err(UsageError(format!("--trust-domain {:?}: {why}", self.trust_domain)).into());
        }
        if self.out.exists() && !self.keep && !self.check {
            let why = format!("{} exists already: give a folder that does not", self.out.display());
            return Err(UsageError(why).into());
        }
        let principals = self.all_principals();
        match self.listeners.iter().find(|listener| !principals.contains(&listener.principal)) {
            None => Ok(()),
            Some(Listener { principal, .. }) => {
                let why = format!("--listener {principal}: give --principal {principal} as well");
                Err(UsageError(why).into())
            }
        }
    }

    fn make(&self) -> anyhow::Result<()> {
        let mut cas = DevelopmentCas::new(&self.trust_domain, self.lifetime)?;
        for name in &self.certified_principals() {
            let client = cas.client(name)?;
            cas.write_client(&self.client_folder(name), &client)?;
        }
        let principals = self.all_principals();
        if let Some(tokens) = self.token_folders(&principals) {
            tokens.make(&cas, &self.server_folder())?;
        }
        for listener in &self.listeners {
            let server = cas.server(&listener.hosts)?;
            cas.write_server(&self.listener_folder(listener), &server)?;
        }
        // The last: see `credential_folders`.
        let server = cas.server(&self.hosts)?;
        cas.write_server(&self.server_folder(), &server)?;
        Ok(())
    }

    /// Whether all of it is there and valid.
    fn complete(&self) -> anyhow::Result<()> {
        self.certificates_complete()?;
        let principals = self.all_principals();
        let tokens = self.token_folders(&principals);
        tokens.map_or(Ok(()), |tokens| tokens.check(&self.credential_folder(self.server_folder())))
    }

    /// Whether all of it but tokens and their keys is there and valid.
    fn certificates_complete(&self) -> anyhow::Result<()> {
        let (clients, principals) = (self.out.join("clients"), self.certified_principals());
        let server = self.credential_folder(self.server_folder());
        check_server(&server, &self.hosts, &clients, &principals)?;
        for listener in &self.listeners {
            let folder = self.credential_folder(self.listener_folder(listener));
            check_server(&folder, &listener.hosts, &clients, &principals)
                .with_context(|| format!("the listener of {}", listener.principal))?;
        }
        let principals = self.all_principals();
        self.token_folders(&principals).map_or(Ok(()), |tokens| tokens.check_cas())
    }

    /// Makes tokens anew that are missing or expire soon, and says how many. `None`: more is missing.
    fn renew_tokens(&self) -> anyhow::Result<Option<usize>> {
        let principals = self.all_principals();
        let tokens = self.token_folders(&principals).filter(|_| self.certificates_complete().is_ok());
        tokens.map(|tokens| tokens.renew(&self.credential_folder(self.server_folder()))).transpose()
    }

    fn token_folders<'a>(&'a self, principals: &'a [String]) -> Option<TokenFolders<'a>> {
        let claims = TokenConfig { issuer: self.token_issuer.clone(), audience: self.token_audience.clone() };
        let form = self.tokens?;
        Some(TokenFolders { form, out: &self.out, claims, lifetime: self.lifetime, principals })
    }

    fn credential_folder(&self, path: PathBuf) -> CredentialFolder {
        let trust_domain = self.trust_domain.clone();
        CredentialFolder { path, trust_domain, allow_missing_revocation_list: false }
    }

    fn tell(&self, out: &mut impl io::Write) -> io::Result<()> {
        let (folder, count) = (self.out.display(), self.all_principals().len());
        writeln!(out, "{folder}/server: for stickycas-server serve --credentials {folder}/server")?;
        if self.tokens != Some(TokenForm::File) {
            writeln!(
                out,
                "{folder}/clients: a folder for each of {count} principals, for --credentials of its client"
            )?;
        }
        for listener in &self.listeners {
            let path = self.listener_folder(listener);
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

    fn all_principals(&self) -> Vec<String> {
        let of_group = |prefix| (1..=self.principals).map(move |number| format!("{prefix}{number}"));
        self.names.iter().cloned().chain(self.prefixes.iter().flat_map(of_group)).collect()
    }

    /// Those who get certificates.
    fn certified_principals(&self) -> Vec<String> {
        if self.tokens == Some(TokenForm::File) { Vec::new() } else { self.all_principals() }
    }

    fn server_folder(&self) -> PathBuf {
        self.out.join("server")
    }

    fn client_folder(&self, principal: &str) -> PathBuf {
        self.out.join("clients").join(principal)
    }

    fn listener_folder(&self, listener: &Listener) -> PathBuf {
        self.client_folder(&listener.principal).join("listener")
    }
}
