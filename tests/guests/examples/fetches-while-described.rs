//! Sends a request in `describe`.

use polliwog_sdk::{Descriptor, http};

guests::raw_guest!(describe);

fn describe() -> Descriptor {
    let answered = http::get("/described").is_ok();
    Descriptor { title: format!("answered: {answered}"), ..guests::descriptor("fetches-while-described") }
}
