//! Reads of a file past the page cache (`O_DIRECT`): what the device gives to as many readers with the same size of read.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::content::Content;
use crate::load::Draw;

/// Direct reads must be aligned in memory and in the file to the device's logical block, which is at most this.
const ALIGNMENT: usize = 4096;
/// Bytes written at a time while the file is made.
const PIECE: u64 = 8 * 1024 * 1024;

/// A file of `size_bytes` of incompressible bytes at `path`, written and flushed to the device.
pub fn make_file(path: &Path, size_bytes: u64) -> Result<File> {
    let content = Content::of(&format!("{size_bytes}/direct")).context("a size")?;
    let mut file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    for start in (0..size_bytes).step_by(PIECE as usize) {
        file.write_all(&content.bytes(start..start + PIECE)).context("writing the file to read")?;
    }
    file.sync_all().context("flushing the file to read")?;
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .with_context(|| format!("opening {} for direct reads", path.display()))
}

/// Reads random pieces of `length` bytes of `file` with `readers` threads for `window`; bytes per second.
pub fn read(file: &File, length: usize, readers: usize, window: Duration) -> Result<f64> {
    let pieces = file.metadata()?.len() as usize / length;
    ensure!(pieces > 0 && length.is_multiple_of(ALIGNMENT), "cannot read pieces of {length} bytes");
    let began = Instant::now();
    let read = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..readers)
            .map(|lane| {
                scope
                    .spawn(move || read_lane(file, length, pieces, Draw::new(lane), began + window))
            })
            .collect();
        threads.into_iter().try_fold(0, |total, thread| {
            let read = thread.join().map_err(|_| io::Error::other("a reader panicked"))??;
            io::Result::Ok(total + read)
        })
    });
    Ok(read.context("reading directly")? as f64 / began.elapsed().as_secs_f64())
}

fn read_lane(
    file: &File,
    length: usize,
    pieces: usize,
    mut draw: Draw,
    until: Instant,
) -> io::Result<u64> {
    let mut buffer = vec![0; length + ALIGNMENT];
    let lead = buffer.as_ptr().align_offset(ALIGNMENT);
    let mut total = 0;
    while Instant::now() < until {
        let piece = draw.below(pieces) as u64;
        file.read_exact_at(&mut buffer[lead..lead + length], piece * length as u64)?;
        total += length as u64;
    }
    Ok(total)
}
