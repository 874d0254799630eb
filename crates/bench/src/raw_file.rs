//! File of this machine under load: a block file that a measurement fills before, and removes in
//! the end if it made it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ByteSize, Stop};
use entresol_measure::BenchError;
use entresol_media::block::BlockFile;
use entresol_media::machine::FileDisk;
use entresol_media::model::ModelName;
use entresol_media::probe::PROFILE_MAGIC;
use entresol_media::{BlockOptions, IoBuffer, IoQueue, IoRequest, files, open_block_file};
use fastrand::Rng;

const SIZE_MIN: ByteSize = ByteSize::mib(64);
/// Size of the header at the beginning of the file, which is not measured.
const HEADER_BYTES: u64 = 1 << 20;
/// Size of the requests that fill the file before the measurement.
const FILL_BYTES: usize = 1 << 20;
/// Least time until the next request for which a thread sleeps in the kernel, whose timers are
/// about 60 us late.
const SLEEP_MIN: Duration = Duration::from_micros(200);
/// Delay from which a generator submitted a request late.
pub(crate) const LATE: Duration = Duration::from_micros(50);

/// File under load.
pub(crate) struct RawFile {
    pub(crate) file: Arc<dyn BlockFile>,
    pub(crate) model: Option<ModelName>,
    made: Option<PathBuf>,
}

/// Returns the error of a file.
pub(crate) fn failed(path: &Path) -> impl Fn(std::io::Error) -> BenchError + use<'_> {
    move |source| BenchError::File { path: path.into(), source }
}

impl RawFile {
    /// Opens or creates the file and writes all of it, since blocks that were never written are not
    /// read from the disk. A file that was created is removed in the end, unless it is to be kept.
    pub(crate) fn open(
        path: &Path,
        model: Option<ModelName>,
        size: ByteSize,
        keep: bool,
        stop: &Stop,
    ) -> Result<RawFile, BenchError> {
        if size < SIZE_MIN {
            return Err(BenchError::Usage(format!("--size {size}: at least {SIZE_MIN}")));
        }
        let made = (!files::exists(path) && !keep).then(|| path.to_path_buf());
        let block = BlockOptions {
            create: Some(size.0),
            grow: true,
            magic: Some(PROFILE_MAGIC),
            model,
            ..BlockOptions::default()
        };
        let file = open_block_file(path, &block).map_err(|e| BenchError::Usage(e.to_string()))?;
        let raw = RawFile { file, model, made };
        raw.fill(stop).map_err(failed(path))?;
        Ok(raw)
    }

    fn fill(&self, stop: &Stop) -> std::io::Result<()> {
        // A slowed file takes the model's time for this. Holes would be read without the disk.
        let mut buffer = IoBuffer::new(FILL_BYTES);
        Rng::with_seed(7).fill(&mut buffer);
        let mut at = HEADER_BYTES;
        while at + FILL_BYTES as u64 <= self.file.len() && !stop.is_due() {
            self.file.write_at(at, &buffer)?;
            at += FILL_BYTES as u64;
        }
        self.file.sync()
    }

    /// Returns the bytes that are measured.
    pub(crate) fn span(&self) -> Range<u64> {
        HEADER_BYTES..self.file.len() / HEADER_BYTES * HEADER_BYTES
    }

    /// Makes a queue for one thread.
    pub(crate) fn queue(&self, depth: usize) -> Result<Box<dyn IoQueue>, BenchError> {
        Arc::clone(&self.file).queue(depth).map_err(failed(self.file.path()))
    }

    /// Describes the file and the way to it.
    pub(crate) fn describe(&self) -> String {
        let disk = FileDisk::of(self.file.path())
            .map_or_else(|| "no disk that the kernel names".to_owned(), |disk| disk.name());
        let way = if self.file.is_direct() { "past the page cache" } else { "the page cache" };
        format!(
            "{} on {disk}, written before; by {}, {way}; sectors of {}",
            ByteSize(self.file.len()),
            self.file.backend(),
            ByteSize(self.file.alignment().offset),
        )
    }

    /// Returns the kind of the medium.
    pub(crate) fn kind(&self) -> String {
        match self.model {
            Some(model) => format!("file slowed to the model of {model} (emulated)"),
            None => "file".to_owned(),
        }
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // If this fails, the file remains; its first bytes show that it may be removed.
            let _ = files::remove(path);
        }
    }
}

/// Submits a request to a queue that has room for it.
pub(crate) fn submit(queue: &mut dyn IoQueue, request: IoRequest) -> std::io::Result<()> {
    let full = |_| std::io::Error::other("the queue takes fewer requests than it was made for");
    queue.submit(request).map_err(full)
}

/// Sleeps until a completion if no request falls due for a while; otherwise returns at once.
pub(crate) fn pause(queue: &mut dyn IoQueue, until_due: Duration) -> std::io::Result<()> {
    if until_due < SLEEP_MIN {
        return Ok(());
    }
    let time = until_due - SLEEP_MIN / 2;
    if queue.in_flight() == 0 {
        std::thread::sleep(time);
        return Ok(());
    }
    queue.wait(Some(time))
}
