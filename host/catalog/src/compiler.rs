//! The compiler of plugins: this program itself, started as a child process.

use sandbox::Compiler;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The maximum number of concurrent compilations, because each one can take 364 MB.
const MOST_CHILDREN: usize = 4;

/// Why plugins cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompilerError {
    /// The path of this program is unknown.
    #[error(
        "the path of this program is unknown, so it cannot compile plugins: mount /proc, or call it by its absolute path"
    )]
    NotFound,
    /// The folder for drafts of compiled code cannot be created.
    #[error("no folder for the compilation of plugins can be created")]
    Folder(#[source] io::Error),
}

/// Creates the compiler of this installation. `arguments` make this program compile one plugin. Compiled code is cached
/// in the data directory; if that is not possible, a warning is logged and the code is not cached. `random` returns
/// unpredictable bytes.
///
/// # Errors
/// If this program cannot start itself, or no temporary folder can be created.
pub fn compiler(
    arguments: &'static [&'static str],
    data_dir: &Path,
    random: fn() -> [u8; 32],
) -> Result<Compiler, CompilerError> {
    let children = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_CHILDREN);
    let program = program()?;
    let kept = installation_key(data_dir, random)
        .and_then(|key| Compiler::new((program.clone(), arguments), &data_dir.join("compiled"), key, children));
    kept.or_else(|error| {
        tracing::warn!(
            "compiled plugins cannot be cached in {} ({error}): they are compiled at every start",
            data_dir.display()
        );
        Compiler::temporary((program, arguments), random(), children).map_err(CompilerError::Folder)
    })
}

/// Returns the path of this program.
fn program() -> Result<PathBuf, CompilerError> {
    // On Linux this path names the running program, even after its file was replaced or removed.
    const OURSELVES: &str = "/proc/self/exe";
    if Path::new(OURSELVES).exists() {
        return Ok(PathBuf::from(OURSELVES));
    }
    if let Ok(program) = std::env::current_exe() {
        return Ok(program);
    }
    // Without /proc, search for the program as the shell does.
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let folders = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let places: Vec<PathBuf> = if called.components().count() > 1 {
        vec![called]
    } else {
        folders.unwrap_or_default().into_iter().map(|folder| folder.join(&called)).collect()
    };
    let found = places.into_iter().find_map(|place| place.canonicalize().ok().filter(|place| place.is_file()));
    found.ok_or(CompilerError::NotFound)
}

/// Returns the key of this installation, from which the keys for compiled code and captured secrets are derived. It is
/// created on first use.
///
/// # Errors
/// If it cannot be created or read.
pub fn installation_key(data_dir: &Path, random: fn() -> [u8; 32]) -> io::Result<[u8; 32]> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let path = data_dir.join("installation.key");
    if !path.exists() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir)?;
        let unique = model::hex(&random()[..8]);
        let draft = data_dir.join(format!("installation.key.{unique}"));
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(&random())?;
        file.sync_all()?;
        // If two processes create a key at the same time, the first one is used; without hard links, the last one.
        let linked = std::fs::hard_link(&draft, &path);
        if linked.is_err() && !path.exists() {
            std::fs::rename(&draft, &path)?;
        } else {
            std::fs::remove_file(&draft)?;
        }
    }
    let key = std::fs::read(&path)?;
    key.try_into().map_err(|_| io::Error::other(format!("{} is not a key of 32 bytes: remove it", path.display())))
}
