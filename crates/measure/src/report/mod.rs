//! Results for readers: tables on a terminal, and one HTML file with drawings.

pub mod curves;
pub mod html;
mod label;
pub mod svg;
pub mod table;

pub use html::Page;
pub use table::Table;
