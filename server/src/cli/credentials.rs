//! `credentials`: folders of certificates and keys, for development and demos.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::exit::UsageError;
use crate::auth::{DevelopmentCas, DevelopmentError, TokenIssuer, is_trust_domain};

#[derive(Debug, Args)]
pub(super) struct Credentials {
    /// The folder to make. It gets one for the server (server) and one for each principal (clients/NAME).
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Principals process-1 to process-N, as runs of the load generator name them.
    #[arg(long, value_name = "N", default_value_t = 16)]
    principals: u32,
    /// Other principals. Repeat the flag for several.
    #[arg(long = "principal", value_name = "NAME", default_values_t = ["coordinator".to_owned()])]
    names: Vec<String>,
    /// Names and addresses under which the server is reached. Repeat the flag for several.
    #[arg(long = "host", value_name = "HOST", default_values_t = ["localhost", "127.0.0.1", "::1"].map(str::to_owned))]
    hosts: Vec<String>,
    /// The trust domain of the principals; the server has a setting of the same name.
    #[arg(long, value_name = "NAME", default_value = "stickycas")]
    trust_domain: String,
    /// Make bearer tokens too: the server's folder gets their keys, and each principal a second folder (tokens/NAME). A
    /// token is valid for a day at most.
    #[arg(long)]
    tokens: bool,
    /// The issuer of the tokens; the server has a setting of the same name.
    #[arg(long, value_name = "TEXT", default_value = "stickycas", requires = "tokens")]
    token_issuer: String,
    /// Their audience; the server has a setting of the same name.
    #[arg(long, value_name = "TEXT", default_value = "stickycas", requires = "tokens")]
    token_audience: String,
    /// How long all of it is valid.
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = humantime::parse_duration)]
    lifetime: Duration,
}

impl Credentials {
    /// Makes the folders.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if !is_trust_domain(&self.trust_domain) {
            let why = "give 1 to 255 lower-case letters, digits, '.', '_' or '-'";
            return Err(UsageError(format!("--trust-domain {:?}: {why}", self.trust_domain)).into());
        }
        if self.out.exists() {
            let why = format!("{} exists already: give a folder that does not", self.out.display());
            return Err(UsageError(why).into());
        }
        let mut cas = DevelopmentCas::new(&self.trust_domain, self.lifetime)?;
        let server = cas.server(&self.hosts)?;
        cas.write_server(&self.out.join("server"), &server)?;
        let issuer = self.tokens.then(|| self.token_issuer()).transpose()?;
        let processes = (1..=self.principals).map(|number| format!("process-{number}"));
        let mut count = 0;
        for name in self.names.iter().cloned().chain(processes) {
            let client = cas.client(&name)?;
            cas.write_client(&self.out.join("clients").join(&name), &client)?;
            if let Some(issuer) = &issuer {
                let token = issuer.token(&name, &self.token_issuer, &self.token_audience, self.lifetime)?;
                cas.write_token_client(&self.out.join("tokens").join(name), &token)?;
            }
            count += 1;
        }
        self.tell(count)
    }

    /// A new issuer of tokens, its private key and the server's key set written.
    fn token_issuer(&self) -> Result<TokenIssuer, DevelopmentError> {
        let issuer = TokenIssuer::new("development")?;
        issuer.write_key_set(&self.out.join("server"))?;
        issuer.write_private_key(&self.out.join("token-signing-key.pem"))?;
        Ok(issuer)
    }

    fn tell(&self, count: usize) -> anyhow::Result<ExitCode> {
        let out = self.out.display();
        let mut stdout = io::stdout();
        writeln!(stdout, "{out}/server: for stickycas-server serve --credentials {out}/server")?;
        writeln!(
            stdout,
            "{out}/clients: a folder for each of {count} principals, for --credentials of its client"
        )?;
        if self.tokens {
            writeln!(
                stdout,
                "{out}/tokens: the same with tokens, for a server with --token-listen ADDRESS; {out}/token-signing-key.pem \
                 signs them"
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
