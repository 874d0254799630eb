//! Opens trace files. Compression is recognised by the first bytes of a file, not by its name.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use entresol_media::files;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

use crate::error::BenchError;

const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const XZ_MAGIC: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const BUFFER_BYTES: usize = 256 << 10;

/// Opens `path` and decompresses it while it is read.
pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, BenchError> {
    let error = |source| BenchError::File { path: path.to_owned(), source };
    let file = files::open_reader(path).map_err(error)?;
    let mut packed = BufReader::with_capacity(BUFFER_BYTES, file);
    let beginning = packed.fill_buf().map_err(error)?;
    if beginning.starts_with(XZ_MAGIC) {
        let plain = XzReader::new(packed, true);
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, plain)));
    }
    if beginning.starts_with(ZSTD_MAGIC) {
        let plain = ZstdFrames { packed: Some(packed), frame: None };
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, plain)));
    }
    Ok(Box::new(packed))
}

/// Reads a sequence of zstd frames, since the decoder handles single frames only.
struct ZstdFrames<R: BufRead> {
    packed: Option<R>,
    frame: Option<Box<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>>,
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let read = frame.read(out)?;
                if read > 0 || out.is_empty() {
                    return Ok(read);
                }
                self.packed = self.frame.take().map(|frame| frame.into_inner());
            }
            let Some(mut packed) = self.packed.take() else { return Ok(0) };
            if packed.fill_buf()?.is_empty() {
                return Ok(0);
            }
            let frame = StreamingDecoder::new(packed).map_err(io::Error::other)?;
            self.frame = Some(Box::new(frame));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The line `12,alpha,5,10,1,get,0`, compressed by the commands `xz` and `zstd`.
    const XZ: &str = "fd377a585a000004e6d6b4460200210116000000742fe5a301001531322c616c7068612c\
                      352c31302c312c6765742c300a000000f728b1839f79b7cc00012e16560955df1fb6f37d\
                      010000000004595a";
    const ZSTD: &str = "28b52ffd2416b1000031322c616c7068612c352c31302c312c6765742c300a9e29c754";
    const LINE: &[u8] = b"12,alpha,5,10,1,get,0\n";

    fn read_back(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        files::write_atomically(&path, bytes).unwrap();
        let mut plain = Vec::new();
        open(&path).unwrap().read_to_end(&mut plain)?;
        Ok(plain)
    }

    /// Builds a zstd frame with one raw block: the simplest valid file of the format.
    fn zstd_frame(content: &[u8]) -> Vec<u8> {
        let mut frame = ZSTD_MAGIC.to_vec();
        frame.push(0x20); // single segment, content size in one byte
        frame.push(content.len() as u8);
        let header = (content.len() as u32) << 3 | 1;
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.extend_from_slice(content);
        frame
    }

    fn bytes_of(hex: &str) -> Vec<u8> {
        let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(pair).collect()
    }

    #[test]
    fn packed_files_are_known_by_their_beginning() {
        assert_eq!(read_back(&bytes_of(XZ)).unwrap(), LINE);
        assert_eq!(read_back(&bytes_of(ZSTD)).unwrap(), LINE);
    }

    #[test]
    fn plain_files_pass_through() {
        assert_eq!(read_back(LINE).unwrap(), LINE);
        assert_eq!(read_back(b"").unwrap(), b"");
    }

    #[test]
    fn zstd_frames_follow_each_other() {
        let two = [zstd_frame(LINE), zstd_frame(b"more\n")].concat();
        assert_eq!(read_back(&two).unwrap(), [LINE, b"more\n"].concat());
    }

    #[test]
    fn damaged_archives_are_errors_not_silence() {
        let frame = zstd_frame(LINE);
        assert!(read_back(&frame[..frame.len() - 3]).is_err());
        let xz = bytes_of(XZ);
        assert!(read_back(&xz[..xz.len() - 40]).is_err());
    }
}
