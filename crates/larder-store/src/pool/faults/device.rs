//! A file system that fails on demand: a flat folder by FUSE, whose files lie in another folder.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is wrong with the device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Fault {
    #[default]
    None,
    ReadErrors,
    WriteErrors,
    Errors,
    NoSpace,
    ReadOnly,
    /// Reads are answered when the fault is over.
    HangingReads,
    /// Writes are made when the fault is over.
    HangingWrites,
    /// One bit in each page that is read of a region.
    FlippedBits,
    /// Regions are read in each other's place.
    Swapped,
    /// Reads of regions find their end after the first page.
    CutReads,
}

/// A mounted device; unmounted when dropped.
pub(super) struct Device {
    mount: tempfile::TempDir,
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
}

struct Shared {
    behind: tempfile::TempDir,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    fault: Fault,
    /// By inode, from 2.
    names: Vec<OsString>,
    open: HashMap<u64, Arc<File>>,
    handles: u64,
    held: Vec<Held>,
}

/// A request that hangs.
enum Held {
    Read(u64, u64, u64, u32, ReplyData),
    Write(Arc<File>, u64, Vec<u8>, ReplyWrite),
}

impl Device {
    /// `None` without the right to mount, or without FUSE.
    pub(super) fn mount() -> Option<Self> {
        let mount = tempfile::tempdir().unwrap();
        let behind = tempfile::tempdir().unwrap();
        let shared = Arc::new(Shared { behind, state: Mutex::default() });
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("failing".to_owned())];
        config.n_threads = Some(4);
        let session = fuser::spawn_mount(Files(shared.clone()), mount.path(), &config);
        let session = session.inspect_err(|error| println!("cannot mount: {error}")).ok()?;
        Some(Self { mount, shared, session: Some(session) })
    }

    pub(super) fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Whether a request waits for the end of the fault.
    pub(super) fn hangs(&self) -> bool {
        !self.shared.lock().held.is_empty()
    }

    /// Makes the fault, or ends it: then what hangs goes on.
    pub(super) fn set(&self, fault: Fault) {
        let held = {
            let mut state = self.shared.lock();
            state.fault = fault;
            std::mem::take(&mut state.held)
        };
        for held in held {
            match held {
                Held::Read(ino, handle, at, len, reply) => {
                    self.shared.read(ino, handle, at, len, reply);
                }
                Held::Write(file, at, bytes, reply) => write(&file, at, &bytes, reply),
            }
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.set(Fault::None);
        // Files may still be open: the mount is to go all the same.
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
        drop(self.session.take());
    }
}

const ALWAYS: Duration = Duration::ZERO;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn file(&self, handle: u64) -> io::Result<Arc<File>> {
        let file = self.lock().open.get(&handle).cloned();
        file.ok_or_else(|| io::Error::from_raw_os_error(9))
    }

    fn name(&self, ino: u64) -> io::Result<OsString> {
        let name = self.lock().names.get((ino as usize).wrapping_sub(2)).cloned();
        name.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn attr(&self, name: &OsStr) -> io::Result<FileAttr> {
        let meta = self.behind.path().join(name).metadata()?;
        let mut state = self.lock();
        let known = state.names.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            state.names.push(name.to_owned());
            state.names.len() - 1
        });
        Ok(attr(index as u64 + 2, FileType::RegularFile, meta.len(), meta.blocks()))
    }

    fn attr_of(&self, ino: u64) -> io::Result<FileAttr> {
        match ino {
            1 => Ok(attr(1, FileType::Directory, 0, 0)),
            _ => self.attr(&self.name(ino)?),
        }
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<u64> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(create).open(path)?;
        let mut state = self.lock();
        state.handles += 1;
        let handle = state.handles;
        state.open.insert(handle, Arc::new(file));
        Ok(handle)
    }

    fn read(&self, ino: u64, handle: u64, at: u64, len: u32, reply: ReplyData) {
        match self.bytes(ino, handle, at, len) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error.into()),
        }
    }

    fn bytes(&self, ino: u64, handle: u64, at: u64, len: u32) -> io::Result<Vec<u8>> {
        let name = self.name(ino)?;
        let name = name.to_string_lossy();
        let fault = if name.starts_with("foyer") { self.lock().fault } else { Fault::None };
        let mut file = self.file(handle)?;
        if fault == Fault::Swapped {
            let (rest, last) = name.split_at(name.len() - 1);
            let other = last.parse::<u32>().unwrap() ^ 1;
            file = Arc::new(File::open(self.behind.path().join(format!("{rest}{other}")))?);
        }
        let mut bytes = vec![0; len as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], at + filled as u64)? {
                0 => break,
                more => filled += more,
            }
        }
        bytes.truncate(filled);
        match fault {
            Fault::FlippedBits => {
                bytes.chunks_mut(4096).for_each(|page| page[100] ^= 4);
            }
            Fault::CutReads if at > 0 => bytes.clear(),
            _ => {}
        }
        Ok(bytes)
    }
}

