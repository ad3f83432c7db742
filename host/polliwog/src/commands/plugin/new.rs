//! `plugin new`: a project that builds, passes its test and polls the demo.
//!
//! The project holds everything that it needs of Polliwog: the SDK as it was when this program was built, or the contract
//! and a file of helpers. So it builds with nothing but its language's own tools.

use crate::cli::{Language, USAGE};
use crate::output::{complain, print};
use anyhow::Context;
use include_dir::{Dir, include_dir};
use model::Kind;
use std::fs;
use std::path::{Path, PathBuf};

static TEMPLATES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../sdk/templates");
static SDK: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../sdk/src");
static CONTRACT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../wit");
const GUIDE: &str = include_str!("../../../../../sdk/README.md");

/// Words that no crate may be called.
const RESERVED: [&str; 12] =
    ["test", "core", "std", "alloc", "self", "super", "crate", "polliwog-sdk", "serde", "schemars", "build", "deps"];

/// Makes the folder; 64 where that cannot be its name.
pub(crate) fn new(name: &str, language: Language) -> anyhow::Result<u8> {
    let kind = match Kind::new(name) {
        Ok(kind) if !RESERVED.contains(&name) => kind,
        Ok(_) => {
            complain(format_args!("polliwog: {name:?} means something else to the tools: choose another name"));
            return Ok(USAGE);
        }
        Err(error) => {
            complain(format_args!("polliwog: a plugin is named after the kind that it serves: {error}"));
            return Ok(USAGE);
        }
    };
    let folder = PathBuf::from(kind.as_str());
    if let Err(error) = fs::create_dir(&folder) {
        anyhow::bail!(
            "the folder {} cannot be made ({error}): choose another name, or another place",
            folder.display()
        );
    }
    let project = Project { folder: &folder, kind: kind.as_str() };
    project.copy(language).with_context(|| format!("writing the project {}", folder.display()))?;
    let next = match language {
        Language::Rust => "cargo test",
        Language::Js => "npm install && npm run build && polliwog plugin test",
        Language::Python => {
            "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt && sh build.sh && polliwog plugin test"
        }
    };
    print(&format!(
        "{kind}: a project for a plugin of kind {kind}. Next:\n\n  cd {kind}\n  {next}\n\nREADME.md there says the rest."
    ))?;
    Ok(0)
}

/// Writes the contract into a folder.
pub(crate) fn wit(folder: &Path) -> anyhow::Result<u8> {
    let project = Project { folder, kind: "" };
    project
        .copy_all(&CONTRACT, Path::new(""), Path::new(""))
        .with_context(|| format!("writing {}", folder.display()))?;
    print(&format!("the contract, polliwog:poller@{}, is in {}", sandbox::CONTRACT_VERSIONS[0], folder.display()))?;
    Ok(0)
}

/// Writes what a project holds of Polliwog anew, and nothing else of it.
pub(crate) fn update(folder: &Path) -> anyhow::Result<u8> {
    let helpers = [("polliwog.js", Language::Js), ("polliwog.py", Language::Python), ("polliwog-sdk", Language::Rust)];
    let found = helpers.into_iter().find(|(file, _)| folder.join(file).exists());
    let Some((_, language)) = found else {
        anyhow::bail!(
            "{} holds no polliwog-sdk, polliwog.js or polliwog.py: give the folder of a project that `polliwog plugin new` made",
            folder.display()
        );
    };
    let project = Project { folder, kind: "" };
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
    project.copy_all(&CONTRACT, Path::new(""), Path::new("wit")).with_context(written)?;
    print(&format!("{what} are those of polliwog {} now; build and test again", env!("CARGO_PKG_VERSION")))?;
    Ok(0)
}

struct Project<'a> {
    folder: &'a Path,
    kind: &'a str,
}

impl Project<'_> {
    fn copy(&self, language: Language) -> anyhow::Result<()> {
        let recording = template("recording.json")?;
        self.write("recordings/queues.json", recording)?;
        let golden = template("recording.report.json")?;
        self.write("recordings/queues.report.json", golden)?;
        let (name, ignored) = match language {
            Language::Rust => ("rust", "/target\n"),
            Language::Js => ("js", "/node_modules\n/*.wasm\n"),
            Language::Python => ("python", "/.venv\n/*.wasm\n/types\n__pycache__\n"),
        };
        self.write(".gitignore", ignored)?;
        let files = TEMPLATES.get_dir(name).context("the program was built without its templates")?;
        self.copy_all(files, Path::new(name), Path::new(""))?;
        match language {
            Language::Rust => {
                self.copy_sdk()?;
                self.copy_all(&CONTRACT, Path::new(""), Path::new("wit"))
            }
            Language::Js | Language::Python => self.copy_all(&CONTRACT, Path::new(""), Path::new("wit")),
        }
    }

    fn copy_sdk(&self) -> anyhow::Result<()> {
        self.copy_all(&SDK, Path::new(""), Path::new("polliwog-sdk/src"))?;
        self.write("polliwog-sdk/Cargo.toml", template("rust/sdk.Cargo.toml")?)?;
        self.write("polliwog-sdk/README.md", GUIDE)
    }

    /// Copies every file, with its place taken from `within` to `to`.
    fn copy_all(&self, files: &Dir<'_>, within: &Path, to: &Path) -> anyhow::Result<()> {
        for file in files.files() {
            let place = file.path().strip_prefix(within).unwrap_or(file.path());
            let text = file.contents_utf8().context("a template is no text")?;
            // Under other names here, so that no tool takes a template for a package.
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

/// `queue-depths` as people read it.
fn title(kind: &str) -> String {
    let words = kind.replace('-', " ");
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
