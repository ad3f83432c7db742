//! `plugin new`: creates a project that builds, passes its test and can poll the demo.
//!
//! The project contains the parts of Polliwog that it needs: this program's version of the SDK, or the contract and a
//! file of helpers. So it builds with its language's own tools only.

use crate::cli::{Language, USAGE};
use crate::output::{complain, print};
use anyhow::Context;
use include_dir::{Dir, include_dir};
use model::Kind;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

static TEMPLATES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../sdk/templates");
static SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../sdk/src");
static CONTRACT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../wit");
const GUIDE: &str = include_str!("../../../../../sdk/README.md");

/// Names that cargo or the language reserves.
const RESERVED: [&str; 12] =
    ["test", "core", "std", "alloc", "self", "super", "crate", "polliwog-sdk", "serde", "schemars", "build", "deps"];

/// Creates the project. Returns exit code 64 if the name is not allowed.
pub(crate) fn new(name: &str, (language, is_notifier): (Language, bool)) -> anyhow::Result<u8> {
    let kind = match Kind::new(name) {
        Ok(kind) if !RESERVED.contains(&name) => kind,
        Ok(_) => {
            complain(format_args!("polliwog: the name {name:?} is reserved: choose another one"));
            return Ok(USAGE);
        }
        Err(error) => {
            complain(format_args!("polliwog: the name must be a valid kind: {error}"));
            return Ok(USAGE);
        }
    };
    let folder = PathBuf::from(kind.as_str());
    if let Err(error) = fs::create_dir(&folder) {
        let why = match error.kind() {
            ErrorKind::AlreadyExists => format!("{} exists already", folder.display()),
            _ => format!("cannot create the folder {} ({error})", folder.display()),
        };
        anyhow::bail!("{why}: choose another name or another directory");
    }
    let world = if is_notifier { "notifier-plugin" } else { "poller-plugin" };
    let project = Project { folder: &folder, kind: kind.as_str(), world };
    let written = project.copy(language, is_notifier);
    written.with_context(|| format!("writing the project {}", folder.display()))?;
    let of = if is_notifier { "for channels of kind" } else { "of kind" };
    let build = match language {
        Language::Rust => "cargo test",
        Language::Js => "npm install && npm run build",
        Language::Python => "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt && sh build.sh",
    };
    let has_recordings = language != Language::Rust && !is_notifier;
    let next = if has_recordings { format!("{build} && polliwog plugin test") } else { build.to_owned() };
    print(&format!(
        "{kind}: a project for a plugin {of} {kind}. Next:\n\n  cd {kind}\n  {next}\n\nREADME.md describes the next steps."
    ))?;
    Ok(0)
}

/// Writes the contract into a folder.
pub(crate) fn wit(folder: &Path) -> anyhow::Result<u8> {
    let project = Project { folder, kind: "", world: "" };
    project
        .copy_all(&CONTRACT, Path::new(""), Path::new(""))
        .with_context(|| format!("writing {}", folder.display()))?;
    print(&format!("the contract, polliwog:plugin@{}, is in {}", sandbox::CONTRACT_VERSIONS[0], folder.display()))?;
    Ok(0)
}

/// The folder with the contract in a project whose tools read it.
const DEPENDENCY: &str = "wit/deps/polliwog-plugin";

/// Updates a project's copies of the SDK or helpers and of the contract. Other files stay unchanged.
pub(crate) fn update(folder: &Path) -> anyhow::Result<u8> {
    let helpers = [("polliwog.js", Language::Js), ("polliwog.py", Language::Python), ("polliwog-sdk", Language::Rust)];
    let found = helpers.into_iter().find(|(file, _)| folder.join(file).exists());
    let Some((_, language)) = found else {
        anyhow::bail!(
            "{} contains no polliwog-sdk, polliwog.js or polliwog.py: pass the folder of a project from `polliwog plugin new`",
            folder.display()
        );
    };
    if folder.join("wit/poller.wit").exists() {
        anyhow::bail!(
            "{} is a project for polliwog:poller@0.1, which came before polliwog:plugin@0.1: create a project of another name \
             with `polliwog plugin new`, and move your code there",
            folder.display()
        );
    }
    let project = Project { folder, kind: "", world: "" };
    let written = || format!("writing {}", folder.display());
    let helper = |file: &str| project.write(Path::new(file).file_name().unwrap_or_default(), template(file)?);
    let what = match language {
        Language::Rust => {
            project.copy_sdk().with_context(written)?;
            "polliwog-sdk and wit"
        }
        Language::Js => {
            ["js/polliwog.js", "js/polliwog.d.ts"].into_iter().try_for_each(helper).with_context(written)?;
            "polliwog.js, polliwog.d.ts and wit"
        }
        Language::Python => {
            helper("python/polliwog.py").with_context(written)?;
            "polliwog.py and wit"
        }
    };
    project.copy_contract(language).with_context(written)?;
    print(&format!("{what} are updated to polliwog {}; build and test again", env!("CARGO_PKG_VERSION")))?;
    Ok(0)
}