fn write(file: &File, at: u64, bytes: &[u8], reply: ReplyWrite) {
    match file.write_all_at(bytes, at) {
        Ok(()) => reply.written(bytes.len() as u32),
        Err(error) => reply.error(error.into()),
    }
}

fn attr(ino: u64, kind: FileType, size: u64, blocks: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size,
        blocks,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

struct Files(Arc<Shared>);

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.0.attr(name) {
            Ok(attr) => reply.entry(&ALWAYS, &attr, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.attr_of(ino.0) {
            Ok(attr) => reply.attr(&ALWAYS, &attr),
            Err(error) => reply.error(error.into()),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let cut = || {
            if let Some(size) = size {
                let path = self.0.behind.path().join(self.0.name(ino.0)?);
                OpenOptions::new().write(true).open(path)?.set_len(size)?;
            }
            self.0.attr_of(ino.0)
        };
        match cut() {
            Ok(attr) => reply.attr(&ALWAYS, &attr),
            Err(error) => reply.error(error.into()),
        }
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        if self.0.lock().fault == Fault::ReadOnly {
            return reply.error(Errno::EROFS);
        }
        let made = self.0.open(&self.0.behind.path().join(name), true);
        match made.and_then(|handle| Ok((handle, self.0.attr(name)?))) {
            Ok((handle, attr)) => reply.created(
                &ALWAYS,
                &attr,
                Generation(0),
                FileHandle(handle),
                FopenFlags::empty(),
            ),
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.0.name(ino.0).map(|name| self.0.behind.path().join(name));
        match opened.and_then(|path| self.0.open(&path, false)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        at: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut state = self.0.lock();
        match state.fault {
            Fault::ReadErrors | Fault::Errors => reply.error(Errno::EIO),
            Fault::HangingReads => {
                state.held.push(Held::Read(ino.0, handle.0, at, len, reply));
            }
            _ => {
                drop(state);
                self.0.read(ino.0, handle.0, at, len, reply);
            }
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        at: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Ok(file) = self.0.file(handle.0) else { return reply.error(Errno::EBADF) };
        let mut state = self.0.lock();
        match state.fault {
            Fault::WriteErrors | Fault::Errors => reply.error(Errno::EIO),
            Fault::NoSpace => reply.error(Errno::ENOSPC),
            Fault::ReadOnly => reply.error(Errno::EROFS),
            Fault::HangingWrites => {
                state.held.push(Held::Write(file, at, bytes.to_vec(), reply));
            }
            _ => {
                drop(state);
                write(&file, at, bytes, reply);
            }
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.lock().open.remove(&handle.0);
        reply.ok();
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match std::fs::remove_file(self.0.behind.path().join(name)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        from: u64,
        mut reply: ReplyDirectory,
    ) {
        let Ok(files) = std::fs::read_dir(self.0.behind.path()) else {
            return reply.error(Errno::EIO);
        };
        let mut names: Vec<_> = files.flatten().map(|file| file.file_name()).collect();
        names.sort();
        for (at, name) in names.into_iter().enumerate().skip(from as usize) {
            let Ok(attr) = self.0.attr(&name) else { continue };
            if reply.add(attr.ino, at as u64 + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }
}
