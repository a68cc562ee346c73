//! A server that is token service and store at once, and processes with their own environment.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as it arrived. Names of headers are in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// A field of a body of the form `a=b&c=d`.
    pub(crate) fn field(&self, name: &str) -> String {
        let value = self.body.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        unescape(value.unwrap_or_else(|| panic!("no field {name} in {}", self.body)))
    }
}

fn unescape(text: &str) -> String {
    let mut parts = text.split('%');
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |all, part| {
        let byte = u8::from_str_radix(&part[..2], 16).unwrap();
        all + &char::from(byte).to_string() + &part[2..]
    })
}

type Answering = dyn Fn(&Asked) -> (u16, String) + Send + Sync;

/// Requests for `/bucket/key` get an existing object; the test answers all others.
pub(crate) struct Server {
    pub(crate) origin: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub(crate) fn start(answering: impl Fn(&Asked) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let (asked, answering) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answering));
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (noted, answering) = (Arc::clone(&noted), Arc::clone(&answering));
                std::thread::spawn(move || serve(stream.unwrap(), &noted, &*answering));
            }
        });
        Self { origin, asked }
    }

    fn all(&self, is_store: bool) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|asked| is_of_store(asked) == is_store).cloned().collect()
    }

    /// Requests for the object.
    pub(crate) fn of_store(&self) -> Vec<Asked> {
        self.all(true)
    }

    /// Requests for tokens.
    pub(crate) fn of_tokens(&self) -> Vec<Asked> {
        self.all(false)
    }
}

fn is_of_store(asked: &Asked) -> bool {
    asked.target.starts_with("/bucket/key")
}

fn serve(stream: TcpStream, noted: &Mutex<Vec<Asked>>, answering: &Answering) {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let Some(asked) = read(&mut reader) else { return };
    noted.lock().unwrap().push(asked.clone());
    let mut stream = stream;
    let answer = if is_of_store(&asked) {
        "HTTP/1.1 200 OK\r\netag: \"e\"\r\nlast-modified: Mon, 06 May 2024 07:08:09 GMT\r\n\
         x-ms-blob-type: BlockBlob\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            .to_owned()
    } else {
        let (status, body) = answering(&asked);
        format!(
            "HTTP/1.1 {status} X\r\nx-aws-ec2-metadata-token-ttl-seconds: 600\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
    };
    let _ = stream.write_all(answer.as_bytes());
}

fn read(reader: &mut impl BufRead) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let mut words = line.split_whitespace();
    let mut asked = Asked { method: words.next()?.to_owned(), target: words.next()?.to_owned(), ..Asked::default() };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        asked.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = asked.header("content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    asked.body = String::from_utf8(body).ok()?;
    Some(asked)
}

/// Output of a process: its standard output and its log.
pub(crate) struct Printed(pub(crate) String);

impl Printed {
    pub(crate) fn answered(&self) -> usize {
        self.0.lines().filter(|line| line.ends_with("answered")).count()
    }

    /// The one line of an error.
    pub(crate) fn error(&self) -> &str {
        let line = self.0.lines().find_map(|line| line.split_once("error: ").map(|(_, error)| error));
        line.unwrap_or_else(|| panic!("no error in {}", self.0))
    }

    pub(crate) fn source(&self) -> &str {
        let line = self.0.lines().find_map(|line| line.strip_prefix("source: "));
        line.unwrap_or_else(|| panic!("no source in {}", self.0))
    }

    pub(crate) fn hides(&self, secrets: &[&str]) {
        for secret in secrets {
            assert!(!self.0.contains(secret), "`{secret}` is printed: {}", self.0);
        }
    }
}

/// Runs [`super::one_process`] with `environment` alone, apart from `PATH` and `home`.
pub(crate) fn run(url: &str, endpoint: &str, home: &Path, times: u32, environment: &[(&str, &str)]) -> Printed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "one_process", "--ignored", "--nocapture", "--test-threads=1"]).env_clear();
    command.env("PATH", std::env::var("PATH").unwrap()).env("HOME", home).env("NO_PROXY", "127.0.0.1");
    command.env("TEST_URL", url).env("TEST_ENDPOINT", endpoint).env("TEST_TIMES", times.to_string());
    command.envs(environment.iter().copied()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    Printed(printed.into_owned())
}

/// RFC 3339 of the time `seconds` from now.
pub(crate) fn from_now(seconds: i64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let at = i64::try_from(now).unwrap() + seconds;
    let (days, rest) = (at.div_euclid(86_400), at.rem_euclid(86_400));
    let (mut year, mut day) = (1970, days);
    let length = |year: i64| if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) { 366 } else { 365 };
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    let february = length(year) - 337;
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, day + 1)
}