struct Project<'a> {
    folder: &'a Path,
    kind: &'a str,
    /// The world of the contract that the plugin implements.
    world: &'a str,
}

impl Project<'_> {
    fn copy(&self, language: Language, is_notifier: bool) -> anyhow::Result<()> {
        if !is_notifier {
            let recording = template("recording.json")?;
            self.write("recordings/queues.json", recording)?;
            let golden = template("recording.report.json")?;
            self.write("recordings/queues.report.json", golden)?;
        }
        let (name, ignored) = match language {
            Language::Rust => ("rust", "/target\n"),
            Language::Js => ("js", "/node_modules\n/*.wasm\n"),
            Language::Python => ("python", "/.venv\n/*.wasm\n/types\n__pycache__\n"),
        };
        self.write(".gitignore", ignored)?;
        // A notifier has its own code and README.md, which replace those of a poller.
        let names = [Some(name.to_owned()), is_notifier.then(|| format!("{name}-notifier"))];
        for name in names.into_iter().flatten() {
            let files = TEMPLATES.get_dir(&name).context("the program was built without its templates")?;
            self.copy_all(files, Path::new(&name), Path::new(""))?;
        }
        if language == Language::Rust {
            self.copy_sdk()?;
        }
        self.copy_contract(language)
    }

    /// Writes the contract to where the tools of the language find it. A project in Rust has it for reading only.
    fn copy_contract(&self, language: Language) -> anyhow::Result<()> {
        let place = Path::new(if language == Language::Rust { "wit" } else { DEPENDENCY });
        self.remove(place)?;
        self.copy_all(&CONTRACT, Path::new(""), place)
    }

    /// Removes a folder whose files are all from this program.
    fn remove(&self, place: &Path) -> anyhow::Result<()> {
        match fs::remove_dir_all(self.folder.join(place)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn copy_sdk(&self) -> anyhow::Result<()> {
        self.remove(Path::new("polliwog-sdk/src"))?;
        self.copy_all(&SDK, Path::new(""), Path::new("polliwog-sdk/src"))?;
        self.write("polliwog-sdk/Cargo.toml", template("rust/sdk.Cargo.toml")?)?;
        self.write("polliwog-sdk/README.md", GUIDE)
    }

    /// Copies every file to the folder `to`, with its path relative to `within`.
    fn copy_all(&self, files: &Dir<'_>, within: &Path, to: &Path) -> anyhow::Result<()> {
        for file in files.files() {
            let place = file.path().strip_prefix(within).unwrap_or(file.path());
            let text = file.contents_utf8().context("a template is not UTF-8")?;
            // The templates have other names, so that no tool treats a template as a package.
            let place = match place.to_str() {
                Some("Cargo.toml.template") => PathBuf::from("Cargo.toml"),
                Some("sdk.Cargo.toml") => PathBuf::from("polliwog-sdk/Cargo.toml"),
                _ => place.to_owned(),
            };
            self.write(to.join(place), text)?;
        }
        for folder in files.dirs() {
            self.copy_all(folder, within, to)?;
        }
        Ok(())
    }

    fn write(&self, place: impl AsRef<Path>, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(place);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let text = text
            .replace("{{kind}}", self.kind)
            .replace("{{world}}", self.world)
            .replace("{{crate}}", &self.kind.replace('-', "_"))
            .replace("{{title}}", &title(self.kind));
        fs::write(path, text)?;
        Ok(())
    }
}

fn template(name: &str) -> anyhow::Result<&'static str> {
    let file = TEMPLATES.get_file(name).and_then(|file| file.contents_utf8());
    file.context("the program was built without its templates")
}

/// Returns a kind as a title: `queue-depths` becomes `Queue depths`.
fn title(kind: &str) -> String {
    let words = kind.replace('-', " ");
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
