//! Standard input, output and error: input that is closed is refused, a failure to write output is
//! the command's, and standard error takes what it can.

use std::error::Error;
use std::fmt;
use std::io::{self, Stdin, Write};

use anyhow::anyhow;
use entresol_bench::ycsb::Entresol;
use entresol_measure::BenchError;
use entresol_media::files;
use serde::Serialize;

/// Failure to write to standard output.
#[derive(Debug)]
pub(crate) struct OutputError {
    cause: io::Error,
    /// Description of what the command has done all the same.
    done: Option<String>,
}

impl OutputError {
    /// Returns true if the reader of standard output is gone, as that of `| head -1`.
    pub(crate) fn is_unread(&self) -> bool {
        self.cause.kind() == io::ErrorKind::BrokenPipe
    }
}

impl From<io::Error> for OutputError {
    fn from(cause: io::Error) -> OutputError {
        OutputError { cause, done: None }
    }
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write to standard output: {}", self.cause)?;
        self.done.as_ref().map_or(Ok(()), |done| write!(f, "; {done}"))
    }
}

impl Error for OutputError {}

/// Result of writing to standard output.
pub(crate) type Printed = Result<(), OutputError>;

/// Bytes of output that are collected before they are written.
const PIECE_BYTES: usize = 64 << 10;

/// Standard output, written in pieces. The standard library's own handle reports success for writes
/// to a descriptor that is not open for writing, and does not report what fails at the end.
#[derive(Debug, Default)]
pub(crate) struct Out(Vec<u8>);

impl Out {
    /// Writes text, or collects it.
    pub(crate) fn put(&mut self, text: impl fmt::Display) -> Printed {
        // Writing to memory cannot fail.
        let _ = write!(self.0, "{text}");
        if self.0.len() < PIECE_BYTES { Ok(()) } else { self.flush() }
    }

    /// Writes what was collected.
    pub(crate) fn flush(&mut self) -> Printed {
        put_bytes(&std::mem::take(&mut self.0))
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        if self.0.len() >= PIECE_BYTES {
            Out::flush(self).map_err(|error| error.cause)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Out::flush(self).map_err(|error| error.cause)
    }
}

/// Writes bytes to standard output as they are.
pub(crate) fn put_bytes(bytes: &[u8]) -> Printed {
    Ok(files::write_to(rustix::stdio::stdout(), bytes)?)
}

/// Prints text on standard output.
pub(crate) fn print(text: impl fmt::Display) -> Printed {
    put_bytes(text.to_string().as_bytes())
}

/// Prints one JSON value on standard output.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = Out::default();
    serde_json::to_writer_pretty(&mut out, value).map_err(|error| match error.is_io() {
        true => OutputError::from(io::Error::from(error)).into(),
        false => anyhow!("cannot format the answer as JSON: {error}"),
    })?;
    out.put("\n")?;
    Ok(out.flush()?)
}

/// Adds to a failure of the output what the command has done all the same.
pub(crate) fn after(done: impl Into<String>, printed: anyhow::Result<()>) -> anyhow::Result<()> {
    printed.map_err(|error| match error.downcast::<OutputError>() {
        Ok(error) => OutputError { done: Some(done.into()), ..error }.into(),
        Err(error) => error,
    })
}

/// Returns the verdict of a command if it failed, otherwise the result of its output. An output
/// that failed as well is reported here.
pub(crate) fn judged(
    printed: anyhow::Result<()>,
    verdict: anyhow::Result<()>,
) -> anyhow::Result<()> {
    if let (Err(error), Err(_)) = (&printed, &verdict) {
        complain(error);
    }
    verdict.and(printed)
}

/// Returns standard input.
///
/// # Errors
/// Fails if it is closed, or not open for reading. Whatever reads it would else find an empty
/// input: when a program begins, its runtime opens `/dev/null` in the place of a standard
/// descriptor that is closed, for reading and writing. Shells open it for reading alone.
pub(crate) fn input() -> anyhow::Result<Stdin> {
    let descriptor = rustix::stdio::stdin();
    let failed = |error| anyhow!("cannot look at standard input: {error}");
    let advice = "connect it to what is to be read, or to nothing with `</dev/null`";
    if !files::is_for_reading(descriptor).map_err(failed)? {
        return Err(anyhow!("standard input is not open for reading: {advice}"));
    }
    if files::is_null_for_both(descriptor).map_err(failed)? {
        return Err(anyhow!(
            "standard input is closed, or is /dev/null opened for writing too: {advice}"
        ));
    }
    Ok(io::stdin())
}

/// Prints text on standard error, if it can be written.
pub(crate) fn put_message(text: &str) {
    // A closed standard error cannot receive it.
    let _ = files::write_to(rustix::stdio::stderr(), text.as_bytes());
}

/// Prints a line on standard error, if it can be written.
pub(crate) fn note(text: impl fmt::Display) {
    put_message(&format!("{text}\n"));
}

/// Prints a sentence of the program on standard error, each line on a line of its own.
pub(crate) fn tell(text: &str) {
    put_message(&text.lines().map(|line| format!("entresol: {line}\n")).collect::<String>());
}

/// Prints an error, each problem on a line of its own. A reader of standard output that is gone is
/// no error.
pub(crate) fn complain(error: &anyhow::Error) {
    if !error.downcast_ref::<OutputError>().is_some_and(OutputError::is_unread) {
        tell(&without_own_name(error));
    }
}

/// Returns the text of an error. One of our own store does not begin with the program's name, which
/// stands before every message.
fn without_own_name(error: &anyhow::Error) -> String {
    match error.downcast_ref() {
        Some(BenchError::Engine { engine, what })
            if *engine == Entresol::NAME && error.chain().len() == 1 =>
        {
            what.clone()
        }
        _ => format!("{error:#}"),
    }
}
