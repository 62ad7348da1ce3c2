//! The files of the page, embedded in the program.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use rust_embed::Embed;

use axum::body::Body;

#[derive(Embed)]
#[folder = "assets/"]
struct Assets;

/// The file at this path of the page. `None`: there is none.
pub(crate) fn file(path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let path = if path.is_empty() { "index.html" } else { path };
    let file = Assets::get(path)?;
    let tag: String = file.metadata.sha256_hash()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let tag = HeaderValue::from_str(&format!("\"{tag}\"")).ok()?;
    let mut response = if headers.get(IF_NONE_MATCH) == Some(&tag) {
        let mut unchanged = Response::new(Body::empty());
        *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
        unchanged
    } else {
        Response::new(Body::from(file.data))
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, tag);
    // Asked for again each time, so that a page is never made of files of two versions.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(path)));
    Some(response)
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_a_type_that_browsers_take() {
        for path in Assets::iter() {
            assert_ne!(content_type(&path), "application/octet-stream", "{path}");
            assert!(file(&path, &HeaderMap::new()).is_some());
        }
        assert!(file("", &HeaderMap::new()).is_some());
        assert!(file("../Cargo.toml", &HeaderMap::new()).is_none());
    }
}
