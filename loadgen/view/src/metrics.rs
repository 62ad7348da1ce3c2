//! The figures that the overview takes from the metrics of servers for operators (`/metrics`).

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How many servers are asked at a time.
const AT_ONCE: usize = 16;
/// How long a server may take to tell them, and in how many bytes.
const TIMEOUT: Duration = Duration::from_secs(5);
const BYTES: u64 = 4 * 1024 * 1024;
/// The unary calls whose time is shown.
const TIMED: [&str; 2] = ["Append", "Read"];

/// The figures of all servers together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Instances that have ended and are still there.
    pub(crate) ended: u64,
    /// Accesses that were accepted.
    pub(crate) accesses: u64,
    /// Offences on record, by kind.
    pub(crate) offences: BTreeMap<String, u64>,
    /// By upper bound of a duration in seconds, how many calls took no longer, but longer than the bound
    /// before.
    pub(crate) buckets: Vec<(f64, u64)>,
}

impl Figures {
    /// Those of the servers whose listeners for operators have these addresses: host and port.
    ///
    /// # Errors
    /// If one of them does not tell them.
    pub(crate) async fn read(addresses: &[String]) -> io::Result<Self> {
        let mut figures = Self::default();
        for addresses in addresses.chunks(AT_ONCE) {
            let mut answers: JoinSet<_> =
                addresses.iter().cloned().map(|address| timeout(TIMEOUT, get(address))).collect();
            while let Some(told) = answers.join_next().await {
                let told = told.map_err(io::Error::other)?;
                figures.add(&told.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??);
            }
        }
        // The counts up to each bound become the counts between two bounds.
        figures.buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut before = 0;
        for (_, count) in &mut figures.buckets {
            (*count, before) = (count.saturating_sub(before), *count);
        }
        Ok(figures)
    }

    fn add(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Some(value) = value.parse::<f64>().ok().filter(|value| *value >= 0.0) else { continue };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let count = value as u64;
            let (name, labels) = name.split_once('{').unwrap_or((name, ""));
            let label = |key: &str| {
                let (_, rest) = labels.split_once(&format!("{key}=\""))?;
                rest.split_once('"').map(|(value, _)| value)
            };
            match name {
                "stickycas_accesses_accepted_total" => self.accesses += count,
                "stickycas_instances" if matches!(label("state"), Some("finished" | "closed")) => {
                    self.ended += count;
                }
                "stickycas_offences_total" => {
                    *self.offences.entry(label("kind").unwrap_or_default().to_owned()).or_default() += count;
                }
                "stickycas_call_seconds_bucket" if label("method").is_some_and(|it| TIMED.contains(&it)) => {
                    let bound = label("le").and_then(|bound| bound.parse().ok()).unwrap_or(f64::INFINITY);
                    match self.buckets.iter_mut().find(|bucket| bucket.0 == bound) {
                        Some(bucket) => bucket.1 += count,
                        None => self.buckets.push((bound, count)),
                    }
                }
                _ => {}
            }
        }
    }
}

/// The body of `/metrics` at this address.
async fn get(address: String) -> io::Result<String> {
    let mut tcp = TcpStream::connect(&address).await?;
    let request = format!("GET /metrics HTTP/1.0\r\nhost: {address}\r\n\r\n");
    tcp.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    tcp.take(BYTES).read_to_string(&mut response).await?;
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let (head, body) = response.split_once("\r\n\r\n").ok_or_else(|| wrong("no answer of HTTP"))?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status == "200" { Ok(body.to_owned()) } else { Err(wrong(&format!("the answer is {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_metrics_of_several_servers_are_added() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let text = "HTTP/1.0 200 OK\r\n\r\n\
            # TYPE stickycas_instances gauge\n\
            stickycas_instances{state=\"running\"} 7\n\
            stickycas_instances{state=\"finished\"} 2\n\
            stickycas_instances{state=\"closed\"} 1\n\
            stickycas_accesses_accepted_total{kind=\"read\"} 5\n\
            stickycas_accesses_accepted_total{kind=\"append\"} 6\n\
            stickycas_offences_total{kind=\"oversized\"} 4\n\
            stickycas_call_seconds_bucket{method=\"Read\",le=\"0.001\"} 3\n\
            stickycas_call_seconds_bucket{method=\"Read\",le=\"+Inf\"} 4\n\
            stickycas_call_seconds_bucket{method=\"Get\",le=\"0.001\"} 9\n\
            process_cpu_seconds_total 1.5\n";
        tokio::spawn(async move {
            // Nobody is answered before all have asked.
            let mut all = Vec::new();
            for _ in 0..2 {
                let (mut tcp, _) = listener.accept().await.unwrap();
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    tcp.read_buf(&mut asked).await.unwrap();
                }
                all.push(tcp);
            }
            for mut tcp in all {
                tcp.write_all(text.as_bytes()).await.unwrap();
            }
        });
        let figures = Figures::read(&[address.clone(), address.clone()]).await.unwrap();
        let offences = BTreeMap::from([("oversized".to_owned(), 8)]);
        let buckets = vec![(0.001, 6), (f64::INFINITY, 2)];
        assert_eq!(figures, Figures { ended: 6, accesses: 22, offences, buckets });
        assert!(Figures::read(&[address]).await.is_err(), "nobody listens any more");
    }
}
